"""The law by which components change, against least squares."""

import numpy as np
import oracles
import pytest

from oda_rl.agents.engine import laws
from oda_rl.agents.engine.memory import CUT, GOES_ON, MARK


def wander(n, d, causes, rng):
    """Points that change by a law, by what is done, and by chance; and rows with such steps."""
    law, gains = 0.3 * rng.normal(size=(d, d)), rng.normal(size=(causes.shape[1], d))
    points = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-2, 2, size=d) + 50.0
    points[1:] = points[:-1] + (points[:-1] - 50.0) @ law + causes @ gains
    points[1:] += 0.1 * points.std(axis=0) * rng.normal(size=(n, d))
    return points


def found(points, steps):
    rows = np.flatnonzero(steps[:, MARK] == GOES_ON)
    n_causes = steps.shape[1] - 2 if steps.shape[1] > 3 else int(steps[:, 0].max()) + 1
    room = laws.new_room(len(rows), points.shape[1], n_causes)
    density, d = laws.law_of_changes(points, steps, rows, room)
    return density, room.numbers[: 3 * d * d].reshape(3, d, d)


def left(numbers, causes):
    """What least squares leave of numbers."""
    return numbers - causes @ np.linalg.lstsq(causes, numbers, rcond=None)[0]


def rows_of(actions, *components):
    n = len(actions) + 1
    steps = np.column_stack([[*actions, -1.0], np.zeros(n), np.full(n, GOES_ON), *components])
    steps[-1, MARK] = CUT
    return steps


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("d", [2, 5])
def test_a_law_is_that_of_least_squares_of_what_actions_leave(d, continuous, dtype):
    rng = np.random.default_rng(d)
    n = 600
    if continuous:
        forces = rng.normal(size=(n, 2))
        causes = np.column_stack([np.ones(n), forces])
        steps = rows_of(np.zeros(n), *(np.append(force, 0.0) for force in forces.T))
    else:
        actions = rng.choice([0, 2, 3], size=n, p=[0.5, 0.4, 0.1])  # 1 is never taken
        causes, steps = np.eye(4)[actions], rows_of(actions)
    points = wander(n, d, causes, rng).astype(dtype)
    density, (law, moments, changes) = found(points, steps)
    own = points.astype(np.float64)
    before, after = (left(part, causes) for part in (own[:-1], np.diff(own, axis=0)))
    deviations = own[:-1].std(axis=0)
    before, after = before / deviations, after / deviations
    # Moments of points lose some digits to their mean, which is up to 1e4 deviations off.
    np.testing.assert_allclose(moments, before.T @ before / n, atol=1e-9)
    np.testing.assert_allclose(changes, after.T @ after / n, atol=1e-9 * np.abs(changes).max())
    expected = np.linalg.lstsq(before, after, rcond=None)[0].T
    np.testing.assert_allclose(law, expected, atol=1e-8 * np.abs(expected).max())
    assert density == pytest.approx(oracles.density(before, after), rel=1e-7)


def test_causes_that_others_say_all_about_change_nothing():
    rng = np.random.default_rng(0)
    forces = rng.normal(size=(600, 2))
    points = wander(600, 3, forces, rng)
    one = found(points, rows_of(np.zeros(600), *(np.append(force, 0.0) for force in forces.T)))
    more = [*forces.T, 2.0 * forces[:, 0] - forces[:, 1], np.full(600, 3.0), np.zeros(600)]
    other = found(points, rows_of(np.zeros(600), *(np.append(force, 0.0) for force in more)))
    assert one[0] == pytest.approx(other[0], rel=1e-7)
    np.testing.assert_allclose(one[1], other[1], atol=1e-8 * np.abs(one[1]).max())


def test_components_that_do_not_vary_are_left_out():
    rng = np.random.default_rng(1)
    points, steps = wander(600, 3, np.zeros((600, 1)), rng), rows_of(rng.integers(2, size=600))
    expected = found(points, steps)
    still = np.full(601, 7.0)
    wide = np.column_stack([still, points[:, 0], still, points[:, 1:]])
    for one, other in zip(expected, found(wide, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda points: points * [1.0, 0.0],  # one component
        lambda points: points * 1e160,  # whose squares are infinite
        lambda points: points[:, :1] * [1.0, 2.0],  # one direction
        lambda points: points[:50],  # too few
    ],
)
def test_of_some_it_cannot_be_told(change):
    rng = np.random.default_rng(2)
    points, actions = wander(600, 2, np.zeros((600, 1)), rng), rng.integers(2, size=600)
    assert found(points, rows_of(actions))[0] > 0.0
    points = change(points)
    assert found(points, rows_of(actions[: len(points) - 1]))[0] == laws.UNKNOWN
