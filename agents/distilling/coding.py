"""Rules as vectors of numbers, all of about the same size."""

import math
from dataclasses import dataclass

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.rules import RulePolicy

_MOST_AFFINE = 4  # cells; of more, each does one thing


@dataclass(frozen=True)
class Coding:
    """How a vector stands for a rule of K cells.

    First offsets and slopes of all scores, in standardised components; then for each cell how much
    it is for each action, or offsets, and maybe slopes, of continuous ones.
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
        return self.boxed and self.n_cells <= _MOST_AFFINE

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
        if not self.boxed:
            outputs = np.eye(self.n_outputs)[outputs]
        elif self.affine and outputs.shape[2] == 1:
            slopes = np.zeros((self.n_cells, self.n_outputs, len(self.mean)))
            outputs = np.concatenate([outputs, slopes], axis=2)
        return np.concatenate([scores.ravel(), outputs.ravel()])

    def rule(self, vector: FloatArray) -> RulePolicy:
        """Return the rule that a vector stands for; codevectors are missing."""
        d = len(self.mean)
        size = self.n_cells * (1 + d)
        scores = self._raw(vector[:size].reshape(self.n_cells, 1 + d))
        rest = vector[size:].reshape(self.n_cells, self.n_outputs, -1) if self.boxed else None
        if rest is None:
            actions = vector[size:].reshape(self.n_cells, self.n_outputs).argmax(axis=1)
            outputs = np.eye(self.n_outputs)[actions][:, :, None]
        elif self.affine:
            outputs = self._raw(rest)
        else:
            outputs = np.concatenate([rest, np.zeros((*rest.shape[:2], d))], axis=2)
        return RulePolicy(scores, outputs, np.zeros((self.n_cells, d)))

    def _raw(self, rows: FloatArray) -> FloatArray:
        """Return affine functions of the observation, of those of standardised components."""
        raw = rows.copy()
        raw[..., 1:] /= self.scale
        raw[..., 0] -= raw[..., 1:] @ self.mean
        return raw
