"""Advantages of actions, fitted apart from a baseline of the states.

Advantages are small beside the differences between the states of one cell, and which action was
taken depends on where in the cell that was. So values are sums in two partitions,

    Q(s, a) = B(s) + A(s, a),

of a baseline B, affine in each of many small cells (:func:`oda_rl.agents.fitting.cells.finer`)
and the same for all actions, and of advantages A, constant in the cells that decide. In each sweep
both are fitted to the residuals of the other from Watkins' λ-returns: the baseline by regression,
and an advantage as a mean, shrunken towards a function of the codevectors m_k,

    A_ka = (Σ w (Y − B) + 5 R² g_a(m_k)) / (c + 5),  c = Σ w over steps of action a in cell k.

The functions g_a are affine in the components of m_k and, where there are twice as many cells as
terms, in the products of two of them: what an action brings at one speed depends on the angle. They
are fitted to the means of all cells with weights 5 c / (c + 5), and are shrunken towards 0. R² is
how well they predict means of cells that were left out; 0 if it is negative.

The policy's cells have advantages, and the level and slope that a baseline would have there. Both
partitions stay for some fits (:class:`Placed`): only rows that have come since the last fit are
assigned to cells, and added to the moments of the regressions.

References
----------
P. M. Robinson, "Root-N-consistent semiparametric regression", Econometrica 56 (1988): effects are
regressed on what is left when all else is partialled out. L. C. Baird, "Reinforcement learning in
continuous time: advantage updating", ICNN 1994. A. Buja, T. Hastie, R. Tibshirani, "Linear
smoothers and additive models", The Annals of Statistics 17 (1989): backfitting. D. M. Allen, "The
relationship between variable selection and data augmentation and a method for prediction",
Technometrics 16 (1974): residuals of what was left out.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from oda_rl import metric
from oda_rl._compile import compiled, spliced
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.fitting import regression
from oda_rl.agents.fitting.cells import (
    Assigned,
    Cells,
    Experience,
    Near,
    Points,
    Weights,
    assign_three,
    blended,
    finer,
    place_cells,
)
from oda_rl.agents.fitting.regression import Belief, Fit, Iterated, Reach
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.divergences import TINY
from oda_rl.files.schema import Member, real

_TOLERANCE = 0.02  # the next fit goes on from here
_N_FITS = 5  # partitions that are averaged where rewards differ
_SWEEPS_OF_OTHERS = 5  # of partitions whose values are averaged with those of a fit
_SHRINKAGE = 5.0  # transitions of each action in each cell that are believed, not seen
_CELLS_PER_TERM = 2  # minimum, for products: with fewer they cost cart-poles after few steps


SCHEMA: dict[str, Member] = {  # arrays of `Placed` in a file
    "origin": real("d"),
    "scale": real("d", "[0, inf)"),
    "whitening": real("d, d", optional=True),
    "transform": real("d, d"),
    "codevectors": real("C, d"),
    "width": real("", "(0, inf)"),
    "finer": real("F, d"),
    "finer_width": real("", "(0, inf)"),
}


class Moments(NamedTuple):
    """Moments of regressions, which do not depend on targets."""

    counts: FloatArray  # weights of each action in each of the policy's cells, shape (K, A)
    coarse: FloatArray
    """Upper triangles of sums of w z zᵀ, where z is a one and the point less the cell's codevector,
    shape (K, 1 + d, 1 + d)."""
    fine: FloatArray  # the same in the finer cells, shape (F, 1 + d, 1 + d)


class Rows(NamedTuple):
    """Rows of a memory in both partitions."""

    coarse: Assigned  # in the policy's cells
    near: Near  # the three nearest finer cells, shape (n, 3)
    weights: Weights  # their weights, shape (n, 3)
    moments: Moments


class Placed:
    """The policy's cells and the baseline's, in one metric, and the rows assigned to them."""

    def __init__(self, at: Cells, fine: Cells, anew: bool) -> None:
        self.at, self.fine, self.anew = at, fine, anew
        self.forget_rows()

    @classmethod
    def among(
        cls,
        seen: Experience,
        learned: FloatArray | None,
        config: FittedQConfig,
        rng: np.random.Generator,
    ) -> "Placed":
        """Place cells among trajectories; ``learned`` is a metric, shape (d, d), or None."""
        at = place_cells(seen, learned, config, rng)
        return cls(at, finer(seen, at, rng), anew=True)

    def forget_rows(self) -> None:
        """Assign all rows anew from now on."""
        self._known: list[Array] = []  # points, nearest cells and weights of rows
        self._moments: Moments | None = None
        self._n_added = 0  # rows that the moments have

    def assign(self, seen: Experience, settled: int) -> Rows:
        """Assign the rows that are new; those from ``settled`` on will be assigned again."""
        n = len(seen.observations)
        new = seen.observations[len(self._known[0]) if self._known else 0 :]
        found: list[Array] = [*assign_three(new, self.at), *assign_three(new, self.fine)[1:]]
        if self._known:
            found = [np.concatenate(pair) for pair in zip(self._known, found, strict=True)]
        self._known = [own[:settled] for own in found]
        points, cells, weights, near, near_weights = found
        labels = np.repeat(seen.steps[:, ACTION, None].astype(np.int16), 3, axis=1)
        coarse = Assigned(points, cells, weights, labels, seen.steps)
        k, size, zeros = len(self.at.codevectors), 1 + len(self.at.origin), np.zeros
        squares = (zeros((m, size, size)) for m in (k, len(self.fine.codevectors)))
        moments = self._moments or Moments(zeros((k, seen.n_actions)), *squares)
        self._add(moments, coarse, near, near_weights, slice(self._n_added, settled))
        self._moments, self._n_added = moments, settled
        moments = Moments(*(own.copy() for own in moments))
        self._add(moments, coarse, near, near_weights, slice(settled, n))
        return Rows(coarse, near, near_weights, moments)

    def _add(
        self, moments: Moments, own: Assigned, near: Near, near_weights: Weights, rows: slice
    ) -> None:
        own = Assigned(*(array[rows] for array in own))  # type: ignore[arg-type]
        going = own.steps[:, MARK] == GOES_ON
        n_actions = moments.counts.shape[1]
        counted = own.cells[going].astype(np.int64) * n_actions + own.labels[going]
        added = own.weights[going].ravel().astype(np.float64)
        np.add.at(moments.counts.ravel(), counted.ravel(), added)
        coarse, room = own._replace(labels=np.zeros_like(own.labels)), np.empty(len(self.at.origin))
        fine = coarse._replace(cells=near[rows], weights=near_weights[rows])
        regression.add_moments(coarse, self.at.codevectors, moments.coarse, room)
        regression.add_moments(fine, self.fine.codevectors, moments.fine, room)

    @property
    def arrays(self) -> dict[str, Array]:
        """Where cells lie, to be saved: :data:`SCHEMA`."""
        (origin, units, *place), fine = self.at, self.fine
        values = origin, *units, *place, fine.codevectors, fine.width
        pairs = zip(SCHEMA, values, strict=True)
        return {name: np.array(value) for name, value in pairs if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Placed":
        """Take over what :attr:`arrays` had."""
        own = {name: np.array(array) for name, array in arrays.items()}
        units = metric.Units(own["scale"], own.get("whitening"))
        at = Cells(own["origin"], units, own["transform"], own["codevectors"], float(own["width"]))
        fine = at._replace(codevectors=own["finer"], width=float(own["finer_width"]))
        return cls(at, fine, anew=False)


@spliced
def _add_row(
    points: Points, near: Near, weights: Weights, i: int, left: float, sums: FloatArray
) -> None:
    """Add w r and w r y of row i to the sums of its cells, shape (K, 1 + d)."""
    k, l, m = near[i, 0], near[i, 1], near[i, 2]  # noqa: E741
    u, v, w = weights[i, 0] * left, weights[i, 1] * left, weights[i, 2] * left
    for j in range(points.shape[1]):
        sums[k, j] += u * points[i, j]
        sums[l, j] += v * points[i, j]
        sums[m, j] += w * points[i, j]


@compiled
def go_back(
    rows: Assigned, near: Near, near_weights: Weights, advantages: FloatArray,
    baseline: FloatArray, first: bool, reach: Reach, values: FloatArray, targets: FloatArray,
    sums: FloatArray,
) -> float:  # fmt: skip
    """Update values and λ-returns, backwards, and add up what the baseline is fitted to.

    ``advantages``, (K, A), are blended over three cells. Values, (n,), are the baseline, (n,), plus
    the greatest of them, within bounds; in the ``first`` sweep they stay, and returns are of one
    step. Residuals r of targets, (n,), without advantages go to ``sums``, (F, 1 + d): w r and w r
    y. Returns the sum of the changes of values.
    """
    points, cells, weights, labels, steps = rows
    trace_decay = 0.0 if first else reach.trace_decay
    change, future = 0.0, 0.0
    for i in range(points.shape[0] - 1, -1, -1):
        mark = steps[i, MARK]
        if mark == TERMINAL:
            values[i], future = 0.0, 0.0
            continue
        action = labels[i, 0] if labels[i, 0] > 0 else 0  # -1 where no step was taken
        taken = blended(advantages, cells, weights, i, action)
        largest = taken
        for a in range(advantages.shape[1]):
            largest = max(largest, blended(advantages, cells, weights, i, a))
        value = values[i]
        if not first:
            before, value = value, min(max(baseline[i] + largest, reach.low), reach.high)
            change += abs(value - before)
            values[i] = value
        if mark != GOES_ON:
            future = value
            continue
        target = steps[i, REWARD] + reach.gamma * future
        targets[i] = target
        beyond = (1.0 - trace_decay) * value + trace_decay * target
        future = beyond if taken == largest else value
        _add_row(points, near, near_weights, i, target - taken, sums)
    return change


@compiled
def go_on(
    rows: Assigned, near: Near, near_weights: Weights, models: FloatArray, targets: FloatArray,
    baseline: FloatArray, sums: FloatArray,
) -> None:  # fmt: skip
    """Write the baseline of rows, (n,), by models, (F, 1 + d); add up its residuals, (K, A)."""
    points, cells, weights, labels, steps = rows
    for i in range(points.shape[0]):
        value = 0.0
        for j in range(points.shape[1]):
            value += blended(models, near, near_weights, i, j) * points[i, j]
        baseline[i] = value
        if steps[i, MARK] == GOES_ON:
            left, action = targets[i] - value, labels[i, 0]
            for t in range(3):
                sums[cells[i, t], action] += weights[i, t] * left


def sums_of_levels(rows: Assigned, advantages: FloatArray, targets: FloatArray) -> FloatArray:
    """Add up residuals r of targets from advantages in the policy's cells: w r, w r y, (K, 1 + d).

    Not compiled: it is done once a fit.
    """
    points, cells, weights, labels, steps = rows
    left = targets[:, None].copy()
    for t in range(3):
        left -= weights[:, [t]] * advantages[cells[:, [t]], labels[:, :1]]
    left[steps[:, MARK] != GOES_ON] = 0.0
    shares, numbers, n_cells = weights * left, cells.ravel(), len(advantages)
    columns = (shares * column[:, None] for column in points.T)
    return np.column_stack([np.bincount(numbers, own.ravel(), n_cells) for own in columns])


def fit_advantages(
    seen: Experience, placed: Placed, settled: int, values: FloatArray | None,
    learned: FloatArray | None, config: FittedQConfig, rng: np.random.Generator,
) -> Fit:  # fmt: skip
    """Fit a baseline and advantages to trajectories, in cells that have been ``placed``.

    ``settled`` is that of :meth:`Placed.assign`; the other parameters are those of
    :func:`oda_rl.agents.fitting.regression.fit`. The metric stays as long as the cells.
    """
    rows = placed.assign(seen, settled)
    rounds = regression.FIRST_SWEEPS if values is None else regression.SWEEPS
    hopes = regression.hopes_of(seen.steps, config)
    found = iterate(rows, placed, values, hopes, rounds, config)
    at = placed.at
    if placed.anew:
        learned = regression.averaged_metric(seen, rows.coarse, at, found, learned, rng)
        placed.anew = False
    return Fit(regression.policy_of(at, None, found), found.values, learned, at.units.scale)


def n_fits(seen: Experience, config: FittedQConfig) -> int:
    """Return how many partitions to average: as set, or more where rewards differ in episodes."""
    if seen.numbered or seen.taken is not None:
        return 1
    if config.n_fits is not None or seen.observations.shape[1] > 6:  # more would take too long
        return config.n_fits or 1
    marks, rewards = seen.steps[:, MARK], seen.steps[:-1, REWARD]
    inside = rewards[(marks[:-1] == GOES_ON) & (marks[1:] != TERMINAL)]
    return _N_FITS if inside.size > 0 and np.ptp(inside) > 0.0 else 1


def averaged(
    found: Fit, seen: Experience, placed: Placed, settled: int, config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:  # fmt: skip
    """Average the values that :func:`fit_advantages` found with those in other partitions.

    Sweeps in other partitions begin with the values of the first. The policy's cells are those of
    the baseline, which are finer; their values are fitted to the mean of all actions in all rows.
    """
    if (n := config.n_fits or 1) == 1:
        return found
    mean, hopes = found.policy.values(seen.observations), regression.hopes_of(seen.steps, config)
    for _ in range(n - 1):
        other = Placed.among(seen, found.metric, config, rng)
        own = other.assign(seen, settled)
        swept = iterate(own, other, found.values.copy(), hopes, _SWEEPS_OF_OTHERS, config)
        mean += regression.policy_of(other.at, None, swept).values(seen.observations)
    near, weights = placed.assign(seen, settled)[1:3]
    theta = np.zeros((len(placed.fine.codevectors), seen.n_actions + len(placed.at.origin)))
    table, numbers = theta[:, : seen.n_actions], near.ravel()
    totals = np.bincount(numbers, weights.ravel(), len(table)) + TINY
    for _ in range(5):  # a cell moves by the mean of what its rows still miss
        left = mean / n - (weights[:, :, None] * table[near]).sum(axis=1)
        for action, column in enumerate(left.T):
            shares = (weights * column[:, None]).ravel()
            table[:, action] += np.bincount(numbers, shares, len(table)) / totals
    fitted = Iterated(found.values, mean, theta, np.zeros(len(table)))
    return found._replace(policy=regression.policy_of(placed.fine, None, fitted))


def _features(codevectors: FloatArray) -> FloatArray:
    """Return 1, the components, and their products if there are enough cells; shape (K, m)."""
    n, d = codevectors.shape
    first, second = np.triu_indices(d, 1)
    affine = np.column_stack([np.ones(n), codevectors])
    if n < _CELLS_PER_TERM * (1 + d + len(first)):
        return affine
    return np.column_stack([affine, codevectors[:, first] * codevectors[:, second]])


class Shrinkage:
    """Shrinks the advantages of K cells: ``counts`` are c, (K, A); codevectors are (K, d)."""

    def __init__(self, counts: FloatArray, codevectors: FloatArray) -> None:
        self._counts, self._share = counts, _SHRINKAGE / (counts + _SHRINKAGE)
        self._z = z = _features(codevectors)
        self._weights = weights = counts * self._share
        penalty = np.diag(_SHRINKAGE * (z * z).mean(axis=0) + TINY)
        self._inverse = np.stack([np.linalg.inv((z.T * w) @ z + penalty) for w in weights.T])
        leverage = [(z @ inverse * z).sum(axis=1) for inverse in self._inverse]
        self._free = 1.0 - weights * np.column_stack(leverage)

    def advantages(self, sums: FloatArray) -> FloatArray:
        """Return A_ka for Σ w (Y − B), (K, A)."""
        means, weighted = sums / (self._counts + TINY), sums * self._share
        predicted = self._z @ (self._inverse @ (weighted.T @ self._z)[:, :, None])[:, :, 0].T
        missed = (means - predicted) / self._free  # by the function fitted without that cell
        unexplained = (self._weights * missed**2).sum() / ((weighted * means).sum() + TINY)
        pulled = self._share * max(1.0 - float(unexplained), 0.0) * predicted
        return np.asarray(sums / (self._counts + _SHRINKAGE) + pulled)


def iterate(
    rows: Rows, placed: Placed, values: FloatArray | None, hopes: Belief, rounds: int,
    config: FittedQConfig,
) -> Iterated:  # fmt: skip
    """Repeat sweeps of fitted Q-iteration, at most ``rounds`` times."""
    own, near, near_weights, moments = rows
    n = len(own.points)
    values = np.full(n, hopes.prior) if values is None else values
    reach = Reach(config.gamma, config.trace_decay, hopes.low, hopes.high)
    tolerance = _TOLERANCE * (hopes.prior - hopes.low) * (1.0 - config.gamma) * n
    shrinkage = Shrinkage(moments.counts, placed.at.codevectors)
    solver = regression.Regression(moments.fine, placed.fine, hopes)
    advantages, baseline, targets = np.zeros_like(moments.counts), *np.zeros((2, n))
    sums, added = np.zeros_like(solver.theta), np.zeros_like(advantages)
    for i in range(rounds):
        parts = advantages, baseline
        sums.fill(0.0)
        change = go_back(own, near, near_weights, *parts, i == 0, reach, values, targets, sums)
        solver.solve(sums)
        models = solver.theta.copy()
        models[:, 0] += solver.offsets
        added.fill(0.0)
        go_on(own, near, near_weights, models, targets, baseline, added)
        advantages = shrinkage.advantages(added)
        if i > 0 and change <= tolerance:
            break
    level = regression.Regression(moments.coarse, placed.at, hopes)
    level.solve(sums_of_levels(own, advantages, targets))
    theta = np.column_stack([level.theta[:, :1] + advantages, level.theta[:, 1:]])
    return Iterated(values, targets, theta, level.offsets)
