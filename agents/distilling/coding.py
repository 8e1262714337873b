"""Rules as vectors of numbers, all of about the same size."""

import math
from dataclasses import dataclass

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.rules import RulePolicy

_MAX_AFFINE = 4  # cells; with more, the action of each is constant


@dataclass(frozen=True)
class Coding:
    """Encodes rules of K cells as vectors.

    A vector holds offsets and slopes of the scores, in standardised components, by K - 1 numbers
    each: what all scores have in common does not matter. Then for each cell offset, and maybe
    slopes, of its continuous action; or the number of its discrete action.
    """

    mean: FloatArray
    scale: FloatArray
    n_cells: int
    n_outputs: int
    """Number of actions, or of components of a continuous one."""
    boxed: bool
    """Whether actions are continuous,"""
    affine: bool
    """and functions of the observation."""
    used: IntArray
    """Components that scores and outputs depend on."""

    @classmethod
    def of(cls, states: FloatArray, interface: Interface, n_cells: int) -> "Coding":
        """Return the coding for an environment with such states, shape (n, d)."""
        boxed = interface.box is not None
        n_outputs = interface.n_components if boxed else interface.n_actions
        deviation = states.std(axis=0)
        scale = np.where(deviation > 1e-9 * np.abs(states).max(axis=0), deviation, 1.0)
        affine, used = boxed and n_cells <= _MAX_AFFINE, np.arange(states.shape[1])
        return cls(states.mean(axis=0), scale, n_cells, n_outputs, boxed, affine, used)

    @property
    def n_moving(self) -> int:
        """Numbers at the front of a vector that may be changed a little."""
        width = 1 + len(self.used)
        outputs = self.n_cells * self.n_outputs * (width if self.affine else 1)
        return (self.n_cells - 1) * width + self.boxed * outputs

    def points(self, states: FloatArray) -> FloatArray:
        """Return states in standardised components."""
        return np.asarray((states - self.mean) / self.scale)

    def vector(self, scores: FloatArray, outputs: FloatArray | IntArray) -> FloatArray:
        """Return the vector of a rule, its scores scaled to a mean square of 1.

        Parameters
        ----------
        scores : ndarray, shape (K, 1 + u)
            In standardised components, of which u are used.
        outputs : ndarray
            Actions, shape (K,); or offsets, and maybe slopes, of units, shape (K, p, 1 or 1 + u).
        """
        scores = scores - scores.mean(axis=0)
        scores = scores / (math.sqrt(float((scores**2).mean())) + 1e-300)
        if self.affine and outputs.shape[2] == 1:
            slopes = np.zeros((self.n_cells, self.n_outputs, len(self.used)))
            outputs = np.concatenate([outputs, slopes], axis=2)
        return np.concatenate([(self._differences @ scores).ravel(), outputs.ravel()])

    def encoded(self, scores: FloatArray, outputs: FloatArray) -> FloatArray:
        """Return the vector of a rule, as :class:`RulePolicy` has it, of at most K cells."""
        again = np.arange(self.n_cells) % len(scores)  # of equal scores the first decides
        columns = [0, *(1 + self.used)]
        scores = standardised(scores, self.mean, self.scale)[again][:, columns]
        if not self.boxed:
            return self.vector(scores, outputs[:, :, 0].argmax(axis=1)[again])
        outputs = standardised(outputs, self.mean, self.scale)[again]
        return self.vector(scores, outputs[:, :, columns if self.affine else [0]])

    def of_rule(self, rule: RulePolicy) -> FloatArray | None:
        """Return the vector of a rule, if there is one that decides alike; or else None."""
        d = len(self.mean)
        if rule.clauses is not None or rule.continuous != self.boxed:
            return None
        if len(rule.scores) > self.n_cells or rule.scores.shape[1] != 1 + d:
            return None
        if rule.outputs.shape[1] != self.n_outputs:
            return None
        if self.boxed and rule.outputs[:, :, 1:].any() and not self.affine:
            return None
        return self.encoded(rule.scores, rule.outputs)

    def random(self, rng: np.random.Generator, offset: float = 1.0) -> FloatArray:
        """Draw the vector of a rule: normal scores, and for each cell some action.

        ``offset`` is the standard deviation of offsets, before scores are scaled.
        """
        n, width = self.n_cells, 1 + len(self.used)
        scores = rng.standard_normal((n, width))
        scores[:, 0] *= offset
        if self.boxed:
            outputs = rng.standard_normal((n, self.n_outputs, width if self.affine else 1))
            outputs[:, :, 0] *= offset
            return self.vector(scores, outputs)
        actions = rng.integers(self.n_outputs, size=n)
        some = min(n, self.n_outputs)
        actions[:some] = rng.permutation(self.n_outputs)[:some]
        return self.vector(scores, actions)

    def decoded(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores and outputs of rules, as :class:`RulePolicy` has them, of P vectors."""
        n, width = len(vectors), 1 + len(self.used)
        differences, rest = np.split(vectors, [(self.n_cells - 1) * width], axis=1)
        differences = differences.reshape(n, self.n_cells - 1, width)
        if self.boxed:
            outputs = self._raw(rest.reshape(n, self.n_cells, self.n_outputs, -1))
        else:
            outputs = np.eye(self.n_outputs)[rest.astype(np.int64)][..., None]
        return self._raw(self._differences.T @ differences), outputs

    def rule(self, vector: FloatArray) -> RulePolicy:
        """Return the rule that a vector stands for; its codevectors are 0."""
        (scores,), (outputs,) = self.decoded(vector[None])
        return RulePolicy(scores, outputs, np.zeros((self.n_cells, len(self.mean))))

    def _raw(self, rows: FloatArray) -> FloatArray:
        """Return affine functions of the observation, of those of used components."""
        full = np.zeros((*rows.shape[:-1], 1 + len(self.mean)))
        full[..., [0, *(1 + self.used)][: rows.shape[-1]]] = rows
        full[..., 1:] /= self.scale
        full[..., 0] -= full[..., 1:] @ self.mean
        return full

    @property
    def _differences(self) -> FloatArray:
        """Orthonormal, shape (K - 1, K): of cell k and the mean of those before (Helmert)."""
        rows = np.tri(self.n_cells, k=-1)[1:]
        rows -= np.diag(np.arange(1.0, self.n_cells), 1)[:-1]
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def standardised(rows: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Return affine functions of standardised components, of those of the observation.

    >>> standardised(np.array([[1.0, 2.0]]), np.array([3.0]), np.array([4.0]))
    array([[7., 8.]])
    """
    rows = rows.copy()
    rows[..., 0] += rows[..., 1:] @ mean
    rows[..., 1:] *= scale
    return rows
