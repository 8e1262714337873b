"""What all settings share: ranges that stand beside their fields, and are checked from there."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np


class Settings(Protocol):
    """What the engine reads of an agent's settings."""

    @property
    def action_bins(self) -> int:
        """Values of each component of a continuous action."""


class Range(NamedTuple):
    """What a setting may be, as ``Annotated`` beside its type."""

    text: str
    """Completes "it must be"."""
    holds: Callable[[Any], bool]


def within(interval: str) -> Range:
    """Return a range such as "(0, 1]", which 1 belongs to and 0 does not."""
    low, high = (float(end) for end in interval[1:-1].split(","))

    def holds(value: float) -> bool:
        above = value > low or (value == low and interval[0] == "[")
        return above and (value < high or (value == high and interval[-1] == "]"))

    return Range(f"in {interval}", holds)


def at_least(least: int) -> Range:
    """Return the range of what is not below a number."""
    return Range(f"at least {least}", lambda value: value >= least)


def one_of(*names: str) -> Range:
    """Return the range of a choice between names."""
    return Range(" or ".join(map(repr, names)), lambda value: value in names)


def or_none(other: Range) -> Range:
    """Return a range that None belongs to as well."""
    return Range(f"{other.text}, or None", lambda value: value is None or other.holds(value))


POSITIVE = Range("positive and finite", lambda value: 0.0 < value < math.inf)
NOT_NEGATIVE = Range("finite and at least 0", lambda value: 0.0 <= value < math.inf)


def are_counts(value: Any) -> bool:
    """Whether this is an integer of at least 1, or some of them."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(n, int) and n >= 1 for n in values) and len(values) > 0


@dataclass(frozen=True)
class Checked:
    """Base of settings: ValueError names the one that is out of its ranges, and what is right.

    Arrays and lists become tuples, so that settings can be compared and written to files.

    Examples
    --------
    >>> from typing import Annotated
    >>> @dataclass(frozen=True)
    ... class Throw(Checked):
    ...     sides: Annotated[int, at_least(2)] = 6
    >>> Throw(sides=1)
    Traceback (most recent call last):
    ValueError: sides is 1: it must be at least 2
    """

    def __post_init__(self) -> None:
        """Check every field."""
        for field in fields(self):
            value = _plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            for right in getattr(field.type, "__metadata__", ()):
                if not right.holds(value):
                    raise ValueError(f"{field.name} is {value!r}: it must be {right.text}")


def _plain(value: Any) -> Any:
    """Return arrays and lists as tuples, of Python's own numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_plain(one) for one in value)
    return value


def checked_count(name: str, value: int) -> int:
    """Return ``value`` as an int; raise ValueError unless it is an integer of at least 1."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be an integer of at least 1")
    return int(value)
