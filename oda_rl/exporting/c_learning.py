"""A classifier that learns as a C99 header: ``partial_fit`` of ODAClassifier, in single precision.

It is what the estimator does when annealing has ended (``annealing/codebook.py``): each sample
attracts the codevectors of its class, at the last temperature. exp is taken without ``math.h``: its
argument is a whole number of halvings, and a rest in [0, 1) for which a polynomial does.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import Float32Array
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.codebook import FARTHEST, LEAST_DECAY, LEAST_SHARE
from oda_rl.divergences import Mahalanobis, SquaredEuclidean
from oda_rl.exporting.c_text import as_comment, features, number, numbers, table
from oda_rl.exporting.diagrams import fitting
from oda_rl.exporting.labels import narrowest, numbered

_DEGREE = 6  # then the error is that of rounding
_LEAST_MASS = 1e-30  # a codevector that wins nothing for long would weigh nothing, and never return
_MOST_COUNTED = 2**24  # from where on single precision does not count

_STRUCT = """\
typedef struct {
    float codevectors[ODA_CELLS][ODA_FEATURES]; /* class after class */
    float masses[ODA_CELLS]; /* share of the samples of its class */
    float clocks[ODA_CLASSES]; /* samples of the class since annealing ended */
PRIORS} oda_learner;

"""
_PRIORS = """\
    float counts[ODA_CLASSES]; /* all samples of the class */
    float temperature; /* of the densities that are compared */
"""
_FUNCTIONS = """\
static inline void oda_init(oda_learner *learner)
{
    *learner = oda_trained;
}

/* exp(-x) for x >= 0. */
static inline float oda_exp(float x)
{
    float rest = ODA_HALVINGS * x;
    float half = 0.5f;
    float value = oda_halving[ODA_DEGREE];
    int halvings;
    if (!(rest < 125.0f)) { /* next to nothing, or not a number */
        return 0.0f;
    }
    halvings = (int)rest;
    rest -= (float)halvings;
    for (int i = ODA_DEGREE - 1; i >= 0; --i) {
        value = value * rest + oda_halving[i];
    }
    for (; halvings > 0; halvings >>= 1) {
        if (halvings & 1) {
            value *= half;
        }
        half *= half;
    }
    return value;
}

static inline void oda_place(const float obs[ODA_FEATURES], float x[ODA_FEATURES])
{
    for (int j = 0; j < ODA_FEATURES; ++j) {
        x[j] = ODA_UNIT * (obs[j] - oda_origin[j]);
    }
}

/* Write squared distances of x from codevectors first to last - 1, and return the least. */
static inline float oda_measure(const oda_learner *learner, const float x[ODA_FEATURES],
    int first, int last, float squares[ODA_CELLS])
{
    float least = 0.0f;
    for (int k = first; k < last; ++k) {
        squares[k] = 0.0f;
        for (int j = 0; j < ODA_FEATURES; ++j) {
            const float gap = x[j] - learner->codevectors[k][j];
            squares[k] += gap * gap;
        }
        if (k == first || squares[k] < least) {
            least = squares[k];
        }
    }
    return least;
}

PREDICT
static inline int oda_partial_fit(oda_learner *learner, const float obs[ODA_FEATURES], int label)
{
    float x[ODA_FEATURES];
    float shares[ODA_CELLS];
    float least;
    float step;
    float decay;
    float total = 0.0f;
    int c = 0;
    int first;
    int last;
    while (c < ODA_CLASSES && LABEL != label) {
        ++c;
    }
    if (c == ODA_CLASSES) {
        return 0;
    }
    first = oda_starts[c];
    last = oda_starts[c + 1];
    oda_place(obs, x);
    least = oda_measure(learner, x, first, last, shares);
    if (!(least - least == 0.0f)) { /* infinite, or not a number */
        return 0;
    }
    for (int k = first; k < last; ++k) {
        const float gap = (shares[k] - least) / ODA_TEMPERATURE;
        shares[k] = gap <= ODA_FARTHEST ? learner->masses[k] * oda_exp(gap) : 0.0f;
        total += shares[k];
    }
    step = 1.0f / (1.0f + 0.9f * (learner->clocks[c] + (float)(last - first)));
    if (step < ODA_FORGETTING / (float)(last - first)) {
        step = ODA_FORGETTING / (float)(last - first);
    }
    decay = 1.0f - step < ODA_LEAST_DECAY ? ODA_LEAST_DECAY : 1.0f - step;
    for (int k = first; k < last; ++k) {
        float mass = decay * learner->masses[k];
        if (shares[k] > ODA_LEAST_SHARE * total) {
            const float gain = step * (shares[k] / total);
            const float pull = gain / (mass + gain);
            mass += gain;
            for (int j = 0; j < ODA_FEATURES; ++j) {
                learner->codevectors[k][j] += pull * (x[j] - learner->codevectors[k][j]);
            }
        }
        learner->masses[k] = mass < ODA_LEAST_MASS ? ODA_LEAST_MASS : mass;
    }
    learner->clocks[c] += 1.0f;
COUNT    return 1;
}

