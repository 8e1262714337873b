"""Online deterministic annealing of codebooks, one for each class.

A codebook starts with one codevector. At each temperature it settles on samples
(:func:`oda_rl.annealing.kernels.learn`); then codevectors that coincide merge, idle ones are
dropped, the level goes into the history, the temperature falls, and codevectors split. Where their
covariances can be measured, those below their critical temperature do
(:mod:`oda_rl.annealing.bifurcation`); elsewhere all do, into pairs that stay apart only if they are
below it.

A full codebook still splits at every level, and the cheapest merges bring it back to its size: two
codevectors in one cluster merge, and two clusters with one codevector come apart. Splitting ends
when that no longer lowers the distortion; at once, if few codevectors are refined.

Temperatures are relative to the data's scale, the mean divergence from the class mean.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.bifurcation import MAX_POINTS, SHIFT, critical
from oda_rl.annealing.cells import mixed, ward_merge
from oda_rl.annealing.kernels import Codevectors, Pace, coincide, learn
from oda_rl.divergences import TINY, Divergence
from oda_rl.files.schema import (
    MISSING,
    Each,
    InvalidFileError,
    Maybe,
    Several,
    Sizes,
    flags,
    real,
    require,
    schema_of,
    whole,
)
from oda_rl.samples import cell_means, filled, holes, weighted

LEVEL_SAMPLES = 100  # at least, at each temperature; and from one exchange to the next
_OVERGROWTH = 2  # a codebook grows to twice its size and is merged down to it
FAST_COOLING = 0.6  # factor of the temperature where the codebook is refined afterwards
FEW_CLUSTERS = 20  # at most: a codebook that is refined afterwards needs fewer levels
FEW_POINTS = 20  # a codevector: with fewer, a codebook that is refined grows in proportion less
PROBE = 500  # samples that the accuracy of a level is measured on
_ITERATIONS = 5  # of the power method: a split along about the main axis is enough
_SETTLED = 0.9  # a full codebook has settled when a level leaves more than this of the distortion
_MAX_PASSES = 20  # of a level, while codevectors move
_MEASURED = 1.0 / 300.0  # of the threshold of merging, where the codevectors that split are known
NEGLIGIBLE = 1e-14  # of the data's scale: nothing is left to be told apart
_BLOCK = 4096  # samples that are brought to double precision at once
_DRAWN = 10  # samples that a codevector may move to in an exchange
_WORTH_MOVING = 0.5  # of the mean distortion of a cell, which it must save: less may be noise


@dataclass(frozen=True)
class AnnealingConstants:
    """Constants of the slow timescale, with the papers' symbols.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> model = ODAClusterer(constants=AnnealingConstants(movement=0.01))
    """

    max_temperature: Annotated[float, real("", "(0, inf)")] = 2.0
    """T_max, over the largest mean divergence of a class from its mean; > 0. A fit that refines
    begins with the split at the critical temperature, if that is lower."""
    movement: Annotated[float, real("", "[0, inf]")] = np.inf
    """ε_c: a level takes another pass, at most 20, while a codevector moved farther in the last
    one; a divergence, in temperatures. Infinite: one pass."""
    merge_below: Annotated[float, real("", "[0, inf)")] = 0.3
    """ε_n: codevectors of a class whose divergence is below this, in temperatures, are one; below
    1/300 of it, where it was measured which codevectors split."""
    min_mass: Annotated[float, real("", "[0, 1)")] = 1e-5
    """ε_r: a codevector with a smaller share of its class is idle, and dropped; in [0, 1)."""
    shift: Annotated[float, real("", "(0, inf)")] = 0.1
    """δ: length of the shift either way when a codevector splits, in square roots of the
    temperature. Where critical temperatures are measured it is 0.7 standard deviations along the
    direction in which the codevector splits."""
    step_offset: Annotated[float, real("", "[0, inf)")] = 1.0
    """a of the step size 1/(1 + b (n + a K)), at sample n of a class with K codevectors."""
    step_slope: Annotated[float, real("", "(0, inf)")] = 0.9  #: b of the step size.

    def __post_init__(self) -> None:
        for name, member in schema_of(type(self)).items():  # type: ignore[arg-type]
            value = float(getattr(self, name))
            try:
                member.check(name, np.array(value), {})
            except InvalidFileError as error:  # no file is read here
                raise ValueError(*error.args) from None
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Schedule:
    """When the annealing cools and when it ends."""

    max_codevectors: Annotated[int, whole("", "[1, inf)")]  # over all classes
    min_temperature: Annotated[float, real("", "[0, inf)")]
    """Relative to the mean divergence of the data from their class means."""
    cooling: Annotated[float, real("", "(0, 1)")]
    """Factor of the temperature from one level to the next."""
    samples_per_codevector: Annotated[float, real("", "[0, inf)")]
    """Samples of a level for each codevector."""
    max_samples: Annotated[float, real("", "[0, inf]")] = np.inf  # annealing ends after this many
    target_distortion: Annotated[float, real("", "[0, inf)")] = 0.0
    """Annealing ends when a level's mean divergence is at most this."""
    ends_full: Annotated[bool, flags()] = False
    """Whether annealing ends as soon as a full codebook no longer splits."""
    forgetting: Annotated[float, real("", "[0, 1]")] = 0.0  # minimum step size of a codevector
    constants: AnnealingConstants = AnnealingConstants()  # constants of the slow timescale
    class_competition: Annotated[bool, flags()] = True
    """Whether codevectors compete with those of their class only."""
    measures: Annotated[bool, flags()] = False
    """Whether codevectors split at measured critical temperatures where that is possible."""

    @property
    def hastens(self) -> bool:
        """Whether annealing ends when the codebook has been full once."""
        return self.ends_full and not self.measures and self.max_codevectors <= FEW_CLUSTERS

    def grown(self, n_points: float) -> float:
        """Return the number of codevectors at which a codebook of ``n_points`` points is full."""
        limit, growth = self.max_codevectors, float(_OVERGROWTH)
        if self.ends_full and not self.hastens:
            growth *= min(n_points / (limit * FEW_POINTS), 1.0)
        return limit * max(growth, 1.0)


