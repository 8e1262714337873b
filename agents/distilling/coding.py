"""Rules as vectors of numbers, all of about the same size."""

import math
from dataclasses import dataclass

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.rules import RulePolicy

_MAX_AFFINE = 4  # cells; of more, each does one thing


@dataclass(frozen=True)
class Coding:
    """How a vector stands for a rule of K cells.

    First offsets and slopes of the scores, in standardised components, by K - 1 numbers each: what
    all scores have in common does not matter. Then for each cell its action; or offsets, and maybe
    slopes, of continuous ones.
    """

    mean: FloatArray
    scale: FloatArray
    n_cells: int
    n_outputs: int
    """Actions, or components of a continuous one."""
    boxed: bool

    @classmethod
    def of(cls, states: FloatArray, interface: Interface, n_cells: int) -> "Coding":
        """Return that for an environment in which such states are seen."""
        boxed = interface.box is not None
        n_outputs = interface.n_components if boxed else interface.n_actions
        deviation = states.std(axis=0)
        scale = np.where(deviation > 1e-9 * np.abs(states).max(axis=0), deviation, 1.0)
        return cls(states.mean(axis=0), scale, n_cells, n_outputs, boxed)

    @property
    def affine(self) -> bool:
        """Whether continuous actions are functions of the observation."""
        return self.boxed and self.n_cells <= _MAX_AFFINE

    def points(self, states: FloatArray) -> FloatArray:
        """Return states in standardised components."""
        return np.asarray((states - self.mean) / self.scale)

    def vector(self, scores: FloatArray, outputs: Array) -> FloatArray:
        """Return the vector of a rule, its scores scaled to a mean square of 1.

        Parameters
        ----------
        scores : ndarray, shape (K, 1 + d)
            In standardised components.
        outputs : ndarray
            Actions, shape (K,); or offsets, and maybe slopes, of units, shape (K, p, 1 or 1 + d).
        """
        scores = scores - scores.mean(axis=0)
        scores = scores / (math.sqrt(float((scores**2).mean())) + 1e-300)
        if self.affine and outputs.shape[2] == 1:
            slopes = np.zeros((self.n_cells, self.n_outputs, len(self.mean)))
            outputs = np.concatenate([outputs, slopes], axis=2)
        return np.concatenate([(self._differences @ scores).ravel(), outputs.ravel()])

    def of_rule(self, rule: RulePolicy) -> FloatArray | None:
        """Return the vector of a rule, if there is one that decides alike; or else None."""
        n, d = len(rule.scores), len(self.mean)
        if rule.clauses is not None or n > self.n_cells or rule.continuous != self.boxed:
            return None
        if rule.scores.shape[1] != 1 + d or rule.outputs.shape[1] != self.n_outputs:
            return None
        again = np.arange(self.n_cells) % n  # of equal scores the first decides
        scores = standardised(rule.scores, self.mean, self.scale)[again]
        if not self.boxed:
            return self.vector(scores, rule.outputs[:, :, 0].argmax(axis=1)[again])
        outputs = standardised(rule.outputs, self.mean, self.scale)[again]
        if outputs[:, :, 1:].any() and not self.affine:
            return None
        return self.vector(scores, outputs if self.affine else outputs[:, :, :1])

    def random(self, rng: np.random.Generator) -> FloatArray:
        """Draw the vector of a rule: normal scores, and for each cell some action."""
        d, n = len(self.mean), self.n_cells
        scores = rng.standard_normal((n, 1 + d))
        if self.boxed:
            return self.vector(
                scores, rng.standard_normal((n, self.n_outputs, 1 + d * self.affine))
            )
        actions = rng.integers(self.n_outputs, size=n)
        some = min(n, self.n_outputs)
        actions[:some] = rng.permutation(self.n_outputs)[:some]
        return self.vector(scores, actions)

    @property
    def n_moving(self) -> int:
        """Numbers at the front of a vector that may be changed a little."""
        d = len(self.mean)
        width = 1 + d * self.affine
        return (self.n_cells - 1) * (1 + d) + self.boxed * self.n_cells * self.n_outputs * width

    def rule(self, vector: FloatArray) -> RulePolicy:
        """Return the rule that a vector stands for; codevectors are missing."""
        d = len(self.mean)
        size = (self.n_cells - 1) * (1 + d)
        scores = self._differences.T @ vector[:size].reshape(-1, 1 + d)
        scores = raw(scores, self.mean, self.scale)
        if not self.boxed:
            outputs = np.eye(self.n_outputs)[vector[size:].astype(np.int64)][:, :, None]
        else:
            outputs = vector[size:].reshape(self.n_cells, self.n_outputs, -1)
            slopes = np.zeros((*outputs.shape[:2], d * (not self.affine)))
            outputs = np.concatenate([outputs, slopes], axis=2)
            outputs = raw(outputs, self.mean, self.scale)
        return RulePolicy(scores, outputs, np.zeros((self.n_cells, d)))

    @property
    def _differences(self) -> FloatArray:
        """Orthonormal, shape (K - 1, K): of cell k and the mean of those before (Helmert)."""
        rows = np.tri(self.n_cells, k=-1)[1:]
        rows -= np.diag(np.arange(1.0, self.n_cells), 1)[:-1]
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def standardised(rows: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Return affine functions of standardised components, of those of the observation.

    >>> rows, mean, scale = np.array([[1.0, 2.0]]), np.array([3.0]), np.array([4.0])
    >>> standardised(rows, mean, scale), raw(standardised(rows, mean, scale), mean, scale)
    (array([[7., 8.]]), array([[1., 2.]]))
    """
    rows = rows.copy()
    rows[..., 0] += rows[..., 1:] @ mean
    rows[..., 1:] *= scale
    return rows


def raw(rows: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Return affine functions of the observation, of those of standardised components."""
    rows = rows.copy()
    rows[..., 1:] /= scale
    rows[..., 0] -= rows[..., 1:] @ mean
    return rows
