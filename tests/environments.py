"""Environments and wrappers that tests of all agents play in."""

import itertools
import os
import signal
import time
from contextlib import contextmanager
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from oda_rl.agents import FittedQAgent, ModelAgent
from oda_rl.agents.base.files import Checkpoints
from oda_rl.runs.parallel import attempt

BARTO = "oda_rl/BartoCartPole-v0"

QUICK = {"generations": 2, "population": 8, "starts": 4, "plan_every": 0.5}
OFTEN = {**QUICK, "plan_every": 0.15}  # as by default


def quick(kind):
    """A class with quick searches; a subclass could not be saved and loaded as the class."""
    searching = partial(kind, **QUICK)
    searching.load, searching.__name__ = kind.load, kind.__name__
    return searching


quick_rule = quick(ModelAgent)


def steps_for(kind, steps, most=500):
    """As many steps, or if it is a model agent, ``most``: it needs fewer, but takes its time."""
    return min(steps, most) if isinstance(kind, partial) else steps


def one_by_one(function, settings, execution):
    """Make runs in this process, in place of ``oda_rl.runs.parallel._execute``."""
    return (attempt(function, setting) for setting in settings)


class Plain(gym.Wrapper):
    """A wrapper that does nothing, so that the environment takes the Python loop."""


class Reused(gym.Wrapper):
    """Writes each observation over the last one."""

    def __init__(self, env):
        super().__init__(env)
        self.place = np.zeros(env.observation_space.shape, env.observation_space.dtype)

    def reset(self, **options):
        self.place[:], info = self.env.reset(**options)
        return self.place, info

    def step(self, action):
        self.place[:], *outcome = self.env.step(action)
        return self.place, *outcome


def short():
    return Plain(gym.make("CartPole-v1", max_episode_steps=30))  # so that episodes end in both ways


class Exploring(gym.Wrapper):
    """Replaces a share of the actions by random ones."""

    def __init__(self, env, share, seed=5):
        super().__init__(env)
        self.share, self.rng = share, np.random.default_rng(seed)

    def step(self, action):
        if self.rng.random() < self.share:
            space = self.action_space
            action = space.start + self.rng.integers(space.n)
        return self.env.step(action)


