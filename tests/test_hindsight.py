"""What transitions say about Q-values in hindsight, against one row after the other."""

import numpy as np
import oracles
import pytest

from oda_rl.agents.engine.memory import CUT, GOES_ON, MARK, TERMINAL
from oda_rl.agents.two_timescale import hindsight
from oda_rl.agents.two_timescale.qlearning import VALUES


@pytest.mark.parametrize(("d", "k", "n_actions"), [(1, 1, 2), (2, 5, 3), (4, 16, 2), (9, 21, 2)])
def test_returns_and_groups_are_those_of_the_nearest_cells_and_their_greedy_actions(
    d, k, n_actions
):
    rng = np.random.default_rng(k)
    n = 300
    diagram, points = rng.normal(size=(k + 3, 1 + d)), rng.normal(size=(n, d))
    steps = np.column_stack(
        [rng.integers(n_actions, size=n), rng.normal(size=n), np.full(n, GOES_ON)]
    )
    ends = rng.random(n) < 0.1
    ends[-1] = True
    steps[ends] = (-1.0, 0.0, 0.0)
    steps[ends, MARK] = rng.choice([TERMINAL, CUT], size=ends.sum())
    table = rng.normal(size=(4, k + 3, n_actions))
    found = hindsight.new_room(n + 5, len(diagram), d)
    hindsight.returns_by_action(diagram, k, table, points, steps, 0.9, 0.7, found)
    cells, groups, returns = found.cells[:n], found.groups[:n], found.targets[:n]
    values, greedy = table[VALUES, :k].max(axis=1), table[VALUES, :k].argmax(axis=1)
    nearest = (diagram[:k, 0] + points @ diagram[:k, 1:].T).argmin(axis=1)
    np.testing.assert_array_equal(cells, nearest)
    taken = steps[:, 0].astype(int)
    np.testing.assert_array_equal(groups, np.where(ends, -1, nearest * n_actions + taken))
    for i in range(n):
        expected = values[nearest[i]] if steps[i, MARK] == CUT else 0.0
        if not ends[i]:
            rows = steps, values[nearest], greedy[nearest]
            expected = oracles.watkins_return(*rows, 0.9, 0.7, i)
        assert returns[i] == pytest.approx(expected, rel=1e-12, abs=1e-12)
