"""Codevectors merged to a wanted number, the cheapest pair first.

References
----------
J. H. Ward, "Hierarchical grouping to optimize an objective function", Journal of the American
Statistical Association 58, 1963.
"""

import numpy as np
from scipy.spatial.distance import cdist

from oda_rl._compile import compiled, integer
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.divergences import TINY


@compiled
def _merge(
    masses: FloatArray,
    n_merges: int,
    costs: FloatArray,
    least: FloatArray,
    partners: IntArray,
    owners: IntArray,
) -> None:
    """Merge the cheapest pair ``n_merges`` times; changes ``masses`` and all arrays after it.

    ``costs``, shape (m, m): rise of the error if two merge; inf across groups. The cost of merging
    with a merged pair follows from the costs before it (Lance and Williams, "A general theory of
    classificatory sorting strategies", Computer Journal 9, 1967) and is not less than the smaller
    one. So ``least`` stays a lower bound of each row, and is made exact where it is the smallest.
    ``owners[i]``: the cell that i is part of.
    """
    m = masses.shape[0]
    left = n_merges
    while left > 0:
        i = integer(0)
        for k in range(1, m):
            if least[k] < least[i]:
                i = k
        j, cost = partners[i], least[i]
        if cost == np.inf:
            return
        if costs[i, j] == cost:
            left -= 1
            costs[i, j] = costs[j, i] = np.inf
            one, other = masses[i], masses[j]
            for k in range(m):
                if costs[i, k] < np.inf:
                    own = masses[k]
                    rise = (one + own) * costs[i, k] + ((other + own) * costs[j, k] - own * cost)
                    rise = rise / (one + other + own) if rise > 0.0 else 0.0
                    costs[i, k] = costs[k, i] = rise
                    least[k] = rise if rise < least[k] else least[k]
                costs[j, k] = costs[k, j] = np.inf
                owners[k] = i if owners[k] == j else owners[k]
            masses[i] = one + other
            least[j] = np.inf
        nearest = partners[i]
        for k in range(m):
            if costs[i, k] < costs[i, nearest]:
                nearest = k
        partners[i], least[i] = nearest, costs[i, nearest]


def ward_merge(
    codevectors: FloatArray, masses: FloatArray, groups: IntArray, n_clusters: int
) -> FloatArray:
    """Merge codevectors of the same group, the cheapest pair first, until ``n_clusters`` are left.

    Merging i and j raises the squared error by m_i m_j / (m_i + m_j) |μ_i − μ_j|² (Ward 1963).

    Parameters
    ----------
    codevectors : ndarray, shape (m, d)
        Finite.
    masses : ndarray, shape (m,)
        Of their cells, in (0, inf).
    groups : ndarray of int64, shape (m,)
        Only codevectors of the same group merge.
    n_clusters : int
        At least 1. More remain if there are more groups.

    Returns
    -------
    lineage : ndarray, shape (max(n_clusters, number of groups), m), or (m, m) if m is less
        Row k holds the masses of the cells that make up the new cell k, and 0 elsewhere: the new
        codevectors are ``lineage @ codevectors / lineage.sum(axis=1, keepdims=True)``. New cells
        are in the order of their first old one.

    Examples
    --------
    >>> codevectors = np.array([[0.0], [5.0], [1.0]])
    >>> ward_merge(codevectors, np.array([2.0, 1.0, 3.0]), np.zeros(3, np.int64), 2)
    array([[2., 0., 3.],
           [0., 1., 0.]])
    """
    m = len(masses)
    costs = cdist(codevectors, codevectors, "sqeuclidean")
    costs *= 1.0 / (1.0 / masses[:, None] + 1.0 / masses)
    costs[groups[:, None] != groups] = np.inf
    np.fill_diagonal(costs, np.inf)
    least, partners, owners = np.zeros(m), np.zeros(m, np.int64), np.arange(m)
    _merge(masses.copy(), m - n_clusters, costs, least, partners, owners)
    return np.where(owners == np.unique(owners)[:, None], masses, 0.0)


def cheapest_merges(
    codevectors: FloatArray, weights: FloatArray, labels: IntArray, n_codevectors: int
) -> FloatArray:
    """Lineage of the merges within classes that leave so many, or one for each class.

    Parameters
    ----------
    codevectors : ndarray, shape (K, d)
        In coordinates in which squared distances are about the divergences.
    weights : ndarray, shape (K,)
        At least 0.
    labels : ndarray, shape (K,)
        Class of each, rising from 0.
    n_codevectors : int

    Examples
    --------
    >>> cheapest_merges(np.array([[0.0], [1.0], [1.5]]), np.ones(3), np.array([0, 0, 1]), 1)
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """
    left = max(n_codevectors, int(labels[-1]) + 1)
    return ward_merge(codevectors, np.maximum(weights, TINY), labels, left)


def heavy(masses: FloatArray, labels: IntArray, least: float) -> BoolArray:
    """Which codevectors have at least this mass, shape (K,), or the most of their class.

    Examples
    --------
    >>> heavy(np.array([0.9, 0.1, 0.3, 0.2]), np.array([0, 0, 1, 1]), 0.5)
    array([ True, False,  True, False])
    """
    found = masses >= least
    for c in range(int(labels[-1]) + 1):
        members = np.flatnonzero(labels == c)
        found[members[masses[members].argmax()]] = True
    return found
