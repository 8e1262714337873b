"""A rule one can say aloud: a few affine scores of the observation, and the greatest decides.

The cell of greatest score says the action: a discrete one, or for continuous actions an affine
function of the observation, cut off at the bounds of the box. Where no score is greater than
another's, no rule is said: a rule of two cells is one line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._compile import integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.alternatives import alternative_of_cells
from oda_rl.agents.policies.contract import Alternative, CellTables, InLoops, Rows, Stored
from oda_rl.agents.policies.wording import affine, number, shortest, without_units


@spliced
def decide_by_rule(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions of the cells)."""
    scores, actions = arrays
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = scores[k, 0]
        for j in range(scores.shape[1] - 1):
            score += scores[k, 1 + j] * observation[j]
        if score > greatest:
            greatest = score
            cell = k
    action: int = actions[cell]
    return action


@dataclass(frozen=True)
class RulePolicy(Stored):
    """K affine scores, of which the greatest decides.

    Examples
    --------
    >>> scores = np.array([[0.0, 0.0, 0.0], [0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 2)))
    >>> rule.act(np.array([[0.1, 0.0], [0.1, -1.0]]))
    array([1, 0])
    >>> print(rule.rules(["angle", "angular velocity"], ["push left", "push right"]))
    push right if 6·angle + angular velocity > 0, else push left
    """

    scores: FloatArray
    """Offset and slopes of each cell's score, in the observation's units, shape (K, 1 + d)."""
    outputs: FloatArray
    """What each cell does. Of discrete actions a one among zeros, shape (K, A, 1); of continuous
    ones offset and slopes of each component, in units of the box, shape (K, p, 1 + d)."""
    codevectors: FloatArray
    """Means of the states seen in each cell, shape (K, d)."""

    @property
    def continuous(self) -> bool:
        """Whether actions are continuous."""
        return bool(self.outputs.shape[2] > 1)

    @property
    def exact(self) -> bool:
        """Whether the distances of :meth:`alternative` are exact."""
        return True

    @property
    def choice_name(self) -> str:
        """What a choice is, in a word."""
        return "cell" if self.continuous else "action"

    @property
    def value_name(self) -> str:
        """What choices are compared by, in a word."""
        return "score"

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.scores)

    @property
    def n_actions(self) -> int:
        """Number of choices: actions, or where these are continuous, cells."""
        return self.n_cells if self.continuous else int(self.outputs.shape[1])

    @property
    def actions(self) -> IntArray:
        """Choices of the cells, shape (K,)."""
        if self.continuous:
            return np.arange(self.n_cells)
        return np.asarray(self.outputs[:, :, 0].argmax(axis=1))

    @property
    def q_values(self) -> FloatArray:
        """Greatest score of each choice at each codevector, shape (K, A)."""
        return self.values(self.codevectors)

    def cells(self, points: npt.NDArray[Any]) -> IntArray:
        """Cells, shape (n,), of points, shape (n, d)."""
        return np.asarray(self._scores_at(points).argmax(axis=1))

    def values(self, points: npt.NDArray[Any]) -> FloatArray:
        """Greatest score among the cells of each choice, shape (n, A); minus infinity for none."""
        found = self._scores_at(points)
        values = np.full((len(points), self.n_actions), -np.inf)
        for cell, choice in enumerate(self.actions):
            values[:, choice] = np.maximum(values[:, choice], found[:, cell])
        return values

    def choices(self, points: npt.NDArray[Any]) -> IntArray:
        """Choices of greatest score, shape (n,)."""
        return np.asarray(self.actions[self.cells(points)])

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Actions, shape (n,), or units of continuous ones, shape (n, p), within -1 and 1."""
        if not self.continuous:
            return self.choices(points)
        own = self.outputs[self.cells(points)]
        units = own[:, :, 0] + (own[:, :, 1:] @ np.asarray(points)[:, :, None])[:, :, 0]
        return np.asarray(np.clip(units, -1.0, 1.0))

    def act_in(self, point: FloatArray) -> npt.NDArray[Any]:
        """Do in one state what :meth:`act` does in some, but sooner."""
        cell = int((self.scores[:, 0] + self.scores[:, 1:] @ point).argmax())
        own = self.outputs[cell]
        if not self.continuous:
            return np.asarray(own[:, 0].argmax())
        return np.asarray(np.clip(own[:, 0] + own[:, 1:] @ point, -1.0, 1.0))

    def at_codevectors(self) -> Rows:
        """Values, choices and actions at the codevectors."""
        return Rows(self.q_values, self.choices(self.codevectors), self.act(self.codevectors))

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        """Find the nearest state where the choice is not that at ``point``; exact."""
        return alternative_of_cells(-self.scores, self.actions, point, choice, scale)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """The arrays that decisions are made by."""
        return (self.scores, self.outputs) if self.continuous else (self.scores,)

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it; None where actions are continuous."""
        if self.continuous:
            return None
        return InLoops("rule", decide_by_rule, (self.scores, self.actions))

    @property
    def tables(self) -> CellTables:
        """The same as tables, for export."""
        values = np.eye(self.n_actions)[self.actions]
        affine = self.outputs if self.continuous else None
        return CellTables(
            np.zeros(self.scores.shape[1] - 1), 0.0 - self.scores, values, affine=affine
        )

    def rules(
        self,
        names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        bounds: FloatArray | None = None,
    ) -> str:
        """Say the rule in words, with numbers to four digits.

        Scores are only compared, so they are multiplied by what makes their numbers short. Units,
        in parentheses at the ends of names, are left out of sums.

        Parameters
        ----------
        names : sequence of str, optional
            Of the observation's components.
        action_names : sequence of str, optional
            Of the actions, or of the components of a continuous one.
        bounds : ndarray, shape (2, p), optional
            Least and greatest components of continuous actions; by default those of units.

        Raises
        ------
        ValueError
            If there are not as many names as there should be.
        """
        d, n = self.scores.shape[1] - 1, self.outputs.shape[1]
        what = "action[{}]" if self.continuous else "action {}"
        named = _checked("action_names", action_names, [what.format(a) for a in range(n)])
        components = without_units(
            _checked("names", names, [f"observation[{j}]" for j in range(d)])
        )
        if not self.continuous:
            return self._decided([named[a] for a in self.actions], components)
        low, high = np.repeat([[-1.0], [1.0]], n, axis=1) if bounds is None else bounds
        own = in_box(self.outputs, low, high)
        constant = ~own[:, :, 1:].any(axis=2)
        own[:, :, 0] = np.where(constant, np.clip(own[:, :, 0], low, high), own[:, :, 0])
        parts = without_units(named)
        said = [
            ", ".join(map("{} = {}".format, parts, [affine(row, components) for row in cell]))
            for cell in own
        ]
        limits = [
            f"at least {number(a)} and at most {number(b)}" for a, b in zip(low, high, strict=True)
        ]
        if n > 1 and len(set(limits)) == 1:
            named, limits = ["each"], limits[:1]
        ends = ", ".join(map("{} {}".format, named, limits))
        text = self._decided(said, components)
        return f"{text}\n{ends}" if "\n" in text else f"{text}; {ends}"

    def _decided(self, said: Sequence[str], components: Sequence[str]) -> str:
        """Say which cell decides, given what each does."""
        if len(set(said)) == 1:
            return f"always {said[0]}"
        if self.n_cells == 2:
            (row,) = shortest(self.scores[1:] - self.scores[:1])
            if not row[1:].any():
                return f"always {said[int(row[0] > 0.0)]}"
            first = row[1:][np.flatnonzero(row[1:])[0]]
            row, relation = (row, ">") if first > 0.0 else (-row, "<")
            sums = affine(np.append(0.0, row[1:]), components)
            return f"{said[1]} if {sums} {relation} {number(-row[0])}, else {said[0]}"
        rows = [affine(row, components) for row in shortest(self.scores)]
        rows = [row if row != "0" else "0, otherwise" for row in rows]
        width = max(map(len, rows))
        lines = [f"  {row:{width}}  : {what}" for row, what in zip(rows, said, strict=True)]
        return "\n".join(["the greatest wins (the first of equals):", *lines])

    def _scores_at(self, points: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(self.scores[:, 0] + np.asarray(points) @ self.scores[:, 1:].T)


def in_box(units: FloatArray, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
    """Return offsets and slopes, shape (K, p, 1 + d), in an action's own units.

    >>> in_box(np.array([[[0.5, 1.0]]]), [0.0], [4.0])
    array([[[3., 2.]]])
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    own = 0.5 * (high - low)[:, None] * units
    own[:, :, 0] += 0.5 * (low + high)
    return np.asarray(own)


def _checked(argument: str, given: Sequence[str] | None, otherwise: Sequence[str]) -> Sequence[str]:
    if given is None:
        return otherwise
    if isinstance(given, str) or len(given) != len(otherwise):
        raise ValueError(f"{argument} is {given!r}: it must be a sequence of {len(otherwise)}")
    return list(map(str, given))
