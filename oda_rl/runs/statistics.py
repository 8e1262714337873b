"""Summaries of a few dozen runs: robust centres, intervals, the worst seed.

References
----------
R. Agarwal, M. Schwarzer, P. S. Castro, A. Courville, M. G. Bellemare, "Deep reinforcement learning
at the edge of the statistical precipice", NeurIPS 2021: the interquartile mean, and intervals.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A summary of n values; intervals have a confidence of 95 %."""

    n: int
    mean: float
    interquartile_mean: float  # mean of the middle half: as robust as a median, and less noisy
    interval: tuple[float, float]  # interval of the interquartile mean
    median: float
    minimum: float
    solved: float | None  # share of values that reach the threshold; None without one
    solved_interval: tuple[float, float] | None

    def __str__(self) -> str:
        middle = "{:.4g} ({:.4g} to {:.4g})".format(self.interquartile_mean, *self.interval)
        text = f"mean {self.mean:.4g}, interquartile mean {middle}, median {self.median:.4g}"
        text += f", minimum {self.minimum:.4g}"
        if self.solved is None or self.solved_interval is None:
            return text
        return "{}, solved {:.2f} ({:.2f} to {:.2f})".format(
            text, self.solved, *self.solved_interval
        )


def _interquartile_mean(values: FloatArray, axis: int = -1) -> Any:
    from scipy import stats

    return stats.trim_mean(values, 0.25, axis=axis)


def summarize(values: npt.ArrayLike, threshold: float | None = None) -> Summary:
    """Summarize one result of each run.

    Parameters
    ----------
    values : array_like, shape (n,)
        At least one value, all finite.
    threshold : float, optional
        Minimum value of a solved run.

    Raises
    ------
    ValueError
        If there are no values, or one is not finite.

    Examples
    --------
    >>> summary = summarize([90.0, 100.0, 100.0, 20.0], threshold=95.0)
    >>> summary.interquartile_mean, summary.minimum, summary.solved
    (95.0, 20.0, 0.5)
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError(f"values is {values!r}: it must be a list of finite numbers, at least one")
    solved = None if threshold is None else (array >= threshold).astype(np.float64)
    return Summary(
        n=len(array),
        mean=float(array.mean()),
        interquartile_mean=float(_interquartile_mean(array)),
        interval=_bootstrap(array, _interquartile_mean),
        median=float(np.median(array)),
        minimum=float(array.min()),
        solved=None if solved is None else float(solved.mean()),
        solved_interval=None if solved is None else _wilson(int(solved.sum()), len(solved)),
    )


def mean_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Return a 95 % bootstrap interval of the mean."""
    return _bootstrap(np.asarray(values, dtype=np.float64), np.mean)


def _bootstrap(values: FloatArray, statistic: Any) -> tuple[float, float]:
    """Return a percentile interval of a statistic; a point if all values are equal."""
    from scipy import stats

    if np.ptp(values) == 0.0:
        return float(values[0]), float(values[0])
    result = stats.bootstrap(
        (values,), statistic, n_resamples=2000, confidence_level=_CONFIDENCE,
        method="percentile", rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _wilson(successes: int, n: int) -> tuple[float, float]:
    """Return an interval of a share: a bootstrap of ones alone would be a point."""
    from scipy import stats

    interval = stats.binomtest(successes, n).proportion_ci(_CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)
