"""Continuous actions by codevectors of states and actions."""

import numpy as np
import oracles
import pytest
from environments import ODD, Counted, Toy
from gymnasium import spaces
from test_adaptation import NEAR_SIGHTED

from oda_rl.agents import CodevectorAgent
from oda_rl.agents.base.memory import COMPONENTS, GOES_ON, MARK
from oda_rl.agents.environments.spaces import ActionBox
from oda_rl.agents.fitting.cells import TakenActions, place
from oda_rl.agents.policies.cells import CodevectorPolicy
from oda_rl.agents.policies.explaining import overview
from oda_rl.command.reporting import policy_table


class Aim(Counted):
    """Pays the less, the farther the action is from a linear function of a random state."""

    def __init__(self, slope, low=-1.0, high=1.0, dtype=np.float32, length=10):
        self.slope = np.asarray(slope, dtype=float)
        self.observation_space = spaces.Box(-1.0, 1.0, (self.slope.shape[1],))
        self.action_space = spaces.Box(low, high, (len(self.slope),), dtype)
        self.length, self.taken = length, []

    def _observe(self):
        self.state = self.np_random.uniform(-1.0, 1.0, self.slope.shape[1]).astype(np.float32)
        return self.state

    def step(self, action):
        assert self.action_space.contains(action)
        self.taken.append(action)
        self.t += 1
        reward = -float(((action - self.slope @ self.state) ** 2).sum())
        return self._observe(), reward, self.t == self.length, False, {}


def problem(seed=0, n=400, p=2, n_cells=6, n_parts=4):
    rng = np.random.default_rng(seed)
    actions, common = rng.normal(size=(n, p)), rng.normal(size=(n_parts, p))
    cells = np.array([rng.permutation(n_cells)[:3] for _ in range(n)]).astype(np.uint16)
    weights = rng.random((n, 3)).astype(np.float32)
    steps = np.ones((n, COMPONENTS + p))
    steps[rng.random(n) < 0.2, MARK] = 3.0
    return actions, common, cells, weights, steps


@pytest.mark.parametrize("p", [1, 2, 5])
def test_action_codevectors_are_means_of_the_actions_taken_in_their_cell(p):
    actions, common, cells, weights, steps = problem(p=p)
    parts, labels = place(TakenActions(actions, common), cells, weights, steps, 6)
    goes_on = steps[:, MARK] == GOES_ON
    expected = oracles.action_codevectors(actions, common, cells, weights, goes_on, 6, prior=10.0)
    np.testing.assert_allclose(parts, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(labels, oracles.nearest_parts(actions, cells, parts))
    assert np.ptp(parts, axis=0).min() > 0.0  # they differ from cell to cell


@pytest.mark.parametrize("n_cells", [1, 2, 30])
@pytest.mark.parametrize("n_nearest", [3, 6])
def test_an_action_is_blended_as_values_are(n_nearest, n_cells):
    rng = np.random.default_rng(1)
    d, n_parts, p = 3, 4, 2
    codevectors, origin = rng.normal(size=(n_cells, d)), rng.normal(size=d)
    diagram = np.column_stack([(codevectors**2).sum(axis=1), -2.0 * codevectors])
    models, parts = rng.normal(size=(n_cells, 1 + d + n_parts)), rng.normal(size=(n_cells, 4, p))
    policy = CodevectorPolicy(origin, diagram, models, 0.7, n_nearest, codevectors + origin, parts)
    states, numbers = rng.normal(size=(50, d)) + origin, rng.integers(n_parts, size=50)
    played = policy.play(states - origin, numbers)
    for state, number, action in zip(states, numbers, played, strict=True):
        expected = oracles.blended_action(
            diagram, parts, 0.7, state - origin, number, n_nearest
        )  # fmt: skip
        np.testing.assert_allclose(action, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (-0.1, 0.7), (1e6, 1e6 + 3.0), (-1e-9, 2e-9)]
)
def test_actions_are_within_the_box_in_its_own_precision(low, high):
    space = spaces.Box(low, high, (3,), np.float32)
    rng = np.random.default_rng(0)
    units = np.concatenate([rng.uniform(-1.5, 1.5, (200, 3)), [[-1.0] * 3, [1.0] * 3]])
    box = ActionBox.of(space)
    for action in box.actions(units):
        assert space.contains(action)
        assert (np.abs(box.units(action)) <= 1.0).all()


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.MultiBinary(2), spaces.Box(-np.inf, np.inf, (1,)),
     spaces.Box(0.0, np.inf, (1,)), spaces.Box(0, 9, (2,), np.int64), spaces.Box(0.0, 1.0, (0,)),
     spaces.Box(0.0, 1.0, (1,), np.float16)],
    ids=str,
)  # fmt: skip
def test_other_actions_are_refused(space):
    env = Aim([[0.5]])
    env.action_space = space
    instead = "(?!.*FittedQAgent)" if "inf" in str(space) else ".*FittedQAgent"
    with pytest.raises(ValueError, match=f"must be a bounded Box of float32 or float64{instead}"):
        CodevectorAgent(env)


