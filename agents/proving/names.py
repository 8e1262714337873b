"""Components of observations, by their names."""

import re
from collections.abc import Sequence

_INDEXED = re.compile(r"^(?:x|observation)\[(\d+)\]$")


def component_number(name: str | int, calls: Sequence[Sequence[str]]) -> int:
    """Return the number of a component that is called by its name, ``x[2]`` or its number.

    >>> component_number("speed", [["angle", "speed"]]), component_number("x[0]", [["angle"]])
    (1, 0)
    """
    d = len(calls[0])
    if isinstance(name, str):
        for names in calls:
            if name in names:
                return list(names).index(name)
        indexed = _INDEXED.match(name.strip())
        number = int(indexed.group(1)) if indexed else d
    else:
        number = int(name)
    if not 0 <= number < d:
        raise ValueError(
            f"component is {name!r}: it must be one of {list(calls[0])}, or a number below {d}"
        )
    return number
