"""What may be in a file: type, shape and range of every number, declared beside the state itself.

A schema is a dictionary of members:

>>> schema = {"cells": real("K, 1+d"), "owners": whole("K", "[0, d)")}
>>> arrays = {"cells": np.zeros((2, 4)), "owners": np.array([0, 3])}
>>> check(arrays, schema, {"d": 3})
Traceback (most recent call last):
oda_rl.files.schema.InvalidFileError: owners[1] is 3: it must be a whole number in [0, d), d = 3

Shapes and ranges may name sizes, ``1+d`` and ``K-1`` among them. A name that is not known yet is
bound by the first array that has it; those with capital letters are at least 1. Compiled code
checks no index: it relies on this.

An object that comes out of a file has a ``SCHEMA`` in its class, from attributes to what each is:
a :class:`Member`, which is an array or a number; :class:`Floats`; :class:`Maybe`, :class:`Each`,
:class:`Several` of these; a type, whose objects have a schema of their own; or :data:`ANYTHING`
that a file can hold. If it has ``check_contents``, that says how the attributes belong together.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from types import CodeType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

Sizes = dict[str, int]

MAX = 1e15  # of what is counted: sums of some of these are exact in double precision
FINITE, COUNT = "(-inf, inf)", f"[0, {MAX:.0f})"
MISSING = f"{FINITE} or nan"
"""Numbers of samples of which features may be missing."""
ANYTHING = object()
"""What nothing that is compiled depends on."""

_STORED = {float: np.float64, int: np.int64, bool: np.bool_, np.float32: np.float32,
           np.uint64: np.uint64, np.uint8: np.uint8}  # fmt: skip


class InvalidFileError(ValueError):
    """A file that is damaged, or holds what cannot be; the message names the file and what."""


@contextmanager
def reading(path: Any) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into an :class:`InvalidFileError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (Exception, RecursionError) as error:
        said = str(error) or type(error).__name__
        if isinstance(error, KeyError):
            said = f"{said} is missing"
        raise InvalidFileError(f"{str(path)!r} is damaged: {said[:500]}") from error


def require(holds: Any, what: str) -> None:
    """Raise :class:`InvalidFileError` unless something holds."""
    if not holds:
        raise InvalidFileError(what)


class Span:
    """Numbers that are allowed, such as "[0, K)", "(-inf, inf]", "[0, 1] or nan".

    Infinity belongs to it where the bracket beside it is closed.

    >>> Span("[0, K-1] or nan").wrong(np.array([0.0, 2.0, np.nan]), {"K": 2}).tolist()
    [False, True, False]
    """

    def __init__(self, text: str = FINITE) -> None:
        self.text = text
        bare = text.removesuffix(" or nan")
        self.nan = bare != text
        self.closed = bare[0] == "[", bare[-1] == "]"
        self.ends = tuple(bare[1:-1].split(", "))

    def wrong(self, values: npt.NDArray[Any], sizes: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        """Which of some values do not belong to it."""
        low, high = (_value(end, sizes) for end in self.ends)
        right = values >= low if self.closed[0] else values > low
        right &= values <= high if self.closed[1] else values < high
        if self.nan:
            right |= np.isnan(values)
        return np.asarray(~right)

    def said(self, sizes: Mapping[str, int]) -> str:
        """Return the text, and what its names stand for."""
        names = [name for name in _names(self.text) if name in sizes]
        return ", ".join([self.text, *(f"{name} = {sizes[name]}" for name in names)])


_span = cache(Span)


@dataclass(frozen=True)
class Member:
    """An array in a file."""

    kind: type
    """float, int, bool, np.float32; or a declaration of named state."""
    shape: str = ""
    span: str = FINITE
    optional: bool = False
    whole: bool = False
    """Whether all numbers are integers, though they are stored as floats."""

    def fits(self, array: npt.NDArray[Any], sizes: Sizes) -> str | None:
        """Say what is wrong about dtype and shape, if anything; binds names of sizes."""
        stored = _STORED.get(self.kind)
        wanted = self.kind.dtype if stored is None else np.dtype(stored)  # type: ignore[attr-defined]
        empty = array.size == 0 and self.kind in (bool, int) and array.dtype == np.float64
        if array.dtype != wanted and not empty:  # NumPy has floats where there is nothing
            return f"is of {array.dtype}: it must be of {wanted}"
        parts = [part for part in self.shape.split(", ") if part]
        right = len(parts) == array.ndim
        for part, size in zip(parts, array.shape, strict=False):
            right = right and _bind(part, size, sizes)
        if right:
            return None
        names_of = {name: sizes[name] for name in _names(self.shape) if name in sizes}
        return f"has shape {array.shape}: it must be ({self.shape}), {names_of}"

    def check(self, name: str, array: npt.NDArray[Any], sizes: Mapping[str, int]) -> None:
        """Raise :class:`InvalidFileError` if a number is out of its range."""
        if self.kind not in _STORED:
            self.kind.check_records(name, array, sizes)  # type: ignore[attr-defined]
            return
        if self.kind is bool or array.size == 0:
            return
        span = _span(self.span)
        wrong = span.wrong(array, sizes)
        if self.whole:
            with np.errstate(invalid="ignore"):
                wrong |= array != np.floor(array)
        if wrong.any():
            at = np.unravel_index(int(wrong.argmax()), array.shape)
            place = f"[{', '.join(map(str, map(int, at)))}]" if at else ""
            floats = self.kind in (float, np.float32) and not self.whole
            what = "a number" if floats else "a whole number"
            raise InvalidFileError(
                f"{name}{place} is {array[at].item()!r}: it must be {what} in {span.said(sizes)}"
            )


Schema = Mapping[str, Member]


def real(shape: str = "", span: str = FINITE, *, optional: bool = False) -> Member:
    """Double precision numbers."""
    return Member(float, shape, span, optional)


def whole(shape: str = "", span: str = COUNT, *, optional: bool = False) -> Member:
    """Integers."""
    return Member(int, shape, span, optional)


def whole_floats(shape: str, span: str) -> Member:
    """Integers that are stored in double precision."""
    return Member(float, shape, span, whole=True)


def flags(shape: str = "", *, optional: bool = False) -> Member:
    """Booleans."""
    return Member(bool, shape, optional=optional)


def check(arrays: Mapping[str, npt.NDArray[Any]], schema: Schema, sizes: Sizes) -> None:
    """Check arrays against a schema.

    Parameters
    ----------
    arrays : mapping
        By name.
    schema : mapping
        Exactly the members that there must be, or, if they are optional, may be.
    sizes : dict
        What names stand for; those that are not known yet are added.

    Raises
    ------
    InvalidFileError
        It names the member.
    """
    if unknown := sorted(arrays.keys() - schema.keys()):
        raise InvalidFileError(f"{unknown[0]} is in it: it must hold no such member")
    for name, member in schema.items():  # all shapes before any number: ranges may name sizes
        require(name in arrays or member.optional, f"{name} is missing")
        if name in arrays:
            fault = member.fits(arrays[name], sizes)
            require(fault is None, f"{name} {fault}")
    for name, array in arrays.items():
        schema[name].check(name, array, sizes)


def within(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the members whose names begin so, without that."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def prefixed(prefix: str, schema: Schema) -> dict[str, Member]:
    """Return a schema whose names begin so."""
    return {f"{prefix}{name}": member for name, member in schema.items()}


def generator_state(state: Any, what: str = "rngs") -> dict[str, Any]:
    """Return the state of a random generator, or raise :class:`InvalidFileError`.

    >>> state = np.random.default_rng(0).bit_generator.state
    >>> generator_state(state) == state
    True
    """
    inner = state.get("state") if isinstance(state, dict) else None
    legal = (
        isinstance(inner, dict)
        and state.keys() == {"bit_generator", "state", "has_uint32", "uinteger"}
        and state["bit_generator"] == "PCG64"
        and inner.keys() == {"state", "inc"}
        and all(type(value) is int and 0 <= value < 2**128 for value in inner.values())
        and inner["inc"] % 2 == 1
        and type(state["has_uint32"]) is int
        and state["has_uint32"] in (0, 1)
        and type(state["uinteger"]) is int
        and 0 <= state["uinteger"] < 2**32
    )
    require(legal, f"{what} is no state of a PCG64 generator")
    return dict(state)


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation says.

    >>> conforms((1, 2), tuple[int, ...]), conforms(True, int), conforms(1, float | None)
    (True, False, True)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return conforms(value, inner[0])
    if origin in (Union, UnionType):
        return any(conforms(value, choice) for choice in inner)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if origin in (tuple, list):
        if not isinstance(value, origin):
            return False
        if origin is list or inner[-1] is Ellipsis:
            return all(conforms(item, inner[0]) for item in value)
        return len(value) == len(inner) and all(map(conforms, value, inner))
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return type(value) is float or (type(value) is int and abs(value) < MAX)
    return type(value) is hint and (hint is not int or abs(value) < MAX)


def check_fields(instance: Any) -> None:
    """Check that all fields of a dataclass are of the types that it declares."""
    hints = get_type_hints(type(instance), include_extras=True)
    for field in fields(instance):
        value = getattr(instance, field.name)
        require(conforms(value, hints[field.name]), f"{field.name} is {value!r}, of another type")


def number(
    value: Any, what: str, span: str = FINITE, sizes: Mapping[str, int] | None = None
) -> float:
    """Return a number from JSON, or raise :class:`InvalidFileError`."""
    right = (type(value) in (int, float) and abs(value) <= 1e308) or value in (math.inf, -math.inf)
    allowed, sizes = _span(span), sizes or {}
    right = right and not allowed.wrong(np.array(float(value)), sizes).any()
    require(right, f"{what} is {value!r}: it must be a number in {allowed.said(sizes)}")
    return float(value)


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


class Several:
    """A tuple of as many; ``inner`` says what each entry is."""

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
    elif isinstance(kind, Floats):
        single = getattr(value, "dtype", None) == np.float32
        _check_member(value, Member(np.float32 if single else float, kind.shape, kind.span),
                      sizes, where)  # fmt: skip
    elif isinstance(kind, Member):
        _check_member(value, kind, sizes, where)
    elif isinstance(kind, Each):
        require(isinstance(value, list), f"{where} is no list")
        for i, item in enumerate(value):
            _check(item, kind.inner, dict(sizes), f"{where}[{i}]")
    elif isinstance(kind, Several):
        right = type(value) is tuple and len(value) == len(kind.inner)
        require(right, f"{where} is no tuple of {len(kind.inner)}")
        for item, inner in zip(value, kind.inner, strict=True):
            _check(item, inner, sizes, where)
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
            text = f"{kind.kind.__name__} in {kind.span}, shape ({kind.shape})"
            raise InvalidFileError(f"{where} is {value!r:.80}: it must be {text}")
        value = np.asarray(value, dtype=np.float64 if kind.kind is float else None)
    fault = kind.fits(value, sizes)
    require(fault is None, f"{where} {fault}")
    kind.check(where, value, sizes)


def check_labels(labels: Any, n: int, where: str) -> None:
    """Raise InvalidFileError unless something is an array of n labels of classes."""
    right = isinstance(labels, np.ndarray) and labels.shape == (n,)
    require(right, f"{where} must be {n} labels")


def check_fitted(learned: Iterable[bool], where: str) -> bool:
    """Whether an estimator has been fitted; raises InvalidFileError if only in part.

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


@cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[A-Za-z_]+", text))


def _bind(part: str, size: int, sizes: Sizes) -> bool:
    """Let the only name that is not known yet be what it must be; say whether the size is right."""
    unknown = [name for name in _names(part) if name not in sizes]
    for name in unknown[:1]:
        bound = size - int(_value(part, {**sizes, name: 0}))
        if bound < int(name.isupper()):
            return False
        sizes[name] = bound
    return _value(part, sizes) == size


def _value(text: str, sizes: Mapping[str, int]) -> float:
    """Value of an expression in this package's schemas, such as "1+d", "2*d+1" or "inf"."""
    value: float = eval(_compiled(text), {"__builtins__": {}, "inf": math.inf}, sizes)
    return value


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<schema>", "eval")
