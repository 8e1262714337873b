"""Lazy imports of the names that a package offers."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def offer(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, given its ``__init__.py``.

    It offers what the file imports for type checkers, in a block ``if TYPE_CHECKING``.
    """
    blocks = ast.parse(Path(file).read_text(encoding="utf-8")).body
    lines = [line for block in blocks if isinstance(block, ast.If) for line in block.body]
    imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
    sources = {name.name: str(line.module) for line in imports for name in line.names}

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(sources[name]), name)

    return get, lambda: sorted(sources)
