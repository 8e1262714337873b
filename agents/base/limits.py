"""Limits of playing in an environment that a file names."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MEGABYTES = 4_000
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Limits:
    """How long episodes may be played in all."""

    steps: int = 100_000_000
    seconds: float = 600.0

    def counted(self, steps: Iterator[T]) -> Iterator[T]:
        """Yield the steps of playing; raise ValueError beyond the limits."""
        end = time.monotonic() + self.seconds
        for count, step in enumerate(steps, start=1):
            if count > self.steps or time.monotonic() > end:
                self.refuse()
            yield step

    def refuse(self) -> None:
        """Raise the ValueError."""
        raise ValueError(
            f"playing in the environment that the file names took more than {self.steps:,} steps "
            f"or {self.seconds:g} seconds: raise agent.limits, or --max-steps and --max-seconds of "
            "the command, if that is what you want"
        )


@contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Let this process take at most so much more memory; allocations beyond raise MemoryError.

    Does nothing where the operating system has no such limit (Windows, macOS).
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    present = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    wanted = present + megabytes * 10**6
    tighter = soft == resource.RLIM_INFINITY or wanted < soft
    if tighter:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        if tighter:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
