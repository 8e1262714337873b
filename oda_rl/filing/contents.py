"""Schemas of objects that come out of files: what their attributes may be.

An object's class has a ``SCHEMA`` from attributes to what each is: a :class:`Member`, which is an
array or a number; :class:`Floats`; :class:`Maybe`, :class:`Each`, :class:`Several` of these; a
type, whose objects have a schema of their own; or :data:`ANYTHING` that a file can hold. If it has
``check_contents``, that says how the attributes belong together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._schema import FINITE, InvalidFileError, Member, Sizes, real, require, whole

MISSING = f"{FINITE} or nan"
"""Numbers of samples of which features may be missing."""
ANYTHING = object()
"""What nothing that is compiled depends on."""


@dataclass(frozen=True)
class Maybe:
    """None, or something."""

    inner: Any


@dataclass(frozen=True)
class Each:
    """A list, each entry with sizes of its own."""

    inner: Any


@dataclass(frozen=True)
class Floats:
    """An array of numbers in double or in single precision."""

    shape: str
    span: str = FINITE

    def of(self, value: Any) -> Member:
        """Return what an array is of the precision that it has."""
        single = getattr(value, "dtype", None) == np.float32
        return Member(np.float32 if single else float, self.shape, self.span)


class Several:
    """A tuple of as many.

    Parameters
    ----------
    *inner
        What each entry is.
    """

    def __init__(self, *inner: Any) -> None:
        self.inner = inner


@dataclass(frozen=True)
class Optional:
    """An attribute that there need not be."""

    inner: Any


OF_ALL: dict[str, Any] = {
    "n_features_in_": Optional(whole("", "[1, 1000000]")),
    "feature_names_in_": Optional(ANYTHING),
    "_sklearn_output_config": Optional(ANYTHING),
    "_metadata_request": Optional(ANYTHING),
}
"""What scikit-learn keeps in every estimator."""

HISTORY = Each(Several(whole(), real("", "[0, inf]")))
"""Samples seen after each pass, and their mean squared distance."""


def schema_of(kind: Any) -> Mapping[str, Any]:
    """Return what the attributes of a class may be: of an estimator, parameters are among them."""
    if not hasattr(kind, "LEARNED"):
        found: Mapping[str, Any] = kind.SCHEMA
        return found
    return {**dict.fromkeys(kind._parameter_constraints, ANYTHING), **OF_ALL, **kind.LEARNED}


def check_contents(value: Any, sizes: Sizes, where: str) -> None:
    """Raise InvalidFileError unless an object is what the schema of its class says.

    Parameters
    ----------
    value : object
        Of a class with a schema.
    sizes : dict
        What names stand for; those that are not known yet are added.
    where : str
        For the message.
    """
    schema = schema_of(type(value))
    attributes = value._asdict() if hasattr(value, "_fields") else vars(value)
    for name in attributes:
        require(name in schema, f"{where} has an attribute {name!r} that it cannot have")
    for name, kind in schema.items():
        optional = isinstance(kind, Optional)
        if name not in attributes:
            require(optional, f"{where}.{name} is missing")
            continue
        _check(attributes[name], kind.inner if optional else kind, sizes, f"{where}.{name}")
    if hasattr(value, "check_contents"):
        value.check_contents(sizes, where)


def _check(value: Any, kind: Any, sizes: Sizes, where: str) -> None:
    if kind is ANYTHING:
        return
    if isinstance(kind, Maybe):
        if value is not None:
            _check(value, kind.inner, sizes, where)
    elif isinstance(kind, Member):
        _check_member(value, kind, sizes, where)
    elif isinstance(kind, Each):
        require(isinstance(value, list), f"{where} is no list")
        for i, one in enumerate(value):
            _check(one, kind.inner, dict(sizes), f"{where}[{i}]")
    elif isinstance(kind, Floats):
        _check_member(value, kind.of(value), sizes, where)
    elif isinstance(kind, Several):
        right = type(value) is tuple and len(value) == len(kind.inner)
        require(right, f"{where} is no tuple of {len(kind.inner)}")
        for one, inner in zip(value, kind.inner, strict=True):
            _check(one, inner, sizes, where)
    else:
        require(isinstance(value, kind), f"{where} is of another type than {kind.__name__}")
        if hasattr(type(value), "SCHEMA"):
            check_contents(value, sizes, where)


def _check_member(value: Any, kind: Member, sizes: Sizes, where: str) -> None:
    if not isinstance(value, np.ndarray):
        right = type(value) in (bool, int, float) and not kind.shape
        right = right and (type(value) is bool) == (kind.kind is bool)
        right = right and not (kind.kind is int and type(value) is float)
        if not right:  # there are thousands of these: only what is wrong is worth a text
            raise InvalidFileError(f"{where} is {value!r:.80}: it must be {kind.text}")
        value = np.asarray(value, dtype=np.float64 if kind.kind is float else None)
    fault = kind.fits(value.dtype, value.shape, sizes)
    require(fault is None, f"{where} {fault}")
    kind.check(where, value, sizes)


def check_labels(labels: Any, n: int, where: str) -> None:
    """Raise InvalidFileError unless something is an array of n labels of classes."""
    right = isinstance(labels, np.ndarray) and labels.shape == (n,)
    require(right, f"{where} must be {n} labels")


def check_fitted(learned: Iterable[bool], where: str) -> bool:
    """Whether an estimator has been fitted; raises InvalidFileError if it has been by half.

    ``learned`` says of each attribute that comes with fitting whether it is there.
    """
    found = set(learned)
    require(len(found) == 1, f"{where} has been fitted by half")
    return found.pop()


def check_classes(seen: Any, classes: Any, n: int) -> None:
    """Raise InvalidFileError unless n classes are known, in the order in which they were seen."""
    kinds = {type(label) for label in seen} if isinstance(seen, list) else set()
    right = len(seen) == n and len(kinds) == 1 and kinds <= {str, int, float, bool}
    require(right and len(set(seen)) == n, f"_seen is {seen!r:.80}: it must be {n} labels")
    known = isinstance(classes, np.ndarray) and classes.tolist() == sorted(seen)
    require(known, "classes_ are not those that were seen")
