"""Ends of episodes: truncated ones go on, as without a time limit; bandits' have one step."""

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.base.memory import CUT, GOES_ON, TERMINAL
from oda_rl.agents.fitting import advantages, regression
from oda_rl.agents.fitting.advantages import Placed
from oda_rl.agents.fitting.cells import Experience
from oda_rl.agents.fitting.settings import FittedQConfig

GAMMA, N_STATES = 0.99, 5
# Reward of an action (0: left, 1: right) in a state, and whether it ends the episode.
CHAINS = {
    "1 for ever": lambda s, a: (1.0, False),
    "-1 for ever": lambda s, a: (-1.0, False),
    "a good end": lambda s, a: (float(s == 4), False),
    "two ends": lambda s, a: (0.3 * (s == 0) + (s == 4) - 0.1, False),
    "a way out": lambda s, a: (5.0, True) if s + a == 5 else (-0.1, False),
}


def step_in(name, s, a):
    """Reward, next state and whether the episode ends."""
    reward, over = CHAINS[name](s, a)
    return reward, min(max(s + 2 * a - 1, 0), N_STATES - 1), over


class Chain(gym.Env):
    """A chain that is cut every so many steps."""

    def __init__(self, name="1 for ever", limit=10):
        self.observation_space = gym.spaces.Box(0.0, 4.0, (1,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.name, self.limit = name, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.at = 0, int(self.np_random.integers(N_STATES))
        return np.array([float(self.at)]), {}

    def step(self, action):
        self.t += 1
        reward, self.at, over = step_in(self.name, self.at, action)
        return np.array([float(self.at)]), reward, over, self.t >= self.limit, {}


def solved(name):
    """Values of the actions without the limit, by value iteration, shape (5, 2)."""
    q = np.zeros((N_STATES, 2))
    for _ in range(3000):
        for s in range(N_STATES):
            for a in range(2):
                reward, after, over = step_in(name, s, a)
                q[s, a] = reward + GAMMA * (0.0 if over else q[after].max())
    return q


def log_of(name, limit, n=4000):
    """Random play, as rows of a memory."""
    env, rng = Chain(name, limit), np.random.default_rng(0)
    observations, steps = [], []
    at, _ = env.reset(seed=0)
    for _ in range(n):
        action = int(rng.integers(2))
        observations.append(at)
        at, reward, over, cut, _ = env.step(action)
        steps.append((action, reward, GOES_ON))
        if over or cut:
            observations.append(at)
            steps.append((-1, 0.0, TERMINAL if over else CUT))
            at, _ = env.reset()
    observations.append(at)
    steps.append((-1, 0.0, CUT))
    return np.array(observations), np.array(steps)


@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize("name", CHAINS)
def test_values_are_those_without_the_limit(name, limit, monkeypatch):
    monkeypatch.setattr(regression, "FIRST_SWEEPS", 3000)
    for module in (regression, advantages):
        monkeypatch.setattr(module, "_TOLERANCE", 1e-6)
    config, rng = FittedQConfig(gamma=GAMMA), np.random.default_rng(0)
    observations, steps = log_of(name, limit)
    seen, truth = Experience(observations, steps, 2), solved(name)
    numbered = regression.fit(seen._replace(numbered=True), None, None, config, rng)
    placed = Placed.among(seen, None, config, rng)
    parts = advantages.fit_advantages(seen, placed, len(steps) - 1, None, None, config, rng)
    scale, places = np.abs(truth).max(), np.arange(5.0)[:, None]
    for found in (numbered, parts):
        np.testing.assert_allclose(
            found.policy.evaluate(places)[2], truth.max(axis=1), atol=0.02 * scale
        )
        if name == "a good end":  # a myopic policy stays
            assert found.policy.choices(places).tolist() == [1] * 5


@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize("way", ["one", "several", "log"])
def test_reward_1_for_ever_is_worth_100(limit, way):
    places = np.arange(5.0)[:, None]
    if way == "log":
        at, steps = log_of("1 for ever", limit, 1000)
        taken = np.flatnonzero(steps[:, 2] == GOES_ON)
        cut = steps[taken + 1, 2] == CUT
        log = at[taken], steps[taken, 0].astype(int), steps[taken, 1], at[taken + 1], 0 * cut, cut
        agent = FittedQAgent((Chain().observation_space, Chain().action_space), seed=0).fit(log)
        found = agent.estimate_return()
        assert found.low <= 100
        assert found.high == pytest.approx(100, rel=0.02)
        return
    env = Chain(limit=limit)
    if way == "several":
        env = gym.vector.SyncVectorEnv([lambda: Chain(limit=limit)] * 4)
    agent = FittedQAgent(env, seed=0).learn(1000)
    np.testing.assert_allclose(agent.newest.evaluate(places)[2], 100, rtol=0.02)


class Bandit(gym.Env):
    """One of n contexts, of which the larger half ask for another action; numbered if not boxed."""

    def __init__(self, n, boxed=False):
        self.n, self.numbered = n, boxed is None
        self.observation_space = gym.spaces.Box(0.0, float(n), (1,), np.float64)
        if self.numbered:
            self.observation_space = gym.spaces.Discrete(n)
        self.action_space = gym.spaces.Discrete(3)
        if boxed:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(self.n))
        return self.seen(), {}

    def seen(self):
        return self.context if self.numbered else np.array([float(self.context)])

    def step(self, action):
        large = self.context >= self.n / 2
        if isinstance(self.action_space, gym.spaces.Box):
            reward = 1.0 - abs(float(action[0]) - (0.5 if large else -0.5))
        else:
            reward = float(action == (2 if large else 1))
        return self.seen(), reward, True, False, {}


@pytest.mark.parametrize(
    ("kind", "boxed", "steps", "least", "settings", "n"),
    [
        (ModelAgent, False, 600, 0.8, QUICK, 1000),
        (FittedQAgent, False, 2000, 0.8, {}, 1),
        (FittedQAgent, False, 2000, 0.8, {}, 1000),
        (TwoTimescaleAgent, False, 3000, 0.6, {}, 1),
        (TwoTimescaleAgent, False, 3000, 0.6, {"gamma": 1.0}, 1000),
        (TwoTimescaleAgent, None, 4_000, 0.9, {}, 200),
        (CodevectorAgent, True, 2000, 0.8, {}, 1000),
        (ModelAgent, True, 600, 0.7, QUICK, 1),  # its rewards are bilinear in context and action
    ],
)
def test_agents_learn_what_a_context_asks_for(kind, boxed, steps, least, settings, n):
    agent = kind(Bandit(n, boxed), seed=0, **settings).learn(steps)
    mean = agent.evaluate(200, env=Bandit(n, boxed), seed=1).mean()
    assert mean >= least
    if kind in (FittedQAgent, CodevectorAgent):  # exploration is not in its return
        assert agent.delivered_return == pytest.approx(mean, abs=0.05)


class Offers(gym.Env):
    """Accept an offer, which ends the episode, or wait for the next; cut after five steps."""

    observation_space = gym.spaces.Box(0.0, 5.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def seen(self):
        self.offer = self.np_random.uniform(0.0, 4.0)
        return np.array([self.offer, self.time])

    def step(self, action):
        reward = self.offer if action else -0.3
        self.time += 1
        return self.seen(), reward, bool(action), self.time == 5, {}


def test_waiting_for_the_limit_of_short_episodes_does_not_look_best():
    # The first offer is worth 2; accepting none below 2.4 or so 2.7.
    agent = TwoTimescaleAgent(Offers(), seed=0).learn(6_000)
    assert agent.evaluate(400, env=Offers(), seed=1).mean() > 2.4


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_a_log_of_one_step_episodes_is_fitted(n):
    rng = np.random.default_rng(0)
    contexts, actions = rng.integers(n, size=600), rng.integers(3, size=600)
    rewards = (actions == np.where(contexts >= n / 2, 2, 1)).astype(float)
    before = contexts[:, None].astype(float)
    spaces = Bandit(n).observation_space, Bandit(n).action_space
    agent = FittedQAgent(spaces, seed=0).fit((before, actions, rewards, before, np.ones(600, bool)))
    chosen = agent.predict(before)[0]
    assert (chosen == np.where(contexts >= n / 2, 2, 1)).mean() > 0.8
