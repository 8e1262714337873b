"""Functions of numba that others take the place of while it compiles a function of this package."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, other: Callable[[Any], Any]) -> Iterator[None]:
    """Let ``other(own)`` take the place of an attribute ``own`` meanwhile; under numba's lock.

    Where it has been replaced already nothing is done.
    """
    own = getattr(owner, name)
    if hasattr(own, "replaces"):
        yield
        return
    new = other(own)
    new.replaces = own
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, own)
