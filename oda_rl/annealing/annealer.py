"""Online deterministic annealing of whole codebooks: at a temperature, and between two.

The codebook of every class starts with one codevector. At each temperature it settles on samples
(``codebook.learn``); then codevectors that have run together merge, idle ones are
dropped, the level goes into the history, the temperature falls, and every codevector splits into a
pair, which stays apart only if the temperature is below its cell's critical one.

A full codebook still splits at every level, and the cheapest merges bring it back to its size. Two
codevectors that share a cluster merge, and two clusters that share a codevector come apart: this
is how codevectors move across empty space. When that no longer lowers the distortion, splitting
ends.

Everything is relative to the data's own scale: the mean divergence from the class mean.
"""

from typing import Any, ClassVar

import numpy as np

from oda_rl._state import Raw
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.annealing import cells as annealing
from oda_rl.annealing.codebook import Balls, Layout, Seen, Stage, check_layout, segments
from oda_rl.annealing.laying_out import laid_out
from oda_rl.annealing.levels import LEVEL_SAMPLES, Codebook, Level, Schedule, check_labels
from oda_rl.annealing.merging import cheapest_merges, heavy
from oda_rl.annealing.missing import class_means
from oda_rl.annealing.sampling import Distribution
from oda_rl.annealing.showing import Shown, show
from oda_rl.annealing.turned import check_known, known_of
from oda_rl.divergences import QUADRATIC, TINY, Divergence
from oda_rl.files.schema import (
    MISSING,
    Each,
    Maybe,
    Member,
    Optional,
    Several,
    Sizes,
    flags,
    real,
    require,
    whole,
)

PROBE = 500  # samples that the accuracy of a level is measured on
_SHIFT = 0.1  # of a split, in square roots of the temperature
_MERGE = 0.3  # pairs closer than this many temperatures are one
_SETTLED = 0.9  # share of the distortion that a level leaves to a full codebook that has settled
_MIN_MASS = 1e-5
_FROZEN_COOLING = 0.5
_BLOCK = 4096  # samples that are brought to double precision at once
_LEVELS_FOR_A_CLASS = 5  # that appears when annealing has ended


