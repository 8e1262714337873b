"""Classification by online deterministic annealing, with a codebook for each class."""

import copy
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, field
from itertools import product
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import entr, log_softmax, softmax
from sklearn.base import ClassifierMixin

from oda_rl import _validation as validation
from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.annealing.annealer import Codebook, Distribution
from oda_rl.annealing.base import BaseODA
from oda_rl.divergences import QUADRATIC, Divergence, Mahalanobis, is_euclidean, resolve
from oda_rl.files import estimators
from oda_rl.files.schema import ANYTHING, Sizes, check_classes, flags, real, whole
from oda_rl.quantization.kernels import glvq, lvq1, rslvq
from oda_rl.samples import counted, filled, holes, observed_shares, units_of

_SELECTION_SAMPLES = 1500  # at most, by which n_clusters="auto" chooses
_RARE = 50  # samples of a class at least, of those
_METRIC_STEPS = 60  # of L-BFGS: more gain little on held-out samples
_FIRST_STEPS = 15, 30  # of L-BFGS, in two folds: which candidates go on
_HALVINGS = 10  # of the first metric's root, at most
_TESTED = 2  # folds, where only the temperature of prediction is to be chosen, or else
_MANY_SAMPLES = 1000  # are at hand: with fewer it needs all folds
_FEW = 3  # points a codevector: with fewer, it may lie on one
_COSTLY = 40  # features: with more, two folds choose
MANY_FEATURES = 200  # with more, a metric is not tried
MATRIX = "mrslvq"  # also learns a metric
ALGORITHMS = ("rslvq", "glvq", "lvq1")
_PASSES = 5  # of fine-tuning, over all samples
_DOUBLINGS = 12  # of the temperature of Gaussian cells, at most
_MIN_PROBABILITY = 1e-6  # limits the loss of an outlier
_RAISES, _LOWEST_LOG = 30, -36.0  # of the final temperature; of a probability that is not 0
N_FOLDS = 5  # of cross-validation
_PENALTIES = (0.003, 0.03, 0.3)  # of a learned metric, of which cross-validation chooses
_HONEST = 0.999  # no single sample costs more than log 1000
_CAUTION = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0])  # times the temperature


def class_log_densities(
    divergences: FloatArray, weights: FloatArray, labels: IntArray, temperature: float
) -> FloatArray:
    """Log Σ_k w_k exp(−d_k/T) over the codevectors of each class, shape (n, C).

    ``divergences``, shape (n, K), are those from the codevectors; ``weights``, shape (K,), are
    masses times class priors; ``labels``, shape (K,), are classes, rising from 0 to C - 1.
    """
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - divergences / temperature
        highest = np.maximum(np.maximum.reduceat(logs, starts, axis=1), np.finfo(np.float64).min)
        logs -= highest[:, labels]
        sums = np.add.reduceat(np.exp(logs, out=logs), starts, axis=1)
        return np.asarray(highest + np.log(sums))


def best_temperature(
    divergences: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    classes: IntArray,
    n_features: float,
    sample_weight: FloatArray | None = None,
    least: float = 0.0,
) -> float:
    """Temperature at which the densities predict the classes, shape (n,), with the lowest log loss.

    Candidates are multiples of 2 D/d, the temperature of Gaussian cells, where D is the mean
    divergence from the nearest codevector, or at ``least`` that; a parabola refines the best.
    """
    nearest = max(float(np.average(divergences.min(axis=1), weights=sample_weight)), least)
    scale = 2.0 * nearest / n_features or float(divergences.max()) or 1.0
    # Wrong labels far from their class need temperatures as high as the divergences.
    highest = np.clip(np.log2(max(float(divergences.max()), scale) / scale), 3.0, _DOUBLINGS)
    temperatures, losses = scale * 2.0 ** np.arange(-2.0, highest + 1.0), []
    for temperature in temperatures:
        logs = class_log_densities(divergences, weights, labels, temperature)
        right = np.exp(logs[np.arange(len(logs)), classes] - np.logaddexp.reduce(logs, axis=1))
        losses.append(-np.average(np.log(right + _MIN_PROBABILITY), weights=sample_weight))
    i, shift = int(np.argmin(losses)), 0.0
    if 0 < i < len(losses) - 1:
        lower, lowest, upper = losses[i - 1 : i + 2]
        shift = 0.5 * (lower - upper) / (lower - 2.0 * lowest + upper)
    return float(temperatures[i] * 2.0**shift)