def test_it_learns_actions_between_the_codevectors_of_a_grid():
    # A constant action loses .36 / 3 = .12 a step. Five codevectors .5 apart, in cells in which the
    # best action is constant, lose .5² / 12 = .02; the cells' width adds to that.
    agent = CodevectorAgent(Aim([[0.6]]), seed=0, **NEAR_SIGHTED).learn(4000)
    returns = agent.evaluate(200, env=Aim([[0.6]]), seed=1)
    assert returns.mean() / 10 > -0.05
    states = np.linspace(-0.9, 0.9, 7)[:, None]
    actions = agent.predict(states)[0]
    assert np.corrcoef(states[:, 0], actions[:, 0])[0, 1] > 0.9


def test_it_learns_two_components_at_once():
    slope = [[1.0, 0.0], [0.0, -1.0]]  # the best actions fill the box; zero would lose .67 a step
    agent = CodevectorAgent(Aim(slope, -1.0, 1.0), seed=0, **NEAR_SIGHTED).learn(4000)
    assert agent.action_codevectors.shape == (agent.n_cells, 10, 2)
    assert agent.evaluate(200, env=Aim(slope), seed=1).mean() / 10 > -0.35


def test_it_reaches_the_bounds_of_the_box():
    class Most(Aim):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(action[0]), *rest

    agent = CodevectorAgent(Most([[0.0]], -2.0, 3.0), seed=0, **NEAR_SIGHTED).learn(3000)
    # Greatest codevectors begin at the bound, and some cells' are drawn up to a tenth inwards.
    assert agent.evaluate(50, env=Most([[0.0]], -2.0, 3.0), seed=1).mean() / 10 > 2.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_have_the_spaces_shape_and_dtype(dtype):
    env = Aim([[0.5, 0.2], [0.1, 0.3]], dtype=dtype)
    agent = CodevectorAgent(env, seed=0)
    batch = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32)
    for trained in (False, True):
        if trained:
            agent.learn(500)
        single = [agent.predict(observation)[0] for observation in batch]
        together, state = agent.predict(batch, state="kept")
        np.testing.assert_array_equal(single, together)
        assert state == "kept"
        assert together.dtype == dtype
        assert together.shape == (40, 2)
        for deterministic in (False, True):
            for action in agent.predict(batch, deterministic=deterministic)[0]:
                assert env.action_space.contains(action)
    with pytest.raises(ValueError, match="observation has shape"):
        agent.predict(np.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        agent.predict(np.array([np.nan, 0.0]))


def test_an_action_of_ones_own_is_remembered():
    agent = CodevectorAgent(Aim([[0.5]], -2.0, 2.0), seed=0)
    observation, after = np.zeros(1, np.float32), np.ones(1, np.float32)
    agent.act(observation)
    agent.update(observation, np.array([1.5]), 0.0, after, False, False)
    agent.act(after)
    with pytest.raises(ValueError, match=r"action is .* it must have shape \(1,\)"):
        agent.update(after, 2, 0.0, observation, False, False)
    with pytest.raises(ValueError, match="not finite"):
        agent.update(after, np.array([0.5]), np.nan, observation, False, False)
    agent.update(after, np.array([-2.0]), 0.0, observation, True, False)
    with pytest.raises(RuntimeError, match="update was called before act"):
        agent.update(after, np.array([-2.0]), 0.0, observation, True, False)
    assert agent.num_timesteps == 2
    np.testing.assert_allclose(agent._engine.memory.steps[:2, COMPONENTS], [0.75, -1.0])


def test_exploration_is_uniform_in_the_box_and_held():
    env = Aim([[0.5]], -2.0, 2.0, length=1000)
    CodevectorAgent(env, seed=0, exploration=1e9, min_refit=10_000).learn(3000)
    taken = np.array(env.taken)[:, 0]
    changes = np.flatnonzero(np.diff(taken)) + 1
    # An action is held for 1/U steps on average, at most 100: 1 + ln 100, about 5.6.
    assert 300 < len(changes) < 1100
    drawn = taken[np.concatenate([[0], changes])]
    at_bounds = np.abs(drawn) == 2.0
    assert 0.1 < at_bounds.mean() < 0.3  # a fifth of the widened box is beyond the bounds
    counts = np.histogram(drawn[~at_bounds], bins=4, range=(-2.0, 2.0))[0]
    assert counts.min() > 0.7 * counts.mean()


def test_an_explanation_is_what_it_does():
    agent = CodevectorAgent(Aim([[0.9]], -2.0, 2.0), seed=0, **NEAR_SIGHTED).learn(2000)
    changed = 0
    for observation in np.linspace(-1.0, 1.0, 9, dtype=np.float32)[:, None]:
        told = agent.explain(observation)
        np.testing.assert_array_equal(told.action, agent.predict(observation)[0])
        assert (told.cell, told.n_cells) == (agent.cell(observation), agent.n_cells)
        assert told.choice == told.q_values.argmax()
        assert told.q_values.shape == told.visits.shape == (5,)
        assert told.margin == told.q_values[told.choice] - told.q_values[told.runner_up]
        assert not told.exact
        parts = (f"action[{c}] {part:.4g}" for c, part in enumerate(told.action))
        assert str(told).startswith(f"codevector {told.choice} ({', '.join(parts)}), worth")
        if told.nearest_other is None:
            continue
        changed += 1
        assert told.at_least <= told.distance
        assert told.other_choice != told.choice
        np.testing.assert_array_equal(told.other_action, agent.predict(told.nearest_other)[0])
        assert agent.explain(told.nearest_other).choice == told.other_choice
        step = 0.99 * (told.nearest_other - observation)
        assert agent.explain(observation + step).choice == told.choice
        assert f"another codevector (codevector {told.other_choice} (" in str(told)
    assert changed > 3


def test_the_overview_says_what_is_done_at_every_codevector():
    agent = CodevectorAgent("Pendulum-v1", seed=0).learn(1000)
    table = overview(agent, agent.visited_states(200, seed=1))
    assert table.shares.sum() == pytest.approx(1.0)
    actions = agent.predict(agent.codevectors[table.cells])[0]
    for best, label_, action in zip(table.actions, table.labels, actions, strict=True):
        assert label_ == f"codevector {best} (torque {action[0]:.4g})"
    assert policy_table(table).row_count == min(agent.n_cells, 40)


@pytest.mark.parametrize(
    ("name", "length"),
    [("constant", 10), ("duplicate", None), ("scales", 10), ("one-hot", 1), ("equal rewards", 10)],
)
def test_it_trains_on_odd_environments(name, length):
    env = ODD[name](Toy)
    env.length, env.action_space = length, spaces.Box(-1.0, 1.0, (2,))
    agent = CodevectorAgent(env, seed=0).learn(400)
    observation, _ = env.reset(seed=1)
    assert env.action_space.contains(agent.predict(observation)[0])
    assert np.isfinite(agent.q_values).all()
    assert np.isfinite(agent.action_codevectors).all()


def test_every_value_of_a_discrete_observation_is_a_cell():
    class Numbers(Aim):
        def _observe(self):
            super()._observe()
            self.number = int(self.np_random.integers(4))
            self.state = np.array([self.number / 3.0])
            return self.number

    env = Numbers([[0.9]])
    env.observation_space = spaces.Discrete(4)
    agent = CodevectorAgent(env, seed=0, **NEAR_SIGHTED).learn(3000)
    assert agent.n_cells == 4
    actions = agent.predict(np.arange(4.0)[:, None])[0][:, 0]
    # Codevectors are half a unit apart, and those next to the best (0, .3, .6, .9) are as good.
    np.testing.assert_allclose(actions, [0.0, 0.3, 0.6, 0.9], atol=0.3)
