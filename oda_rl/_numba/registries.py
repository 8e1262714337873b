"""What numba knows of functions and types: looked through once for a function, for less.

Whenever numba meets what it has not met before it imports the modules that may know of it once
more, and looks through all that they have registered; at the first function of a process it does so
for each of some 250 methods. While it works on one function no module has to be imported again:
only what has been registered since is looked through.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from numba.core.registry import cpu_target

_cpu: Any = cpu_target  # of which numba does not tell the types
_LOAD = "load_additional_registries"


@contextmanager
def looked_through() -> Iterator[None]:
    """Import the modules now, and not again meanwhile; under numba's lock.

    Where that is under way already nothing is done.
    """
    contexts = [one for one in (_cpu.typing_context, _cpu.target_context) if _LOAD not in vars(one)]
    for context in contexts:
        context.load_additional_registries()
        context.load_additional_registries = partial(_look_through, context)
    try:
        yield
    finally:
        for context in contexts:
            del context.load_additional_registries


def _look_through(context: Any) -> None:
    """Take over what has been registered since, by modules that are there."""
    for registry in list(context._registries):
        context.install_registry(registry)
