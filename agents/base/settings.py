"""Base of settings, with ranges that are declared beside the fields and checked from there."""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np

from oda_rl.files.schema import MAX, Span, conforms

S = TypeVar("S")


class Range(NamedTuple):
    """Valid values of a setting, for ``Annotated`` beside its type."""

    text: str  # completes "it must be"
    holds: Callable[[Any], bool]


def within(interval: str) -> Range:
    """Return a range such as "(0, 1]", which includes 1 but not 0."""
    span = Span(interval)
    return Range(f"in {interval}", lambda value: not span.wrong(np.array(float(value)), {}).any())


def at_least(low: int) -> Range:
    """Return the range of numbers from ``low`` on."""
    return Range(f"at least {low}", lambda value: value >= low)


def one_of(*names: str) -> Range:
    """Return a choice between names."""
    return Range(" or ".join(map(repr, names)), lambda value: value in names)


def or_none(other: Range) -> Range:
    """Return a range that includes None."""
    return Range(f"{other.text}, or None", lambda value: value is None or other.holds(value))


POSITIVE = Range("positive and finite", lambda value: 0.0 < value < math.inf)
NOT_NEGATIVE = Range("finite and at least 0", lambda value: 0.0 <= value < math.inf)
_FLAG = Range("True or False", lambda value: isinstance(value, bool))


def are_counts(value: Any) -> bool:
    """Whether a value is an integer of at least 1, or a tuple of some."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(n, int) and n >= 1 for n in values) and len(values) > 0


@dataclass(frozen=True)
class Checked:
    """Base of settings: a value out of its range raises ValueError.

    A range is declared beside a field's type: ``sides: Annotated[int, at_least(2)] = 6``. Arrays
    and lists become tuples, and 6.0 becomes 6, so that settings can be compared and written to
    files.
    """

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = _plain(getattr(self, field.name)), field.type
            huge = isinstance(value, int | float) and MAX <= abs(value) < math.inf
            whole = isinstance(value, float) and value.is_integer() and not huge
            if whole and not conforms(value, kind):
                value = int(value)
            object.__setattr__(self, field.name, value)
            fits, counts = conforms(value, kind), conforms(1, kind) and not conforms(0.5, kind)
            for right in getattr(kind, "__metadata__", (_FLAG,) if kind is bool else ()):
                if not (fits and _holds(right, value)):
                    below = f" below {MAX:g}" * huge
                    kinds = f"an integer{below}, " if counts and not fits else ""
                    raise ValueError(f"{field.name} is {value!r}: it must be {kinds}{right.text}")


def _holds(right: Range, value: Any) -> bool:
    try:
        return right.holds(value)
    except TypeError:
        return False


def _plain(value: Any) -> Any:
    """Return arrays and lists as tuples of Python's numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_plain(one) for one in value)
    return value


_STEP_SIZE = "TwoTimescaleAgent has step_size, other agents have no step sizes"
ELSEWHERE = {  # where to find what other libraries call a setting
    **dict.fromkeys(("discount", "discount_factor"), "it is called gamma"),
    **dict.fromkeys(("learning_rate", "lr", "alpha"), _STEP_SIZE),
    **dict.fromkeys(("lam", "lambda_", "gae_lambda"), "it is called trace_decay"),
    **dict.fromkeys(("policy", "policy_kwargs", "device"), "there is no network"),
    **dict.fromkeys(("n_steps", "total_timesteps"), "learn(total_timesteps) takes it"),
    **dict.fromkeys(("n_episodes", "n_eval_episodes"), "evaluate(n_eval_episodes) takes it"),
    "epsilon": "it is called exploration",
    "random_state": "it is called seed",
    "verbose": "learn(progress_bar=True) shows progress",
}


def unknown_setting(kind: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a setting that an agent does not have, with what may be meant."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    return TypeError(f"{name} is no setting of {kind}: {ELSEWHERE.get(name, hint)}")


def made_settings(kind: str, declared: type[S], given: Mapping[str, Any]) -> S:
    """Return settings of an agent; TypeError if it does not have one of those given."""
    known = [field.name for field in fields(declared)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise unknown_setting(kind, name, known)
    return declared(**given)


def checked_count(name: str, value: int | float, least: int = 1) -> int:
    """Return ``value`` as an int; ValueError unless it is an integer of at least ``least``."""
    if not isinstance(value, Real) or value < least or value % 1:
        raise ValueError(f"{name} is {value!r}: it must be an integer of at least {least}")
    return int(value)


def checked_seed(seed: int | None) -> int | None:
    """Return ``seed`` as an int, at least 0, or None; else raise ValueError."""
    return None if seed is None else checked_count("seed", seed, 0)
