"""What can be played, and how its real episodes went."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import Member, check, real, require, whole
from oda_rl._types import FloatArray
from oda_rl.agents.policies.rules import check_rule

_LATEST = 20  # episodes that count


SCHEMA: dict[str, Member] = {
    "cells": whole("R", "[1, 1000000]"),
    "counts": whole("R", "[0, 1000000000]"),
    "scores": real("cells, 1+d"),
    "outputs": real("cells, n, m"),
    "starts": real("episodes, d"),
    "returns": real("episodes"),
    "imagined": real("episodes"),
    "promised": real("R", "[-inf, inf)"),
}
"""What a file has of candidates, one after the other."""


@dataclass(eq=False)
class Candidate:
    """A rule (:class:`~oda_rl.agents.policies.rules.RulePolicy`) and its real episodes."""

    scores: FloatArray
    outputs: FloatArray
    starts: list[FloatArray] = field(default_factory=list)
    """First observations of the episodes that were played with it,"""
    returns: list[float] = field(default_factory=list)
    """and their returns."""
    promised: float = -math.inf
    """Mean return in the present model."""
    imagined: list[float] = field(default_factory=list)
    """Returns there from the episodes' starts."""

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the number of what is done in a state, and its code."""
        cell = int(np.argmax(self.scores[:, 0] + self.scores[:, 1:] @ point))
        own = self.outputs[cell]
        if own.shape[1] == 1:
            return int(own[:, 0].argmax()), own[:, 0]
        units = np.clip(own[:, 0] + own[:, 1:] @ point, -1.0, 1.0)
        return cell, np.concatenate([[1.0], units])

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns of the latest episodes."""
        n = min(len(self.returns), _LATEST)
        return np.subtract(self.returns[len(self.returns) - n :], self.imagined[-n:] if n else [])


def to_arrays(candidates: list[Candidate]) -> dict[str, npt.NDArray[Any]]:
    """Return candidates as arrays, for a file."""
    if not candidates:
        return {}
    starts = [start for one in candidates for start in one.starts]
    d = candidates[0].scores.shape[1] - 1
    return {
        "scores": np.concatenate([one.scores for one in candidates]),
        "outputs": np.concatenate([one.outputs for one in candidates]),
        "cells": np.array([len(one.scores) for one in candidates]),
        "counts": np.array([len(one.returns) for one in candidates]),
        "starts": np.array(starts).reshape(-1, d),
        "returns": np.concatenate([one.returns for one in candidates] + [[]]),
        "imagined": np.concatenate([one.imagined for one in candidates] + [[]]),
        "promised": np.array([one.promised for one in candidates]),
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
    check_rule(arrays["scores"], arrays["outputs"])
    ends = np.cumsum(arrays["counts"])[:-1]
    starts, returns, imagined = (
        np.split(arrays[name], ends) for name in ("starts", "returns", "imagined")
    )
    cells = np.cumsum(arrays["cells"])[:-1]
    scores, outputs = (np.split(arrays[name], cells) for name in ("scores", "outputs"))
    return [
        Candidate(
            scores[k].copy(), outputs[k].copy(), list(starts[k]),
            returns[k].tolist(), float(arrays["promised"][k]), imagined[k].tolist(),
        )
        for k in range(len(scores))
    ]  # fmt: skip
