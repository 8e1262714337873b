"""The fast timescale against dictionaries."""

import numpy as np
import oracles
import pytest

from oda_rl.agents import ODAPartition, Scaling
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.contract import SETTLED_AFTER
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.engine import OnlineEngine
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig


def make_core(n_actions=3, n_cells=5, **settings):
    """Cells at 0, 1, 2, ... on a line, which do not move."""
    config = TwoTimescaleConfig(metric="std", **settings)
    partition = ODAPartition(max_cells=n_cells).prepare(1, np.random.default_rng(0))
    core = OnlineEngine(Interface((1,), n_actions, 0), config, partition, np.random.default_rng(1))
    core.observations[0, :2, 0] = -1.0, 1.0  # as if random play had seen them
    core.env_states[0].last_row = 1
    core.start()
    partition.learner.cells[:n_cells, 1] = np.arange(n_cells)
    partition.n_cells = n_cells
    partition.rescale(Scaling(np.eye(1), np.zeros(1), np.ones(1)))
    core.state.n_cells = n_cells
    core.state.learner_active = False
    return core


def transition(core, cell, action, reward, next_cell, terminated=False, truncated=False):
    return ql.update(
        np.array([float(cell)]),
        action,
        reward,
        np.array([float(next_cell)]),
        terminated,
        truncated,
        *core.arrays,
    )