class Candidate(NamedTuple):
    """Settings of a classifier."""

    n_clusters: int
    fine_tuning: str | None
    rate: float
    penalty: float


def candidates(
    n_classes: int, n_samples: int, algorithm: str | None, rate: float, penalty: float
) -> list[Candidate]:
    """Candidates, the simplest first: up to 16 codevectors a class, and one for 5 samples.

    Algorithms are tried with three rates, or with those of three penalties that weigh as much as a
    sample: with less, a few samples are learned by heart.
    """
    sizes = sorted({min(n * n_classes, max(n_classes, n_samples // 5)) for n in (1, 4, 16)})
    rates = (rate,) if algorithm in (None, MATRIX) else (0.01, 0.05, 0.2)
    least = min(1.0 / n_samples, _PENALTIES[-1])
    penalties = [p for p in _PENALTIES if p >= least] if algorithm == MATRIX else [penalty]
    return [Candidate(n, algorithm, *both) for n, *both in product(sizes, rates, penalties)]


def doubts(scores: FloatArray, classes: IntArray) -> FloatArray:
    """Error plus log loss of each prediction, shape (n,): the error alone has too much noise.

    ``scores``, shape (n, C), are log-probabilities up to a constant.
    """
    logs = scores - np.logaddexp.reduce(scores, axis=1)[:, None]
    right = np.exp(logs[np.arange(len(logs)), classes])
    return np.asarray((scores.argmax(axis=1) != classes) - np.log(_HONEST * right + 1.0 - _HONEST))


def folds(classes: IntArray, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and test rows of stratified folds; the only member of a class is never tested."""
    fold = np.empty(len(classes), dtype=np.int64)
    for c in range(int(classes.max()) + 1):
        members = rng.permutation(np.flatnonzero(classes == c))
        fold[members] = np.arange(len(members)) % N_FOLDS if len(members) > 1 else -1
    for k in range(N_FOLDS):
        if (fold == k).any():
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


@estimators.estimator
class ODAClassifier(estimators.Supervised, ClassifierMixin, BaseODA):
    """Classify by online deterministic annealing of a codebook for each class.

    Codevectors learn from samples of their class only, at a temperature common to all classes. A
    class has as many as its shape needs. ``fit`` draws every class as often as its codevectors
    need, however rare it is; predictions take the class priors into account.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Maximum number of codevectors over all classes (at least one each), which may exceed that
        of samples. ``"auto"`` chooses it, and the rate or penalty of fine-tuning, by
        cross-validation within the training set, or within 1,500 samples of it, of which at least
        50 are of each class that has as many.
    prediction : {"density", "nearest"}, default="density"
        Predict the class with the largest density, or that of the nearest codevector.
    fine_tuning : {"auto", "rslvq", "mrslvq", "glvq", "lvq1"} or None, default="auto"
        Algorithm by which ``fit`` moves the codevectors after annealing; None unless the divergence
        is squared Euclidean or Mahalanobis. ``"mrslvq"`` also learns a metric and takes no missing
        values, then or later. ``"auto"`` is ``"mrslvq"`` if ``n_clusters="auto"``, no values are
        missing and there are at most 200 features; else ``"rslvq"``, if values are missing in
        standard deviations of the (at most 200) features; None for other divergences.
    rate : float, default=0.05
        First step size of fine-tuning, falling to 0; ``"mrslvq"`` has none.
    penalty : float, default=0.01
        Penalty of ``"mrslvq"`` on the squared entries of the metric's root, where each feature has
        a variance of 1, times the entropy of the classes over that of equally frequent ones. The
        larger it is, the fewer directions matter.
    class_competition : bool, default=True
        Whether codevectors compete for a sample with those of their class only. If not, all of
        them do, as algorithm 1 is printed; those among another class become idle and are dropped.
    min_temperature : float in [0, 1), default=1e-3
        Last temperature, relative to the mean divergence from the class means.
    init : array-like, shape (k, d), optional
        Codevectors to start from, k/C for each of the C classes, sorted by class.
    divergence, max_samples, cooling, samples_per_cluster, forgetting, constants, random_state
        As for :class:`ODAClusterer`.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The labels, sorted.
    codevector_labels_ : ndarray, shape (K,)
        The class of each codevector.
    class_prior_ : ndarray, shape (C,)
        Share of each class in the data.
    prediction_temperature_ : float
        Temperature of the densities in ``predict_proba``: after ``fit`` the one with the lowest log
        loss, on held-out samples if there are fewer than 100 a codevector; in a stream it follows
        from the distortion.
    best_params_ : dict
        Parameters chosen by ``n_clusters="auto"``.
    history_
        As for :class:`ODAClusterer`. The levels have an accuracy; their labels are indices in the
        order in which classes first appeared (sorted, for ``fit``).
    codevectors_, weights_, temperature_, n_samples_seen_
        As for :class:`ODAClusterer`.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and clustering",
    IEEE Transactions on Neural Networks and Learning Systems, 2023: algorithm 1 with
    equation 15, and a counter for each class.
    P. Schneider, M. Biehl, B. Hammer, "Distance learning in discriminative vector quantization",
    Neural Computation 21 (2009): ``"mrslvq"``.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from oda_rl import ODAClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = ODAClassifier(n_clusters=12, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> smaller = model.at_level(n_clusters=4)
    >>> len(smaller.codevectors_) <= 4
    True
    """

    n_clusters: Annotated[int | str, estimators.COUNT, estimators.one_of("auto")] = "auto"
    _: KW_ONLY
    prediction: Annotated[str, estimators.one_of("density", "nearest")] = "density"
    fine_tuning: Annotated[str | None, estimators.one_of("auto", MATRIX, *ALGORITHMS), None] = (
        "auto"
    )
    rate: Annotated[float, estimators.POSITIVE] = 0.05
    penalty: Annotated[float, estimators.within("[0, inf)")] = 0.01
    class_competition: estimators.Flag = True

    classes_: Annotated[Array, ANYTHING] = field(init=False)
    class_prior_: Annotated[FloatArray, real("all_classes", "[0, 1]")] = field(init=False)
    prediction_temperature_: Annotated[float, real("", "(0, inf)")] = field(init=False)
    _temperature_share: Annotated[float, real("", "(0, inf)")] = field(init=False, default=1.0)
    """Temperature of the prediction, over that of Gaussian cells."""
    best_params_: Annotated[dict[str, Any], ANYTHING] = field(init=False)
    _seen: Annotated[list[Any], ANYTHING] = field(init=False)
    _promised: Annotated[list[Any], ANYTHING] = field(init=False)
    _labels_are_objects: Annotated[bool, flags()] = field(init=False)
    _largest: Annotated[int, whole("", "[1, inf)")] = field(init=False)

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        super()._check_contents(sizes, where)
        if hasattr(self, "_annealer"):
            n_promised = len(self._columns()) - len(self._seen)
            check_classes(self._columns(), self.classes_, sizes["classes"] + n_promised)

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        self.__dict__.pop("best_params_", None)  # which say whether values may be missing
        points, labels = validation.checked_labels(self, X, y, reset=True)
        self._learn(*counted(points, labels, validation.fit_weights(self, sample_weight, points)))
        return self

    def _learn(self, points: FloatArray, labels: Array, weights: FloatArray) -> None:
        """Choose the settings, anneal and fine-tune."""
        self._labels_are_objects = labels.dtype == object
        self.classes_, classes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_[0]!r}"
            )
        self._seen = self.classes_.tolist()
        self._promised = []
        self.__dict__.pop("_scaled", None)
        automatic = self.n_clusters == self.fine_tuning == "auto" and is_euclidean(self.divergence)
        if automatic and holes(points) is not None and points.shape[1] <= MANY_FEATURES:
            self._scaled: Divergence = Mahalanobis(np.diag(units_of(points, weights) ** -2.0))
        chosen, caution = self._settings(points, classes, weights)
        data = self._anneal(points, classes, weights)
        self._reduce(data, chosen.n_clusters)
        self._conclude(data, chosen)
        spacing = self._spacing(data)
        self._settle(self._first_divergence.restore(data.points), data.weights, spacing)
        self._follow_distortion(caution * self.prediction_temperature_)
        self._publish()
        self._raise_temperature(data)
        self.__dict__.pop("_scaled", None)

    @estimators.validated
    def partial_fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        ``classes`` of the first call are those that may appear; without them new ones may at any
        time. All labels are text, or all are numbers. The size of blocks makes no difference.
        After ``fit`` steps are as short as after all of its samples; a sample's weight multiplies
        them. Nothing is fine-tuned, and ``n_clusters="auto"`` counts as 40.
        """
        first = not hasattr(self, "_annealer")
        points, labels = validation.checked_labels(self, X, y, reset=first)
        self._labels_are_objects = labels.dtype == object
        weights = validation.stream_weights(self, sample_weight, points, first=first)
        promised = validation.promised_classes(self, classes, first=first)
        seen = [] if first else self._seen.copy()
        points, labels, weights = counted(points, labels, weights)
        indices = validation.stream_labels(seen, labels, promised)
        self._seen = seen
        self._stream(points, indices, weights, labelled=True)
        self._follow_distortion()
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Most probable class of each point, shape (n,)."""
        points, _ = self._embedded(X)  # first: it says so where nothing has been fitted
        return np.asarray(self.classes_[self._log_scores(points).argmax(axis=1)])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Probability of each of ``classes_``, shape (n, C); rows sum to 1.

        From the densities Σ_k w_k exp(−d(x, μ_k)/T) at the prediction temperature T; with
        ``prediction="nearest"`` from the nearest codevector of each class.
        """
        points, precision = self._embedded(X)
        return np.asarray(softmax(self._log_scores(points), axis=1), dtype=precision)

    def _log_scores(self, points: FloatArray) -> FloatArray:
        """Unnormalised log-probabilities of embedded points, shape (n, C)."""
        codevectors, labels = self._embedded_codevectors(), self._codebook.labels
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        temperature = self.prediction_temperature_
        scores = []
        for rows in validation.chunks(len(points)):
            divergences = self._annealer.divergence.between(points[rows], codevectors)
            if self.prediction == "density":
                divergences *= observed_shares(points[rows])  # not scaled up to missing features
                block = class_log_densities(divergences, self.weights_, labels, temperature)
            else:
                block = -np.minimum.reduceat(divergences, starts, axis=1) / temperature
            scores.append(block)
        columns = self._columns()
        missing = len(columns) - len(self._seen)
        complete = np.pad(np.concatenate(scores), ((0, 0), (0, missing)), constant_values=-np.inf)
        return complete[:, np.argsort(np.array(columns))]

    def _columns(self) -> list[Any]:
        """Labels of all classes: those seen, in their order, then those only promised."""
        promised = getattr(self, "_promised", [])
        return [*self._seen, *(label for label in promised if label not in self._seen)]

    def _takes_missing(self) -> bool:
        # Missing values would be attributed to directions of hardly any weight.
        chosen = getattr(self, "best_params_", {}).get("fine_tuning", self.fine_tuning)
        return super()._takes_missing() and chosen != MATRIX

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        weights = self._annealer.class_weights
        self._seen = self._seen[: len(weights)]  # an earlier level may know fewer classes
        labels = np.array(self._columns(), dtype=object if self._labels_are_objects else None)
        self.codevector_labels_ = labels[self._codebook.labels]
        self.classes_, order = np.unique(labels, return_index=True)
        self.class_prior_ = np.pad(weights / weights.sum(), (0, len(labels) - len(weights)))[order]

    def _step_back(self) -> None:
        self._given_share = self._temperature_share = 1.0
        self._follow_distortion()

    def _follow_distortion(self, temperature: float | None = None) -> None:
        """Set the prediction temperature; a given one remains proportional to the distortion."""
        gaussian = 2.0 * self._distortion() / self.n_features_in_
        if temperature is not None:
            self._temperature_share = temperature / gaussian
        self.prediction_temperature_ = self._temperature_share * gaussian

    def _algorithm(self, points: FloatArray) -> str | None:
        fits = resolve(self.divergence).kernel == QUADRATIC
        if self.fine_tuning not in (None, "auto") and not fits:
            raise ValueError(
                f"fine_tuning={self.fine_tuning!r} takes the squared Euclidean or the Mahalanobis "
                f"divergence, got divergence={self.divergence!r}: set fine_tuning=None"
            )
        if self.fine_tuning != "auto":
            return self.fine_tuning
        learns = points.shape[1] <= MANY_FEATURES and holes(points) is None
        best = MATRIX if self.n_clusters == "auto" and learns else "rslvq"
        return best if fits else None

    def _settings(
        self, points: FloatArray, classes: IntArray, weights: FloatArray
    ) -> tuple[Candidate, float]:
        """Return the settings, as given or chosen, and a factor of the prediction temperature."""
        algorithm, rate, penalty = self._algorithm(points), float(self.rate), float(self.penalty)
        fixed = self.n_clusters != "auto"
        if fixed and len(points) >= 100 * int(self.n_clusters):
            return Candidate(int(self.n_clusters), algorithm, rate, penalty), 1.0
        data = Distribution(points, classes, weights, np.random.default_rng(0))
        if fixed:
            return self._select(data, [Candidate(int(self.n_clusters), algorithm, rate, penalty)])
        n = min(len(data.points), _SELECTION_SAMPLES)
        options = candidates(len(self.classes_), n, algorithm, rate, penalty)
        self._largest = options[-1].n_clusters
        chosen, caution = self._select(data, options)
        self.best_params_ = chosen._asdict()
        return chosen, caution

    def _select(self, data: Distribution, options: list[Candidate]) -> tuple[Candidate, float]:
        """Choose one of the options, and a factor of its temperature, by cross-validation.

        After the first fold, with fewer steps of metric learning, the best third goes on; after
        the second the best sixth; after the third the best. With 1,000 samples that is all; with
        more than 40 features, too, the second also has fewer steps, and the best goes on alone.
        """
        points, classes, weights = data.stratified(_SELECTION_SAMPLES, _RARE)
        counts = weights if len(points) == len(data.points) else np.ones(len(points))
        totals = np.zeros((len(options), len(_CAUTION)))
        remaining = np.arange(len(options))
        alone = len(options) == 1 and len(points) >= _FEW * options[0].n_clusters
        enough = alone or len(points) >= _MANY_SAMPLES
        wide = enough and points.shape[1] > _COSTLY
        for k, (train, test) in enumerate(folds(classes, np.random.default_rng(len(points)))):
            if len(remaining) == 1 and k >= _TESTED and enough:
                break
            model = copy.copy(self)
            model.samples_per_cluster = min(self.samples_per_cluster, 20)
            fold = model._anneal(points[train], classes[train], weights[train])
            grown = model._annealer
            steps = _FIRST_STEPS[k] if len(options) > 1 and k < 1 + wide else _METRIC_STEPS
            size = 0
            for i in remaining[::-1]:  # the largest first: they are merged further
                if size != options[i].n_clusters:
                    size, model._annealer = options[i].n_clusters, grown
                    start = model._reduce(fold, size)
                model._annealer = copy.copy(grown)
                model._codebook, model.prediction_temperature_ = start
                model._conclude(fold, options[i], steps)
                model.weights_ = model._codebook.weights
                embedded = model._annealer.divergence.embed(points[test])
                temperature = model.prediction_temperature_
                for j, factor in enumerate(_CAUTION):
                    model.prediction_temperature_ = factor * temperature
                    scores = model._log_scores(embedded)
                    totals[i, j] += doubts(scores, classes[test]) @ counts[test]
            order = np.argsort(totals[remaining].min(axis=1), kind="stable")
            n_best = 1 if k + wide > 1 else -(-len(options) // (3, 6)[k])
            remaining = np.sort(remaining[order[:n_best]])
        best = remaining[int(totals[remaining].min(axis=1).argmin())]  # the simplest of equals
        return options[best], float(_CAUTION[totals[best].argmin()])

    def _reduce(self, data: Distribution, n_clusters: int) -> tuple[Codebook, float]:
        """Merge down to a number; return the codebook and its prediction temperature."""
        self._annealer.reduce_to(n_clusters)
        self._choose_temperature(data)
        return self._codebook, self.prediction_temperature_

    def _conclude(self, data: Distribution, chosen: Candidate, steps: int | None = None) -> None:
        """Fine-tune a codebook of the size chosen."""
        current = self._annealer
        if chosen.fine_tuning == MATRIX:
            self._learn_metric(data, chosen.penalty, steps)
        elif chosen.fine_tuning is not None:
            current.replace(self._fine_tuned(chosen, data), current.masses)
            self._choose_temperature(data)

    def _fine_tuned(self, chosen: Candidate, data: Distribution) -> FloatArray:
        """Return codevectors that have been moved in five passes over the data."""
        moved, labels = self._embedded_codevectors().copy(), self._codebook.labels
        order = np.concatenate([data.shuffled() for _ in range(_PASSES)])
        samples = data.points, data.classes, order, chosen.rate
        if chosen.fine_tuning == "rslvq":
            weights, temperature = self._codebook.weights, self.prediction_temperature_
            rslvq(moved, weights, labels, temperature, *samples)
        else:
            (glvq if chosen.fine_tuning == "glvq" else lvq1)(moved, labels, *samples)
        return moved

    def _choose_temperature(self, data: Distribution) -> None:
        """Choose the prediction temperature by the log loss on some of the data."""
        self._codebook = self._annealer.view(None)
        points, classes, weights = data.some(2000)
        shares = observed_shares(points)
        self.prediction_temperature_ = best_temperature(
            self._annealer.divergence.between(points, self._embedded_codevectors()) * shares,
            self._codebook.weights, self._codebook.labels, classes,
            self.n_features_in_ * float(np.mean(shares)), weights, self._spacing(data),
        )  # fmt: skip

    def _raise_temperature(self, data: Distribution) -> None:
        """Raise the prediction temperature where guessing by class shares has a lower log loss.

        A few far samples may have set it too low.
        """
        points, classes, weights = data.some(20_000)
        points = self._divergence.embed(self._first_divergence.restore(points))
        shares, losses = weights / weights.sum(), [np.inf]
        guessing, first = entr(np.bincount(classes, shares)).sum(), self.prediction_temperature_
        for _ in range(_RAISES):
            logs = log_softmax(self._log_scores(points), axis=1)[np.arange(len(classes)), classes]
            losses.append(-float(shares @ np.maximum(logs, _LOWEST_LOG)))
            if min(losses) <= guessing and (len(losses) == 2 or losses[-1] >= losses[-2]):
                break
            self.prediction_temperature_ *= 4.0
        self._follow_distortion(first * 4.0 ** (int(np.argmin(losses)) - 1))

    def _spacing(self, data: Distribution) -> float:
        """Mean divergence of points from their nearest neighbours; 0 if they are many a codevector.

        It stands in for that from codevectors, which lie on the points where these are few.
        """
        if len(data.points) >= _FEW * len(self._codebook.labels):
            return 0.0
        points, _, weights = data.some(2000)
        points = self._divergence.embed(self._first_divergence.restore(points))
        cells = self._assigned(points)[0]
        gaps = self._divergence.between(points, filled(points, self._embedded_codevectors()[cells]))
        np.fill_diagonal(gaps, np.inf)
        nearest = gaps.min(axis=1) * np.ravel(observed_shares(points))
        return float(np.average(nearest, weights=weights))

    def _learn_metric(self, data: Distribution, penalty: float, steps: int | None) -> None:
        """Move codevectors and learn a metric; the prediction temperature remains."""
        current, (codevectors, weights, labels) = self._annealer, self._codebook
        points, classes, shares = data.some(20_000)
        moved, matrix = learn_metric(
            codevectors, weights, labels, self.prediction_temperature_, points.astype(np.float64),
            classes, shares, penalty, steps,
        )  # fmt: skip
        root = current.divergence.embed(np.eye(self.n_features_in_))  # of the metric as it was
        current.replace(moved, current.masses)
        current.measure_by(Mahalanobis(root @ matrix @ root.T))
        self._codebook = current.view(None)


def cross_entropy(
    parameters: FloatArray,
    places: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    points: FloatArray,
    classes: IntArray,
    shares: FloatArray,
    penalty: float,
) -> tuple[float, FloatArray]:
    """Mean log loss of classes, plus the penalty, and its gradient.

    The density of a class at x is Σ_k w_k exp(−|Ω (x − μ_k)|²) over its codevectors.

    ``parameters``, shape (d (d + K),), are Ω, row by row, then the codevectors, which started at
    ``places`` and have ``weights`` and ``labels``, rising from 0 to C - 1. ``shares`` of the
    samples sum to 1. The penalty is on the sum of the squares of Ω, and on the weighted mean square
    of the codevectors' moves. |Ω x|² is in all scores of x and cancels: they are affine in x.
    """
    d = points.shape[1]
    omega, codevectors = parameters[: d * d].reshape(d, d), parameters[d * d :].reshape(-1, d)
    images = codevectors @ omega.T
    scores = points @ (2.0 * images @ omega).T.astype(points.dtype)
    with np.errstate(divide="ignore"):
        scores += np.log(weights) - (images * images).sum(axis=1)
    scores -= scores.max(axis=1, keepdims=True)
    parts = np.exp(scores, out=scores)
    parts /= parts.sum(axis=1, keepdims=True)
    pulls = parts * (labels == classes[:, None])
    right = pulls.sum(axis=1)
    loss = -float(shares @ np.log(right + _MIN_PROBABILITY))

    parts *= right[:, None]
    pulls -= parts
    pulls *= (-shares / (right + _MIN_PROBABILITY))[:, None]
    of_slopes, of_offsets = 2.0 * pulls.T @ points, pulls.sum(axis=0)
    of_images = of_slopes @ omega.T - 2.0 * of_offsets[:, None] * images
    of_omega = images.T @ of_slopes + of_images.T @ codevectors + 2.0 * penalty * omega
    moves = codevectors - places
    pulled_back = weights[:, None] * moves
    of_codevectors = of_images @ omega + 2.0 * penalty * pulled_back
    cost = penalty * float((omega * omega).sum() + (moves * pulled_back).sum())
    return loss + cost, np.concatenate([of_omega.ravel(), of_codevectors.ravel()])


@one_thread()
def learn_metric(
    codevectors: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    temperature: float,
    points: FloatArray,
    classes: IntArray,
    sample_weight: FloatArray,
    penalty: float,
    steps: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Learn a metric and move codevectors, shape (K, d), to separate classes, by L-BFGS.

    The penalty on Ω removes directions that separate no classes; that on moves keeps codevectors
    near the data, as a smaller Ω with codevectors farther away decides alike.

    ``weights`` and ``labels`` are those of :func:`class_log_densities`. The penalty, at least 0, is
    that of balanced classes and features of variance 1. Returns the codevectors and M, shape
    (d, d), symmetric and positive definite: a class's density at x is
    Σ_k w_k exp(-(x - μ_k)ᵀ M (x - μ_k) / T), with T the temperature. A number of ``steps`` is taken
    in single precision, in half the time; None are 60 in double precision, whose results for equal
    data agree.
    """
    from scipy.optimize import minimize

    d = points.shape[1]
    shares = sample_weight / sample_weight.sum()
    centre = shares @ points
    gaps = points - centre
    variances = shares @ (gaps * gaps)
    units = np.sqrt(np.where(variances > 0.0, variances, 1.0))
    gaps = gaps / units if steps is None else (gaps / units).astype(np.float32)
    places = (codevectors - centre) / units
    start = np.eye(d) * np.sqrt(variances.mean() / temperature)
    first = np.concatenate([start.ravel(), places.ravel()])
    # Where a class is rare guessing costs little, and a fixed penalty more than is to be gained.
    penalty *= float(entr(np.bincount(classes, shares)).sum()) / math.log(labels[-1] + 1)
    fixed = places, weights, labels, gaps, classes, shares, penalty
    # Where the root is 0 costs are those of guessing, and stationary: no step must lead there.
    guessing = cross_entropy(np.append(np.zeros(d * d), places), *fixed)[0]
    for _ in range(_HALVINGS):
        if cross_entropy(first, *fixed)[0] < guessing:
            break
        first[: d * d] *= 0.5
    options = {"maxiter": steps or _METRIC_STEPS}
    best = minimize(cross_entropy, first, fixed, method="L-BFGS-B", jac=True, options=options).x
    omega = best[: d * d].reshape(d, d)
    matrix = omega.T @ omega
    matrix += 1e-6 * (1.0 + np.trace(matrix) / d) * np.eye(d)  # positive definite
    matrix *= temperature / np.outer(units, units)
    return best[d * d :].reshape(-1, d) * units + centre, 0.5 * (matrix + matrix.T)
