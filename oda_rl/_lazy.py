"""Lazy imports of the names that a package offers."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def offer(
    package: str, sources: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; ``sources``: names and their modules."""

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{sources[name]}"), name)

    return get, lambda: sorted(sources)