class Annealer:
    """A codebook, its temperature and its history.

    Points go in and codevectors come out in the divergence's own coordinates
    (:meth:`oda_rl.divergences.Divergence.embed`), but for those in the history.

    Parameters
    ----------
    schedule : Schedule
        When to cool and when to stop.
    divergence : Divergence
        How far a point is from a codevector.
    n_features : int
        The first d components of a point; it may have more, which are averaged along.
    rng : numpy.random.Generator
        Draws the shifts of the splits.

    Attributes
    ----------
    codevectors : ndarray, shape (K, d + q)
        Class after class.
    masses : ndarray, shape (K,)
        Those of one class sum to 1.
    labels : ndarray, shape (K,)
        Classes as indices, rising.
    class_weights : ndarray, shape (C,)
        Weight of the samples seen of each class.
    temperature : float
        Of the current level.
    active : bool
        Whether the annealing goes on; what comes after only moves codevectors.
    probe : (ndarray, ndarray) or None
        Points and their classes that the accuracy of a level is measured on.
    history : list of Level
        One for each temperature level that has ended.
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
        "_full_at": real("", "[0, inf]"),
        "_frozen_at": real("", "[0, inf]"),
        "_level_samples": whole(),
        "_layout": Layout,
        "_balls": Balls,
        "_segments": whole("K", "[0, K)"),
        "_scales": real("classes", "(0, inf)"),
        "_clocks": real("classes", "[0, inf)"),
        "_seen": Member(np.uint8, str(Seen.size), "[0, 255]"),
        "_parents": real("K, parents", "[0, inf)"),
        "_opened": Several(real("K, opened"), real("K", "[0, inf)")),
        "_viewed": Maybe(flags("V, K")),
        "_known": Optional(real("known, K")),
    }
    """What a file may say; d, features of the estimator, is known then."""
    _known: FloatArray | None = None  # of features, at a level where values are missing

    def __init__(
        self,
        schedule: Schedule,
        divergence: Divergence,
        n_features: int,
        rng: np.random.Generator,
    ) -> None:
        self.schedule, self.divergence, self._rng = schedule, divergence, rng
        self.n_features = n_features
        self.history: list[Level] = []
        self.n_samples_seen = 0
        self.active = True
        self.probe: tuple[FloatArray, IntArray] | None = None
        self._full_at = np.inf  # the temperature at which the codebook was full
        self._frozen_at = np.inf  # the temperature at which the full codebook no longer split
        self._level_samples = 0
        self._layout: Layout
        self._balls: Balls
        self._segments: IntArray
        self._scales: FloatArray
        self._clocks: FloatArray
        self._seen: Raw
        self._parents: FloatArray
        self._opened: tuple[FloatArray, FloatArray]
        self._viewed: BoolArray | None = None

    def begin(
        self,
        points: FloatArray,
        classes: IntArray,
        weights: FloatArray,
        *,
        class_weights: FloatArray | None = None,
        init: FloatArray | None = None,
    ) -> None:
        """Start with the mean of each class of these points, or with codevectors ``init``.

        The points give the scale; they are not learned from again. ``init``, shape (K, d), with K
        a multiple of the number of classes, is dealt out to the classes in equal parts.
        """
        d, totals = self.n_features, np.bincount(classes, weights).astype(np.float64)
        means = class_means(self.divergence, d, points, classes, weights)
        spread = self.divergence.rowwise(points[:, :d], means[classes, :d])
        spreads = np.bincount(classes, weights * spread) / totals
        own = totals if class_weights is None else class_weights.copy()
        self.begin_at(means, spreads, own, len(points), init)

    def begin_at(
        self, means: FloatArray, spreads: FloatArray, class_weights: FloatArray, n_samples: int,
        init: FloatArray | None,
    ) -> None:  # fmt: skip
        """Start with classes' means, shape (C, d + q), from which they have these ``spreads``."""
        n_classes, d = len(means), self.n_features
        self.class_weights, self._scales = class_weights, np.ones(n_classes)
        self.scale = float(spreads @ class_weights / class_weights.sum())
        self.temperature = 2.0 * float(spreads.max())
        self.n_samples_seen = n_samples
        per_class = 1 if init is None else len(init) // n_classes
        self.labels = np.repeat(np.arange(n_classes), per_class)
        self.codevectors = means[self.labels]
        if init is not None:
            self.codevectors[:, :d] = init
        self.masses = np.full(len(self.labels), 1.0 / per_class)
        self._parents = np.zeros((len(self.labels), 0))
        accuracy = self._accuracy()
        self._record(self.scale, accuracy)
        self.active = self.temperature > 0.0 and not self._is_over(self.scale, accuracy)
        if self.active and init is None:
            self._split()
        self._open()

    def _add_class(self, point: FloatArray) -> None:
        """Give a class that has not been seen before a codevector of its own.

        If annealing has ended it goes on from a few levels before, so that the class may split;
        not if there are as many codevectors as there may be.
        """
        self.gather()
        mean = self.weights() @ self.codevectors
        guessed = self.divergence.completed(point[None], mean)[0]
        self.codevectors = np.concatenate([self.codevectors, guessed[None]])
        if self._known is not None:  # what is only guessed weighs nothing
            self._known = np.column_stack([self._known, known_of(self.divergence, point)])
        self.masses = np.append(self.masses, 1.0)
        self.labels = np.append(self.labels, len(self.class_weights))
        self.class_weights = np.append(self.class_weights, 0.0)
        self._scales = np.append(self._scales, 1.0)
        self._parents = np.concatenate([self._parents, np.zeros((1, self._parents.shape[1]))])
        clocks = np.append(self._clocks, 0.0)
        self._arrange()
        self._scatter()
        self._opened, self._viewed = (self.codevectors, self.weights()), None
        self._clocks = clocks
        if not self.active and not np.isfinite(self._full_at) and self.temperature > 0.0:
            self.active = True
            self.temperature *= self.schedule.cooling**-_LEVELS_FOR_A_CLASS

    def observe(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> None:
        """Learn from a stream, in its order; the same in blocks of any size.

        Classes that have not been seen before are numbered on in the order of their appearance.
        """
        known = len(self.class_weights)
        if classes.max(initial=-1) >= known:
            at = int(np.argmax(classes >= known))
            if at > 0:
                self.observe(points[:at], classes[:at], weights[:at])
            self._add_class(points[at])
            self.observe(points[at:], classes[at:], weights[at:])
            return
        self.class_weights += np.bincount(classes, weights, minlength=len(self.class_weights))
        at = 0
        while at < len(points):
            taken = self.room if self.active else _BLOCK
            block = slice(at, at + taken)
            self._remember(points[block], classes[block])
            self._learn(points[block], classes[block], weights[block])
            at += taken
            if self.active and self.room <= 0:
                self._end_level()

    def anneal(self, data: Distribution) -> None:
        """Learn from data, drawn class by class, until the schedule says that it is enough."""
        n = len(data.points)
        while self.active:
            remaining = self.schedule.max_samples - self.n_samples_seen
            for c, size in enumerate(np.bincount(self.labels)):
                wanted = self.schedule.samples_per_codevector * size
                wanted = max(wanted, LEVEL_SAMPLES / data.n_classes)
                rows = data.draw(c, int(min(np.ceil(wanted), max(remaining, 0.0))))
                remaining -= len(rows)
                self._learn(data.points[rows], data.classes[rows], np.ones(len(rows)))
            self._end_level(n)

    def move(self, codevectors: FloatArray, masses: FloatArray) -> tuple[Layout, Balls]:
        """Move at the same temperature, to what sums say; returns it as kernels take it."""
        self.codevectors, self.masses = codevectors, masses
        self._scatter()
        return self._layout, self._balls

    def end_level(self, distortion: float) -> None:
        """End a level whose sums said what its samples' mean divergence is."""
        seen = Seen(self._seen)
        seen.distortion, seen.weight = distortion, 1.0
        self._end_level()

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        n_classes, d = len(self.class_weights), self.n_features
        require(d == sizes["d"], f"{where}.n_features is {d}: it must be {sizes['d']}")
        require(sizes["D"] >= d and sizes["opened"] >= d, f"{where} has too few features")
        check_labels(self.labels, where)
        require(self.labels[-1] == n_classes - 1, f"{where}.labels has not {n_classes} classes")
        Seen.check_records(f"{where}._seen", Seen(self._seen).record, {})
        affine = self.divergence.kernel != QUADRATIC
        check_layout(self._layout, self.labels, affine)
        require(
            not affine or len(self._layout.gradients) == d, "layout.gradients are not of d rows"
        )
        check_known(self.divergence, sizes["D"], self._known, where)
        before = None
        for i, level in enumerate(self.history):
            came = None if level.lineage is None else level.lineage.shape[1]
            follows = came is None or before is None or came > 0
            require(follows, f"{where}.history[{i}].lineage is of no codevectors")
            require(level.labels[-1] < n_classes, f"{where}.history[{i}] has unknown classes")
            before = level
        require(len(self.history) > 0, f"{where}.history is empty")
        hot = not self.active or (self.temperature > 0.0 and self.room > 0)
        require(hot, f"{where} is active, at a level that is over")

    def reopen(self) -> None:
        """Let the kernel's arrays be one with the rest again after they were read from a file."""
        if "_working" in vars(self):  # of a file from before these had names
            columns, gradients, offsets, _, starts = vars(self).pop("_working")
            owners, centres, radii = vars(self).pop("_balls")
            self._balls = Balls(centres, radii, np.empty(len(radii)))
            self._layout = Layout(columns, gradients, offsets, self.masses, starts, owners)
            self._seen = vars(self).pop("_stats").view(np.uint8)
        self._layout = self._layout._replace(masses=self.masses)

    def replace(self, codevectors: FloatArray, masses: FloatArray) -> None:
        """Go on with other codevectors of the same classes."""
        self.codevectors, self.masses = codevectors, masses
        self._scales = np.ones(len(self.class_weights))
        self._open()

    def settle(self, distortion: float) -> None:
        """Go on as after all samples, of which the mean divergence was that: by steps as short."""
        self._clocks, seen = self.class_weights.copy(), Seen(self._seen)
        seen.distortion, seen.weight = distortion * self._clocks.sum(), self._clocks.sum()

    def return_to(self, i: int) -> None:
        """Go back to where the codebook stood when level ``i`` of its history ended.

        Annealing will go on from there if there was more to come.
        """
        level = self.history[i]
        self.history = self.history[: i + 1]
        own = self.divergence.embed(level.codevectors)
        self.codevectors = np.concatenate([own, level.averages], axis=1)
        self.labels = level.labels.copy()
        self.class_weights = np.bincount(level.labels, level.weights) * self.class_weights.sum()
        self._scales = np.ones(len(self.class_weights))
        self.masses = level.weights / np.bincount(level.labels, level.weights)[level.labels]
        self.temperature, self.n_samples_seen = level.temperature, level.n_samples_seen
        self._parents = np.eye(len(self.labels))
        if self.temperature > self._full_at:
            self._full_at = np.inf
        if self.temperature > self._frozen_at:
            self._frozen_at = np.inf
        self.active = not self._is_over(level.distortion, level.accuracy)
        self._open()

    def weights(self) -> FloatArray:
        """Share of the data that each codevector stands for, shape (K,)."""
        priors = self.class_weights / self.class_weights.sum()
        return np.asarray(self.masses * (priors * self._scales)[self.labels])

    def view(self, limit: int | None) -> Codebook:
        """Return the codebook as it is, merged down to at most ``limit`` codevectors.

        In the middle of a level there may be more: pairs that have yet to show whether they stay.
        """
        self.gather()
        if limit is None or len(self.labels) <= limit:
            return Codebook(self.codevectors, self.weights(), self.labels)
        if self._viewed is None:  # which ones merge was decided when the level began
            flat = self.divergence.flat(self._opened[0][:, : self.n_features])
            self._viewed = cheapest_merges(flat, self._opened[1], self.labels, limit) > 0.0
        weights = self._viewed * self.weights()
        totals = weights.sum(axis=1)
        labels = self.labels[self._viewed.argmax(axis=1)]
        merged = weights @ self.codevectors / np.maximum(totals, TINY)[:, None]
        return Codebook(merged, totals, labels)

    def distortion(self) -> float:
        """Mean divergence of the current level's samples, or of the last level if it has none."""
        seen = Seen(self._seen)
        return seen.distortion / seen.weight if seen.weight else self.history[-1].distortion

    def reduce_to(self, n_codevectors: int) -> None:
        """Merge, the cheapest pair of one class first, until so many are left."""
        if len(self.labels) > n_codevectors:
            self._merge_down(n_codevectors)
            self._open()

    def _learn(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> None:
        points = np.asarray(points, dtype=np.float64)  # which may be drawn from single precision
        shown = Shown(self.divergence, self.n_features, points, classes, weights)
        heat = self.temperature, self.schedule.forgetting
        stage = Stage(*heat, self._scales, self._clocks, self._seen)
        known = show(shown, self._layout, self._balls, stage, self._known)
        if known is not None:
            self._known = known
        self._level_samples += len(points)
        self.n_samples_seen += len(points)

    def _remember(self, points: FloatArray, classes: IntArray) -> None:
        """Keep the latest samples to measure the accuracy on."""
        if self.probe is not None:
            points = np.concatenate([self.probe[0], points[-PROBE:]])[-PROBE:]
            self.probe = points, np.concatenate([self.probe[1], classes[-PROBE:]])[-PROBE:]

    def _accuracy(self) -> float | None:
        if self.probe is None or len(self.class_weights) < 2:
            return None
        points, classes = self.probe
        d = self.n_features
        nearest = self.divergence.between(points[:, :d], self.codevectors[:, :d]).argmin(axis=1)
        return float((self.labels[nearest] == classes).mean())

    @property
    def room(self) -> int:
        """How many samples the temperature level still takes."""
        return self.schedule.room(len(self.labels), self._level_samples, self.n_samples_seen)

    def _end_level(self, n_points: float = np.inf) -> None:
        distortion = self.distortion()
        self.gather()
        self.masses = self.masses * self._scales[self.labels]
        self._scales = np.ones(len(self.class_weights))
        frozen, full = np.isfinite(self._frozen_at), np.isfinite(self._full_at)
        limit = self.schedule.max_codevectors
        if not frozen:
            self._merge_close()
            if full or len(self.labels) >= self.schedule.grown(n_points):
                distortion += self._merge_down(limit)
                if not full:
                    self._full_at = self.temperature
                elif distortion > _SETTLED * self.history[-1].distortion:
                    self._frozen_at = self.temperature
        accuracy = self._accuracy()
        self.active = not self._is_over(distortion, accuracy)
        if not self.active and len(self.labels) > limit:
            distortion += self._merge_down(limit)
            accuracy = self._accuracy()
        self._record(distortion, accuracy)
        if self.active:
            self.temperature *= _FROZEN_COOLING if frozen else self.schedule.cooling
            if np.isfinite(self._frozen_at):
                self._parents = np.eye(len(self.labels))
            else:
                self._split()
        self._open()

    def _is_over(self, distortion: float, accuracy: float | None) -> bool:
        return self.schedule.is_over(
            self.temperature, distortion, accuracy, self.n_samples_seen, self.scale, self._frozen_at
        )

    def _merge_close(self) -> None:
        alive = heavy(self.masses, self.labels, _MIN_MASS)
        own = self.codevectors[:, : self.n_features]
        close = self.divergence.between(own, own)
        near = np.minimum(close, close.T) < _MERGE * self.temperature
        near &= self.labels[:, None] == self.labels
        cells = np.column_stack([self.masses, self.codevectors])
        self._follow(annealing.merge(cells, len(cells), alive, near), cells)

    def _merge_down(self, n_codevectors: int) -> float:
        """Merge; return by how much that raises the distortion."""
        flat = self.divergence.flat(self.codevectors[:, : self.n_features])
        lineage = cheapest_merges(flat, self.weights(), self.labels, n_codevectors)
        shares = lineage / lineage.sum(axis=1, keepdims=True)
        masses = (lineage > 0.0) @ self.masses
        before, merged = self.codevectors, shares @ self.codevectors
        self._follow(lineage, np.column_stack([masses, merged]))
        into, d = lineage.argmax(axis=0), self.n_features
        return float(lineage.sum(axis=0) @ self.divergence.rowwise(before[:, :d], merged[into, :d]))

    def _follow(self, lineage: FloatArray, cells: FloatArray) -> None:
        """Take over merged cells; every row of the lineage is of one class."""
        n = len(lineage)
        self.masses, self.codevectors = cells[:n, 0].copy(), cells[:n, 1:].copy()
        self.labels = self.labels[lineage.argmax(axis=1)]
        self._parents = lineage @ self._parents / lineage.sum(axis=1, keepdims=True)
        totals = np.bincount(self.labels, self.masses)
        self.masses /= totals[self.labels]

    def _split(self) -> None:
        shifts = np.zeros_like(self.codevectors)
        shifts[:, : self.n_features] = self.divergence.shifts(
            self.codevectors[:, : self.n_features], _SHIFT**2 * self.temperature, self._rng
        )
        sides = self.codevectors + shifts, self.codevectors - shifts
        labels, parents = np.concatenate([self.labels] * 2), np.eye(len(self.labels))
        order = np.argsort(labels, kind="stable")
        self.labels, self.codevectors = labels[order], np.concatenate(sides)[order]
        self.masses = 0.5 * np.concatenate([self.masses] * 2)[order]
        self._parents = np.concatenate([parents] * 2)[order]

    def _open(self) -> None:
        """Begin a temperature level."""
        self._arrange()
        self._scatter()
        self._opened, self._viewed = (self.codevectors, self.weights()), None
        self._clocks = np.zeros(len(self.class_weights))
        self._seen = np.zeros(Seen.size, np.uint8)
        vars(self).pop("_known", None)
        self._level_samples = 0

    def _arrange(self) -> None:
        """Put neighbours side by side, so that the kernel can pass over those far away."""
        own = self.codevectors[:, : self.n_features]
        self._segments = self.labels
        if self.divergence.kernel == QUADRATIC and len(self.class_weights) == 1:
            self._segments = segments(own)
        if (self._segments[1:] < self._segments[:-1]).any():
            order = np.argsort(self._segments, kind="stable")
            self._segments = self._segments[order]
            self.codevectors, self.masses = self.codevectors[order], self.masses[order]
            self._parents = self._parents[order]

    def _scatter(self) -> None:
        """Lay the codebook out for the kernel."""
        self._layout, self._balls = laid_out(
            self.divergence, self.n_features, self.codevectors, self.masses, self._segments,
            len(self.class_weights),
        )  # fmt: skip

    def gather(self) -> None:
        """Bring ``codevectors`` up to date with what the kernel has learned."""
        self.codevectors = np.ascontiguousarray(self._layout.columns[:, : len(self.labels)].T)

    def _record(self, distortion: float, accuracy: float | None) -> None:
        self.history.append(
            Level(
                temperature=self.temperature,
                distortion=float(distortion),
                n_samples_seen=self.n_samples_seen,
                codevectors=self.divergence.restore(self.codevectors[:, : self.n_features]),
                averages=self.codevectors[:, self.n_features :].copy(),
                weights=self.weights(),
                labels=self.labels.copy(),
                lineage=self._parents.copy() if self.history else None,
                accuracy=accuracy,
            )
        )
