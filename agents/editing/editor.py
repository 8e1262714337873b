"""Editing a rule: each step returns the editor, and ``done()`` the edited policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.editing.clauses import Clauses, completed
from oda_rl.agents.editing.conditions import condition_rows
from oda_rl.agents.proving.names import component_number
from oda_rl.agents.proving.polyhedra import point_in


class Editable(Protocol):
    """A rule; see :class:`~oda_rl.agents.policies.rules.RulePolicy`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def scores(self) -> FloatArray:
        """Of the cells, shape (K, 1 + d)."""

    @property
    def outputs(self) -> FloatArray:
        """What they do."""

    @property
    def codevectors(self) -> FloatArray:
        """Where they are."""

    @property
    def clauses(self) -> Clauses | None:
        """What was edited before."""


Rule = TypeVar("Rule", bound=Editable)


class Editor(Generic[Rule]):
    """Edits a rule, which stays as it is.

    Forbidding comes first: what is forbidden is not done, whatever else is said. Of clauses that
    say what is done the latest decides; but what was said before a lock is not changed by what is
    said after it.

    Parameters
    ----------
    policy : RulePolicy
    calls : sequence of sequences of str
        Names of the components, in one or more ways.
    action_names : sequence of str
        Of discrete actions.
    bounds : ndarray, shape (2, p), optional
        Of continuous ones.
    """

    def __init__(
        self,
        policy: Rule,
        calls: Sequence[Sequence[str]],
        action_names: Sequence[str],
        bounds: FloatArray | None = None,
    ) -> None:
        self._policy, self._calls, self._action_names = policy, calls, action_names
        self._bounds = bounds
        self._scores, self._outputs = policy.scores.copy(), policy.outputs.copy()
        edited = policy.clauses
        self._forbids = [] if edited is None else edited.forbids
        self._says = [] if edited is None else edited.says
        self._locked: set[int] = set()

    def lock(self, cell: int) -> Self:
        """Lock a cell: where its score is greatest now, what it does stays, while others change.

        Raises
        ------
        ValueError
            If there is no such cell.
        """
        k = self._cell("cell", cell)
        rows = np.delete(self._scores[k] - self._scores, k, axis=0)
        self._says.append((rows[rows.any(axis=1)], self._outputs[k].copy(), True))
        self._locked.add(k)
        return self

    def forbid(self, action: str | int, where: str | None = None) -> Self:
        """Forbid a discrete action, everywhere or where a condition holds.

        Parameters
        ----------
        action : str or int
            Its name, or its number from 0.
        where : str, optional
            As in ``"pole angle > .1 and x[0] < 2"``.

        Raises
        ------
        ValueError
            For unknown actions or components, or continuous actions.
        """
        if self._outputs.shape[2] > 1:
            raise ValueError(
                f"forbid({action!r}): actions are continuous; say what is done by where(...)"
            )
        self._forbids.append((self._rows(where), self._action(action)))
        return self

    def where(self, condition: str, do: Any) -> Self:
        """Say what is done where a condition holds: "where x[2] > .1: push right".

        Parameters
        ----------
        condition : str
            Comparisons of sums of components, joined by "and".
        do : str or int, or of continuous actions a number or a sequence of p
            The action.

        Raises
        ------
        ValueError
            For unknown actions or components.
        """
        first = max((k + 1 for k, one in enumerate(self._says) if one[2]), default=0)
        self._says.insert(first, (self._rows(condition), self._output(do), False))
        return self

    def merge(self, cell: int, other: int) -> Self:
        """Merge two cells: where the other one decides, too, what the first one does is done.

        Raises
        ------
        ValueError
            If there are no such cells, or the other is locked.
        """
        k, j = self._cell("cell", cell), self._open("other", other)
        self._outputs[j] = self._outputs[k]
        return self

    def set(self, cell: int, coefficients: Mapping[str | int, float]) -> Self:
        """Set coefficients of a cell's score.

        Parameters
        ----------
        cell : int
        coefficients : dict
            Slopes by the names or numbers of components; ``"offset"`` is that.

        Raises
        ------
        ValueError
            If there is no such cell or component, the cell is locked, or a number is not finite.
        """
        k = self._open("cell", cell)
        for name, value in coefficients.items():
            if not np.isfinite(value):
                raise ValueError(f"coefficients[{name!r}] is {value!r}: it must be finite")
            at = 0 if name == "offset" else 1 + component_number(name, self._calls)
            self._scores[k, at] = value
        return self

    def done(self) -> Rule:
        """Return the edited policy.

        Raises
        ------
        ValueError
            If all actions are forbidden somewhere.
        """
        rule = replace(self._policy, scores=self._scores, outputs=self._outputs)
        if not self._forbids and not self._says:
            return rule
        return within(rule, Clauses.of(self._forbids, self._says, self._outputs))

    def _cell(self, name: str, cell: int) -> int:
        n = len(self._scores)
        if int(cell) != cell or not 0 <= cell < n:
            raise ValueError(f"{name} is {cell!r}: it must be an integer from 0 to {n - 1}")
        return int(cell)

    def _open(self, name: str, cell: int) -> int:
        k = self._cell(name, cell)
        if k in self._locked:
            raise ValueError(f"{name} is {cell!r}, which is locked: it must be another one")
        return k

    def _rows(self, where: str | None) -> FloatArray:
        if where is None:
            return np.zeros((0, self._scores.shape[1]))
        rows = condition_rows(where, self._calls)
        if point_in(rows) is None:
            raise ValueError(f"where is {where!r}, which holds nowhere: it must hold somewhere")
        return rows

    def _action(self, action: str | int) -> int:
        names = list(self._action_names)
        if action in names:
            return names.index(str(action))
        if isinstance(action, str) or int(action) != action or not 0 <= action < len(names):
            raise ValueError(
                f"action is {action!r}: it must be one of {names}, or a number from 0 to "
                f"{len(names) - 1}"
            )
        return int(action)

    def _output(self, do: Any) -> FloatArray:
        """Return an action as an output of the rule."""
        _, n, width = self._outputs.shape
        if width == 1:
            return np.eye(n)[:, self._action(do)][:, None]
        parts = np.atleast_1d(np.asarray(do, dtype=np.float64))
        low, high = np.repeat([[-1.0], [1.0]], n, axis=1) if self._bounds is None else self._bounds
        if parts.shape != (n,) or not ((parts >= low) & (parts <= high)).all():
            raise ValueError(
                f"do is {do!r}: it must be {n} numbers, from {low.tolist()} to {high.tolist()}"
            )
        output = np.zeros((n, width))
        output[:, 0] = (2.0 * parts - low - high) / (high - low)
        return output


def within(rule: Rule, clauses: Clauses) -> Rule:
    """Return a rule within clauses; a cell of theirs is where it is nearest to the rule's.

    Raises
    ------
    ValueError
        If all actions are forbidden somewhere.
    """
    whole = completed(clauses, rule.outputs)
    own = rule.codevectors[: len(rule.scores)]
    middle = own.mean(axis=0)
    places = [own, *(_near(rows, middle)[None] for rows, _, _ in whole.says)]
    return replace(rule, clauses=whole, codevectors=np.concatenate(places))


def _near(rows: FloatArray, middle: FloatArray) -> FloatArray:
    """Return a point where a clause holds: the middle, if it does there."""
    if (rows[:, 0] + rows[:, 1:] @ middle > 0.0).all():
        return middle
    inside = point_in(rows)
    return middle if inside is None else inside