@dataclass(frozen=True)
class Level:
    """The codebook as it was when a temperature level ended."""

    temperature: Annotated[float, real("", "[0, inf)")]
    """Temperature of the level, in units of the divergence."""
    distortion: Annotated[float, real("", "[0, inf)")]
    """Mean divergence of samples from the nearest codevector of their class, before it moved."""
    n_samples_seen: Annotated[int, whole()]  # samples learned from, earlier levels included
    codevectors: Annotated[FloatArray, real("L, d")]  # shape (K, d), in the units of the data
    averages: Annotated[FloatArray, real("L, q")]
    """Shape (K, q): averages of the columns after the features."""
    weights: Annotated[FloatArray, real("L", "[0, inf)")]  # shape (K,): share of the data of each
    labels: Annotated[IntArray, whole("L", "[0, L)")]  # shape (K,): the class of each, as an index
    origins: Annotated[
        tuple[IntArray, IntArray, FloatArray] | None,
        Maybe(Several(whole("parts"), whole("parts", "[0, L)"), real("parts", "[0, 1]"))),
    ]
    """Codevector of the level before and of this one, and share in it, of each piece, shape (m,);
    None at first."""
    accuracy: Annotated[float | None, Maybe(real("", "[0, 1]"))] = None
    """Share of recent samples whose nearest codevector is of their class; None with one class."""
    critical: Annotated[float | None, Maybe(real("", "[0, inf)"))] = None
    """Highest critical temperature of its codevectors; None where none was measured."""

    def _check_contents(self, sizes: Any, where: str) -> None:
        check_rising(self.labels, where)

    @property
    def lineage(self) -> FloatArray | None:
        """Shares in which each comes from those of the level before; shape (K, K before)."""
        if self.origins is None:
            return None
        before, cells, shares = self.origins
        lineage = np.zeros((self.n_clusters, int(before.max()) + 1))
        np.add.at(lineage, (cells, before), shares)
        return lineage

    @property
    def n_clusters(self) -> int:
        """Number K of codevectors."""
        return len(self.codevectors)

    @property
    def step(self) -> int:
        """Another name of ``n_samples_seen``, as the history of an agent has it."""
        return self.n_samples_seen


def check_rising(labels: IntArray, where: str) -> None:
    """Raise InvalidFileError unless labels rise from 0 by steps of at most 1."""
    steps = np.diff(labels, prepend=0)
    right = len(labels) > 0 and ((steps == 0) | (steps == 1)).all() and labels[0] == 0
    require(right, f"{where}.labels must rise from 0, one class after the other")


class Codebook(NamedTuple):
    """The codebook that predicts, with codevectors in the divergence's coordinates."""

    codevectors: Annotated[FloatArray, real("M, D")]  # shape (K, d + q)
    weights: Annotated[FloatArray, real("M", "[0, inf)")]  # shape (K,): share of the data of each
    labels: Annotated[IntArray, whole("M", "[0, classes)")]
    """Shape (K,): the class of each, as an index, rising."""

    def _check_contents(self, sizes: Any, where: str) -> None:
        check_rising(self.labels, where)


