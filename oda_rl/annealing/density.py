"""The histogram over a partition: the mass of a cell by its volume."""

from collections.abc import Callable

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.samples.missing import holes

MAX_DIMENSION = 12  # beyond it no affordable number of points fills a box
_LOG2_POINTS = 16


def log_cell_volumes(
    assign: Callable[[FloatArray], IntArray], n_cells: int, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Logarithms of the volumes that cells have inside a box, shape (n_cells,).

    The box is filled evenly with 2^16 quasi-random points (Sobol's), of which each cell takes its
    share; a cell that gets none is given half a point's share. Sides of length 0 do not count.

    Parameters
    ----------
    assign : callable
        Takes points, shape (n, d), and returns their cells, shape (n,).
    n_cells : int
        Number of cells.
    low, high : ndarray, shape (d,)
        Corners of the box.

    Raises
    ------
    ValueError
        If the box has more than 12 dimensions.

    Examples
    --------
    >>> halves = log_cell_volumes(
    ...     lambda x: (x[:, 0] > 1.0).astype(int), 2, np.zeros(2), np.array([4.0, 1.0])
    ... )
    >>> np.exp(halves).round(3)
    array([1., 3.])
    """
    from scipy.stats import qmc

    sides = high - low
    wide = sides > 0.0
    if wide.sum() > MAX_DIMENSION:
        raise ValueError(
            f"a histogram's cells have no volume that can be measured in {int(wide.sum())} "
            f"dimensions: at most {MAX_DIMENSION} features may vary"
        )
    if not wide.any():
        return np.zeros(n_cells)
    points = np.tile(low, (2**_LOG2_POINTS, 1))
    unit = qmc.Sobol(int(wide.sum()), scramble=False).random_base2(_LOG2_POINTS)
    points[:, wide] += (unit + 0.5 / len(unit)) * sides[wide]
    hits = np.bincount(assign(points), minlength=n_cells)
    shares = np.maximum(hits, 0.5) / len(points)
    return np.asarray(np.log(shares) + np.log(sides[wide]).sum())


def log_density(
    points: FloatArray,
    assign: Callable[[FloatArray], IntArray],
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> FloatArray:
    """Log-density of the histogram at points, shape (n, d); -inf outside the box.

    ``weights``, shape (n_cells,), are the masses of the cells. See [ODA-RL], section on density
    estimation: consistent as temperature goes to 0 and samples to infinity.

    Raises
    ------
    ValueError
        If values are missing, or the box has more than 12 dimensions.

    References
    ----------
    [ODA-RL] C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with
    stochastic approximation".
    """
    if holes(points) is not None:
        raise ValueError("X has missing values: a histogram has no density of what is observed")
    volumes = log_cell_volumes(assign, len(weights), low, high)
    with np.errstate(divide="ignore"):
        values = np.log(weights) - volumes
    inside = ((points >= low) & (points <= high)).all(axis=1)
    return np.where(inside, values[assign(points)], -np.inf)
