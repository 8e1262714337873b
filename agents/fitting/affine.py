"""Advantages that are affine in each mode, and the rule that they make.

What an action brings is often affine in the observation while some component stays: the floor of a
lift, what a machine is set up for. Cells would have to tell all of its values from each other. So
values are fitted to transitions by linear regression,

    Q(s, a) = B(s) + <g_ma, (1, z)>,

with the baseline B the same for all actions: affine and quadratic in the standardised components z,
with hinges, and affine in each mode. The mode m is the combination of the values of components that
have few; those count whose interplay with the others makes advantages differ most. The score of an
action in its mode is its advantage, and those of other modes are far lower: a
:class:`~oda_rl.agents.policies.rules.RulePolicy`.

References
----------
D. Ernst, P. Geurts, L. Wehenkel, "Tree-based batch mode reinforcement learning", JMLR 6 (2005):
fitted Q-iteration. M. G. Lagoudakis, R. Parr, "Least-squares policy iteration", JMLR 4 (2003):
linear values of actions.
"""

from collections.abc import Sequence

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.fitting.cells import Experience
from oda_rl.agents.policies.rules import RulePolicy, placed, reduced

_MAX_VALUES = 8  # of a component that makes modes
MAX_COLUMNS, _MAX_SCORES = 500, 80  # of advantages, while components are compared; of a rule
_MAX_ROWS, _SAMPLE = 20_000, 5000  # the newest, that are fitted; while components are compared
_MAX_SIZE = 5_000_000  # rows times columns
_MAX_CURVED = 12  # components, of whose products and hinges the baseline is made
_HINGES = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles
_RIDGE, _OWN_RIDGE = 1.0, 10.0  # rows that are believed for a column of B, and of advantages
_SWEEPS, _TOLERANCE = 150, 1e-3  # standard deviations of rewards
_LITTLE, _APART = 0.05, 4.0  # share of advantages' variance without modes; times their range


class _Regression:
    """Linear values, fitted to the ``most`` newest transitions."""

    def __init__(self, seen: Experience, gamma: float, most: int) -> None:
        rows = np.flatnonzero(seen.steps[:-1, MARK] == GOES_ON)[-most:]
        self.points = seen.observations[rows].astype(np.float64)
        self._after = seen.observations[rows + 1].astype(np.float64)
        self._discounts = np.where(seen.steps[rows + 1, MARK] == TERMINAL, 0.0, gamma)
        self._rewards = seen.steps[rows, REWARD]
        self._bounds = np.array([self._rewards.min(), self._rewards.max()]) / (1.0 - gamma)
        self._taken = seen.steps[rows, ACTION].astype(np.int64)
        self._n_actions = seen.n_actions
        self.mean, spread = self.points.mean(axis=0), self.points.std(axis=0)
        self.scale = np.where(spread > 1e-9 * np.abs(self.points).max(axis=0), spread, 1.0)
        self._quantiles = np.quantile(self.points, _HINGES, axis=0)

    def affine(self, points: FloatArray) -> FloatArray:
        """Return a one and the standardised components, shape (n, 1 + d)."""
        return np.column_stack([np.ones(len(points)), (points - self.mean) / self.scale])

    def by_mode(self, points: FloatArray, columns: Sequence[int], modes: FloatArray) -> FloatArray:
        """Return the same for each mode, (M, c), of some columns; 0 in others, (n, M (1 + d))."""
        own = (points[:, None, list(columns)] == modes).all(axis=2)
        each = own[:, :, None] * self.affine(points)[:, None]
        return np.asarray(each.reshape(len(points), -1))

    def _baseline(self, points: FloatArray) -> FloatArray:
        z = self.affine(points)
        if z.shape[1] > 1 + _MAX_CURVED:
            return z
        i, j = np.triu_indices(z.shape[1])
        hinges = [np.maximum(points - knots, 0.0) / self.scale for knots in self._quantiles]
        return np.concatenate([z, z[:, i] * z[:, j], *hinges], axis=1)

    def advantages(self, parts: Sequence[tuple[Sequence[int], FloatArray]]) -> FloatArray:
        """Fit advantages that are affine, and affine in the modes of each part, (columns, modes).

        Returns coefficients of a one, components, and those in each mode, shape (A, 1 + ...).
        """

        def features(points: FloatArray) -> tuple[FloatArray, FloatArray]:
            own = [self.affine(points), *(self.by_mode(points, *part) for part in parts)]
            return np.concatenate([self._baseline(points), *own[1:]], axis=1), np.hstack(own)

        shared, own = features(self.points)
        at, units = (np.concatenate([f(shared, axis=0), f(own, axis=0)]) for f in (np.mean, np.std))
        units[units < 1e-9] = 1.0
        n_shared, n_own = shared.shape[1], own.shape[1]
        at[0], at[n_shared:] = 0.0, 0.0
        shared, own = (shared - at[:n_shared]) / units[:n_shared], own / units[n_shared:]
        each = np.zeros((len(own), self._n_actions, n_own))
        each[np.arange(len(own)), self._taken] = own
        x = np.concatenate([shared, each.reshape(len(own), -1)], axis=1)
        ridge = np.where(np.arange(x.shape[1]) < n_shared, _RIDGE, _OWN_RIDGE)
        inverse = np.linalg.inv(x.T @ x + np.diag(ridge))
        shared, own = features(self._after)
        shared, own = (shared - at[:n_shared]) / units[:n_shared], own / units[n_shared:]
        theta, least = np.zeros(x.shape[1]), _TOLERANCE * self._rewards.std()
        for _ in range(_SWEEPS):
            best = (own @ theta[n_shared:].reshape(-1, n_own).T).max(axis=1)
            values = np.clip(shared @ theta[:n_shared] + best, *self._bounds)
            before, theta = theta, inverse @ (x.T @ (self._rewards + self._discounts * values))
            if np.abs(theta - before).max() <= least:
                break
        found = theta[n_shared:].reshape(-1, n_own) / units[n_shared:]
        return np.asarray(found - found.mean(axis=0))


