"""Where a clause holds, as people write it: sums of components compared with numbers."""

import re
from collections.abc import Sequence

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.proving.names import component_number

_AND = re.compile(r"\s+and\s+|\s*&+\s*")
_COMPARED = re.compile(r"^(.*?)(<=|>=|<|>)(.*)$")
_TERM = re.compile(r"\s*([+-]?)\s*([^+-]+?)\s*(?=[+-]|$)")
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"
_FACTOR = re.compile(rf"^({_NUMBER})\s*[*·]?\s*(.*)$", re.IGNORECASE)


def condition_rows(text: str, calls: Sequence[Sequence[str]]) -> FloatArray:
    """Read a condition: the rows, affine functions, that are positive where it holds.

    Parameters
    ----------
    text : str
        Comparisons of sums, joined by "and". Components are called by their names or ``x[2]``.
    calls : sequence of sequences of str
        Names of all components, in one or more ways.

    Returns
    -------
    ndarray, shape (m, 1 + d)

    Raises
    ------
    ValueError
        If the text cannot be read, or does not depend on the observation.

    Examples
    --------
    >>> condition_rows("angle > .1 and 2*speed + x[0] < 3", [["angle", "speed"]])
    array([[-0.1,  1. ,  0. ],
           [ 3. , -1. , -2. ]])
    """
    short, marks = _marked(text, calls)
    rows = []
    for part in _AND.split(short.strip()):
        found = _COMPARED.match(part)
        if found is None:
            raise ValueError(f"where is {text!r}: it must be comparisons, as in 'x[2] > .1'")
        left, relation, right = found.groups()
        d = len(calls[0])
        row = _sum(left, text, marks, calls[0], d) - _sum(right, text, marks, calls[0], d)
        if not row[1:].any():
            raise ValueError(f"where is {text!r}: it must depend on the observation")
        rows.append(row if ">" in relation else 0.0 - row)
    return np.array(rows)


def _marked(text: str, calls: Sequence[Sequence[str]]) -> tuple[str, list[int]]:
    """Put a mark for each component's name, the longest first; names may be of any characters."""
    known = {name: j for names in calls for j, name in enumerate(names)}
    marks: list[int] = []
    for name in sorted(known, key=len, reverse=True):
        pattern = rf"(?<![\w\[]){re.escape(name)}(?![\w\]])"
        if re.search(pattern, text):
            text = re.sub(pattern, f"@{len(marks)}@", text)
            marks.append(known[name])
    return text, marks


def _sum(part: str, text: str, marks: Sequence[int], names: Sequence[str], d: int) -> FloatArray:
    """Read a sum: offset and slopes, shape (1 + d,)."""
    row, at = np.zeros(1 + d), 0
    part = re.sub(r"(?<=\de)-", "~", part, flags=re.IGNORECASE).rstrip()
    while at < len(part):
        found = _TERM.match(part, at)
        if found is None or found.end() == at:
            raise ValueError(f"where is {text!r}: {part!r} must be a sum, as in '6*x[2] + x[3]'")
        sign, term = found.groups()
        factor = _FACTOR.match(term := term.replace("~", "-"))
        value, name = (factor.groups() if factor else ("1", term)) if term else ("1", "")
        size = float(value) * (-1.0 if sign == "-" else 1.0)
        row[_place(name.strip(), text, marks, names)] += size
        at = found.end()
    return row


def _place(name: str, text: str, marks: Sequence[int], names: Sequence[str]) -> int:
    """Return the place in a row: 0 of a number alone."""
    if not name:
        return 0
    if name.startswith("@") and name.endswith("@"):
        return 1 + marks[int(name.strip("@"))]
    try:
        return 1 + component_number(name, [names])
    except ValueError as error:
        raise ValueError(
            f"where is {text!r}, with {name!r}: it must speak of {list(names)}, or x[0] to "
            f"x[{len(names) - 1}]"
        ) from error
