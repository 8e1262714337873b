"""Everyday worlds, each with a rule by hand."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


def box(low: Any, high: Any) -> spaces.Box:
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


class Daily(gym.Env[Any, Any]):
    """A world of ``length`` steps: ``begin`` sets it up, and ``shown`` are the attributes observed.

    ``go`` takes a step, and returns the reward, and whether all is over; ``rule`` decides by hand.
    """

    length = 200
    shown: tuple[str, ...] = ()
    begin: Any
    go: Any

    def seen(self) -> Any:
        return np.hstack([getattr(self, name) for name in self.shown])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, over = self.go(int(action))
        self.t += 1
        return self._observed(), float(reward), over, self.t >= self.length, {}

    def _observed(self) -> Any:
        seen = self.seen()
        return seen if isinstance(seen, dict) else np.array(seen, dtype=np.float32)


class Inventory(Daily):
    """Orders in fives that arrive after two days; what is missing is not sold."""

    length = 100
    shown = "stock", "way"
    observation_space = box([0] * 3, [200] * 3)  # stock, what arrives tomorrow, and the day after
    action_space = spaces.Discrete(7)

    def begin(self) -> None:
        self.stock, self.way = 20.0, [0.0, 0.0]

    def go(self, action: int) -> tuple[float, bool]:
        order, demand = 5.0 * action, float(self.np_random.poisson(10))
        sold = min(self.stock, demand)
        left = self.stock - sold
        self.stock, self.way = min(left + self.way[0], 200.0), [self.way[1], order]
        fixed = 3.0 if action else 0.0
        return 4 * sold - 2 * order - fixed - 0.5 * left - 3 * (demand - sold), False

    @staticmethod
    def rule(o: Any) -> int:
        return int(np.clip(np.ceil((44 - sum(o)) / 5), 0, 6)) if sum(o) <= 41 else 0


class Admission(Daily):
    """Poor and rich customers ask for one of ten places before a server."""

    observation_space = spaces.Dict(waiting=spaces.Discrete(11), rich=spaces.Discrete(2))
    action_space = spaces.Discrete(2)

    def begin(self) -> None:
        self.waiting, self.rich = 0, int(self.np_random.random() < 0.3)

    def seen(self) -> Any:
        return {"waiting": self.waiting, "rich": self.rich}

    def go(self, action: int) -> tuple[float, bool]:
        reward = -0.15 * self.waiting
        if action:
            reward += (5.0 if self.rich else 1.0) if self.waiting < 10 else -2.0
            self.waiting = min(self.waiting + 1, 10)
        self.waiting = max(0, self.waiting - int(self.np_random.poisson(0.5)))
        self.rich = int(self.np_random.random() < 0.3)
        return reward, False

    rule = staticmethod(lambda o: int(o["waiting"] < (8 if o["rich"] else 1)))


class DelayedCart(Daily):
    """A cart to be held at 0, whose motor answers after three steps that are not seen."""

    length = 300
    shown = "x", "v"
    observation_space = box([-np.inf] * 2, [np.inf] * 2)  # position, velocity
    action_space = spaces.Discrete(3)

    def begin(self) -> None:
        self.x, self.v, self.way = self.np_random.uniform(-1, 1), 0.0, [1, 1, 1]

    def go(self, action: int) -> tuple[float, bool]:
        self.way.append(action)
        self.v += 0.05 * (self.way.pop(0) - 1) + 0.003 * self.np_random.normal()
        self.x += 0.1 * self.v
        lost = abs(self.x) > 2.0
        return -10.0 if lost else 1.0 - min(1.0, abs(self.x)), lost

    @staticmethod
    def rule(o: Any) -> int:
        push = -0.5 * o[0] - 1.6 * o[1]
        return 1 + int(np.sign(push)) if abs(push) > 0.03 else 1


class Bakery(Daily):
    """Loaves of today and of yesterday, of which the old ones sell at half the price."""

    observation_space = box([0, 0, 0], [40, 40, 6])  # fresh, old, weekday
    action_space = spaces.Discrete(6)  # times 6 loaves to bake

    def begin(self) -> None:
        self.fresh, self.old = 0, 0

    def seen(self) -> Any:
        return self.fresh, self.old, self.t % 7

    def go(self, action: int) -> tuple[float, bool]:
        baked = 6 * action
        demand = int(self.np_random.poisson(20 if self.t % 7 >= 5 else 11))
        new = min(baked, demand)
        second = min(self.fresh, demand - new)
        self.old, self.fresh = self.fresh - second, baked - new
        return 3.0 * new + 1.5 * second - 1.0 * baked - 0.3 * self.old, False

    @staticmethod
    def rule(o: Any) -> int:
        wanted = 22 if o[2] >= 5 else 12
        return int(np.clip(np.ceil((wanted - 0.5 * o[0]) / 6), 0, 5))


class Heating(Daily):
    """A room in kelvin that lags behind its radiator, and a night that is cold."""

    observation_space = box([250, 250, 250, 0], [320, 360, 320, 23])  # room, radiator, outside, h
    action_space = spaces.Discrete(3)  # off, half, full

    def begin(self) -> None:
        self.room, self.radiator = 288.0 + self.np_random.normal(), 290.0

    @property
    def outside(self) -> float:
        return 275.0 - 8.0 * float(np.cos(2 * np.pi * self.t / 48))

    def seen(self) -> Any:
        return self.room, self.radiator, self.outside, self.t // 2 % 24

    def go(self, action: int) -> tuple[float, bool]:
        self.radiator += 0.3 * (290.0 + 25.0 * action - self.radiator)
        change = 0.1 * (self.radiator - self.room) + 0.06 * (self.outside - self.room)
        self.room += change + 0.1 * self.np_random.normal()
        return -abs(self.room - 294.0) - 0.2 * action, False

    @staticmethod
    def rule(o: Any) -> int:
        wanted = o[0] + 4.0 * (294.0 - o[0]) + 0.6 * (294.0 - o[2])
        return int(np.clip(np.round((wanted - 290.0) / 25.0), 0, 2))


class Junction(Daily):
    """Two roads at a light, which takes two steps to change."""

    shown = "queues", "green", "yellow"
    observation_space = box([0, 0, 0, 0], [60, 60, 1, 2])  # queues, who has green, steps of yellow
    action_space = spaces.Discrete(2)  # stay, change

    def begin(self) -> None:
        self.queues, self.green, self.yellow = np.zeros(2), 0, 0

    def go(self, action: int) -> tuple[float, bool]:
        if self.yellow:
            self.yellow -= 1
        elif action:
            self.green, self.yellow = 1 - self.green, 2
        else:
            self.queues[self.green] = max(self.queues[self.green] - 3.0, 0.0)
        self.queues = np.minimum(self.queues + self.np_random.poisson([0.7, 1.1]), 60.0)
        return -0.1 * float(self.queues.sum()), False

    @staticmethod
    def rule(o: Any) -> int:
        own, other = (o[0], o[1]) if o[2] == 0 else (o[1], o[0])
        return int(o[3] == 0 and own < 1 and other > 3)


class Dosing(Daily):
    """A level in the blood that meals raise, and doses lower with a lag; too low is the end."""

    observation_space = box([0, 0, 0], [400, 20, 7])  # level, dose at work, steps since a meal
    action_space = spaces.Discrete(4)

    def begin(self) -> None:
        self.level, self.dose, self.meal = 140.0 + 10 * self.np_random.normal(), 0.0, 0

    def seen(self) -> Any:
        return self.level, self.dose, self.t % 8

    def go(self, action: int) -> tuple[float, bool]:
        meal = 45.0 if self.t % 8 == 0 else 0.0
        self.dose = 0.7 * self.dose + action
        drift = 4.0 + meal + 3.0 * self.np_random.normal()
        self.level = float(np.clip(self.level + drift - 6.0 * self.dose, 0.0, 400.0))
        low = self.level < 50.0
        return -50.0 if low else 1.0 - min(abs(self.level - 110.0) / 60.0, 2.0), low

    @staticmethod
    def rule(o: Any) -> int:
        wanted = (o[0] - 115.0 + 10.0 * (o[2] == 0)) / 20.0 - 0.7 * o[1]
        return int(np.clip(np.round(wanted), 0, 3))


class Maintenance(Daily):
    """A machine that wears; a broken one costs ten times a service."""

    observation_space = box([0, 0], [1, 50])  # vibration, steps since the last service
    action_space = spaces.Discrete(2)  # run, service

    def begin(self) -> None:
        self.wear, self.since = 0.0, 0

    def seen(self) -> Any:
        noise = 0.03 * self.np_random.normal()
        return float(np.clip(self.wear + noise, 0.0, 1.0)), min(self.since, 50)

    def go(self, action: int) -> tuple[float, bool]:
        if action:
            self.wear, self.since = 0.0, 0
            return -2.0, False
        self.since += 1
        self.wear += float(self.np_random.gamma(1.0, 0.05))
        if self.wear >= 1.0:
            self.wear, self.since = 0.0, 0
            return -20.0, False
        return 1.0 - 0.5 * self.wear, False

    rule = staticmethod(lambda o: int(o[0] > 0.75))


class Pricing(Daily):
    """Fifty seats in fifty days, and an interest in them that shows in what is sold."""

    length = 50
    observation_space = box([0, 0], [50, 50])  # seats and days left
    action_space = spaces.Discrete(5)  # 40, 60, ..., 120

    def begin(self) -> None:
        self.seats, self.interest = 50, self.np_random.uniform(0.4, 1.6)

    def seen(self) -> Any:
        return self.seats, 50 - self.t

    def go(self, action: int) -> tuple[float, bool]:
        price = 40.0 + 20.0 * action
        wanted = self.np_random.poisson(5.0 * self.interest * np.exp(-price / 50.0))
        sold = min(int(wanted), self.seats)
        self.seats -= sold
        return 0.01 * price * sold, self.seats == 0 or self.t + 1 == self.length  # seats perish

    @staticmethod
    def rule(o: Any) -> int:
        ahead = (50 - o[0]) - (50 - o[1])  # of one seat a day
        return int(np.clip(3 + np.round(ahead / 3.0), 0, 4))


class Scheduling(Daily):
    """One machine for two kinds of jobs: those of the second are dear, and to change takes time."""

    shown = "jobs", "kind"
    observation_space = box([0, 0, 0], [30, 30, 1])  # jobs that wait, and what it is set up for
    action_space = spaces.Discrete(2)

    def begin(self) -> None:
        self.jobs, self.kind = np.zeros(2), 0

    def go(self, action: int) -> tuple[float, bool]:
        if action == self.kind:
            self.jobs[action] = max(self.jobs[action] - 1.5, 0.0)
        self.kind = action
        self.jobs = np.minimum(self.jobs + self.np_random.poisson([0.6, 0.3]), 30.0)
        return -0.1 * float(self.jobs @ [1.0, 3.0]), False

    @staticmethod
    def rule(o: Any) -> int:
        if o[2] == 1:
            return int(o[1] > 0 or o[0] == 0)
        return int(o[1] >= 2 or (o[0] == 0 and o[1] > 0))


class Tank(Daily):
    """A tank to be held at 20 metres by a valve, against an inflow that drifts."""

    shown = "level", "change", "inflow"
    observation_space = box([0, -10, 0], [40, 10, 10])  # level, its change, inflow
    action_space = spaces.Discrete(5)

    def begin(self) -> None:
        self.level, self.change, self.inflow = self.np_random.uniform(10, 30), 0.0, 2.0

    def go(self, action: int) -> tuple[float, bool]:
        self.inflow += 0.1 * (2.0 - self.inflow) + 0.3 * self.np_random.normal()
        self.inflow = float(np.clip(self.inflow, 0.0, 6.0))
        outflow = 0.25 * action * float(np.sqrt(self.level))
        before, self.level = self.level, float(np.clip(self.level + self.inflow - outflow, 0, 40))
        self.change = self.level - before
        wrong = self.level <= 0.0 or self.level >= 40.0
        return -20.0 if wrong else -0.1 * abs(self.level - 20.0), wrong

    @staticmethod
    def rule(o: Any) -> int:
        wanted = (o[2] + 0.5 * (o[0] - 20.0)) / (0.25 * np.sqrt(max(o[0], 1.0)))
        return int(np.clip(np.round(wanted), 0, 4))


class Elevator(Daily):
    """A lift between five floors; most people wait on the ground, and all go out where it stops."""

    shown = "floor", "waiting"
    observation_space = box([0] * 6, [4, *[9] * 5])  # the lift's floor, and who waits on each
    action_space = spaces.Discrete(3)  # down, stay, up

    def begin(self) -> None:
        self.floor, self.waiting = 0, np.zeros(5)

    def go(self, action: int) -> tuple[float, bool]:
        self.floor = int(np.clip(self.floor + action - 1, 0, 4))
        if action == 1:
            self.waiting[self.floor] = 0.0
        rates = [0.15, 0.03, 0.03, 0.03, 0.06]
        self.waiting = np.minimum(self.waiting + self.np_random.poisson(rates), 9.0)
        return -0.2 * float(self.waiting.sum()), False

    @staticmethod
    def rule(o: Any) -> int:
        floor, waiting = int(o[0]), o[1:]
        if waiting[floor] > 0:
            return 1
        worth = [waiting[i] / (1 + abs(i - floor)) for i in range(5)]
        goal = int(np.argmax(worth)) if max(worth) > 0 else 0
        return 1 + int(np.sign(goal - floor))


class Battery(Daily):
    """A battery that buys in the night and sells in the evening, at prices that vary."""

    length = 192
    observation_space = box([0, 0, 0], [8, 23, 200])  # charge, hour, price
    action_space = spaces.Discrete(3)  # sell, wait, buy

    def begin(self) -> None:
        self.charge, self.price = 4.0, self._price()

    def _price(self) -> float:
        usual = 60.0 + 35.0 * np.sin(2 * np.pi * (self.t % 24 - 13) / 24)
        return float(max(usual + 12.0 * self.np_random.normal(), 0.0))

    def seen(self) -> Any:
        return self.charge, self.t % 24, self.price

    def go(self, action: int) -> tuple[float, bool]:
        amount = float(np.clip(action - 1.0, -self.charge, 8.0 - self.charge))
        paid = amount * self.price if amount > 0 else 0.85 * amount * self.price
        self.charge += amount
        self.price = self._price()
        return -0.01 * (paid + 0.5 * self.charge), False

    rule = staticmethod(lambda o: 2 if o[2] < 42.0 else (0 if o[2] > 78.0 else 1))


WORLDS: dict[str, Any] = {kind.__name__: kind for kind in Daily.__subclasses__()}
