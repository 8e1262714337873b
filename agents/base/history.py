"""The history of an agent's cells: where they were, and from which cells they came."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import Member, flags, real, require, whole
from oda_rl._types import FloatArray


@dataclass(frozen=True)
class Level:
    """The cells as they were when a temperature level began.

    Not a :class:`oda_rl.annealing.levels.Level`, which an estimator leaves behind when a level has
    ended, with how it went: of an agent's cells, which need not even anneal, there is only where
    they are. What both have is drawn as a :class:`oda_rl.plotting.annealing.TemperatureLevel`.
    """

    step: int
    """Environment steps taken before."""
    temperature: float
    """Temperature of the level."""
    codevectors: FloatArray
    """Shape (cells, d), in the observation's units."""
    lineage: FloatArray | None
    """Shape (cells, cells of the level before); None where learning started from nothing, or where
    an agent with several environments went back to an earlier policy."""


SCHEMA: dict[str, Member] = {
    "history_step": whole("levels"),
    "history_temperature": real("levels", "[0, inf) or nan"),
    "history_cells": whole("levels", "[1, 1000000]"),
    "history_codevectors": real("codevector_numbers"),
    "history_lineage": real("lineage_numbers", "[0, inf)"),
    "history_started": flags("levels"),
}
"""What a file has of a history: all levels one after the other."""


def history_to_arrays(history: list[Level]) -> dict[str, npt.NDArray[Any]]:
    """Pack a history into arrays, for :func:`history_from_arrays`."""
    lineages = [np.zeros(0) if level.lineage is None else level.lineage for level in history]
    return {
        "history_step": np.array([level.step for level in history], dtype=np.int64),
        "history_temperature": np.array([level.temperature for level in history]),
        "history_cells": np.array([len(level.codevectors) for level in history], dtype=np.int64),
        "history_codevectors": np.concatenate(
            [np.zeros(0), *(level.codevectors.ravel() for level in history)]
        ),
        "history_lineage": np.concatenate([np.zeros(0), *(array.ravel() for array in lineages)]),
        "history_started": np.array([level.lineage is None for level in history], dtype=np.bool_),
    }


def history_from_arrays(arrays: dict[str, npt.NDArray[Any]], n_features: int) -> list[Level]:
    """Unpack what :func:`history_to_arrays` packed, or raise InvalidFileError."""
    history: list[Level] = []
    cells, started = arrays["history_cells"].tolist(), arrays["history_started"].tolist()
    require(not cells or started[0], "history_started[0] is False: no level is before the first")
    require((np.diff(arrays["history_step"]) >= 0).all(), "history_step falls")
    n_shares = sum(
        own * other
        for own, other, new in zip(cells[1:], cells, started[1:], strict=False)
        if not new
    )
    for name, n in (("codevectors", n_features * sum(cells)), ("lineage", n_shares)):
        size = len(arrays[f"history_{name}"])
        require(size == n, f"history_{name} has {size} numbers: it must have {n}")
    at_codevector = at_lineage = before = 0
    for step, temperature, cells, started in zip(
        arrays["history_step"].tolist(),
        arrays["history_temperature"].tolist(),
        arrays["history_cells"].tolist(),
        arrays["history_started"].tolist(),
        strict=True,
    ):
        codevectors = arrays["history_codevectors"][at_codevector:][: cells * n_features]
        at_codevector += cells * n_features
        lineage = None
        if not started:
            lineage = arrays["history_lineage"][at_lineage:][: cells * before]
            lineage = lineage.reshape(cells, before)
            at_lineage += cells * before
        history.append(Level(step, temperature, codevectors.reshape(cells, n_features), lineage))
        before = cells
    return history