@one_thread()
def affine_rule(seen: Experience, gamma: float) -> RulePolicy:
    """Fit affine advantages in each mode to at least one transition; return their rule."""
    columns, modes = _modes_of(_Regression(seen, gamma, _SAMPLE), seen.n_actions)
    size, n_actions = 1 + seen.observations.shape[1], seen.n_actions
    width = size * (1 + n_actions) * (1 + len(modes))  # about
    fitted = _Regression(seen, gamma, min(_MAX_ROWS, _MAX_SIZE // width))
    found = fitted.advantages([(columns, modes)])
    own = found[:, None, :size] + found[:, size:].reshape(n_actions, -1, size)  # (A, M, 1 + d)
    own[:, :, 1:] /= fitted.scale
    own[:, :, 0] -= own[:, :, 1:] @ fitted.mean
    for m, mode in enumerate(modes):
        own[:, m, 0] += own[:, m, 1:][:, columns] @ mode
        own[:, m, [1 + column for column in columns]] = 0.0
    scores = own.transpose(1, 0, 2).reshape(-1, size)
    values = np.column_stack([np.ones(len(fitted.points)), fitted.points]) @ scores.T
    apart = _APART * (np.ptp(values, axis=1).max() + np.finfo(np.float64).tiny)
    for j, column in enumerate(columns):  # far lower, the farther a mode is
        gap, place = np.diff(np.unique(modes[:, j])).min(), np.repeat(modes[:, j], n_actions)
        middle = place.mean()  # from which places count, so that numbers stay small
        scores[:, 0] -= apart * (place**2 - middle**2) / gap**2
        scores[:, 1 + column] = 2.0 * apart * (place - middle) / gap**2
    outputs = np.tile(np.eye(n_actions), (len(modes), 1))[:, :, None]
    rule = RulePolicy(scores, outputs, np.zeros((len(scores), size - 1)))
    return placed(reduced(rule, fitted.points), fitted.points)


def _modes_of(fitted: _Regression, n_actions: int) -> tuple[list[int], FloatArray]:
    """Return the components that make modes, and the modes, (M, c); one without any."""
    points, parts = fitted.points, []
    size, room = points.shape[1] + 1, MAX_COLUMNS
    values = [(np.unique(column)[:, None], j) for j, column in enumerate(points.T)]
    for own, j in sorted(values, key=lambda pair: len(pair[0])):
        if 2 <= len(own) <= _MAX_VALUES and room >= n_actions * size * len(own):
            parts.append(([j], own))
            room -= n_actions * size * len(own)
    chosen: list[int] = []
    modes = np.zeros((1, 0))
    if not parts:
        return chosen, modes
    found, z = fitted.advantages(parts), fitted.affine(points)
    each, first = [z @ found[:, :size].T], size
    for part in parts:
        own = fitted.by_mode(points, *part)
        each.append(own @ found[:, first : first + own.shape[1]].T)
        first += own.shape[1]
    total = float(np.sum(each, axis=0).var(axis=0).sum())
    beyond = [one - z @ np.linalg.lstsq(z, one, rcond=None)[0] for one in each[1:]]
    spreads = np.array([one.var(axis=0).sum() for one in beyond])
    for k in np.argsort(-spreads):
        columns = [*chosen, *parts[k][0]]
        several = np.unique(points[:, columns], axis=0)
        n_scores = len(several) * n_actions
        few = n_scores <= _MAX_SCORES and n_scores * size <= 2 * MAX_COLUMNS
        if spreads[k] > _LITTLE * total and few:
            chosen, modes = columns, several
    return chosen, modes
