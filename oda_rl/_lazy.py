"""Lazy imports of the names that a package offers."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def offer(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package with these modules and their names."""
    sources = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{sources[name]}"), name)

    return get, lambda: sorted(sources)
