"""Schemas of files: type, shape and range of every number, declared beside the state itself.

A schema is a dictionary of members:

>>> schema = {"cells": real("K, 1+d"), "owners": whole("K", "[0, d)")}
>>> arrays = {"cells": np.zeros((2, 4)), "owners": np.array([0, 3])}
>>> check(arrays, schema, {"d": 3})
Traceback (most recent call last):
oda_rl.files.schema.InvalidFileError: owners[1] is 3: it must be a whole number in [0, d), d = 3

Shapes and ranges may be expressions of sizes, such as ``1+d`` and ``K-1``. An unknown name is bound
by the first array that has it; uppercase sizes are at least 1. Compiled code relies on these checks
for its indices.

The class of an object in a file has a ``SCHEMA`` of its attributes, or is a dataclass or a named
tuple whose fields are ``Annotated``: with a :class:`Member` (an array or a number),
:class:`Floats`, a :class:`Maybe`, :class:`Each` or :class:`Several` of these, a type (with a schema
of its own), or :data:`ANYTHING`. Its ``_check_contents``, if any, checks how the attributes belong
together.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import CodeType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

Sizes = dict[str, int]
M = TypeVar("M")

MAX = 1e15  # of counts: sums of a few are exact in double precision
FINITE, COUNT = "(-inf, inf)", f"[0, {MAX:.0f})"
MISSING = f"{FINITE} or nan"  # range of samples in which features may be missing
ANYTHING = object()  # any value; for attributes that no compiled code reads

_STORED = {float: np.float64, int: np.int64, bool: np.bool_, np.float32: np.float32,
           np.uint64: np.uint64, np.uint8: np.uint8}  # fmt: skip


def printable(text: str) -> str:
    r"""Return a text with escapes for characters that a terminal obeys or does not show."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class InvalidFileError(ValueError):
    """A file that is damaged or holds invalid values."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@contextmanager
def reading(path: Any) -> Iterator[None]:
    """Turn every exception while reading a file into an :class:`InvalidFileError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (Exception, RecursionError) as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, KeyError):
            reason += " is missing"
        raise InvalidFileError(f"{str(path)!r} is damaged: {reason[:500]}") from error


def require(condition: Any, message: str) -> None:
    """Raise :class:`InvalidFileError` unless a condition holds."""
    if not condition:
        raise InvalidFileError(message)


class Span:
    """An interval of allowed numbers, such as "[0, K)", "(-inf, inf]", "[0, 1] or nan".

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
        """Return which values lie outside, a mask of their shape."""
        low, high = (_value(end, sizes) for end in self.ends)
        inside = values >= low if self.closed[0] else values > low
        inside &= values <= high if self.closed[1] else values < high
        if self.nan:
            inside |= np.isnan(values)
        return np.asarray(~inside)

    def described(self, sizes: Mapping[str, int]) -> str:
        """Return the text with the values of its names."""
        names = [name for name in _names(self.text) if name in sizes]
        return ", ".join([self.text, *(f"{name} = {sizes[name]}" for name in names)])


_span = cache(Span)


@dataclass(frozen=True)
class Member:
    """An array in a file."""

    kind: type  # float, int, bool, np.float32, or a declaration of named state
    shape: str = ""
    span: str = FINITE
    optional: bool = False

    def fits(self, array: npt.NDArray[Any], sizes: Sizes) -> str | None:
        """Return what is wrong with dtype or shape, if anything; binds names of sizes."""
        stored = _STORED.get(self.kind)
        wanted = self.kind.dtype if stored is None else np.dtype(stored)  # type: ignore[attr-defined]
        empty = array.size == 0 and self.kind in (bool, int) and array.dtype == np.float64
        if array.dtype != wanted and not empty:  # NumPy makes empty arrays of floats
            return f"is of {array.dtype}: it must be of {wanted}"
        parts = [part for part in self.shape.split(", ") if part]
        bound = (_bind(part, size, sizes) for part, size in zip(parts, array.shape, strict=True))
        if len(parts) == array.ndim and all(bound):
            return None
        known = {name: sizes[name] for name in _names(self.shape) if name in sizes}
        return f"has shape {array.shape}: it must be ({self.shape}), {known}"

    def check(self, name: str, array: npt.NDArray[Any], sizes: Mapping[str, int]) -> None:
        """Raise :class:`InvalidFileError` if a number is out of its range."""
        if self.kind not in _STORED:
            self.kind.check_records(name, array, sizes)  # type: ignore[attr-defined]
            return
        if self.kind is bool or array.size == 0:
            return
        span = _span(self.span)
        wrong = span.wrong(array, sizes)
        if wrong.any():
            at = np.unravel_index(int(wrong.argmax()), array.shape)
            place = f"[{', '.join(map(str, map(int, at)))}]" if at else ""
            floats = self.kind in (float, np.float32)
            wanted = f"{'a number' if floats else 'a whole number'} in {span.described(sizes)}"
            raise InvalidFileError(f"{name}{place} is {array[at].item()!r}: it must be {wanted}")


Schema = Mapping[str, Member]


def real(shape: str = "", span: str = FINITE, *, optional: bool = False) -> Member:
    """Declare numbers in double precision."""
    return Member(float, shape, span, optional)


def whole(shape: str = "", span: str = COUNT) -> Member:
    """Declare integers."""
    return Member(int, shape, span)


def flags(shape: str = "") -> Member:
    """Declare booleans."""
    return Member(bool, shape)


def check(arrays: Mapping[str, npt.NDArray[Any]], schema: Schema, sizes: Sizes) -> None:
    """Raise InvalidFileError unless arrays match a schema; new names are added to ``sizes``."""
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
    """Return the members whose names have a prefix, without it."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def prefixed(prefix: str, members: Mapping[str, M]) -> dict[str, M]:
    """Put a prefix before the names of members."""
    return {f"{prefix}{name}": member for name, member in members.items()}


def generator_state(state: Any, what: str = "rngs") -> dict[str, Any]:
    """Check the state of a random generator, or raise :class:`InvalidFileError`."""
    inner = state.get("state") if isinstance(state, dict) else None
    valid = (
        isinstance(inner, dict)
        and state.keys() == {"bit_generator", "state", "has_uint32", "uinteger"}
        and state["bit_generator"] == "PCG64"
        and inner.keys() == {"state", "inc"}
        and all(type(value) is int and 0 <= value < 2**128 for value in inner.values())
        and inner["inc"] % 2 == 1
        and all(type(state[name]) is int for name in ("has_uint32", "uinteger"))
        and 0 <= state["has_uint32"] < 2
        and 0 <= state["uinteger"] < 2**32
    )
    require(valid, f"{what} is not the state of a PCG64 generator")
    return dict(state)


def conforms(value: Any, hint: Any) -> bool:
    """Return whether a value matches an annotation."""
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
    """Check that the fields of a dataclass match their annotations."""
    hints = get_type_hints(type(instance), include_extras=True)
    for field in fields(instance):
        value = getattr(instance, field.name)
        require(conforms(value, hints[field.name]), f"{field.name} is {value!r}, of another type")


def number(
    value: Any, what: str, span: str = FINITE, sizes: Mapping[str, int] | None = None
) -> float:
    """Return a number from JSON, or raise :class:`InvalidFileError`."""
    valid = (type(value) in (int, float) and abs(value) <= 1e308) or value in (math.inf, -math.inf)
    allowed, sizes = _span(span), sizes or {}
    valid = valid and not allowed.wrong(np.array(float(value)), sizes).any()
    require(valid, f"{what} is {value!r}: it must be a number in {allowed.described(sizes)}")
    return float(value)


@dataclass(frozen=True)
class _Of:
    inner: Any


class Maybe(_Of):
    """None or ``inner``."""


class Each(_Of):
    """A list of ``inner``, each with its own sizes."""


@dataclass(frozen=True)
class Floats:
    """An array in double or single precision."""

    shape: str
    span: str = FINITE


class Several:
    """A tuple with these entries."""

    def __init__(self, *inner: Any) -> None:
        self.inner = inner


class Optional(_Of):
    """An attribute that may be absent."""


OF_ALL: dict[str, Any] = {  # attributes that scikit-learn adds to every estimator
    "n_features_in_": whole("", "[1, 1000000]"),
    "feature_names_in_": ANYTHING,
    "_sklearn_output_config": ANYTHING,
}

HISTORY = Each(Several(whole(), real("", "[0, inf]")))
"""Samples seen after each pass, and their mean squared distance."""


def members_of(kind: Any) -> dict[str, Member]:
    """Return the members of a file that are declared beside the fields of a class."""
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: hint.__metadata__[0] for name, hint in hints if get_origin(hint) is Annotated}


@cache
def schema_of(kind: Any) -> Mapping[str, Any]:
    """Return the schema of a class; an estimator's includes its parameters."""
    if hasattr(kind, "SCHEMA"):
        return dict(kind.SCHEMA)
    if not hasattr(kind, "_LEARNED"):
        hints = get_type_hints(kind, include_extras=True)
        return {name: getattr(hint, "__metadata__", (hint,))[0] for name, hint in hints.items()}
    learned = {name: Optional(inner) for name, inner in {**OF_ALL, **kind._LEARNED}.items()}
    return {**dict.fromkeys(kind._parameter_constraints, ANYTHING), **learned}


def check_contents(value: Any, sizes: Sizes, where: str) -> None:
    """Raise InvalidFileError unless an object matches its class; names are added to ``sizes``."""
    schema = schema_of(type(value))  # type: ignore[arg-type]
    attributes = value._asdict() if hasattr(value, "_fields") else vars(value)
    for name in attributes:
        require(name in schema, f"{where} has an unknown attribute {name!r}")
    for name, kind in schema.items():
        optional = isinstance(kind, Optional)
        if name not in attributes:
            require(optional, f"{where}.{name} is missing")
            continue
        _check(attributes[name], kind.inner if optional else kind, sizes, f"{where}.{name}")
    if hasattr(value, "_check_contents"):
        value._check_contents(sizes, where)


def _check(value: Any, kind: Any, sizes: Sizes, where: str) -> None:
    if kind is ANYTHING:
        return
    if isinstance(kind, Maybe):
        if value is not None:
            _check(value, kind.inner, sizes, where)
    elif isinstance(kind, Floats):
        single = getattr(value, "dtype", None) == np.float32
        member = Member(np.float32 if single else float, kind.shape, kind.span)
        _check_member(value, member, sizes, where)
    elif isinstance(kind, Member):
        _check_member(value, kind, sizes, where)
    elif isinstance(kind, Each):
        require(isinstance(value, list), f"{where} must be a list")
        for i, item in enumerate(value):
            _check(item, kind.inner, dict(sizes), f"{where}[{i}]")
    elif isinstance(kind, Several):
        valid = type(value) is tuple and len(value) == len(kind.inner)
        require(valid, f"{where} must be a tuple of {len(kind.inner)}")
        for item, inner in zip(value, kind.inner, strict=True):
            _check(item, inner, sizes, where)
    else:
        require(isinstance(value, kind), f"{where} must be of type {kind.__name__}")
        if hasattr(value, "SCHEMA") or hasattr(value, "_fields") or is_dataclass(value):
            check_contents(value, sizes, where)


def _check_member(value: Any, kind: Member, sizes: Sizes, where: str) -> None:
    if not isinstance(value, np.ndarray):
        types = {bool: (bool,), int: (int,)}.get(kind.kind, (int, float))
        if kind.shape or type(value) not in types:  # a message is made only for errors: it is slow
            text = f"{kind.kind.__name__} in {kind.span}, shape ({kind.shape})"
            raise InvalidFileError(f"{where} is {value!r:.80}: it must be {text}")
        value = np.asarray(value, dtype=np.float64 if kind.kind is float else None)
    fault = kind.fits(value, sizes)
    require(fault is None, f"{where} {fault}")
    kind.check(where, value, sizes)


def check_labels(labels: Any, n: int, where: str) -> None:
    """Raise InvalidFileError unless ``labels`` is an array of n class labels."""
    valid = isinstance(labels, np.ndarray) and labels.shape == (n,)
    require(valid, f"{where} must be {n} labels")


def check_fitted(learned: Iterable[bool], where: str) -> bool:
    """Return whether an estimator has its fitted attributes; InvalidFileError if only some."""
    present = set(learned)
    require(len(present) == 1, f"{where} has only some of its fitted attributes")
    return present.pop()


def check_classes(seen: Any, classes: Any, n: int) -> None:
    """Raise InvalidFileError unless ``seen`` is a list of the n labels in ``classes``."""
    kinds = {type(label) for label in seen} if isinstance(seen, list) else set()
    valid = len(seen) == n and len(kinds) == 1 and kinds <= {str, int, float, bool}
    require(valid and len(set(seen)) == n, f"_seen is {seen!r:.80}: it must be {n} labels")
    same = isinstance(classes, np.ndarray) and classes.tolist() == sorted(seen)
    require(same, "classes_ are not the labels seen")


@cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[A-Za-z_]+", text))


def _bind(part: str, size: int, sizes: Sizes) -> bool:
    """Bind the first unknown name so that the size fits; return whether the size fits."""
    unknown = [name for name in _names(part) if name not in sizes]
    for name in unknown[:1]:
        bound = size - int(_value(part, {**sizes, name: 0}))
        if bound < int(name.isupper()):
            return False
        sizes[name] = bound
    return _value(part, sizes) == size


def _value(text: str, sizes: Mapping[str, int]) -> float:
    """Evaluate an expression of a schema, such as "1+d", "2*d+1" or "inf"."""
    value: float = eval(_compiled(text), {"__builtins__": {}, "inf": math.inf}, sizes)
    return value


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<schema>", "eval")
