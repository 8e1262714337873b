"""Estimators as C99 headers: a few tables, and a function that predicts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import finite
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.regressor import ODARegressor
from oda_rl.divergences import Divergence, SquaredEuclidean
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exporting import c_text
from oda_rl.exporting.c_text import source
from oda_rl.files.archive import write_text
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.quantization.vq import LVQ, VectorQuantizer
from oda_rl.trees.tree import Cells

_SCORE = "The score of cell k is oda_diagram[k][0] + sum over j of oda_diagram[k][1 + j] x[j];"
_NEAREST_IS = "The cell of minimal score (the first, in a tie) is the nearest"
_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.int32)
_NEAR = 4.0  # scores at 0 may exceed those at the centre by this factor: two bits of 24


def fitting(array: npt.ArrayLike, dtype: Any) -> Array:
    """Cast to a type; raise ValueError if the largest number does not fit."""
    numbers = np.asarray(array, dtype=np.float64)
    largest = float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))
    info = np.finfo(dtype)
    if largest > float(info.max) or 0.0 < largest < float(info.tiny):
        raise ValueError(
            f"the estimator has learned numbers as large as {largest:g}, beyond the range of "
            "single precision: scale its input before fitting"
        )
    return numbers.astype(dtype)


@dataclass(frozen=True)
class Diagram:
    """Scores of codevectors: unit (offset_k + <slope_k, x − centre>) is d(x, μ_k) − φ(x).

    The unit, a power of two, keeps scores small enough for single precision. Shapes: centre (d,),
    offsets (K,), slopes (K, d).
    """

    centre: FloatArray
    offsets: FloatArray
    slopes: FloatArray
    unit: float
    metric: FloatArray | float = 1.0  # weights of the features, shape (d,), if they keep apart
    root: FloatArray | None = None  # takes gaps, shape (n, d), to where distances are Euclidean

    @property
    def parts(self) -> FloatArray:
        """Part of each feature in the offsets of squared distances, shape (K, d)."""
        return np.asarray(0.25 * self.unit * self.slopes**2 / self.metric)

    @classmethod
    def of(cls, cells: Cells, divergence: Divergence) -> Self:
        """Convert cells from the divergence's coordinates to those of the input."""
        same = np.eye(len(cells.centre))
        root = divergence.embed(same)  # linear, whatever the divergence
        centre = divergence.restore(cells.centre[None])[0]
        scaled = cls.scaled(centre, cells.offsets, cells.gradients @ root.T)
        metric = (root * root).sum(axis=1)
        return replace(scaled, metric=metric, root=None if root is same else root)

    @classmethod
    def scaled(cls, centre: FloatArray, offsets: FloatArray, slopes: FloatArray) -> Self:
        """Choose the unit."""
        unit = math.ldexp(1.0, int(np.frexp(np.abs(offsets).max())[1])) if offsets.any() else 1.0
        return cls(centre, offsets / unit, slopes / unit, unit)

    @classmethod
    def nearest(cls, codevectors: FloatArray, divergence: Divergence) -> Self:
        """Return the diagram of codevectors, shape (K, d), in the divergence's coordinates."""
        return cls.of(Cells.of(codevectors, divergence), divergence)

    @classmethod
    def annealed(cls, model: BaseODA) -> Self:
        """Return the diagram of an annealed codebook."""
        return cls.nearest(model._embedded_codevectors(), model._annealer.divergence)

    def rounded(self, dtype: Any) -> "Diagram":
        """Cast to a type; offsets make up for the rounding of the centre."""
        centre = fitting(self.centre, dtype)
        offsets = self.offsets + self.slopes @ (centre.astype(np.float64) - self.centre)
        slopes = fitting(self.slopes, dtype)
        return replace(self, centre=centre, offsets=fitting(offsets, dtype), slopes=slopes)


