"""What a policy's actions are worth, where it does not say: fitted from steps taken with it.

Q(s, a) is what it is worth to do a in s, and what the policy does from then on. It is linear in
features of a standardised state: what all actions share, of one, linear and quadratic terms and
sinusoids; and for each action one and linear terms and fewer sinusoids. One linear system has the
solution of all of Bellman's equations at once.

References
----------
M. G. Lagoudakis, R. Parr, "Least-squares policy iteration", JMLR 4 (2003).
A. Rahimi, B. Recht, "Random features for large-scale kernel machines", NeurIPS 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray

_DISCOUNT = 0.99
_SINUSOIDS, _OWN = 160, 40  # of all actions, of each
_RIDGE, _OWN_RIDGE = 1e-4, 1e-2  # of the mean square of a feature
_MOST_QUADRATIC = 12  # components, with products of them


class Steps(NamedTuple):
    """Steps that were taken, n of them."""

    points: FloatArray
    """Before them, shape (n, d)."""
    actions: IntArray
    """Shape (n,)."""
    rewards: FloatArray
    after: FloatArray
    """Shape (n, d)."""
    ended: BoolArray
    """Whether the episode terminated."""


@dataclass(frozen=True)
class _Features:
    mean: FloatArray
    scale: FloatArray
    frequencies: FloatArray
    phases: FloatArray
    n_actions: int

    @classmethod
    def of(cls, states: FloatArray, n_actions: int, rng: np.random.Generator) -> "_Features":
        d, scale = states.shape[1], states.std(axis=0)
        scale = np.where(scale > 1e-9 * (1.0 + np.abs(states).max(axis=0)), scale, 1.0)
        frequencies = rng.standard_normal((d, _SINUSOIDS)) / np.sqrt(d)
        phases = rng.uniform(0.0, 2.0 * np.pi, _SINUSOIDS)
        return cls(states.mean(axis=0), scale, frequencies, phases, n_actions)

    def both(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what actions share, shape (n, p), and what each has of its own, (n, q)."""
        points = np.clip((states - self.mean) / self.scale, -10.0, 10.0)
        waves = np.cos(points @ self.frequencies + self.phases)
        ones, d = np.ones((len(points), 1)), points.shape[1]
        products = [waves]
        if d <= _MOST_QUADRATIC:
            i, j = np.triu_indices(d)
            products.append(points[:, i] * points[:, j])
        shared = np.concatenate([ones, points, *products], axis=1)
        return shared, np.concatenate([ones, points, waves[:, :_OWN]], axis=1)

    def rows(self, states: FloatArray, actions: IntArray) -> FloatArray:
        """Return all features, those of other actions 0."""
        shared, own = self.both(states)
        each = np.zeros((len(states), self.n_actions, own.shape[1]))
        each[np.arange(len(states)), actions] = own
        return np.concatenate([shared, each.reshape(len(states), -1)], axis=1)


def evaluated(
    seen: Steps,
    act: Callable[[FloatArray], npt.NDArray[Any]],
    n_actions: int,
    rng: np.random.Generator,
) -> Callable[[FloatArray], FloatArray]:
    """Fit the values of a policy's actions.

    Parameters
    ----------
    seen : Steps
        Most of them taken with the policy, some not.
    act : callable
        The policy: numbers of actions, shape (n,), for states, shape (n, d).
    n_actions : int
    rng : numpy.random.Generator
        Draws sinusoids.

    Returns
    -------
    callable
        Values, shape (n, A), of states, shape (n, d).
    """
    features = _Features.of(seen.points, n_actions, rng)
    before = features.rows(seen.points, seen.actions)
    after = features.rows(seen.after, np.asarray(act(seen.after), dtype=np.int64))
    after[seen.ended] = 0.0
    moments = before.T @ before
    sizes = np.diag(moments).copy()
    n_shared = before.shape[1] - n_actions * features.both(seen.points[:1])[1].shape[1]
    ridge = np.where(np.arange(len(sizes)) < n_shared, _RIDGE, _OWN_RIDGE)
    moments += np.diag(ridge * sizes.mean())
    weights = np.linalg.solve(moments - _DISCOUNT * before.T @ after, before.T @ seen.rewards)

    def values(states: FloatArray) -> FloatArray:
        shared, own = features.both(states)
        common = shared @ weights[:n_shared]
        return np.asarray(common[:, None] + own @ weights[n_shared:].reshape(n_actions, -1).T)

    return values
