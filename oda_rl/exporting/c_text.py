"""Parts of C headers: source files, constants, tables and comments."""

import re
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from importlib.resources import files
from typing import Any

from oda_rl._types import Array
from oda_rl.files.schema import printable

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_FLOATS = {"float16": "float", "float32": "float", "float64": "double"}
_TYPES = {**_FLOATS, **{name: f"{name}_t" for name in _INTEGERS}}


def source(package: str, name: str, flags: Container[str]) -> str:
    """Return a C file of a package with its #ifdef, #ifndef, #else and #endif resolved."""
    lines, active = [], [True]
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    for line in text.splitlines(keepends=True):
        word, _, flag = line.strip().partition(" ")
        if word in ("#ifdef", "#ifndef"):
            active.append((flag in flags) == (word == "#ifdef"))
        elif word == "#else":
            active[-1] = not active[-1]
        elif word == "#endif":
            active.pop()
        elif all(active):
            lines.append(line)
    return "".join(lines)


def table(name: str, array: Array) -> str:
    """Return the definition of a table."""
    size = "".join(f"[{n}]" for n in array.shape)
    write = number if _TYPES[array.dtype.name] == "float" else repr
    items = [f"{_items(value, write)}," for value in array.tolist()]
    rows = items if array.ndim > 1 else [" ".join(items)]
    fill = textwrap.TextWrapper(100, "    ", "     ", break_on_hyphens=False).fill
    head = f"static const {_TYPES[array.dtype.name]} {name}{size} = {{\n"
    return head + "\n".join(map(fill, rows)) + "\n};\n\n"


def _items(value: Any, write: Callable[[Any], str]) -> str:
    """Return a number, or numbers in braces."""
    if isinstance(value, list):
        return f"{{{', '.join(_items(item, write) for item in value)}}}"
    return write(value)


def number(value: float) -> str:
    """Return a constant of type float; nine digits are exact."""
    text = f"{value:.9g}"
    return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"


def as_comment(lines: Sequence[str]) -> str:
    """Return lines as a comment; characters that could end or reverse it become underscores."""
    plain = (re.sub(r"[*\\?]|[^\x20-\uffff]", "_", printable(line)) for line in lines)
    return "/* " + "\n".join(f" * {line}".rstrip() for line in plain)[3:] + "\n */\n"


def header(
    name: str,
    about: Sequence[str],
    math: bool,
    constants: Mapping[str, Any],
    tables: Mapping[str, Array],
    body: str,
) -> str:
    """Return a header; ``math`` includes ``math.h``."""
    parts = [
        as_comment(about),
        f"#ifndef ODA_{name}_H\n#define ODA_{name}_H\n\n",
        "#include <math.h>\n" if math else "",
        "#include <stdint.h>\n\n",
        *(f"#define ODA_{name} {value}\n" for name, value in constants.items()),
        "\n",
        *(table(key, array) for key, array in tables.items()),
        body,
        "#endif\n",
    ]
    return "".join(parts)