"""
_DENSEST = """\
/* The most probable class: that of the greatest density, times its share of all samples. */
static inline int oda_predict(const oda_learner *learner, const float obs[ODA_FEATURES])
{
    float x[ODA_FEATURES];
    float squares[ODA_CELLS];
    float least;
    const float temperature = learner->temperature > 0.0f ? learner->temperature : ODA_SPREAD;
    float most = 0.0f;
    int c = 0;
    oda_place(obs, x);
    least = oda_measure(learner, x, 0, ODA_CELLS, squares);
    for (int i = 0; i < ODA_CLASSES; ++i) {
        float density = 0.0f;
        for (int k = oda_starts[i]; k < oda_starts[i + 1]; ++k) {
            density += learner->masses[k] * oda_exp((squares[k] - least) / temperature);
        }
        density *= learner->counts[i];
        if (density > most) {
            most = density;
            c = i;
        }
    }
    return LABEL;
}
"""
_NEAREST = """\
/* The class of the nearest codevector, the first of equals. */
static inline int oda_predict(const oda_learner *learner, const float obs[ODA_FEATURES])
{
    float x[ODA_FEATURES];
    float squares[ODA_CELLS];
    float least;
    int nearest = 0;
    int c = 0;
    oda_place(obs, x);
    least = oda_measure(learner, x, 0, ODA_CELLS, squares);
    while (nearest < ODA_CELLS - 1 && squares[nearest] > least) {
        ++nearest;
    }
    while (nearest >= oda_starts[c + 1]) {
        ++c;
    }
    return LABEL;
}
"""
_COUNT = """\
    total = 0.0f;
    least *= 2.0f / (float)ODA_FEATURES;
    for (int i = 0; i < ODA_CLASSES; ++i) {
        total += learner->clocks[i];
    }
    learner->temperature += (least - learner->temperature) / total;
    total = 0.0f;
    for (int i = 0; i < ODA_CLASSES; ++i) {
        total += learner->counts[i];
    }
    if (total < ODA_MOST_COUNTED) {
        learner->counts[c] += 1.0f;
    }
"""


def learning_header(model: Any) -> str:
    """Return a C99 header with a struct that learns, and functions that let it.

    Raises
    ------
    ValueError
        If the estimator is no ODAClassifier, still anneals, or is beyond what the header does.
    NotFittedError
        If it has not been fitted.

    Examples
    --------
    >>> model = ODAClassifier(random_state=0).fit([[0.0], [0.1], [4.0], [4.1]], [0, 0, 1, 1])
    >>> print(learning_header(model).splitlines()[0])
    /* What ODAClassifier of oda_rl has learned, and goes on learning, for C99.
    """
    _check(model)
    nearest = model.prediction == "nearest"
    labels, returns = numbered(model.classes_)
    from_zero = bool((labels == np.arange(len(labels))).all())
    constants, tables, state = _contents(model)
    if nearest:
        del state["counts"], state["temperature"]
    if not from_zero:
        tables["oda_labels"] = "[ODA_CLASSES]", narrowest(labels)
    state_bytes = sum(array.nbytes for array in state.values())
    table_bytes = state_bytes + sum(array.nbytes for _, array in tables.values())
    functions = (
        _FUNCTIONS.replace("PREDICT", _NEAREST if nearest else _DENSEST)
        .replace("COUNT", "" if nearest else _COUNT)
        .replace("LABEL", "c" if from_zero else "(int)oda_labels[c]")
    )
    parts = [
        as_comment(_about(model, state_bytes, table_bytes, returns)),
        "#ifndef ODA_LEARNER_H\n#define ODA_LEARNER_H\n\n#include <stdint.h>\n\n",
        *(f"#define ODA_{name} {value}\n" for name, value in constants.items()),
        "\n",
        *(table(name, *sized) for name, sized in tables.items()),
        _STRUCT.replace("PRIORS", "" if nearest else _PRIORS),
        "static const oda_learner oda_trained = {\n",
        *(_member(array) for array in state.values()),
        "};\n\n",
        functions,
        "#endif\n",
    ]
    return "".join(parts)


def _check(model: Any) -> None:
    """Raise ValueError unless ``partial_fit`` of the model only moves codevectors from now on."""
    wrong = "learn is True: it must be False for"
    if not isinstance(model, ODAClassifier):
        raise ValueError(f"{wrong} {type(model).__name__}: what learns in C is ODAClassifier")
    check_is_fitted(model)
    annealer = model._annealer
    if type(annealer.divergence) is Mahalanobis and model.divergence == "squared_euclidean":
        raise ValueError(f"{wrong} a metric that was learned: set fine_tuning='rslvq'")
    if type(annealer.divergence) is not SquaredEuclidean:
        raise ValueError(
            f"{wrong} the divergence {model.divergence!r}: it must be 'squared_euclidean'"
        )
    if annealer.active or model._waiting is not None:
        raise ValueError(
            f"{wrong} an estimator that is still annealing, after {model.n_samples_seen_} samples: "
            "fit ends that, and so does partial_fit with max_samples"
        )
    if len(annealer.labels) > len(model.codevectors_):
        raise ValueError(
            f"{wrong} a stream that learns with {len(annealer.labels)} codevectors and predicts "
            f"with {len(model.codevectors_)}: n_clusters must leave room for every class"
        )
    if annealer.temperature == 0.0:
        raise ValueError(f"{wrong} an estimator that knows of each class one point: nothing varies")
    if annealer._known is not None:
        raise ValueError(f"{wrong} an estimator that goes on learning from missing values")


_Table = tuple[str, npt.NDArray[Any]]


def _contents(
    model: ODAClassifier,
) -> tuple[dict[str, str], dict[str, _Table], dict[str, Float32Array]]:
    """Return constants, tables, and the state that learning goes on from."""
    annealer, d = model._annealer, model.n_features_in_
    annealer.gather()
    order = np.argsort(np.array(model._seen))  # of classes as they were seen, by their labels
    classes = np.argsort(order)[annealer.labels]
    rows = np.argsort(classes, kind="stable")
    places, counts = annealer.codevectors[rows], annealer.class_weights
    masses = annealer.weights() * (counts.sum() / counts)[annealer.labels]
    origin = fitting(places.mean(axis=0), np.float32)
    unit = _unit(annealer.temperature)
    spread = 2.0 * (annealer.scale or 1.0) / d
    state = {
        "codevectors": unit * (places - origin.astype(np.float64)),
        "masses": np.maximum(masses[rows], _LEAST_MASS),
        "clocks": annealer._clocks[order],
        "counts": counts[order],
        "temperature": unit**2 * np.array(model.prediction_temperature_),
    }
    constants = {
        "FEATURES": str(d),
        "CELLS": str(len(rows)),
        "CLASSES": str(len(order)),
        "UNIT": number(float(fitting(unit, np.float32))),
        "TEMPERATURE": number(unit**2 * annealer.temperature),
        "SPREAD": number(unit**2 * spread),
        "FARTHEST": f"{number(FARTHEST)} /* in temperatures */",
        "LEAST_SHARE": number(LEAST_SHARE),
        "LEAST_MASS": number(_LEAST_MASS),
        "LEAST_DECAY": number(LEAST_DECAY),
        "FORGETTING": number(annealer.schedule.forgetting),
        "MOST_COUNTED": number(_MOST_COUNTED),
        "HALVINGS": f"{number(1.0 / math.log(2.0))} /* in 1 of an exponent */",
        "DEGREE": str(_DEGREE),
    }
    tables: dict[str, _Table] = {
        "oda_origin": ("[ODA_FEATURES]", origin),
        "oda_starts": ("[ODA_CLASSES + 1]", narrowest(np.searchsorted(
            classes[rows], np.arange(len(order) + 1)))),
        "oda_halving": ("[ODA_DEGREE + 1]", _halving()),
    }  # fmt: skip
    return constants, tables, {key: fitting(part, np.float32) for key, part in state.items()}