@pytest.mark.parametrize("trace_decay", [0.0, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("step_exponent", [0.0, 0.2, 1.0])
def test_q_lambda_is_watkins(trace_decay, step_exponent):
    core = make_core(gamma=0.9, trace_decay=trace_decay, step_exponent=step_exponent)
    oracle = oracles.WatkinsQ(3, 0.9, trace_decay, step_exponent, 0.01)
    rng = np.random.default_rng(0)
    cell = 0
    for _ in range(3000):
        action = oracle.greedy(cell) if rng.random() < 0.7 else int(rng.integers(3))
        next_cell, reward = int(rng.integers(5)), float(rng.normal())
        terminated, truncated = bool(rng.random() < 0.05), bool(rng.random() < 0.05)
        done = terminated or truncated
        events = transition(core, cell, action, reward, next_cell, terminated, truncated)
        oracle.update(cell, action, reward, next_cell, terminated, done)
        assert bool(events & EPISODE_END) == done
        cell = int(rng.integers(5)) if done else next_cell
    expected = [[oracle.values[k, a] for a in range(3)] for k in range(5)]
    np.testing.assert_allclose(core.table[ql.VALUES, :5], expected, rtol=1e-9, atol=1e-12)
    visits = [[oracle.visits[k, a] for a in range(3)] for k in range(5)]
    np.testing.assert_array_equal(core.table[ql.VISITS, :5], visits)


def test_terminated_and_truncated_are_worth_different_things():
    values = {}
    for kind in ("terminated", "truncated"):
        core = make_core(gamma=0.5, step_exponent=0.0)
        core.table[ql.VALUES, 1, 0] = 8.0
        transition(core, 0, 2, 1.0, 1, **{kind: True})
        values[kind] = core.table[ql.VALUES, 0, 2]
    assert values == {"terminated": 1.0, "truncated": 5.0}


def test_exploration_halves_after_its_decay():
    core = make_core(n_actions=4, exploration=0.4, exploration_decay=100.0)
    core.table[ql.VALUES, 0, 2] = 1.0
    for elapsed, epsilon in ((0, 0.4), (100, 0.2), (300, 0.1)):
        core.state.steps_since_start = elapsed
        assert core.epsilon == pytest.approx(epsilon)
        actions = np.array([core.act(np.array([0.0])) for _ in range(20_000)])
        shares = np.bincount(actions, minlength=4) / len(actions)
        # Standard errors of these shares are below 0.0035.
        np.testing.assert_allclose(shares[[0, 1, 3]], epsilon / 4, atol=0.015)
    core.state.phase = ql.FROZEN
    assert {core.act(np.array([0.0])) for _ in range(200)} == {2}


def episode(core, reward):
    return transition(core, 0, 0, reward, 1, terminated=True)


def judging(best=2.0, settled=True, **settings):
    """Cells whose agent has seen random play return 0, and once as much as that."""
    core = make_core(**settings)
    core.state.assign({"random_episodes": 1, "best_return": best})
    core.state.steps = SETTLED_AFTER if settled else 0
    return core


def test_good_episodes_freeze_and_a_short_one_sets_learning_again():
    core, phases = judging(), []
    for reward in (2.0, 1.9, 2.0, 1.89):  # 5 % may be lacking
        episode(core, reward)
        phases.append(core.state.phase)
    assert phases == [ql.LEARNING, ql.FROZEN, ql.FROZEN, ql.LEARNING]


def test_a_best_return_that_is_new_is_not_rested_on():
    core = judging(settled=False)
    for _ in range(SETTLED_AFTER - 1):
        episode(core, 2.0)
        assert core.state.phase == ql.LEARNING
    episode(core, 2.0)
    assert core.state.phase == ql.FROZEN


def test_what_is_no_better_than_random_play_is_not_good():
    core = make_core(solved_episodes=1)
    for _ in range(SETTLED_AFTER + 5):  # the first of these is taken for random play
        episode(core, 3.0)
    assert core.state.phase == ql.LEARNING
    assert core.state.streak < 0


def test_returns_are_compared_with_the_mean_of_random_play():
    core = make_core()
    core.state.phase = ql.WARMUP
    for reward in (1.0, -4.0, 0.0):
        episode(core, reward)
    assert core.state.random_return == -1.0
    core.state.phase = ql.LEARNING
    episode(core, 9.0)
    assert (core.state.random_return, core.state.best_return) == (-1.0, 9.0)
    for returned, good in ((8.5, True), (8.49, False), (9.0, True)):
        assert ql.succeeds.py_func(core.state, returned) == good


@pytest.mark.parametrize("scale", [2.0**-20, 1e-6, 1.0, 1e6, 2.0**20])
@pytest.mark.parametrize("shift", [0.0, -3.0, 5.0])
def test_what_is_good_does_not_depend_on_units(scale, shift):
    core, plain = make_core(), make_core()
    for reward in np.random.default_rng(0).normal(size=200):
        episode(plain, reward)
        episode(core, scale * (reward + shift))
        assert core.state.streak == plain.state.streak


def test_nothing_is_learned_while_frozen():
    core = make_core()
    core.state.phase = ql.FROZEN
    before = core.table.copy()
    transition(core, 0, 0, 5.0, 1)
    np.testing.assert_array_equal(core.table, before)


def test_restart_after_as_many_bad_episodes_in_a_row_as_good_ones_are_asked_for():
    core = judging(restart_after=4, solved_episodes=2)
    restarts = [bool(episode(core, reward) & ql.RESTART) for reward in (0, 0, 0, 0, 2, 0, 2, 0, 0)]
    # The first four are too early; then one bad episode after a good one is not enough.
    assert restarts == [False] * 8 + [True]


def test_after_a_restart_as_many_steps_are_free_again():
    core = judging(restart_after=4, solved_episodes=1)
    restarts = []
    for _ in range(10):
        events = episode(core, 0.0)
        restarts.append(bool(events & ql.RESTART))
        if restarts[-1]:
            core.start()
            core.state.learner_active = False
    assert restarts == [False, False, False, False, True] * 2


def test_table_is_carried_along_a_lineage():
    rng = np.random.default_rng(0)
    core = make_core(n_actions=2, n_cells=6)
    lineage = np.zeros((5, 4))  # 0 split in two, 1 and 2 merged, 3 split and one half merged with 0
    lineage[0, 0] = lineage[1, 0] = lineage[4, 3] = 1.0
    lineage[2, 1], lineage[2, 2] = 0.3, 0.7
    lineage[3, 3], lineage[3, 0] = 0.5, 0.5
    values, visits = rng.normal(size=(4, 2)), rng.integers(0, 9, size=(4, 2)).astype(float)
    visits[1, 0] = visits[2, 0] = 0
    core.table[ql.VALUES, :4], core.table[ql.VISITS, :4] = values, visits
    core.table[ql.TRACES] = 1.0
    ql.carry_table(core.table, lineage)
    new_values, new_visits = oracles.carry_table(values, visits, lineage)
    np.testing.assert_allclose(core.table[ql.VALUES, :5], new_values)
    np.testing.assert_array_equal(core.table[ql.VISITS, :5], new_visits)
    assert not core.table[ql.TRACES].any()
