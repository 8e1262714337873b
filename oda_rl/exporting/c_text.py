"""What C headers are written in: tables, numbers, comments, and how the nearest cell is found."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

AS_IT_IS = """\
    const float *x = obs;
"""
LESS_ORIGIN = """\
    float x[ODA_FEATURES];
    for (int j = 0; j < ODA_FEATURES; ++j) {
        x[j] = obs[j] - oda_origin[j];
    }
"""
FLOAT_SCORE = """\
        float score = oda_diagram[k][0];
        for (int j = 0; j < ODA_FEATURES; ++j) {
            score += oda_diagram[k][1 + j] * x[j];
        }
"""
NEAREST = """\
    int nearest = 0;
    SCORE least = 0;
    for (int k = 0; k < ODA_CELLS; ++k) {
ONE_SCORE        if (k == 0 || score < least) {
            least = score;
            nearest = k;
        }
    }
"""
_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.uint32): "uint32_t",
}
_WIDTH = 96


def table(name: str, size: str, array: npt.NDArray[Any]) -> str:
    """Return the definition of a table; ``size`` has its dimensions, in brackets.

    Examples
    --------
    >>> print(table("oda_origin", "[ODA_FEATURES]", np.array([0.5, 2.0], dtype=np.float32)))
    static const float oda_origin[ODA_FEATURES] = {
        0.5f, 2.0f,
    };
    <BLANKLINE>
    <BLANKLINE>
    """
    head = f"static const {_TYPES[array.dtype]} {name}{size} = {{\n"
    return head + numbers(array, "    ") + "};\n\n"


def numbers(array: npt.NDArray[Any], indent: str) -> str:
    """Return lines of what stands in the braces of an array.

    Examples
    --------
    >>> print(numbers(np.array([[0.5, 2.0], [1.0, 3.0]], dtype=np.float32), "  "))
      {0.5f, 2.0f},
      {1.0f, 3.0f},
    <BLANKLINE>
    """
    write = number if array.dtype == np.float32 else str
    if array.ndim == 1:
        lines = _filled([write(value) for value in array.tolist()], indent)
    else:
        lines = []
        for row in array.tolist():
            inner = _filled([_item(value, write) for value in row], f"{indent} ")
            lines += [f"{indent}{{{inner[0].lstrip()}", *inner[1:]]
            lines[-1] = f"{lines[-1].rstrip(',')}}},"
    return "".join(f"{line}\n" for line in lines)


def _item(value: Any, write: Callable[[Any], str]) -> str:
    """Return a number, or a list of them."""
    return f"{{{', '.join(map(write, value))}}}" if isinstance(value, list) else write(value)


def _filled(items: Sequence[str], indent: str) -> list[str]:
    """Return lines of items with a comma after each."""
    lines, line = [], indent
    for item in items:
        if len(line) + len(item) > _WIDTH:
            lines.append(line.rstrip())
            line = indent
        line += f"{item}, "
    return [*lines, line.rstrip()]


def number(value: float) -> str:
    """Return a constant of type float; nine digits are exact."""
    text = f"{value:.9g}"
    return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"


def features(estimator: Any) -> list[str]:
    """Return a line for each component of ``obs``, with the feature's name if it has one.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> features(SimpleNamespace(n_features_in_=2, feature_names_in_=["width", "height"]))
    ['    obs[0]  width', '    obs[1]  height']
    """
    d = int(estimator.n_features_in_)
    names = getattr(estimator, "feature_names_in_", [""] * d)
    return [f"    obs[{j}]  {name}".rstrip() for j, name in enumerate(names)]


def as_comment(lines: Sequence[str]) -> str:
    """Return lines as a comment."""
    return "/* " + "\n".join(f" * {_plain(line)}".rstrip() for line in lines)[3:] + "\n */\n"


def _plain(text: str) -> str:
    """Return text that can end no comment."""
    return re.sub(r"[*\\?]|[^\x20-\uffff]", "_", text)
