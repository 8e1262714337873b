"""How far a point is from the nearest one that an affine diagram treats otherwise.

The boundaries of an affine diagram (:mod:`oda_rl.diagram`) are hyperplanes, so the points of a cell
are a polyhedron, and the nearest of them is the solution of a small quadratic program.

References
----------
C. L. Lawson, R. J. Hanson, "Solving least squares problems", 1974, chapter 23: least distance
programming by non-negative least squares.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray

_NOTHING = 1e-12  # relative: what is left by rounding
_MARGIN = 1e-6  # of the distance by which a witness lies beyond the boundary
_LEAST_MARGIN = 1e-9


class Nearest(NamedTuple):
    """The nearest point of some polyhedra, as a step from where one is."""

    distance: float
    """inf if there is none."""
    step: FloatArray | None
    """Shape (d,); leads just beyond the boundary, so a little farther than the distance."""


NOWHERE = Nearest(np.inf, None)


def least_step(slopes: FloatArray, gaps: FloatArray) -> FloatArray | None:
    """Return the shortest step z with ``gaps + slopes @ z <= 0``, or None if there is none.

    Exact: the dual is a problem of non-negative least squares, which an active-set method ends.

    Parameters
    ----------
    slopes : ndarray, shape (m, d)
    gaps : ndarray, shape (m,)

    Examples
    --------
    >>> least_step(np.array([[-1.0, 0.0], [0.0, -2.0]]), np.array([3.0, 8.0])).round(9)
    array([3., 4.])
    """
    from scipy.optimize import nnls

    d = slopes.shape[1]
    norms = np.linalg.norm(slopes, axis=1)
    flat = norms <= _NOTHING * norms.max(initial=0.0)
    if (gaps[flat] > 0.0).any():
        return None
    normals, offsets = slopes[~flat] / norms[~flat, None], gaps[~flat] / norms[~flat]
    unit = float(offsets.max(initial=0.0))
    if unit <= 0.0:
        return np.zeros(d)
    dual = np.vstack([-normals.T, offsets / unit])
    aim = np.append(np.zeros(d), 1.0)
    weights, rest = nnls(dual, aim, maxiter=30 * dual.shape[1])
    if rest**2 < _NOTHING:
        return None
    residual = dual @ weights - aim
    return np.asarray(-unit * residual[:d] / residual[d])


def nearest_member(
    scores: FloatArray, slopes: FloatArray, others: IntArray, own: IntArray
) -> Nearest:
    """Return the nearest point of the others' cells: one of their scores is below all of the own.

    Parameters
    ----------
    scores : ndarray, shape (K,)
        Where one is.
    slopes : ndarray, shape (K, d)
        Change of the scores with each unit of distance.
    others, own : ndarray of int64
        Numbers of cells, among K.

    Examples
    --------
    >>> codevectors = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    >>> slopes = -2.0 * codevectors
    >>> scores = (codevectors**2).sum(axis=1) + slopes @ np.array([-3.0, 1.0])
    >>> found = nearest_member(scores, slopes, np.array([1, 2]), np.array([0]))
    >>> round(found.distance, 9), found.step.round(4)
    (3.0, array([3., 0.]))
    """
    gaps = scores[others, None] - scores[own]
    changes = slopes[others, None] - slopes[own]
    norms = np.linalg.norm(changes, axis=2)
    bounds = hyperplane_distances(gaps, norms).max(axis=1, initial=0.0)
    best, chosen = np.inf, -1
    for i in np.argsort(bounds, kind="stable"):
        if bounds[i] >= best:
            break
        step = least_step(changes[i], gaps[i])
        if step is not None and (distance := float(np.linalg.norm(step))) < best:
            best, chosen = distance, int(i)
    if chosen < 0:
        return NOWHERE
    margin = max(_MARGIN * best, _LEAST_MARGIN)
    beyond = least_step(changes[chosen], gaps[chosen] + margin * norms[chosen])
    if beyond is None:  # a polyhedron without an inside
        beyond = least_step(changes[chosen], gaps[chosen])
    return Nearest(best, beyond)


def hyperplane_distances(gaps: FloatArray, norms: FloatArray) -> FloatArray:
    """Return how far it is to close each gap alone, given the norms of the slopes.

    >>> hyperplane_distances(np.array([6.0, -1.0, 1.0, 0.0]), np.array([2.0, 1.0, 0.0, 0.0]))
    array([ 3.,  0., inf,  0.])
    """
    flat = norms <= _NOTHING * norms.max(initial=0.0)
    crossed = np.maximum(gaps, 0.0) / np.where(flat, 1.0, norms)
    return np.asarray(np.where(flat, np.where(gaps > 0.0, np.inf, 0.0), crossed))
