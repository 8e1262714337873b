"""Trainings that are killed resume to the same bits where the environment's state can be saved."""

from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from common.trainings import content
from environments import Stopped, quick_rule, stopped_after

from oda_rl import InvalidFileError
from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.agents.environments.state import read_state, write_state


@dataclass(frozen=True)
class Goal:
    """A part of an environment that is replaced, not changed."""

    at: float = 0.0


class Walker:
    """A part of an environment."""

    def __init__(self):
        self.at, self.speed, self.goal = np.zeros(2), 1, Goal()


class Slotted:
    """Keeps its state where nobody looks."""

    __slots__ = ("at",)


class PartlySlotted(Slotted):
    """Has other attributes, too."""


class Simple(gym.Env):
    """Has its state in numbers, an array, a queue, a generator of its own and another object."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self):
        self.walker, self.seen = Walker(), deque(maxlen=3)
        self.noise = np.random.default_rng(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.phase = 0, None
        self.walker.at = self.np_random.normal(size=2)
        return self.walker.at.copy(), {}

    def step(self, action):
        self.t, self.phase = self.t + 1, (self.t % 3, float(action))
        self.walker.at += 0.1 * self.noise.normal(size=2) * self.walker.speed
        self.seen.append(float(self.walker.at[0]))
        reward = sum(self.seen) + (self.action_space.sample() if self.t % 5 == 0 else 0.0)
        return self.walker.at.copy(), reward, self.t == 7, False, {}


class Own(Simple):
    """Has also tables and sets; two attributes are one array after a reset, two always one list."""

    def __init__(self):
        super().__init__()
        self.start, self.visits, self.actions = np.zeros((40, 40)), {}, set()
        self.total = self.sum = [0.0]

    def reset(self, *, seed=None, options=None):
        self.grid = self.start
        return super().reset(seed=seed)

    def step(self, action):
        observation, reward, *ends = super().step(action)
        self.grid = self.grid + observation[0]
        self.walker.goal = Goal(0.5 * self.walker.goal.at + observation[1])
        self.visits[self.t, 0] = self.visits.get((self.t, 0), 0) + 1
        self.actions.add((self.t, int(action)))
        self.sum[0] = 0.5 * self.total[0] + 1.0
        more = self.grid[0, 0], self.walker.goal.at, self.visits[self.t, 0], self.total[0]
        return observation, reward + sum(more) + len(self.actions), *ends


class Offering(Simple):
    """Says itself what its state is, since a function is among its attributes."""

    def __init__(self):
        super().__init__()
        self.hidden = lambda: 0

    def get_state(self):
        rng = {**self.noise.bit_generator.state}
        sampled = self.action_space.np_random.bit_generator.state
        return {"at": self.walker.at, "t": self.t, "seen": list(self.seen), "rngs": [rng, sampled]}

    def set_state(self, state):
        self.walker.at, self.t = np.array(state["at"]), state["t"]
        self.seen = deque(state["seen"], maxlen=3)
        self.noise.bit_generator.state, sampled = state["rngs"]
        self.action_space.np_random.bit_generator.state = sampled


MAKE = {
    "FrozenLake": lambda: gym.make("FrozenLake-v1"),
    "Taxi": lambda: gym.make("Taxi-v4"),
    "MountainCarContinuous": lambda: gym.make("MountainCarContinuous-v0"),
    "own": Own,
    "with a time limit": lambda: gym.wrappers.TimeLimit(Own(), 5),
    "offering": Offering,
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, TwoTimescaleAgent) for name in MAKE), ("own", FittedQAgent), ("own", quick_rule)],
)
def test_a_resumed_training_ends_with_the_same_bits(name, kind, tmp_path):
    def new():
        env = MAKE[name]()
        env.action_space.seed(5)  # which a class may have, for all of its instances
        return env

    file, out, steps = tmp_path / "checkpoint.zip", tmp_path / "agent.zip", 300
    whole = content(kind(new(), seed=0).learn(steps), out)
    with stopped_after(4), pytest.raises(Stopped):
        kind(new(), seed=0).learn(steps, checkpoint=file, checkpoint_every=37)
    agent = kind.load(file, env=new())
    assert 0 < agent.num_timesteps < steps
    assert content(agent.resume(), out) == whole


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward),
        lambda env: setattr(env, "file", open(__file__)) or env,  # noqa: SIM115
        lambda env: setattr(env, "hidden", [object()]) or env,
        lambda env: setattr(env, "part", PartlySlotted()) or env,
        lambda env: setattr(env, "view", env.start[0]) or env,
        lambda env: setattr(env, "rng", np.random.RandomState(0)) or env,
        lambda env: setattr(env, "rng", np.random.Generator(np.random.MT19937(0))) or env,
    ],
)
def test_what_cannot_be_saved_is_known(wrap):
    env = wrap(Own())
    assert read_state(env) is None
    if hasattr(env, "file"):
        env.file.close()


def test_a_state_of_another_environment_is_not_restored():
    env, small, large = Own(), *(gym.make("FrozenLake-v1", map_name=n) for n in ("4x4", "8x8"))
    for one in (env, small, large):
        one.reset(seed=0)
    assert not write_state(large, read_state(small))
    assert not write_state(small, read_state(env))
    state = read_state(env)
    assert write_state(env, state)
    state["0"]["object"]["step"] = {"value": 3}  # no attribute of another kind is replaced
    for bad in (state, 3, {}, {"0": 1}, {"0": {"object": {}}}):
        assert not write_state(env, bad)
    state = read_state(env)
    for value in ("text", {"array": [1], "shape": [], "dtype": "O"}):
        state["0"]["object"]["t"] = {"value": value}
        with pytest.raises(InvalidFileError):
            write_state(env, state)
