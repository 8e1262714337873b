"""Affine advantages in modes: against known ones, dynamic programming, and in an agent."""

import gymnasium as gym
import numpy as np
import pytest

from oda_rl.agents import ModelAgent
from oda_rl.agents.base.memory import ACTION, CUT, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.fitting.affine import affine_rule
from oda_rl.agents.fitting.cells import Experience
from oda_rl.agents.policies.rules import RulePolicy


def experience(before, actions, rewards, after, end, n_actions):
    """Separate steps, each of which ends as ``end`` says, as rows of a memory."""
    steps = np.zeros((2 * len(before), 3))
    steps[::2, ACTION], steps[::2, REWARD], steps[::2, MARK] = actions, rewards, GOES_ON
    steps[1::2, MARK] = end
    points = np.stack([before, after], axis=1).reshape(len(steps), -1)
    return Experience(points, steps, n_actions)


@pytest.mark.parametrize(("shift", "unit"), [(0.0, 1.0), (3e6, 1e3), (-2e-6, 1e-7)])
def test_it_tells_what_actions_bring_in_each_mode(shift, unit):
    rng = np.random.default_rng(0)
    gains, n = rng.normal(size=(3, 3, 3)), 6000  # of modes and actions, in a one and two components

    def advantages(points):
        return np.einsum("nac,nc->na", gains[points[:, 1].astype(int)], np.insert(
            points[:, [0, 2]], 0, 1.0, axis=1))  # fmt: skip

    def drawn(n):
        x, mode, constant = rng.normal(size=(2, n)), rng.integers(3, size=n), np.ones(n)
        return np.column_stack([x[0], mode, x[1], constant])

    points, actions = drawn(n), rng.integers(3, size=n)
    rewards = advantages(points)[np.arange(n), actions] + 3.0 * np.sin(points[:, 0])
    rewards += 0.3 * rng.normal(size=n)
    scaled = points * unit + shift
    rule = affine_rule(experience(scaled, actions, rewards, scaled, TERMINAL, 3), 0.9)
    fresh = drawn(2000)
    best = advantages(fresh).argmax(axis=1)
    assert (rule.act(fresh * unit + shift) == best).mean() > 0.97
    between = fresh + np.array([0.0, 0.3, 0.0, 0.0])  # the nearest mode decides
    assert (rule.act(between * unit + shift) == best).mean() > 0.97


def queues():
    """Two queues and a server: transitions (A, S, S), costs (S,), states (S, 3)."""
    states = np.array([(m, i, j) for m in range(2) for i in range(7) for j in range(7)])
    number = {tuple(state): k for k, state in enumerate(states.tolist())}
    moves = np.zeros((2, len(states), len(states)))
    for k, (m, i, j) in enumerate(states.tolist()):
        for a in range(2):
            left = [max(i - 2 * (a == m == 0), 0), max(j - 2 * (a == m == 1), 0)]
            for first, second in np.ndindex(2, 2):
                share = (0.4 if first else 0.6) * (0.25 if second else 0.75)
                after = a, min(left[0] + first, 6), min(left[1] + second, 6)
                moves[a, k, number[after]] += share
    return moves, states @ [0.0, 1.0, 3.0], states.astype(float)


def test_its_rule_is_not_far_from_the_best_by_dynamic_programming():
    moves, costs, states = queues()
    gamma, n, rng = 0.95, 8000, np.random.default_rng(1)
    values = np.zeros(len(states))
    for _ in range(500):
        values = -costs + gamma * (moves @ values).max(axis=0)

    def worth(actions):
        own = moves[actions, np.arange(len(states))]
        return np.linalg.solve(np.eye(len(states)) - gamma * own, -costs).mean()

    at, actions = rng.integers(len(states), size=n), rng.integers(2, size=n)
    ahead = (moves[actions, at].cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    seen = experience(states[at], actions, -costs[at], states[ahead], CUT, 2)
    rule = affine_rule(seen, gamma)
    constant = max(worth(np.full(len(states), a)) for a in range(2))
    gain = (worth(rule.act(states)) - constant) / (values.mean() - constant)
    assert gain > 0.7  # to leave an empty queue at once is not affine in its length


def test_words_say_what_decides_in_each_mode():
    scores = np.array([[0, 0, 0.0], [-2, 0, 1], [-1e3, 2e3, 0], [-1e3, 2e3, 1], [-998, 2e3, -1]])
    outputs = np.eye(2)[[0, 1, 0, 1, 1]][:, :, None]
    codevectors = np.array([[0.0, 0.0], [0.0, 5.0], [1.0, -1.0], [1.0, 3.0], [1.0, -9.0]])
    rule = RulePolicy(scores, outputs, codevectors).named(["mode", "load"], ["off", "on"])
    said = rule.rules().splitlines()
    assert said[0] == "where mode is 0, or nearest to it: on if load > 2, else off"
    assert said[1].startswith("where mode is 1, or nearest to it: the highest score decides")
    assert [line.rsplit(": ", 1)[1] for line in said[2:]] == ["off", "on", "on"]


class Lift(gym.Env):
    """Between four floors people wait, who go out where it stops."""

    observation_space = gym.spaces.Box(0.0, np.array([3, 9, 9, 9, 9], dtype=np.float32))
    action_space = gym.spaces.Discrete(3)  # down, stay, up

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.floor, self.waiting, self.left = 0, np.zeros(4), 100
        return self.seen(), {}

    def seen(self):
        return np.array([self.floor, *self.waiting], dtype=np.float32)

    def step(self, action):
        self.floor = int(np.clip(self.floor + action - 1, 0, 3))
        if action == 1:
            self.waiting[self.floor] = 0.0
        self.waiting = np.minimum(self.waiting + self.np_random.poisson([0.15, 0.1, 0.05, 0.1]), 9)
        self.left -= 1
        return self.seen(), -float(self.waiting.sum()), False, self.left == 0, {}


@pytest.fixture(scope="module")
def operator():
    with pytest.warns(UserWarning, match="not trusted"):
        return ModelAgent(Lift(), seed=1).learn(4000)


def test_a_lift_is_run_by_a_rule_for_each_floor(operator, tmp_path):
    returns = operator.evaluate(20, seed=5)
    assert returns.mean() > -227  # 0.9 of the way from staying, -1183, to a rule by hand, -121
    said = operator.rules()
    assert said.count("\nwhere observation[0] is") == 3
    operator.save(tmp_path / "lift")
    assert ModelAgent.load(tmp_path / "lift").rules() == said
    assert operator.delivered_return == pytest.approx(returns.mean(), abs=40)
    operator.learn(30)  # less than an episode
    assert operator.rules() == said
