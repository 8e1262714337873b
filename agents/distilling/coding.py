"""Rules as vectors of numbers, all of about the same size.

Actions may be degrees of one quantity, as torques are. Then fewer numbers make a rule: each cell
has an affine degree, and the nearest action is taken. With affine scores s of cells and degrees u,
action k of degree c_k has in each cell the affine score M s + 2 c_k u - c_k^2, which is greatest
where c_k is nearest to u: so it is a rule like all others, in which a search for one can begin.
"""

import math
from dataclasses import dataclass

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.simulation import one_law, predict

_ON_A_LINE = 0.95  # share of what actions change that one quantity explains
_NO_EFFECT = 1e-6  # standard deviations of what actions change, that are rounding
_SCORE_WEIGHT = 5.0  # of a cell, against the distance of its degree


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
    n_outputs: int  # number of actions, or of components of a continuous one
    boxed: bool  # whether actions are continuous
    affine: bool  # whether these are functions of the observation
    used: IntArray  # components that scores and outputs depend on

    @classmethod
    def of(cls, states: FloatArray, interface: Interface, n_cells: int) -> "Coding":
        """Return the coding for an environment with such states, shape (n, d)."""
        boxed = interface.box is not None
        n_outputs = interface.n_components if boxed else interface.n_actions
        deviation = states.std(axis=0)
        scale = np.where(deviation > 1e-9 * np.abs(states).max(axis=0), deviation, 1.0)
        affine, used = boxed and n_cells <= 4, np.arange(states.shape[1])  # else constant
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

        Scores, shape (K, 1 + u), are in standardised components, of which u are used. Outputs are
        actions, shape (K,); or offsets, and maybe slopes, of units, shape (K, p, 1 or 1 + u).
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
        (n, width), n_outputs = rule.scores.shape, rule.outputs.shape[1]
        fits = n <= self.n_cells and width == 1 + len(self.mean) and n_outputs == self.n_outputs
        alike = rule.clauses is None and rule.continuous == self.boxed
        if not fits or not alike or (not self.affine and rule.outputs[:, :, 1:].any()):
            return None
        return self.encoded(rule.scores, rule.outputs)

    def random(self, rng: np.random.Generator, offset: float = 1.0) -> FloatArray:
        """Draw the vector of a rule; ``offset`` is the standard deviation of unscaled offsets."""
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
    """Return affine functions of standardised components, of those of the observation."""
    rows = rows.copy()
    rows[..., 0] += rows[..., 1:] @ mean
    rows[..., 1:] *= scale
    return rows


@dataclass(frozen=True)
class GradedCoding(Coding):
    """Codes rules whose cells each have a degree, and whose actions are degrees."""

    degrees: FloatArray  # of the actions, from -1 to 1, shape (A,)

    @property
    def n_moving(self) -> int:
        return 2 * self._n_graded * (1 + len(self.used))

    def random(self, rng: np.random.Generator, offset: float = 1.0) -> FloatArray:
        vector = rng.standard_normal(self.n_moving)
        vector[:: 1 + len(self.used)] *= offset
        return vector

    def decoded(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        n, width = len(vectors), 1 + len(self.used)
        halves = vectors.reshape(n, 2, self._n_graded, 1, width)
        scores = _SCORE_WEIGHT * halves[:, 0] + 2.0 * self.degrees[:, None] * halves[:, 1]
        scores[..., 0] -= self.degrees**2
        cells = scores.reshape(n, -1, width)
        outputs = np.tile(np.eye(self.n_outputs), (self._n_graded, 1))[:, :, None]
        return self._raw(cells), np.tile(outputs, (n, 1, 1, 1))

    @property
    def _n_graded(self) -> int:
        return max(self.n_cells // self.n_outputs, 1)


def degrees_of(
    world: WorldArrays, at: Coordinates, seen: FloatArray, n_actions: int
) -> FloatArray | None:
    """Return each action's degree of one quantity, from -1 to 1, shape (A,); None if there is none.

    ``seen``, shape (n, d), are states in which the first law says what actions change. For two
    actions, which always are degrees, rules have no fewer numbers: None.
    """
    if n_actions < 3:
        return None
    points = seen[:: max(len(seen) // 200, 1)]  # about 200
    codes = np.repeat(np.eye(n_actions), len(points), axis=0)
    after = predict(one_law(world, 0), np.tile(points, (n_actions, 1)), codes)[0]
    changes = np.where(at.ignored, 0.0, after / at.scale).reshape(n_actions, -1)
    changes -= changes.mean(axis=0)
    left, sizes, _ = np.linalg.svd(changes, full_matrices=False)
    if sizes[0] <= _NO_EFFECT or not sizes[0] ** 2 > _ON_A_LINE * (sizes**2).sum():
        return None
    degrees = left[:, 0] - left[:, 0].min()
    degrees = 2.0 * degrees / degrees.max() - 1.0
    return degrees if np.diff(np.sort(degrees)).min() > 0.04 else None  # from -1 to 1
