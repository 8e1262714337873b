"""Rules that can be played, and how their real episodes went."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.model import episodes
from oda_rl.agents.model.episodes import Tried
from oda_rl.agents.rules.editing import Clauses, check_outputs, decisions, done_at
from oda_rl.files.schema import Member, check, real, require, whole

SCHEMA: dict[str, Member] = {
    "cells": whole("R", "[1, 1000000]"),
    "scores": real("cells, 1+d"),
    "outputs": real("cells, n, m"),
    "starts": real("episodes, d"),
    **episodes.SCHEMA,
}
"""What a file has of candidates, one after the other."""


@dataclass(eq=False)
class Candidate(Tried):
    """A rule (:class:`~oda_rl.agents.policies.rules.RulePolicy`) and its real episodes."""

    scores: FloatArray
    outputs: FloatArray
    clauses: Clauses | None = None
    """Within which it is played."""

    latest: ClassVar[int | None] = 20

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the number of what is done in a state, and its code."""
        if self.clauses is not None:
            cell = int(decisions(self.scores, self.outputs, self.clauses, point[None])[0])
            own = done_at(self.scores, self.outputs, self.clauses, point[None])[0]
        else:
            cell = int(np.argmax(self.scores[:, 0] + self.scores[:, 1:] @ point))
            own = self.outputs[cell]
        if own.shape[1] == 1:
            return int(own[:, 0].argmax()), own[:, 0]
        units = np.clip(own[:, 0] + own[:, 1:] @ point, -1.0, 1.0)
        return cell, np.concatenate([[1.0], units])


def to_arrays(candidates: list[Candidate]) -> dict[str, npt.NDArray[Any]]:
    """Return candidates as arrays, for a file."""
    if not candidates:
        return {}
    starts = [start for one in candidates for start in one.starts]
    return {
        "scores": np.concatenate([one.scores for one in candidates]),
        "outputs": np.concatenate([one.outputs for one in candidates]),
        "cells": np.array([len(one.scores) for one in candidates]),
        "starts": np.array(starts).reshape(-1, candidates[0].scores.shape[1] - 1),
        **episodes.to_arrays(candidates),
    }


def from_arrays(
    arrays: dict[str, npt.NDArray[Any]], d: int, n_outputs: int, boxed: bool
) -> list[Candidate]:
    """Make candidates of what :func:`to_arrays` returned, or raise InvalidFileError."""
    if not arrays:
        return []
    sizes = {"d": d, "n": n_outputs, "m": 1 + d * boxed}
    check(arrays, SCHEMA, sizes)
    for name, total in (("cells", sizes["cells"]), ("counts", sizes["episodes"])):
        require(
            arrays[name].sum() == total, f"{name} has the sum {arrays[name].sum()}: not {total}"
        )
    check_outputs(arrays["outputs"], 1 + d)
    cells = np.cumsum(arrays["cells"])[:-1]
    scores, outputs = (np.split(arrays[name], cells) for name in ("scores", "outputs"))
    return [
        Candidate(own.copy(), done.copy(), **known)
        for own, done, known in zip(scores, outputs, episodes.from_arrays(arrays), strict=True)
    ]
