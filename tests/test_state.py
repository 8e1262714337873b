"""Named state is the same in Python and in compiled code."""

import numba
import numpy as np
import pytest

from oda_rl._state import State, reader


class Counters(State):
    steps: int
    """How many."""
    scale: float
    """How large."""
    active: bool
    """Whether there is any."""


class More(Counters):
    extra: float


FIRST, THEN = reader(Counters), reader(More, Counters.size)


@numba.njit
def change(raw, i):
    counters, more = FIRST(raw, 0), THEN(raw, i)
    counters.steps += 2
    counters.active = counters.steps > 2
    more.extra = counters.scale / counters.steps
    more.steps = i
    return counters.steps


def test_python_and_compiled_code_share_the_fields():
    raw = np.zeros(Counters.size + 3 * More.size, dtype=np.uint8)
    counters, each = Counters(raw), More.each(raw, Counters.size)
    counters.assign({"steps": 1, "scale": 6.0})
    assert not counters.active
    assert change(raw, 2) == 3
    assert (counters.steps, counters.scale, counters.active) == (3, 6.0, True)
    assert [(more.steps, more.extra) for more in each] == [(0, 0.0), (0, 0.0), (2, 2.0)]
    assert counters.record["steps"] == 3
    assert More.dtype.names == ("steps", "scale", "active", "extra")


def test_only_numbers_are_stored():
    raw = np.zeros(Counters.size, dtype=np.uint8)
    with pytest.raises((TypeError, ValueError)):
        Counters(raw).steps = "many"
    with pytest.raises(ValueError, match="size"):
        Counters(raw[:8])
