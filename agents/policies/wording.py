"""Affine rules in words: sums with short numbers."""

import re
from collections.abc import Sequence

import numpy as np

from oda_rl._types import FloatArray

_DIGITS = 4
_EXACT = 1e-9  # relative
_POWERS = 10.0 ** np.arange(-6, 7)


def affine(row: FloatArray, names: Sequence[str]) -> str:
    """Return offset and slopes, shape (1 + d,), as a sum.

    >>> affine(np.array([0.5, -1.0, 2.5]), ["x", "speed"])
    '-x + 2.5·speed + 0.5'
    """
    text = ""
    for value, name in zip([*row[1:].tolist(), float(row[0])], [*names, ""], strict=True):
        if value == 0.0:
            continue
        size = number(abs(value))
        term = size if not name else name if size == "1" else f"{size}·{name}"
        sign = "-" if value < 0.0 else "+"
        text += f" {sign} {term}" if text else f"{'-' * (value < 0.0)}{term}"
    return text or "0"


def half_space(row: FloatArray, names: Sequence[str]) -> str:
    """Say where an affine function, shape (1 + d,), is positive.

    >>> half_space(np.array([-0.1, 0.0, 1.0]), ["x", "speed"])
    'speed > 0.1'
    """
    (short,) = shortest(row[None])
    first = short[1:][np.flatnonzero(short[1:])[0]]
    short, relation = (short, ">") if first > 0.0 else (-short, "<")
    return f"{affine(np.append(0.0, short[1:]), names)} {relation} {number(-short[0])}"


def clause_lines(clauses: Sequence[tuple[FloatArray, str]], components: Sequence[str]) -> list[str]:
    """Say clauses, of which each is rows, shape (m, 1 + d), that are positive, and what is done.

    >>> clause_lines([(np.array([[0.5, 1.0]]), "coast"), (np.zeros((0, 2)), "never brake")], ["x"])
    ['coast where x > -0.5', 'never brake']
    """
    lines = []
    for rows, what in clauses:
        moving = rows[rows[:, 1:].any(axis=1)]
        where = " and ".join(half_space(row, components) for row in moving)
        lines.append(f"{what} where {where}" if where else what)
    return lines


def number(value: float) -> str:
    """Return a number to four digits.

    >>> number(1234567.0), number(0.05), number(-2.0), number(1e9)
    ('1235000', '0.05', '-2', '1e+09')
    """
    short = f"{value:.{_DIGITS}g}"
    rounded = float(short) + 0.0
    return f"{rounded:.10g}" if 1e-4 <= abs(rounded) < 1e7 or rounded == 0.0 else short


def shortest(rows: FloatArray) -> FloatArray:
    """Multiply by the positive constant that makes the numbers short; exact ones are preferred.

    >>> shortest(np.array([[0.0, 0.006, 0.0], [0.0, -0.1, 0.3]])).round(9)
    array([[ 0.  ,  0.06,  0.  ],
           [ 0.  , -1.  ,  3.  ]])
    """
    slopes = rows[:, 1:] if rows[:, 1:].any() else rows
    factors = [1.0, *_POWERS, *(1.0 / np.unique(np.abs(slopes[slopes != 0.0])))]
    return min((factor * rows for factor in factors), key=_cost)


def without_units(names: Sequence[str]) -> list[str]:
    """Return names without what is in parentheses at their ends, if they still differ.

    >>> without_units(["angle (rad)", "angular velocity (rad/s)"])
    ['angle', 'angular velocity']
    """
    short = [re.sub(r"\s*\([^()]*\)$", "", name) for name in names]
    return short if all(short) and len(set(short)) == len(names) else list(names)


def _cost(rows: FloatArray) -> tuple[bool, int]:
    """Return whether digits are lost, and how many letters numbers take; points count twice."""
    lost, letters = False, 0
    for row in rows.tolist():
        for j, value in enumerate(map(abs, row)):
            text = number(value)
            lost |= abs(float(text) - value) > _EXACT * value
            if value != 0.0 and (j == 0 or text != "1"):
                letters += len(text) + text.count(".") + (j > 0)
    return lost, letters
