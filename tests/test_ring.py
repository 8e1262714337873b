"""What the online agent remembers of the latest steps, against numpy."""

import numpy as np
import pytest

from oda_rl import metric
from oda_rl.agents.engine.memory import CUT, MARK, UNUSED
from oda_rl.agents.engine.state import with_lanes
from oda_rl.agents.two_timescale.qlearning import OnlineState
from oda_rl.agents.two_timescale.ring import Ring, new_room

COMPONENTS = [
    lambda rng, shape: rng.normal(size=shape) * 1e-9,
    lambda rng, shape: 1e9 * (1.0 + rng.random(size=shape)),
    lambda rng, shape: np.full(shape, 0.1),
    lambda rng, shape: 0.3 * (1.0 + 1e-15 * rng.normal(size=shape)),  # varies by rounding
    lambda rng, shape: rng.integers(3, size=shape).astype(float),
]


def filled(lasts, rows, d, rng):
    """Rings, one for each of ``lasts``: up to that row, or round and round; and all in order."""
    n, none = len(lasts), np.full(rows, UNUSED)
    raw, lanes = with_lanes(OnlineState, n)
    observations, steps = np.zeros((n, rows, d)), rng.normal(size=(n, rows, 3))
    points, outcomes = [], []
    for j in range(d):
        observations[:, :, j] = COMPONENTS[j % len(COMPONENTS)](rng, (n, rows))
    for i, (last, full) in enumerate(lasts):
        lanes[i].last_row = last
        steps[i, :, MARK] = CUT
        if not full:
            steps[i, last + 1 :, MARK] = none[last + 1 :]
        order = np.roll(np.arange(rows), rows - last - 1) if full else np.arange(last + 1)
        points.append(observations[i, order])
        outcomes.append(steps[i, order])
    return (observations, steps, raw), np.concatenate(points), np.concatenate(outcomes)


@pytest.mark.parametrize("d", [1, 4, 9])
@pytest.mark.parametrize(
    "lasts",
    [
        [(0, False)],
        [(9, False)],
        [(31, True)],
        [(0, True)],
        [(30, True), (12, False), (-1, False), (5, True)],  # one in which nothing has happened
    ],
)
def test_all_rows_the_oldest_first_and_their_moments(lasts, d):
    rings, points, steps = filled(lasts, 32, d, np.random.default_rng(d))
    room = new_room(len(lasts) * 32, d)
    for array in room:
        array[:] = 5.0  # as it was left
    found = Ring.of(*rings, room)
    np.testing.assert_array_equal(found.points, points)
    np.testing.assert_array_equal(found.steps, steps)
    mean, covariance = metric.covariance(points)
    sizes = np.abs(points).max(axis=0)
    # Rounding of sums of some 100 numbers.
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13, atol=0)
    np.testing.assert_array_less(
        np.abs(found.covariance - covariance), 1e-13 * np.outer(sizes, sizes) + 1e-300
    )
    np.testing.assert_array_equal(found.covariance, found.covariance.T)
    np.testing.assert_allclose(found.scale, metric.scales(mean, covariance), rtol=1e-6)


def test_rings_in_which_nothing_has_happened_hold_nothing():
    rings, _, _ = filled([(-1, False), (-1, False)], 8, 2, np.random.default_rng(0))
    found = Ring.of(*rings, new_room(16, 2))
    assert found.points.shape == (0, 2)
    assert found.steps.shape == (0, 3)


def test_units_are_whitened_if_that_is_asked_for():
    rings, points, _ = filled([(31, True)], 32, 2, np.random.default_rng(1))
    ring = Ring.of(*rings, new_room(32, 2))
    assert ring.units(False).whitening is None
    expected = metric.Units.of(*metric.covariance(points), axes=False)
    np.testing.assert_allclose(ring.units(True).whitening, expected.whitening, rtol=1e-6)
