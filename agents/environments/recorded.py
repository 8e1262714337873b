"""Arguments of environments and wrappers as JSON, and back, checked."""

import math
import re
from typing import Any

import numpy as np

from oda_rl._schema import InvalidFileError, number, require

MOST_VALUES, MOST_DEPTH, MOST_LETTERS = 100_000, 20, 10_000
_DTYPE = re.compile(r"(bool|u?int(8|16|32|64)|float(16|32|64))")


class UnrecordedError(TypeError):
    """What no file holds; the message says what that is."""


def recorded(value: Any, depth: int = 0) -> Any:
    """Return what JSON has of an argument: tuples and arrays are marked as such.

    >>> recorded({"shape": (84, 84), "scale": 0.5})
    {'shape': {'tuple': [84, 84]}, 'scale': 0.5}
    >>> recorded(print)
    Traceback (most recent call last):
    oda_rl.agents.environments.recorded.UnrecordedError: of type builtin_function_or_method
    """
    told = _recorded(value, depth)
    if depth == 0 and _size(told) > MOST_VALUES:
        raise UnrecordedError(f"of more than {MOST_VALUES:,} values")
    return told


def _recorded(value: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise UnrecordedError(f"nested more than {MOST_DEPTH} deep")
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str and len(value) <= MOST_LETTERS:
        return value
    if type(value) is list:
        return [_recorded(one, depth + 1) for one in value]
    if type(value) is tuple:
        return {"tuple": [_recorded(one, depth + 1) for one in value]}
    if isinstance(value, np.ndarray | np.generic) and _DTYPE.fullmatch(value.dtype.name):
        flat = np.reshape(value, -1).tolist()
        return {"array": flat, "shape": list(value.shape), "dtype": value.dtype.name}
    if type(value) is dict and all(type(key) is str for key in value) and _plain(value):
        return {key: _recorded(one, depth + 1) for key, one in value.items()}
    raise UnrecordedError(f"of type {type(value).__name__}")


def _plain(value: dict[str, Any]) -> bool:
    """Whether a dictionary is none of those that stand for a tuple or an array."""
    return value.keys() != {"tuple"} and value.keys() != {"array", "shape", "dtype"}


def argument(value: Any, what: str) -> Any:
    """Return the argument that :func:`recorded` told of, or raise InvalidFileError.

    >>> argument({"tuple": [84, 84]}, "shape")
    (84, 84)
    """
    require(_depth(value) <= MOST_DEPTH + 1, f"{what} is nested more than {MOST_DEPTH} deep")
    require(_size(value) <= MOST_VALUES, f"{what} has more than {MOST_VALUES:,} values")
    return _argument(value, what)


def _argument(value: Any, what: str) -> Any:
    if isinstance(value, str):
        require(len(value) <= MOST_LETTERS, f"{what} has more than {MOST_LETTERS:,} letters")
        return value
    if isinstance(value, list):
        return [_argument(one, what) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"tuple"}:
        require(isinstance(value["tuple"], list), f"{what} has a tuple that is no list")
        return tuple(_argument(one, what) for one in value["tuple"])
    if _plain(value):
        return {key: _argument(one, what) for key, one in value.items()}
    flat, shape, dtype = value["array"], value["shape"], value["dtype"]
    numbers = isinstance(flat, list) and all(type(one) in (bool, int, float) for one in flat)
    sizes = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    right = numbers and sizes and math.prod(shape) == len(flat)
    require(right and isinstance(dtype, str) and _DTYPE.fullmatch(dtype),
            f"{what} has an array that is none")  # fmt: skip
    try:
        return np.array(flat, dtype=dtype).reshape(shape)[()]  # without a shape, a number
    except (OverflowError, ValueError) as error:
        raise InvalidFileError(f"{what} has an array that is none: {error}") from error


def numbers(values: Any, what: str, span: str) -> list[float]:
    """Return a list of numbers from JSON, or raise InvalidFileError."""
    require(isinstance(values, list) and len(values) <= MOST_VALUES, f"{what} is no list")
    return [number(value, what, span) for value in values]


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