def _unit(temperature: float) -> float:
    """Return a power of two, in which squares are about as large as temperatures."""
    return math.ldexp(1.0, -(math.frexp(temperature)[1] // 2))


def _halving() -> Float32Array:
    """Return coefficients of 2 to minus a power in [0, 1], the lowest first."""
    found = np.polynomial.Chebyshev.interpolate(lambda x: 2.0**-x, _DEGREE, domain=[0.0, 1.0])
    return found.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)


def _member(array: Float32Array) -> str:
    """Return what a member of the struct begins with."""
    if array.ndim == 0:
        return f"    {number(float(array))},\n"
    return f"    {{\n{numbers(array, '        ')}    }},\n"


def _about(
    model: ODAClassifier, state_bytes: int, table_bytes: int, returns: list[str]
) -> list[str]:
    """Return what a reader has to know."""
    return [
        f"What {type(model).__name__} of oda_rl has learned, and goes on learning, for C99.",
        "",
        f"State: {state_bytes} bytes, an oda_learner, which the caller owns",
        f"Tables: {table_bytes} bytes, constant",
        "",
        "    oda_learner learner;",
        "    oda_init(&learner);                      what was learned before",
        "    label = oda_predict(&learner, obs);      changes nothing",
        "    oda_partial_fit(&learner, obs, label);   of which the label is known",
        "",
        "oda_predict takes a sample:",
        *features(model),
        *returns,
        "",
        "Of a label that is none of these, and of a sample that is not finite, nothing is learned,",
        "and oda_partial_fit returns 0, else 1. A sample that is not a number is of some class.",
        "",
        "x is ODA_UNIT (obs - oda_origin), and so are codevectors. Those of class c are from",
        "oda_starts[c] up to oda_starts[c + 1]. A sample of the class has shares r of them in",
        "proportion to mass times exp(-squared distance / ODA_TEMPERATURE). The step size a is",
        "1 / (1 + 0.9 (clock + K)) for K codevectors, but at least ODA_FORGETTING / K. A mass",
        "becomes mass + a (r - mass), then a codevector moves by a r / mass (x - codevector).",
    ]