class Counted(gym.Env):
    """Counts the steps of an episode in ``t``; observations are samples of their space."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:  # else it would be seeded with anything
            self.observation_space.seed(seed)
        self.t = 0
        return self._observe(), {}

    def _observe(self):
        return self.observation_space.sample()


class Line(gym.Env):
    """A point, pushed along a line or in a plane, that should be at ``wanted``.

    No reward is positive. Episodes are truncated after a number of steps between the two
    ``lengths``, if there are any.
    """

    def __init__(self, power=2, n=1, lengths=None, wanted=0.0):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (n,), np.float64)
        plane = gym.spaces.Box(-1.0, 1.0, (n,), np.float64)
        self.action_space = gym.spaces.Discrete(3) if n == 1 else plane
        self.power, self.n, self.lengths, self.wanted = power, n, lengths, wanted

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = self.wanted + self.np_random.uniform(-1.0, 1.0, self.n), 0
        self.length = None
        if self.lengths is not None:
            self.length = int(self.np_random.integers(*self.lengths, endpoint=True))
        return self.x.copy(), {}

    def step(self, action):
        push = np.array([action - 1.0]) if self.n == 1 else np.asarray(action)
        self.x = self.x + 0.1 * push
        self.t += 1
        reward = -float((np.abs(self.x - self.wanted) ** self.power).sum())
        return self.x.copy(), reward, False, self.t == self.length, {}


class Toy(gym.Env):
    """Episodes of random observations, made by a function of the environment."""

    def __init__(self, observe=None, n_features=2, n_actions=2, length=10, reward=1.0):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (n_features,), np.float64)
        self.action_space = gym.spaces.Discrete(n_actions)
        self.observe = observe or (lambda rng: rng.normal(size=n_features))
        self.length, self.reward = length, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(self.np_random), {}

    def step(self, action):
        self.t += 1
        done = self.length is not None and self.t >= self.length
        return self.observe(self.np_random), self.reward, done, False, {}


class Judged(Toy):
    """A toy that pays for the action by the side of its first feature that the last one was on."""

    def __init__(self, middle=0.0):
        super().__init__(lambda rng: middle + rng.normal(size=2))
        self.middle = middle

    def reset(self, *, seed=None, options=None):
        self.last, info = super().reset(seed=seed)
        return self.last, info

    def step(self, action):
        paid = float(action == (self.last[0] > self.middle))
        self.last, _, done, truncated, info = super().step(action)
        return self.last, paid, done, truncated, info


class Varied(Toy):
    """A toy whose returns differ, because episodes end by chance, later after action 1."""

    def step(self, action):
        observation, reward, *_ = super().step(action)
        done = self.np_random.random() < (0.2, 0.05)[min(action, 1)]
        return observation, reward, bool(done), False, {}


ODD = {
    "one action": lambda kind: kind(n_actions=1),
    "many actions": lambda kind: kind(n_actions=40),
    "large rewards": lambda kind: kind(reward=1e9),
    "small rewards": lambda kind: kind(reward=1e-9),
    "equal rewards": lambda kind: kind(reward=0),
    "constant": lambda kind: kind(lambda rng: np.ones(2)),
    "constant component": lambda kind: kind(lambda rng: np.array([1.0, rng.normal()])),
    "scales": lambda kind: kind(lambda rng: rng.normal(size=2) * (1e-9, 1e9)),
    "offset": lambda kind: kind(lambda rng: rng.normal(size=2) + 1e9),
    "duplicate": lambda kind: kind(lambda rng: np.repeat(rng.normal(), 2)),
    "one-hot": lambda kind: kind(lambda rng: np.eye(5)[rng.integers(5)], n_features=5),
}
ODD_ENVS = [
    *(pytest.param(make(Toy), id=name) for name, make in ODD.items()),
    *(pytest.param(make(Varied), id=f"{name}, varied returns") for name, make in ODD.items()),
    pytest.param(Toy(length=None), id="no end"),
    pytest.param(Toy(length=1), id="one step"),
]


class Slow(CartPoleEnv):
    """A cart-pole that takes its time, and ends its process if it is told to."""

    def __init__(self, pause=0.0, deadly=False):
        super().__init__()
        self.pause, self.deadly = pause, deadly

    def step(self, action):
        time.sleep(self.pause)
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gym.register("Slow-v0", Slow, max_episode_steps=500)


class Grid(Counted):
    """Observations of two dimensions and whole numbers; actions begin at -1."""

    observation_space = gym.spaces.Box(0, 255, (2, 3), dtype=np.uint8)
    action_space = gym.spaces.Discrete(3, start=-1)

    def __init__(self):
        self.seen = set()

    def _observe(self):
        return self.np_random.integers(256, size=(2, 3), dtype=np.uint8)

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        self.seen.add(int(action))
        return self._observe(), 1, self.t >= 10, False, {}


class Broken(gym.Wrapper):
    """Returns what it is told to from the 50th step on."""

    def __init__(self, env, change):
        super().__init__(env)
        self.change, self.t = change, 0

    def step(self, action):
        self.t += 1
        result = self.env.step(action)
        return self.change(*result) if self.t >= 50 else result


NONSENSE = [
    pytest.param(lambda o, r, *rest: (o * np.nan, r, *rest), "not finite", id="NaN"),
    pytest.param(lambda o, r, *rest: (o, np.inf, *rest), "not finite", id="infinite reward"),
    pytest.param(lambda o, r, *rest: (o[:3], r, *rest), "shape", id="short"),
    pytest.param(lambda o, r, *rest: (o[None], r, *rest), "shape", id="nested"),
]


def play(agent, env, n_steps, seed=77):
    """Let an agent learn in a loop of one's own."""
    observation, _ = env.reset(seed=seed)
    for _ in range(n_steps):
        action = agent.act(observation)
        after, reward, terminated, truncated, _ = env.step(action)
        agent.update(observation, action, reward, after, terminated, truncated)
        observation = env.reset()[0] if terminated or truncated else after
    return agent


def same(first, second):
    """Everything learned is equal, bit by bit; times are not compared."""
    np.testing.assert_array_equal(first.episodes.rows[:, :2], second.episodes.rows[:, :2])
    arrays, others = (agent._engine.state_arrays() for agent in (first, second))
    assert (first.num_timesteps, arrays.keys()) == (second.num_timesteps, others.keys())
    # Which action a fitted agent has drawn last is in some of them, and scratch.
    passing = {"room", "state", "env_state"} if isinstance(first, FittedQAgent) else set()
    for one in (arrays, others):
        if first.interface.box is not None and "memory_steps" in one:
            one["memory_steps"] = one["memory_steps"][:, 1:]  # without numbers of actions
    for name in arrays.keys() - passing:
        np.testing.assert_array_equal(arrays[name], others[name], err_msg=name)
    assert len(first.history) == len(second.history)
    for one, other in zip(first.history, second.history, strict=True):
        np.testing.assert_equal(vars(one), vars(other))


def all_but_one(succeeds, seeds):
    """Whether it succeeds with all seeds but one; the last is tried if another has failed."""
    enough = len(seeds) - 1
    return sum(itertools.islice(filter(None, map(succeeds, seeds)), enough)) == enough


def live(agent, env, steps):
    """As :func:`play`, from a new episode on."""
    agent._engine.begin_episode()
    play(agent, env, steps)


class Stopped(BaseException):
    """A training has been stopped."""


@contextmanager
def stopped_after(checkpoints, seen=None):
    """Stop a training when it has written so many checkpoints; ``seen`` gets their steps."""
    usual, written = Checkpoints.write, itertools.count(1)

    def write(self, agent, run, seed):
        usual(self, agent, run, seed)
        if seen is not None:
            seen.append(run.steps)
        if next(written) == checkpoints:
            raise Stopped

    Checkpoints.write = write
    try:
        yield
    finally:
        Checkpoints.write = usual
