"""Actions that are degrees of one quantity: torques, pushes. A rule for them has fewer numbers.

Its cells are not each an action's but each have an affine degree, and the nearest action is done.
With affine scores s of cells and degrees u, action k of degree c_k has in each cell the affine
score M s + 2 c_k u - c_k^2, which is greatest where c_k is nearest to u: so it is a rule like all
others, in which a search for one can begin.
"""

from dataclasses import asdict, dataclass

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.model.search import Shape
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.learning import predict
from oda_rl.agents.worlds.trajectories import one_law

_STATES = 200
_ON_A_LINE = 0.95  # share of what actions change that one quantity explains
_APART = 0.02  # of the greatest degree less the least
_WEIGHT = 5.0  # of a cell's score


@dataclass(frozen=True)
class GradedShape(Shape):
    """Of rules whose cells each have a degree, and whose actions are done by degrees."""

    degrees: tuple[float, ...] = ()
    """Of the actions, -1 to 1."""

    @classmethod
    def by(cls, shape: Shape, degrees: FloatArray) -> "GradedShape":
        """Return that of rules which are also of another shape, of one cell for each action."""
        return cls(**asdict(shape), degrees=tuple(degrees.tolist()))

    @property
    def size(self) -> int:
        """Numbers of a rule."""
        return 2 * self._n_graded * self.width

    @property
    def constant(self) -> FloatArray:
        """No rules: those that always do the same are tried without degrees."""
        return np.zeros((0, self.size))

    def decoded(self, vectors: FloatArray, at: Coordinates) -> tuple[FloatArray, FloatArray]:
        """Return scores and outputs of rules, as :class:`RulePolicy` has them, of P vectors."""
        halves = vectors.reshape(len(vectors), 2, self._n_graded, 1, self.width)
        degrees = np.array(self.degrees)[:, None]
        scores = _WEIGHT * halves[:, 0] + 2.0 * degrees * halves[:, 1]
        scores[..., :1] -= degrees**2
        cells = scores.reshape(len(vectors), -1, self.width)
        missing = self.n_cells - cells.shape[1]
        cells = np.concatenate([cells, cells[:, :missing]], axis=1)
        return super().decoded(cells.reshape(len(vectors), -1), at)

    @property
    def _n_graded(self) -> int:
        return max(self.n_cells // self.n_outputs, 1)


def degrees_of(
    world: WorldArrays, at: Coordinates, seen: FloatArray, n_actions: int
) -> FloatArray | None:
    """Return of which degree of one quantity each action is, if they are: -1 to 1, shape (A,).

    Parameters
    ----------
    world : WorldArrays
        Its first law says what actions change.
    at : Coordinates
    seen : ndarray, shape (n, d)
        States in which that is asked.
    n_actions : int
        Two actions always are degrees of one quantity, and rules for them have no fewer numbers.
    """
    if n_actions < 3:
        return None
    points = seen[:: max(len(seen) // _STATES, 1)]
    codes = np.repeat(np.eye(n_actions), len(points), axis=0)
    after = predict(one_law(world, 0), np.tile(points, (n_actions, 1)), codes)[0]
    changes = np.where(at.ignored, 0.0, after / at.scale).reshape(n_actions, -1)
    changes -= changes.mean(axis=0)
    left, sizes, _ = np.linalg.svd(changes, full_matrices=False)
    if not sizes[0] ** 2 > _ON_A_LINE * (sizes**2).sum():
        return None
    degrees = left[:, 0] - left[:, 0].min()
    degrees = 2.0 * degrees / degrees.max() - 1.0
    return degrees if np.diff(np.sort(degrees)).min() > 2.0 * _APART else None