class Distribution:
    """Distinct weighted points of each class, to draw samples from.

    The order of the rows makes no difference, nor whether a row is repeated or has a weight of 2.
    Samples are drawn by strata of the cumulative weight.

    ``points``, ``classes`` (0 to C - 1, none empty) and ``weights`` are the rows of positive
    weight, sorted by class. The first ``n_features`` columns are features.
    """

    def __init__(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, rng: np.random.Generator,
        n_features: int | None = None,
    ) -> None:  # fmt: skip
        self.points, self.classes, self.weights = weighted(points, weights, classes, n_features)
        n_classes = int(self.classes.max()) + 1
        self._bounds = np.searchsorted(self.classes, np.arange(n_classes + 1))
        self.sizes = np.diff(self._bounds)
        self._shown = [np.zeros(0, dtype=np.int64) for _ in range(n_classes)]
        self._edges = [_edges(self.weights[a:b]) for a, b in pairwise(self._bounds)]
        self.rng = rng

    @property
    def n_classes(self) -> int:
        return len(self._shown)

    @property
    def class_weights(self) -> FloatArray:
        """Sum of the weights of each class, shape (C,)."""
        return np.add.reduceat(self.weights, self._bounds[:-1])

    def draw(self, c: int, n: int) -> IntArray:
        """Draw rows of class ``c`` by their weights, shape (n,).

        A pass draws each stratum once, and there are as many as distinct rows: rows of equal weight
        are drawn once each.
        """
        rows = self._shown[c]
        while len(rows) < n:
            rows = np.concatenate([rows, self._pass(c)])
        self._shown[c] = rows[n:]
        return rows[:n]

    def spread(self, n: int) -> IntArray:
        """Return n rows of all classes, evenly in proportion to their weights."""
        return self._at((np.arange(n) + 0.5) / n)

    def some(self, n: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, classes and weights of all rows, or of n that are spread over them."""
        if len(self.points) <= n:
            return self.points, self.classes, self.weights
        rows = self.spread(n)
        return self.points[rows], self.classes[rows], np.ones(n)

    def stratified(self, n: int, fewest: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Like :meth:`some`, with at least ``fewest`` of each class that has as many."""
        if len(self.points) <= n:
            return self.points, self.classes, self.weights
        totals = self.class_weights
        wanted = np.maximum(n * totals / totals.sum(), fewest).astype(np.int64)
        wanted = np.minimum(wanted, self.sizes)
        rows = np.concatenate([self.draw(c, size) for c, size in enumerate(wanted)])
        return self.points[rows], self.classes[rows], np.repeat(totals / wanted, wanted)

    def shuffled(self) -> IntArray:
        """Rows by their weights in random order, as many as there are distinct ones."""
        n = len(self.points)
        return self._at((self.rng.permutation(n) + 0.5) / n)

    def _at(self, quantiles: FloatArray) -> IntArray:
        shares = np.cumsum(self.weights) / self.weights.sum()
        return np.minimum(np.searchsorted(shares, quantiles), len(shares) - 1)

    def _pass(self, c: int) -> IntArray:
        n, edges = self.sizes[c], self._edges[c]
        rows = np.arange(n)
        if edges is not None:
            rows = edges.searchsorted((rows + self.rng.random(n)) / n, side="right")
        return self.rng.permutation(self._bounds[c] + rows)


def _edges(weights: FloatArray) -> FloatArray | None:
    """Return the ends of the strata but the last, shape (n - 1,); None if weights are equal."""
    shares = np.cumsum(weights)
    return shares[:-1] / shares[-1] if weights.min() < weights.max() else None


class Annealer:
    """A codebook, its temperature and its history.

    Points and codevectors are in the divergence's coordinates
    (:meth:`oda_rl.divergences.Divergence.embed`), but for those in the history. The first
    ``n_features`` components of a point are features; the others are averaged along.

    ``codevectors``, shape (K, d + q), are sorted by class, as are their ``masses``, which sum to 1
    in each class. When annealing has ended (not ``active``) codevectors only move. ``probe`` holds
    the latest points and their classes. The accuracy of a level is measured on them, and with
    ``forgetting`` codevectors move to them where that saves distortion.
    """

    SCHEMA: ClassVar[dict[str, Any]] = {
        "schedule": Schedule,
        "divergence": Divergence,
        "_rng": np.random.Generator,
        "n_features": whole("", "[1, inf)"),
        "history": Each(Level),
        "n_samples_seen": whole(),
        "active": flags(),
        "labels": whole("K", "[0, K)"),
        "class_weights": real("classes", "[0, inf)"),
        "codevectors": real("K, D"),
        "masses": real("K", "[0, inf)"),
        "temperature": real("", "[0, inf)"),
        "scale": real("", "[0, inf)"),
        "probe": Maybe(Several(real("probed, D", MISSING), whole("probed", "[0, classes)"))),
        "_measured": flags(),
        "_full_at": real("", "[0, inf]"),
        "_frozen_at": real("", "[0, inf]"),
        "_level_samples": whole(),
        "_passes": whole("", "[1, 20]"),
        "_passed": real("K, passed"),
        "_clocks": real("classes", "[0, inf)"),
        "_seen": real("2", "[0, inf)"),
        "_origins": Several(whole("pieces"), whole("pieces", "[0, K)"), real("pieces", "[0, 1]")),
        "_opened": Several(real("K, opened"), real("K", "[0, inf)")),
        "_viewed": Maybe(whole("K", "[0, K)")),
        "_observed": Maybe(real("K, D", "[0, inf)")),
    }
    _passed: FloatArray
    _origins: tuple[IntArray, IntArray, FloatArray]  # old and new number of each piece, its share

    def __init__(
        self, schedule: Schedule, divergence: Divergence, n_features: int, rng: np.random.Generator
    ) -> None:
        self.schedule, self.divergence, self._rng = schedule, divergence, rng
        self.n_features = n_features
        self.history: list[Level] = []
        self.n_samples_seen = 0
        self.active = True
        self.probe: tuple[FloatArray, IntArray] | None = None
        self._measured = False  # whether the level began with splits at critical temperatures
        self._full_at = np.inf  # the temperature at which the codebook was full
        self._frozen_at = np.inf  # the temperature at which the full codebook no longer split
        self._clocks: FloatArray  # weight of the level's samples of each class
        self._observed: FloatArray | None  # masses of components, where values are missing
        self._viewed: IntArray | None = None

    def begin(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, *,
        class_weights: FloatArray | None = None, init: FloatArray | None = None,
        data: Distribution | None = None,
    ) -> None:  # fmt: skip
        """Start with the mean of each class of these points, which also give the scale.

        Or with codevectors ``init``, shape (K, d): an equal number for each class. ``data`` show
        whether they split already.
        """
        d, totals = self.n_features, np.bincount(classes, weights).astype(np.float64)
        nothing = np.zeros((1, points.shape[1]))  # a class may lack all values of a feature
        common = cell_means(points, weights, np.zeros_like(classes), nothing)
        means = cell_means(points, weights, classes, common.repeat(len(totals), axis=0))
        gaps = points[:, :d] - means[classes, :d]
        rounding = len(points) * np.finfo(np.float64).eps * np.abs(means[classes, :d])
        spread = self.divergence.rowwise(points[:, :d], means[classes, :d])
        spread *= (np.abs(gaps) > rounding).any(axis=1)  # equal points have none
        spreads = np.bincount(classes, weights * spread) / totals
        class_weights = totals if class_weights is None else class_weights.copy()
        self.class_weights, n_classes = class_weights, len(means)
        self.scale = float(spreads @ class_weights / class_weights.sum())
        self.temperature = self.schedule.constants.max_temperature * float(spreads.max())
        start = self._start(gaps) if init is None else None
        self.n_samples_seen += len(points)
        per_class = 1 if init is None else len(init) // n_classes
        self.labels = np.repeat(np.arange(n_classes), per_class)
        self.codevectors = means[self.labels]
        if init is not None:
            self.codevectors[:, :d] = init
        self.masses = np.full(len(self.labels), 1.0 / per_class)
        self._keep()
        self._record(self.scale)
        self.active = self.temperature > 0.0 and not self._is_over(self.scale)
        if self.active and init is None:
            self._split(start or self._critical(data))
        self._open()

    def _add_class(self, point: FloatArray) -> None:
        """Give a new class a codevector.

        If annealing has ended and the codebook is not full, the temperature rises by a few levels,
        so that the class may split.
        """
        mean = self.weights() @ self.codevectors
        self.codevectors = np.concatenate([self.codevectors, filled(point, mean)[None]])
        if self._observed is not None:  # what is only guessed weighs nothing
            self._observed = np.concatenate([self._observed, ~np.isnan(point[None]) * 1.0])
        self.masses = np.append(self.masses, 1.0)
        self.labels = np.append(self.labels, len(self.class_weights))
        self.class_weights = np.append(self.class_weights, 0.0)
        self._passed = np.concatenate([self._passed, self.codevectors[-1:]])
        self._opened, self._viewed = (self.codevectors.copy(), self.weights()), None
        self._clocks = np.append(self._clocks, 0.0)
        if not self.active and not np.isfinite(self._full_at) and self.temperature > 0.0:
            self.active = True
            self.temperature *= self.schedule.cooling**-5  # a class has appeared late

    def observe(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> None:
        """Learn from a stream, in its order; the size of blocks makes no difference.

        New classes are numbered in the order of their appearance.
        """
        known = len(self.class_weights)
        if classes.max(initial=-1) >= known:
            at = int(np.argmax(classes >= known))
            self.observe(points[:at], classes[:at], weights[:at])
            self._add_class(points[at])
            self.observe(points[at:], classes[at:], weights[at:])
            return
        self.class_weights += np.bincount(classes, weights, minlength=len(self.class_weights))
        exchanges = self.schedule.forgetting > 0.0 and self.schedule.class_competition
        at, wait = 0, LEVEL_SAMPLES if exchanges else _BLOCK
        while at < len(points):
            taken = self.room if self.active else wait - self.n_samples_seen % wait
            block = slice(at, at + taken)
            if self.probe is not None:
                recent = np.concatenate([self.probe[0], points[block][-PROBE:]])[-PROBE:]
                labels = np.concatenate([self.probe[1], classes[block][-PROBE:]])[-PROBE:]
                self.probe = recent, labels
            self._learn(points[block], classes[block], weights[block])
            at += taken
            if self.active and self.room <= 0 and not self._moves():
                self._end_level()
            elif exchanges and not self.active and self.n_samples_seen % wait == 0:
                self._exchange()

    def anneal(self, data: Distribution, init: FloatArray | None = None) -> None:
        """Begin, and learn from data, drawn class by class, until the schedule ends."""
        budget = max(self.schedule.max_samples / data.n_classes, 1.0)
        room = [int(min(size, 500, budget)) for size in data.sizes]
        rows = np.concatenate([data.draw(c, n) for c, n in enumerate(room)])
        samples = data.points[rows], data.classes[rows], np.ones(len(rows))
        self.begin(*samples, class_weights=data.class_weights, init=init, data=data)
        while self.active:
            remaining = self.schedule.max_samples - self.n_samples_seen
            for c, size in enumerate(np.bincount(self.labels)):
                wanted = self.schedule.samples_per_codevector * size
                wanted = max(wanted, LEVEL_SAMPLES / data.n_classes)
                rows = data.draw(c, int(min(np.ceil(wanted), max(remaining, 0.0))))
                remaining -= len(rows)
                self._learn(data.points[rows], data.classes[rows], np.ones(len(rows)))
            if not self._moves():
                self._end_level(data)

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        n_classes, d = len(self.class_weights), self.n_features
        require(d == sizes["d"], f"{where}.n_features is {d}: it must be {sizes['d']}")
        require(sizes["D"] >= d and sizes["opened"] >= d, f"{where} has too few features")
        check_rising(self.labels, where)
        require(self.labels[-1] == n_classes - 1, f"{where}.labels has not {n_classes} classes")
        for i, level in enumerate(self.history):
            before, n = level.origins, self.history[i - 1].n_clusters
            known = before is None or before[0].max(initial=-1) == n - 1
            require(known, f"{where}.history[{i}].origins must be of {n} codevectors")
            require(level.labels[-1] < n_classes, f"{where}.history[{i}] has unknown classes")
        require(len(self.history) > 0, f"{where}.history is empty")
        highest, n = self._origins[0].max(initial=0), self.history[-1].n_clusters
        require(highest < n, f"{where}._origins has {highest}: it must be below {n}")
        hot = not self.active or (self.temperature > 0.0 and self.room > 0)
        require(hot, f"{where} is active, at a level that is over")

    def replace(self, codevectors: FloatArray, masses: FloatArray) -> None:
        """Go on with other codevectors of the same classes."""
        self.codevectors, self.masses = codevectors, masses
        self._open()

    def measure_by(self, divergence: Divergence) -> None:
        """Go on with the same codevectors and another divergence of the same kernel."""
        former, d, axes = self.divergence, self.n_features, np.eye(self.n_features)
        if np.array_equal(divergence.embed(axes), former.embed(axes)):
            return

        def moved(points: FloatArray) -> FloatArray:
            return np.column_stack([divergence.embed(former.restore(points[:, :d])), points[:, d:]])

        if self.probe is not None:
            self.probe = moved(self.probe[0]), self.probe[1]
        self.divergence = divergence
        self.replace(moved(self.codevectors), self.masses)

    def settle(self, distortion: float) -> None:
        """Make steps as short as after all samples, whose mean divergence is ``distortion``."""
        self._clocks = self.class_weights.copy()
        self._seen[:] = distortion * self._clocks.sum(), self._clocks.sum()

    def return_to(self, i: int) -> None:
        """Go back to the end of level ``i`` of the history; annealing may go on from there."""
        level = self.history[i]
        self.history = self.history[: i + 1]
        own = self.divergence.embed(level.codevectors)
        self.codevectors = np.concatenate([own, level.averages], axis=1)
        self.labels = level.labels.copy()
        self.class_weights = np.bincount(level.labels, level.weights) * self.class_weights.sum()
        self.masses = level.weights / np.bincount(level.labels, level.weights)[level.labels]
        self.temperature, self.n_samples_seen = level.temperature, level.n_samples_seen
        self._keep()
        self._full_at = np.inf if self.temperature > self._full_at else self._full_at
        self._frozen_at = np.inf if self.temperature > self._frozen_at else self._frozen_at
        self.active = not self._is_over(level.distortion)
        self._open()

    def weights(self) -> FloatArray:
        """Share of the data that each codevector stands for, shape (K,)."""
        priors = self.class_weights / self.class_weights.sum()
        return np.asarray(self.masses * priors[self.labels])

    def view(self, limit: int | None) -> Codebook:
        """Return the codebook, merged down to at most ``limit`` codevectors.

        Within a level there may be more: pairs that may merge again when it ends.
        """
        if limit is None or len(self.labels) <= limit:
            return Codebook(self.codevectors.copy(), self.weights(), self.labels)
        if self._viewed is None:  # which ones merge was decided when the level began
            flat = self.divergence.flat(self._opened[0][:, : self.n_features])
            self._viewed = ward_merge(flat, self._opened[1], self.labels, limit)
        into, weights = self._viewed, np.maximum(self.weights(), TINY)
        totals = np.bincount(into, weights).astype(np.float64)
        labels = np.empty(len(totals), dtype=np.int64)
        labels[into] = self.labels
        return Codebook(mixed(into, weights, self.codevectors), totals, labels)

    def distortion(self) -> float:
        """Mean divergence of the current level's samples, or of the last level if it has none."""
        total, weight = self._seen
        return float(total / weight) if weight else self.history[-1].distortion

    def reduce_to(self, n_codevectors: int) -> None:
        """Merge, the cheapest pair of one class first, until ``n_codevectors`` are left."""
        if len(self.labels) > n_codevectors:
            self._merge_down(n_codevectors)
            self._open()

    def _learn(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> None:
        points = np.ascontiguousarray(points, dtype=np.float64)  # drawn from single precision?
        missing, priors = None if self._observed is not None else holes(points), None
        if missing is not None:
            first = int(missing.any(axis=1).argmax())
            self._learn(points[:first], classes[:first], weights[:first])
            points, classes, weights = points[first:], classes[first:], weights[first:]
            self._observed = np.repeat(self.masses[:, None], points.shape[1], axis=1)
        if not self.schedule.class_competition:
            priors = np.asarray(np.bincount(self.labels, self._opened[1]), np.float64)[self.labels]
        starts = np.searchsorted(self.labels, np.arange(len(self.class_weights) + 1))
        learned = Codevectors(self.codevectors, self.masses, starts, self._clocks, self._seen)
        forgetting, constants = self.schedule.forgetting, self.schedule.constants
        pace = Pace(self.temperature, forgetting, constants.step_offset, constants.step_slope)
        learn(
            self.divergence, self.n_features, points, classes, weights, learned, pace,
            self._observed, priors,
        )  # fmt: skip
        self._level_samples += len(points)
        self.n_samples_seen += len(points)

    def _exchange(self) -> None:
        """Move a codevector of each class to one of its latest samples, if that saves enough.

        A step of local search (Lattanzi and Sohler, "A better k-means++ algorithm via local
        search", ICML 2019), which tries some samples, rather those far from a codevector.
        """
        assert self.probe is not None
        d, between, (points, classes) = self.n_features, self.divergence.between, self.probe
        for c in np.unique(classes):
            owned, latest = np.flatnonzero(self.labels == c), points[classes == c]
            if len(owned) < 2:
                continue
            gaps = between(latest[:, :d], self.codevectors[owned, :d])
            cells, (first, second) = gaps.argmin(axis=1), np.partition(gaps, 1, axis=1)[:, :2].T
            tried = (first * self._rng.random(len(first))).argsort()[-_DRAWN:]
            places = filled(latest[tried], self.codevectors[owned[cells[tried]]])
            apart = between(latest[:, :d], places[:, :d])
            apart[tried, np.arange(len(tried))] = np.inf  # an outlier saves nothing by itself
            joined = np.minimum(apart, first[:, None])
            left = np.minimum(apart, second[:, None]) - joined  # by the codevector that moves
            costs = joined.sum(axis=0) + (cells == np.arange(len(owned))[:, None]) @ left
            k, i = np.unravel_index(costs.argmin(), costs.shape)
            if first.sum() - costs[k, i] > _WORTH_MOVING * first.sum() / len(owned):
                pair = owned[[k, cells[tried[i]]]]
                self.codevectors[pair[0]] = places[i]
                self.masses[pair] = self.masses[pair].mean()
                self._opened, self._viewed = (self.codevectors.copy(), self.weights()), None
                self._observed = None

    def _accuracy(self) -> float | None:
        if self.probe is None or len(self.class_weights) < 2:
            return None
        points, classes = self.probe
        d = self.n_features
        nearest = self.divergence.between(points[:, :d], self.codevectors[:, :d]).argmin(axis=1)
        return float((self.labels[nearest] == classes).mean())

    @property
    def room(self) -> int:
        """Number of samples that the temperature level still takes."""
        wanted = max(self.schedule.samples_per_codevector * len(self.labels), LEVEL_SAMPLES)
        remaining = max(self.schedule.max_samples - self.n_samples_seen, 0)
        return int(min(self._passes * np.ceil(wanted) - self._level_samples, remaining))

    def _moves(self) -> bool:
        """Whether the level takes another pass, since a codevector moved in the last one."""
        movement, d = self.schedule.constants.movement, self.n_features
        last = self._passes >= _MAX_PASSES or self.n_samples_seen >= self.schedule.max_samples
        if movement == np.inf or last:
            return False
        moves = self.divergence.rowwise(self.codevectors[:, :d], self._passed[:, :d])
        self._passed = self.codevectors.copy()
        self._passes += 1
        return bool(moves.max() > movement * self.temperature)

    def _end_level(self, data: Distribution | None = None) -> None:
        n_points = np.inf if data is None else len(data.points)
        distortion = self.distortion()
        frozen, full = math.isfinite(self._frozen_at), math.isfinite(self._full_at)
        limit, last = self.schedule.max_codevectors, self.history[-1]
        if not frozen:
            self._merge_close()
            if full or len(self.labels) >= self.schedule.grown(n_points):
                distortion += self._merge_down(limit)
                if not full:
                    self._full_at = self.temperature
                if self.schedule.hastens or (full and distortion > _SETTLED * last.distortion):
                    self._frozen_at = self.temperature
            elif self.schedule.ends_full and len(self.labels) == limit == last.n_clusters:
                self._frozen_at = self.temperature
        self.active = not self._is_over(distortion)
        if not self.active and len(self.labels) > limit:
            distortion += self._merge_down(limit)
        self._record(distortion)
        self._keep()
        if self.active:
            self.temperature *= 0.5 if frozen else self.schedule.cooling
            if not math.isfinite(self._frozen_at):
                self._split(self._critical(data))
        self._open()

    def _is_over(self, distortion: float) -> bool:
        """Whether annealing ends with a level of such a mean divergence."""
        schedule, frozen = self.schedule, math.isfinite(self._frozen_at)
        coldest = max(schedule.min_temperature, NEGLIGIBLE) * self.scale
        if frozen:
            coldest = max(coldest, 0.01 * self._frozen_at)  # it no longer splits
        return (
            self.temperature <= coldest
            or distortion <= max(schedule.target_distortion, NEGLIGIBLE * self.scale)
            or self.n_samples_seen >= schedule.max_samples
            or (schedule.ends_full and frozen)
        )

    def _merge_close(self) -> None:
        constants, d = self.schedule.constants, self.n_features
        alive = self.masses >= constants.min_mass
        if not alive.all():
            heaviest = np.lexsort((-self.masses, self.labels))  # class by class
            alive[heaviest[np.diff(self.labels, prepend=-1) > 0]] = True
        below = constants.merge_below * (_MEASURED if self._measured else 1.0) * self.temperature
        into = coincide(self.divergence, d, self.codevectors, self.labels, alive, below)
        if not alive.all():
            self._follow(into)
        self.masses /= np.bincount(self.labels, self.masses)[self.labels]

    def _merge_down(self, n_codevectors: int) -> float:
        """Merge, and return by how much that raises the distortion."""
        flat = self.divergence.flat(self.codevectors[:, : self.n_features])
        weights, before, d = self.weights(), self.codevectors, self.n_features
        into = ward_merge(flat, weights, self.labels, n_codevectors)
        self._follow(into)
        return float(weights @ self.divergence.rowwise(before[:, :d], self.codevectors[into, :d]))

    def _follow(self, into: IntArray) -> None:
        """Merge into new cells, each of one class, or drop where the new cell is -1."""
        kept = into >= 0
        into, masses = into[kept], np.maximum(self.masses[kept], TINY)
        self.codevectors = mixed(into, masses, self.codevectors[kept])
        origins, cells, shares = self._origins
        ends, fractions = np.zeros((2, len(kept)))  # what is dropped has no share
        ends[kept], fractions[kept] = into, masses / np.bincount(into, masses)[into]
        self._origins = origins, ends[cells].astype(np.int64), shares * fractions[cells]
        self.masses, former = np.bincount(into, masses).astype(np.float64), self.labels[kept]
        self.labels = np.empty(len(self.masses), dtype=np.int64)
        self.labels[into] = former

    def _split(self, measured: tuple[FloatArray, FloatArray] | None) -> None:
        """Split codevectors: those below their critical temperatures, or all if not measured."""
        n, d = len(self.labels), self.n_features
        self._measured = measured is not None
        if measured is None:
            square, halves = self.schedule.constants.shift**2 * self.temperature, np.ones(n, bool)
            shifts = self.divergence.shifts(self.codevectors[:, :d], square, self._rng)
        else:
            temperatures, shifts = measured
            halves = temperatures > self.temperature
            self.history[-1] = replace(self.history[-1], critical=float(temperatures.max()))
        rows = np.repeat(np.arange(n), 1 + halves)
        signs = halves[rows] * 1.0
        signs[1:][rows[1:] == rows[:-1]] = -1.0  # the second of two halves moves the other way
        self.codevectors = self.codevectors[rows]
        self.codevectors[:, :d] += signs[:, None] * shifts[rows]
        self.masses = self.masses[rows] / (1 + halves[rows])
        self.labels = self.labels[rows]
        self._origins = rows, np.arange(len(rows)), np.ones(len(rows))

    def _start(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Cool below the critical temperature at the mean, where ``fit`` refines; return the split.

        It is that of :func:`critical`, from the gaps of all points.
        """
        if not self.schedule.ends_full or self.schedule.measures or holes(gaps) is not None:
            return None
        gaps = gaps / np.sqrt(max(self.scale, TINY))  # products must not overflow
        axis = gaps[self.divergence.potential(gaps).argmax()]
        for _ in range(_ITERATIONS):
            axis = (gaps @ axis) @ gaps
            axis /= max(math.sqrt(axis @ axis), TINY)
        variance = float(((gaps @ axis) ** 2).mean()) * self.scale
        self.temperature = min(self.temperature, self.schedule.cooling * 2.0 * variance)
        return np.array([2.0 * variance]), SHIFT * np.sqrt(variance) * axis[None]

    def _critical(self, data: Distribution | None) -> tuple[FloatArray, FloatArray] | None:
        """Where the codevectors split, if there are enough points, and no values are missing."""
        if data is None or not self.schedule.measures:
            return None
        points, classes, weights = data.some(MAX_POINTS)
        points = np.asarray(points[:, : self.n_features], dtype=np.float64)
        if holes(points) is not None:
            return None
        with np.errstate(all="ignore"):  # what is not finite is not measured
            return critical(
                points, weights, classes, self.codevectors[:, : self.n_features], self.masses,
                self.labels, self.temperature, self.divergence, self._rng,
            )  # fmt: skip

    def _keep(self) -> None:
        """Note that each codevector comes from itself."""
        n = len(self.labels)
        self._origins = np.arange(n), np.arange(n), np.ones(n)

    def _open(self) -> None:
        """Begin a temperature level."""
        self.codevectors = np.array(self.codevectors, dtype=np.float64, order="C")
        self.masses = np.array(self.masses)
        self._opened, self._viewed = (self.codevectors.copy(), self.weights()), None
        self._clocks = np.zeros(len(self.class_weights))
        self._seen, self._observed = np.zeros(2), None
        self._level_samples, self._passes = 0, 1
        self._passed = self._opened[0]

    def _record(self, distortion: float) -> None:
        self.history.append(
            Level(
                temperature=self.temperature,
                distortion=float(distortion),
                n_samples_seen=self.n_samples_seen,
                codevectors=self.divergence.restore(self.codevectors[:, : self.n_features]),
                averages=self.codevectors[:, self.n_features :].copy(),
                weights=self.weights(),
                labels=self.labels.copy(),
                origins=self._origins if self.history else None,
                accuracy=self._accuracy(),
            )
        )
