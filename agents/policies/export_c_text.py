"""What C headers are written in: tables, numbers and comments."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.policies.export_tables import Tables

_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.uint32): "uint32_t",
}
_DIMENSIONS = {
    "oda_diagram": "[ODA_CELLS][1 + ODA_FEATURES]",
    "oda_offsets": "[ODA_CELLS]",
    "oda_slopes": "[ODA_CELLS][ODA_FEATURES]",
    "oda_shifts": "[ODA_CELLS]",
    "oda_actions": "[ODA_CELLS]",
    "oda_advantages": "[ODA_CELLS][ODA_ACTIONS - 1]",
    "oda_exponents": "[ODA_CELLS]",
    "oda_origin": "[ODA_FEATURES]",
    "oda_scale": "[ODA_FEATURES]",
    "oda_affine": "[ODA_CELLS][ODA_COMPONENTS][1 + ODA_FEATURES]",
    "oda_codevectors": "[ODA_CELLS][ODA_ACTIONS][ODA_COMPONENTS]",
    "oda_low": "[ODA_COMPONENTS]",
    "oda_high": "[ODA_COMPONENTS]",
    "oda_conditions": "[ODA_ROWS][1 + ODA_FEATURES]",
    "oda_ends": "[ODA_CLAUSES]",
    "oda_forbidden": "[ODA_FORBIDDING]",
    "oda_power": "[ODA_DEGREE + 1]",
}
SCORES = ("oda_diagram", "oda_offsets", "oda_slopes", "oda_shifts")
_WIDTH = 96


def definition(name: str, array: npt.NDArray[Any], found: Tables) -> str:
    """Return the definition of a table."""
    size = _DIMENSIONS[name]
    if found.clauses is not None and name in ("oda_actions", "oda_affine"):
        more = len(found.clauses.outputs)
        size = size.replace("ODA_CELLS", f"ODA_CELLS + {more}", 1)
    if found.apart and name in SCORES:
        size = size.replace("ODA_CELLS", "ODA_CELLS - 1", 1)
    head = f"static const {_TYPES[array.dtype]} {name}{size} = {{\n"
    write = number if array.dtype == np.float32 else str
    if array.ndim == 1:
        lines = _filled([write(value) for value in array.tolist()], "    ")
    else:
        lines = []
        for row in array.tolist():
            inner = _filled([_item(value, write) for value in row], "     ")
            lines += [f"    {{{inner[0].lstrip()}", *inner[1:]]
            lines[-1] = f"{lines[-1].rstrip(',')}}},"
    return head + "".join(f"{line}\n" for line in lines) + "};\n\n"


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


def as_comment(lines: Sequence[str]) -> str:
    """Return lines as a comment."""
    return "/* " + "\n".join(f" * {_plain(line)}".rstrip() for line in lines)[3:] + "\n */\n"


def _plain(text: str) -> str:
    """Return text that can end no comment."""
    return re.sub(r"[*\\?]|[^\x20-\uffff]", "_", text)