def log_weights(weights: FloatArray) -> FloatArray:
    """Return log weights, with a finite value for a weight of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(weights), -1e4))


def is_text(labels: Array) -> bool:
    """Return whether all labels are strings."""
    return all(isinstance(label, str) for label in labels.tolist())


def whole_numbers(labels: Array) -> IntArray:
    """Return labels as integers; raise ValueError if they are not whole numbers."""
    try:
        numbers = np.array([int(label) for label in labels.tolist()], dtype=np.int64)
        whole = bool((numbers == labels).all())
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(
            f"labels are {labels.tolist()!r:.80}: to be exported they must be strings or integers"
        )
    return numbers


def numbered(labels: Array) -> tuple[IntArray, list[str]]:
    """Return the number of each label in C, and lines that explain it; ValueError for others."""
    if is_text(labels):
        names = (f"    {i}  {label}" for i, label in enumerate(labels.tolist()))
        return np.arange(len(labels)), ["and returns the number of a label:", *names]
    numbers = whole_numbers(labels)
    if np.abs(numbers).max() > 2**31 - 1:
        raise ValueError(f"labels reach {np.abs(numbers).max()}: they must fit 32 bits")
    return numbers, ["and returns a label."]


def narrowest(numbers: Any) -> Array:
    """Cast integers of 32 bits to the smallest type that holds them."""
    array = np.asarray(numbers)
    return next(array.astype(kind) for kind in _INTEGERS if (array.astype(kind) == array).all())


@dataclass
class _Header:
    about: list[str]
    tables: dict[str, Array] = field(default_factory=dict)
    returns: list[str] = field(default_factory=list)
    n_classes: int | None = None


def export_c(estimator: Any, out: str | Path) -> Path:
    """Write a fitted estimator to a C99 header with ``oda_predict(const float obs[])``.

    The header allocates nothing and needs no library, except ``math.h``: ``expf`` for an
    ``ODAClassifier`` whose ``prediction`` is ``"density"``, ``logf`` for a mixture with a variance
    for each feature. Clusterers return the index of the cluster, classifiers the label (a string's
    index in ``classes_``), and regressors a float. Predictions equal those of ``estimator.predict``
    except for ties within single precision. NaN is a missing value if the estimator takes any;
    regressors return NaN then.

    Parameters
    ----------
    estimator : estimator
        A fitted ODAClusterer, ODAClassifier, ODARegressor, LVQ, StochasticVQ, SOM,
        BatchDeterministicAnnealing, a mixture whose covariances are not full, or exemplars with the
        Gaussian kernel.
    out : str or Path
        File to write, atomically; it is returned.

    Raises
    ------
    ValueError
        If the estimator is none of these, its labels are neither strings nor integers of 32 bits,
        its numbers exceed the range of single precision, or ``out`` is a folder.
    NotFittedError
        If the estimator is not fitted.

    Examples
    --------
    >>> import tempfile
    >>> from oda_rl import ODAClusterer
    >>> model = ODAClusterer(2, random_state=0).fit([[0.0], [0.1], [4.0], [4.1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export_c(model, f"{folder}/clusters.h")
    ...     "int oda_predict(const float obs[ODA_FEATURES])" in path.read_text()
    True
    """
    write_text(out, _text(estimator))
    return Path(out)


def _text(estimator: Any) -> str:
    header, name = _header(estimator), type(estimator).__name__
    kind = "float" if "oda_models" in header.tables else "int"
    takes_nan = {"oda_missing", "oda_means"} & header.tables.keys()
    d = int(estimator.n_features_in_)
    names = getattr(estimator, "feature_names_in_", [""] * d)
    constants = {"FEATURES": d, "CELLS": len(next(iter(header.tables.values())))}
    if header.n_classes is not None:
        constants["CLASSES"] = header.n_classes
    lines = [
        f"What {name} of oda_rl has learned, for C99.",
        "",
        f"Tables: {sum(array.nbytes for array in header.tables.values())} bytes",
        "",
        f"{kind} oda_predict(const float obs[ODA_FEATURES]) takes a sample:",
        *(f"    obs[{j}]  {name}".rstrip() for j, name in enumerate(names)),
        *header.returns,
        "NaN is a missing value." if takes_nan else "No value may be NaN.",
        "",
        *header.about,
    ]
    flags = {name.removeprefix("oda_").upper() for name in header.tables}
    math, body = bool({"CLASSES", "MEANS"} & flags), source("oda_rl.exporting", "predict.h", flags)
    return c_text.header("PREDICT", lines, math, constants, header.tables, body)


def _header(estimator: Any) -> _Header:
    for kind, make in _KINDS.items():
        if isinstance(estimator, kind):
            check_is_fitted(estimator)
            return make(estimator)
    raise ValueError(
        f"estimator is of {type(estimator).__name__}: it must be an ODAClusterer, ODAClassifier, "
        "ODARegressor, LVQ, StochasticVQ, SOM, BatchDeterministicAnnealing, a mixture whose "
        "covariances are not full, or exemplars with the Gaussian kernel"
    )


def _of_diagram(diagram: Diagram, quarters: FloatArray | None = None) -> _Header:
    """Return a header that finds the nearest cell, without an origin if the centre is near 0.

    The part of feature j in the offset of cell k is ``quarters[j]`` slopes[k, j]², if values may be
    missing.
    """
    middle = diagram.centre
    reach = np.abs(diagram.slopes).max(axis=0)
    is_near = (np.abs(diagram.centre) * reach).sum() <= _NEAR * np.abs(diagram.offsets).max()
    if is_near:
        offsets = diagram.offsets - diagram.slopes @ diagram.centre
        diagram = replace(diagram, centre=np.zeros_like(diagram.centre), offsets=offsets)
    rounded = diagram.rounded(np.float32)
    header = _Header([_SCORE, f"x is obs{'' if is_near else ' - oda_origin'}.", f"{_NEAREST_IS}."])
    header.tables["oda_diagram"] = np.column_stack([rounded.offsets, rounded.slopes])
    if not is_near:
        header.tables["oda_origin"] = rounded.centre
    if quarters is not None:
        parts = np.column_stack([quarters, rounded.centre.astype(np.float64) - middle])
        header.tables["oda_missing"] = fitting(parts, np.float32)
    header.returns = ["and returns the index of a cell, from 0."]
    return header


def _quarters(model: Any, unit: float, metric: FloatArray | float) -> FloatArray | None:
    """Return quarters of the unit over the metric, shape (d,), if values may be missing."""
    missing = finite(model) == "allow-nan"
    return np.full(model.n_features_in_, 0.25 * unit) / metric if missing else None


def _nearest(model: Any, diagram: Diagram) -> _Header:
    return _of_diagram(diagram, _quarters(model, diagram.unit, diagram.metric))


def _lvq(model: LVQ) -> _Header:
    header = _of_diagram(Diagram.nearest(model.codevectors_, SquaredEuclidean()))
    classes = np.searchsorted(model.classes_, model.codevector_labels_)
    return _labelled(header, model.classes_, classes)


def _labelled(header: _Header, labels: Array, classes: Any) -> _Header:
    """Make a header return the label of the nearest cell."""
    numbers, header.returns = numbered(labels)
    header.tables["oda_labels"] = narrowest(numbers[classes])
    header.about[-1] = f"{_NEAREST_IS};\nits label is in oda_labels."
    return header


def _classifier(model: ODAClassifier) -> _Header:
    order = np.argsort(np.array(model._columns()))
    classes = np.argsort(order)[model._codebook.labels]
    diagram = Diagram.annealed(model)
    if model.prediction == "nearest":
        return _labelled(_nearest(model, diagram), model.classes_, classes)
    factor = diagram.unit / model.prediction_temperature_
    offsets = factor * diagram.offsets - log_weights(model.weights_)
    slopes = factor * diagram.slopes
    quarters = _quarters(model, model.prediction_temperature_, diagram.metric)
    header = _of_diagram(Diagram(diagram.centre, offsets - offsets.min(), slopes, 1.0), quarters)
    numbers, header.returns = numbered(model.classes_)
    header.tables["oda_classes"] = narrowest(classes)
    if (numbers != np.arange(len(numbers))).any():
        header.tables["oda_labels"] = narrowest(numbers)
    header.n_classes = len(numbers)
    header.about[-1:] = [
        "The class with the largest sum of exp(-score) over its cells is the most probable;",
        "oda_classes has the class of each cell.",
    ]
    return header


def _regressor(model: ODARegressor) -> _Header:
    n_targets = model._models.values.shape[1]
    if n_targets > 1:
        raise ValueError(f"y has {n_targets} targets: in C it must have one")
    header = _of_diagram(Diagram.annealed(model))
    origin = header.tables.get("oda_origin", np.zeros(model.n_features_in_))
    gaps = origin.astype(np.float64) - model._models.centres
    values = model.codevector_labels_ + (model.slopes_ * gaps).sum(axis=1)
    header.tables["oda_models"] = fitting(np.column_stack([values, model.slopes_]), np.float32)
    header.returns = ["and returns the prediction."]
    header.about[-1:] = [
        f"{_NEAREST_IS};",
        "its prediction is oda_models[k][0] + sum over j of oda_models[k][1 + j] x[j].",
    ]
    return header


def _mixture(model: StreamingMixture) -> _Header:
    values, axes = learning.covariance_parts(model._delivered)
    if axes is not None:
        raise ValueError(
            "covariance_type is 'full': to be exported to C it must be 'diag' or 'tied_spherical'"
        )
    means = model._places()
    values = np.broadcast_to(values, means.shape)
    precisions = values / model._units**2
    offsets = -2.0 * np.log(model.weights_) - np.log(values).sum(axis=1)
    if (precisions == precisions[0]).all():
        return _of_powers(means, precisions[0], offsets, missing=True)
    origin = fitting(means.mean(axis=0), np.float32)
    header = _Header(
        [
            "The score of component k is oda_offsets[k] + sum over j of",
            "oda_precisions[k][j] (x[j] - oda_means[k][j])^2; x is obs - oda_origin.",
            "The component of minimal score (the first, in a tie) is the most probable.",
        ]
    )
    header.tables["oda_offsets"] = fitting(offsets - offsets.min(), np.float32)
    header.tables["oda_means"] = fitting(means - origin.astype(np.float64), np.float32)
    header.tables["oda_precisions"] = fitting(precisions, np.float32)
    header.tables["oda_origin"] = origin
    header.returns = ["and returns the index of a component, from 0."]
    return header


def _exemplars(model: ExemplarMixture) -> _Header:
    if model._kernel.name != "gaussian":
        raise ValueError(f"kernel is {model._kernel.name!r}: it must be 'gaussian'")
    precisions = np.full(model.exemplars_.shape[1], 1.0 / model.bandwidth_**2)
    return _of_powers(model.exemplars_, precisions, -2.0 * np.log(model.weights_))


def _of_powers(
    places: FloatArray, precisions: FloatArray, offsets: FloatArray, *, missing: bool = False
) -> _Header:
    """Expand the scores offset + Σ_j p_j (x_j − place_j)²; the squares of x cancel."""
    centre = places.mean(axis=0)
    gaps = places - centre
    rows = offsets - offsets.min() + (precisions * gaps**2).sum(axis=1)
    diagram = Diagram.scaled(centre, rows, -2.0 * precisions * gaps)
    return _of_diagram(diagram, 0.25 * diagram.unit / precisions if missing else None)


_KINDS: dict[type, Callable[[Any], _Header]] = {
    VectorQuantizer: lambda model: _nearest(
        model, Diagram.nearest(model.cluster_centers_, SquaredEuclidean())
    ),
    LVQ: _lvq,
    ODAClusterer: lambda model: _nearest(model, Diagram.annealed(model)),
    ODAClassifier: _classifier,
    ODARegressor: _regressor,
    StreamingMixture: _mixture,
    ExemplarMixture: _exemplars,
}
