"""A policy's compiled values against the nearest cells in plain NumPy."""

import numpy as np
import oracles
import pytest

from oda_rl.agents.policies.cells import CellPolicy, action_values, best_action


def random_policy(n_cells, n_features, n_actions, seed=0, n_nearest=3):
    rng = np.random.default_rng(seed)
    codevectors = rng.normal(size=(n_cells, n_features))
    diagram = np.column_stack([(codevectors**2).sum(axis=1), -2 * codevectors])
    models = rng.normal(size=(n_cells, 1 + n_features + n_actions))
    origin = rng.normal(size=n_features)
    return CellPolicy(origin, diagram, models, 0.7, n_nearest, codevectors + origin), rng


def write_values(policy, x, values):
    arrays = policy.diagram, policy.models, policy.width
    return action_values(*arrays, x, *policy._scratch(), values)


@pytest.mark.parametrize(("d", "n_actions"), [(1, 1), (2, 3), (5, 2)])
@pytest.mark.parametrize(
    ("n_nearest", "n_cells"), [(1, 1), (1, 40), (3, 2), (3, 3), (3, 4), (6, 40)]
)
def test_values_are_those_of_the_nearest_cells(n_nearest, n_cells, d, n_actions):
    policy, rng = random_policy(n_cells, d, n_actions, n_nearest=n_nearest)
    arrays = policy.diagram, policy.models, policy.width
    room = np.full(n_actions + 3, np.nan)  # longer than needed, as an agent's scratch is
    for x in rng.normal(size=(200, d)):
        cell = write_values(policy, np.append(x, [np.nan, np.nan]), room)
        nearest, values = oracles.cell_values(*arrays, x, n_nearest)
        assert cell == nearest == oracles.nearest(policy.codevectors - policy.origin, np.eye(d), x)
        np.testing.assert_allclose(room[:n_actions], values, rtol=1e-9, atol=1e-12)
        assert np.isnan(room[n_actions:]).all()


@pytest.mark.parametrize(("d", "n_actions"), [(1, 1), (2, 3), (9, 2)])
@pytest.mark.parametrize(
    ("n_nearest", "n_cells"), [(3, 1), (3, 2), (6, 3), (6, 8), (3, 9), (6, 40)]
)
def test_many_points_are_evaluated_as_each_by_itself(n_nearest, n_cells, d, n_actions):
    policy, rng = random_policy(n_cells, d, n_actions, n_nearest=n_nearest)
    if n_cells > 8:  # some are as near as others
        policy.diagram[3:7] = policy.diagram[2]
    points = policy.origin + rng.normal(size=(300, d))
    points[::50] = 1e140
    cells, actions, values = policy.evaluate(points)
    room = np.empty(n_actions)
    for x, *found in zip(points - policy.origin, cells, actions, values, strict=True):
        cell = write_values(policy, x, room)
        action = best_action(room, n_actions, 0.0)
        assert found == [cell, action, room[action]]


@pytest.mark.parametrize(
    ("values", "equals"),
    [([1.0, 2.0, 2.0, -5.0], [1, 2]), ([2.0, 2.0 - 1e-10, 2.0 - 1e-8], [0, 1]),
     ([-2e9, -2e9 - 1.0, -2e9 - 100.0], [0, 1]), ([0.0, 0.0, 0.0], [0, 1, 2]), ([-3.0, -1.0], [1]),
     ([0.0, -1e-300], [0]), ([7.0], [0])],
)  # fmt: skip
def test_ties_are_broken_evenly_by_the_number_that_is_given(values, equals):
    room = np.array([*values, 99.0])
    uniforms = (np.arange(600) + 0.5) / 600
    chosen = [best_action(room, len(values), uniform) for uniform in uniforms]
    found, counts = np.unique(chosen, return_counts=True)
    assert found.tolist() == equals
    assert (counts == 600 // len(equals)).all()
    assert best_action(room, len(values), 0.0) == equals[0]
    assert best_action(room, len(values), np.nextafter(1.0, 0.0)) == equals[-1]


def test_evaluate_on_a_batch_equals_one_by_one():
    policy, rng = random_policy(9, 4, 3)
    batch = 3 * rng.normal(size=(300, 4)) + policy.origin
    cells, actions, values = policy.evaluate(batch)
    assert (cells.dtype, actions.dtype) == (np.int64, np.int64)
    assert len(set(actions)) == 3
    for i, observation in enumerate(batch):
        (cell,), (action,), (value,) = policy.evaluate(observation[None])
        assert (cell, action, value) == (cells[i], actions[i], values[i])
        arrays = policy.diagram, policy.models, policy.width
        nearest, q = oracles.cell_values(*arrays, observation - policy.origin)
        assert (nearest, q.argmax()) == (cell, action)
        assert value == pytest.approx(q.max())
    assert [part.shape for part in policy.evaluate(np.empty((0, 4)))] == [(0,)] * 3
    single = policy.evaluate(batch.astype(np.float32))
    np.testing.assert_allclose(single[2], values, rtol=1e-4, atol=1e-4)


def test_a_policy_comes_back_from_its_arrays():
    policy, rng = random_policy(9, 2, 3, n_nearest=6)
    again = CellPolicy.from_arrays(policy.arrays)
    batch = rng.normal(size=(20, 2))
    for one, other in zip(again.evaluate(batch), policy.evaluate(batch), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (type(again.width), type(again.n_nearest)) == (float, int)
    np.testing.assert_array_equal(again.q_values, policy.q_values)
