"""Packages that import what they offer when it is first asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def offer(
    package: str, sources: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    sources : Mapping
        For each name that it offers, the module inside it that has it.
    """

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{sources[name]}"), name)

    return get, lambda: sorted(sources)
