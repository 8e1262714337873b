"""Policies that compete to be delivered: which is the best by its returns, which are given up."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.fitted.records import Record
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.files.schema import within

_PRIOR_WEIGHT = 3.0  # degrees of freedom
_DROPPED = 10  # policies, the worst, when there are too many


def spread_of(records: Sequence[Record], returns: Sequence[float]) -> float:
    """Return the standard deviation of a policy's return, pooled over all.

    While little is known of that, also that of the latest returns, whatever the policy.
    """
    squares = sum(record.m2 for record in records)
    freedom = sum(max(record.n - 1, 0) for record in records)
    prior = float(np.var(returns)) if returns else 0.0
    return math.sqrt((squares + _PRIOR_WEIGHT * prior) / (freedom + _PRIOR_WEIGHT))


def best_of(records: Sequence[Record], spread: float) -> Record:
    """Return the record with the greatest lower bound of its mean return."""
    return max(records, key=lambda record: record.lower_bound(spread))


def without_worst(records: Sequence[Record], most: int, spread: float) -> list[Record]:
    """Return the records without the worst, where there are too many; the latest of them stays."""
    older, latest = records[:-1], records[-1]
    bounds = np.argsort([record.lower_bound(spread) for record in older])
    keep = max(len(older) - _DROPPED, most - _DROPPED, 1)
    return [*(older[i] for i in np.sort(bounds[-keep:])), latest]


def record_arrays(
    newest: CellPolicy, records: Sequence[Record], latest: Record, confirming: Record | None
) -> dict[str, npt.NDArray[Any]]:
    """Return what a file has of the newest policy and of records."""
    policies = [newest, *(record.policy for record in records)]
    return {
        **{f"policy{i}_{name}": a for i, p in enumerate(policies) for name, a in p.arrays.items()},
        "latest": np.array([latest is record for record in records]),
        "confirming": np.array([confirming is record for record in records]),
        "record_n": np.array([record.n for record in records]),
        "record_mean": np.array([record.mean for record in records]),
        "record_m2": np.array([record.m2 for record in records]),
    }


def read_records(
    arrays: Mapping[str, npt.NDArray[Any]], kind: type[CellPolicy]
) -> tuple[CellPolicy, list[Record], Record, Record | None]:
    """Return the newest policy of a file, its records, the newest one's, and that of the proof."""
    counts = arrays["record_n"].tolist()
    means, squares = arrays["record_mean"].tolist(), arrays["record_m2"].tolist()
    newest, *policies = (
        kind.from_arrays(within(arrays, f"policy{i}_")) for i in range(len(counts) + 1)
    )
    played = zip(policies, counts, means, squares, strict=True)
    records = [Record(policy, *own) for policy, *own in played]
    latest, confirming = (np.flatnonzero(arrays[name]) for name in ("latest", "confirming"))
    last = records[latest[0]] if len(latest) else Record(newest)
    last.policy = newest
    return newest, records, last, records[confirming[0]] if len(confirming) else None
