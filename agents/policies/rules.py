"""Rules that can be written in words: the highest of a few affine scores decides.

The cell of greatest score has an action: a discrete one, or for continuous actions an affine
function of the observation, clipped to the box. :meth:`RulePolicy.edit` adds clauses
(:mod:`oda_rl.agents.rules.editing`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from oda_rl._compile import integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.names import checked_names, without_units
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.alternatives import alternative_of_cells, alternative_of_pieces
from oda_rl.agents.policies.contract import Alternative, CellTables, InLoops, Stored
from oda_rl.agents.rules.editing import Clauses, Editor, check_outputs, decisions, done_at
from oda_rl.agents.rules.proofs import Piece, Proof, checked_box, range_in, split
from oda_rl.diagram import ordered
from oda_rl.files.schema import Member, prefixed, real, require, within

_DIGITS, _MAX_DIGITS, _OF_BOUNDS = 4, 15, 7
_LOSS = 2e-3  # by rounding of printed numbers, relative to half the box, or to what scores differ
_EXACT = 1e-9  # relative
_RESIDUE = 1e-12  # of a box: an offset that rounding has left
_POWERS = 10.0 ** np.arange(-6, 7)


@spliced
def _score(scores: FloatArray, k: int, observation: FloatArray) -> float:
    score: float = scores[k, 0]
    for j in range(scores.shape[1] - 1):
        score += scores[k, 1 + j] * observation[j]
    return score


@spliced
def _greatest(scores: FloatArray, observation: FloatArray) -> int:
    """Return the cell whose score is greatest; of equal ones the first."""
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = _score(scores, k, observation)
        if score > greatest:
            greatest = score
            cell = k
    return cell


@spliced
def decide_by_rule(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions of the cells)."""
    scores, actions = arrays
    action: int = actions[_greatest(scores, observation)]
    return action


@spliced
def decide_in_box(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Write the action in a state by (scores, outputs, low, high, room) to ``room``, shape (1, p).

    Returns 0, the row of the action.
    """
    scores, outputs, low, high, room = arrays
    cell = _greatest(scores, observation)
    for c in range(outputs.shape[1]):
        unit = outputs[cell, c, 0]
        for j in range(outputs.shape[2] - 1):
            unit += outputs[cell, c, 1 + j] * observation[j]
        unit = min(max(unit, -1.0), 1.0)
        room[0, c] = 0.5 * ((1.0 - unit) * low[c] + (1.0 + unit) * high[c])
    return 0


@spliced
def decide_by_clauses(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions, conditions, ends, forbidden, said, room).

    See :class:`~oda_rl.agents.rules.editing.Clauses`; ``room`` marks what is forbidden, (A,).
    """
    scores, actions, conditions, ends, forbidden, said, barred = arrays
    for a in range(barred.shape[0]):
        barred[a] = False
    row = integer(0)
    for c in range(ends.shape[0]):
        holds = True
        while row < ends[c]:
            holds = holds and _score(conditions, row, observation) > 0.0
            row += 1
        if holds and c < forbidden.shape[0]:
            barred[forbidden[c]] = True
        elif holds and not barred[said[c - forbidden.shape[0]]]:
            by_clause: int = said[c - forbidden.shape[0]]
            return by_clause
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = _score(scores, k, observation)
        if score > greatest and not barred[actions[k]]:
            greatest = score
            cell = k
    action: int = actions[cell]
    return action


@dataclass(frozen=True)
class RulePolicy(Stored):
    """K affine scores, of which the highest decides.

    Examples
    --------
    >>> scores = np.array([[0.0, 0.0, 0.0], [0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 2)))
    >>> rule.act(np.array([[0.1, 0.0], [0.1, -1.0]]))
    array([1, 0])
    >>> rule = rule.named(["angle", "angular velocity"], ["push left", "push right"])
    >>> print(rule.rules())
    push right if 6·angle + angular velocity > 0, else push left
    """

    scores: FloatArray
    """Offset and slopes of each cell's score, in the observation's units, shape (K, 1 + d)."""
    outputs: FloatArray
    """Action of each cell. Discrete: a one among zeros, shape (K, A, 1); continuous: offset and
    slopes of each component, in units of the box, shape (K, p, 1 + d)."""
    codevectors: FloatArray
    """Means of the states seen in each cell, or other points of it, shape (K, d)."""
    clauses: Clauses | None = None
    """Edited clauses; those with an action are cells, too, from number K on."""
    names: tuple[str, ...] | None = None
    """Names of the observation's components; by default they have numbers."""
    action_names: tuple[str, ...] | None = None
    """Names of discrete actions, or of the components of continuous ones; by default numbers."""
    bounds: FloatArray | None = None
    """Lower and upper bounds of continuous actions, shape (2, p); by default -1 and 1."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "codevectors": real("cells, d"),
        "scores": real("K, 1+d"),
        "outputs": real("K, n, m"),
    }
    exact: ClassVar[bool] = True
    value_name: ClassVar[str] = "score"

    @property
    def continuous(self) -> bool:
        """Whether actions are continuous."""
        return bool(self.outputs.shape[2] > 1)

    @property
    def choice_name(self) -> str:  # type: ignore[override]
        return "cell" if self.continuous else "action"

    @property
    def n_cells(self) -> int:
        """Number of cells, clauses that fix an action included."""
        return len(self.scores) + (0 if self.clauses is None else len(self.clauses.outputs))

    @property
    def n_actions(self) -> int:
        """Number of choices: actions, or where these are continuous, cells."""
        return self.n_cells if self.continuous else int(self.outputs.shape[1])

    @property
    def actions(self) -> IntArray:
        """Choice of each cell, shape (K,)."""
        if self.continuous:
            return np.arange(self.n_cells)
        return np.asarray(self.all_outputs[:, :, 0].argmax(axis=1))

    @property
    def all_outputs(self) -> FloatArray:
        """:attr:`outputs` of all cells, clauses included."""
        said = self.outputs[:0] if self.clauses is None else self.clauses.outputs
        return np.concatenate([self.outputs, said])

    @cached_property
    def _ordered(self) -> FloatArray:
        """Scores, of which the first one wins where several are equal."""
        return 0.0 - ordered(0.0 - self.scores)

    @property
    def q_values(self) -> FloatArray:
        """Greatest score of each choice at each codevector, shape (K, A)."""
        return self.values(self.codevectors)

    def cells(self, points: npt.NDArray[Any]) -> IntArray:
        return decisions(self._ordered, self.outputs, self.clauses, points)

    def values(self, points: npt.NDArray[Any]) -> FloatArray:
        """Greatest score among the cells of each choice, shape (n, A).

        Minus infinity for choices without a cell, and where a clause forbids or overrides them.
        """
        found = self.scores[:, 0] + np.asarray(points) @ self.scores[:, 1:].T
        actions = self.actions
        values = np.full((len(points), self.n_actions), -np.inf)
        np.maximum.at(values.T, actions[: len(self.scores)], found.T)
        if self.clauses is not None:
            if not self.continuous:
                values[self.clauses.at(points)[0]] = -np.inf
            cells = self.cells(points)
            by_clause = cells >= len(self.scores)
            choices = actions[cells[by_clause]]
            chosen = np.nan_to_num(values[by_clause, choices], neginf=0.0)
            values[by_clause] = -np.inf
            values[by_clause, choices] = chosen
        return values

    def choices(self, points: npt.NDArray[Any]) -> IntArray:
        return np.asarray(self.actions[self.cells(points)])

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not self.continuous:
            return self.choices(points)
        own = done_at(self._ordered, self.outputs, self.clauses, points)
        units = own[:, :, 0] + (own[:, :, 1:] @ np.asarray(points)[:, :, None])[:, :, 0]
        return np.asarray(np.clip(units, -1.0, 1.0))

    def act_in(self, point: FloatArray) -> npt.NDArray[Any]:
        """Do what :meth:`act` does, faster for one state if there are no clauses."""
        if self.clauses is not None:
            return np.asarray(self.act(point[None])[0])
        rows = self._ordered
        cell = 0 if len(rows) == 1 else int((rows[:, 0] + rows[:, 1:] @ point).argmax())
        own = self.outputs[cell]
        if not self.continuous:
            return np.asarray(own[:, 0].argmax())
        units = own[:, 0] + own[:, 1:] @ point
        return np.asarray(np.minimum(np.maximum(units, -1.0), 1.0))  # np.clip is slow

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        if self.clauses is not None:
            others = [one for one in self.pieces if self.actions[one.cell] != choice]
            return alternative_of_pieces([one.rows for one in others], self, point, choice, scale)
        return alternative_of_cells(-self.scores, self.actions, point, choice, scale)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        clauses = self.clauses
        scores = [self.scores] if clauses is None else [self.scores, clauses.conditions]
        return (*scores, self.all_outputs) if self.continuous else tuple(scores)

    @property
    def in_loops(self) -> InLoops | None:
        if self.continuous:
            return None
        if self.clauses is None:
            return InLoops("rule", decide_by_rule, (self._ordered, self.actions))
        within = self.clauses
        arrays = (
            self._ordered, self.actions, within.conditions, within.ends, within.forbidden,
            within.actions, np.zeros(self.n_actions, dtype=np.bool_),
        )  # fmt: skip
        return InLoops("rule_and_clauses", decide_by_clauses, arrays)

    @property
    def tables(self) -> CellTables:
        origin, values = np.zeros(self.scores.shape[1] - 1), np.eye(self.n_actions)[self.actions]
        affine = self.all_outputs if self.continuous else None
        return CellTables(origin, 0.0 - self.scores, values, affine=affine, clauses=self.clauses)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        edited = {} if self.clauses is None else self.clauses.arrays
        return super().arrays | prefixed("clauses_", edited)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        own = {name: arrays[name] for name in arrays if not name.startswith("clauses_")}
        rule = super().from_arrays(own)
        check_outputs(rule.outputs, rule.scores.shape[1])
        if edited := within(arrays, "clauses_"):
            d, size = rule.scores.shape[1] - 1, rule.outputs.shape[1:]
            rule = replace(rule, clauses=Clauses.from_arrays(edited, d, size))
        n = len(rule.codevectors)
        require(n == rule.n_cells, f"codevectors has {n} rows: there are {rule.n_cells} cells")
        return rule

    @cached_property
    def pieces(self) -> list[Piece]:
        """Polyhedra, in each of which one cell, or clause, decides."""
        unbounded = np.full(self.scores.shape[1] - 1, np.inf)
        return self.pieces_within(-unbounded, unbounded)

    def pieces_within(self, low: FloatArray, high: FloatArray) -> list[Piece]:
        """Return the pieces within a box with bounds of shape (d,)."""
        actions, edited, n = self.actions, self.clauses, len(self.scores)
        forbids, says = ([], []) if edited is None else (edited.forbids, edited.says)
        later = [(one[0], int(a)) for one, a in zip(says, actions[n:], strict=True)]
        return split(self.scores, actions[:n], forbids, later, np.array([low, high]))

    def named(
        self,
        names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        bounds: FloatArray | None = None,
    ) -> Self:
        """Return the rule with the names that it is read, edited and proved by.

        Arguments are as the attributes; a wrong number of names raises ValueError.
        """
        known = [f"observation[{j}]" for j in range(self.scores.shape[1] - 1)]
        components = checked_names("names", names, known, "component of the observation")
        otherwise = "action[{}]" if self.continuous else "action {}"
        known = [otherwise.format(a) for a in range(self.outputs.shape[1])]
        actions = checked_names("action_names", action_names, known, "action, or component of one")
        bounds = np.array([[-1.0], [1.0]]).repeat(len(known), 1) if bounds is None else bounds
        return replace(self, names=components, action_names=actions, bounds=np.asarray(bounds))

    @property
    def _words(self) -> tuple[tuple[str, ...], tuple[str, ...], FloatArray]:
        """Names of components and actions, and bounds, numbers and defaults included."""
        named = self.named(self.names, self.action_names, self.bounds)
        return named.names or (), named.action_names or (), np.asarray(named.bounds)

    def edit(self) -> Editor:
        """Begin to edit: lock cells, forbid actions, and fix actions where conditions hold.

        Conditions call components by their names, or ``x[2]``; actions have numbers from 0, too.
        The editor's ``done()`` returns the edited policy; this one stays as it is.

        Examples
        --------
        >>> scores = np.array([[0.0, 0.0, 0.0], [0.0, 6.0, 1.0]])
        >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 2)))
        >>> rule = rule.named(["angle", "angular velocity"], ["push left", "push right"])
        >>> edited = rule.edit().forbid("push left", where="angle > .1").done()
        >>> print(edited.rules())
        never push left where angle > 0.1
        otherwise push right if 6·angle + angular velocity > 0, else push left
        """
        names, actions, bounds = self._words
        return Editor(self, [names, without_units(names)], actions, bounds)

    def prove(
        self,
        box: Mapping[str | int, tuple[float, float]],
        space: tuple[FloatArray, FloatArray] | None = None,
    ) -> Proof:
        """Prove which actions occur in a box, and which never do, by linear programs; exact.

        For each action that occurs there is a state where :meth:`choices` returns it. If actions
        are continuous, cells occur, and each component of the action has a range.

        Parameters
        ----------
        box : dict
            Lower and upper bounds of components, by their names or numbers.
        space : (low, high), optional
            Bounds of the other components, shape (d,) each; by default none.

        Raises
        ------
        ValueError
            For unknown components, or bounds that are not numbers in order.

        Examples
        --------
        >>> scores = np.array([[0.0, 0.0, 0.0], [0.0, 6.0, 1.0]])
        >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 2)))
        >>> found = rule.prove({0: (0.1, 0.2), 1: (-0.5, 0.5)})
        >>> found.occurs, found.never
        ((1,), (0,))
        """
        components, known, between = self._words
        ends = checked_box(box, [components, without_units(components)], space)
        states: dict[int, FloatArray] = {}
        pieces, actions = self.pieces_within(*ends), self.actions.tolist()
        for piece in pieces:
            choice = actions[piece.cell]
            if choice not in states and self.choices(piece.inside[None])[0] == choice:
                states[choice] = piece.inside
        possible = {actions[piece.cell] for piece in pieces}
        at_most = tuple(sorted(possible - states.keys()))
        never = tuple(a for a in range(self.n_actions) if a not in possible)
        ranges: dict[str, tuple[float, float]] = {}
        if self.continuous:
            own = in_box(self.all_outputs, *between)
            for c, name in enumerate(known):
                found = [range_in(own[one.cell, c], one.rows, np.array(ends)) for one in pieces]
                low, high = np.clip(found, *between[:, c]).T
                ranges[name] = float(low.min()), float(high.max())
            known = tuple(f"cell {k}" for k in range(self.n_cells))
        occurs = tuple(sorted(states))
        return Proof(*ends, occurs, never, at_most, states, components, known, ranges, between)

    def rules(self) -> str:
        """Return the rule in words, with numbers to four digits, or to more if actions need them.

        Scores are scaled so that their numbers are short; units in parentheses at the ends of names
        are left out.
        """
        names, named, (low, high) = self._words
        n, components = self.outputs.shape[1], without_units(names)
        if not self.continuous:
            return self._edited([named[a] for a in self.actions], components, named)
        own = in_box(self.all_outputs, low, high)
        constant = ~own[:, :, 1:].any(axis=2)
        own[:, :, 0] = np.where(constant, np.clip(own[:, :, 0], low, high), own[:, :, 0])
        parts, digits = without_units(named), _output_digits(own, self.codevectors, low, high)
        in_words = partial(affine, names=components, digits=digits)
        pairs = [[number(end, _OF_BOUNDS) for end in pair] for pair in zip(low, high, strict=True)]
        limits = [f"at least {a} and at most {b}" for a, b in pairs]
        alike = len(set(limits)) == 1
        ends = [f"{'each' if n > 1 else named[0]} {limits[0]}"] if alike else []
        behind = [""] * n if alike else [f"; {limit}" for limit in limits]
        each = [
            [f"{a} = {in_words(row)}{b}" for a, row, b in zip(parts, cell, behind, strict=True)]
            for cell in own
        ]
        if len(own) == 1 and n > 1:  # a line for each component
            return "\n".join([*each[0], *ends])
        if n == 1:
            text = self._edited([cell for (cell,) in each], components, named)
            return f"{text}\n{ends[0]}" if "\n" in text else f"{text}; {ends[0]}"
        cells = [f"cell {k}" for k in range(len(each))]
        lines = ["\n  ".join([f"{cell}:", *own]) for cell, own in zip(cells, each, strict=True)]
        return "\n".join([self._edited(cells, components, named), *lines, *ends])

    def _edited(self, said: Sequence[str], components: Sequence[str], named: Sequence[str]) -> str:
        """Put clauses and the scores into words, given the actions of all cells in words."""
        n = len(self.scores)
        text = self._decided(said[:n], components)
        if self.clauses is None:
            return text
        clauses = [(rows, f"never {named[a]}") for rows, a in self.clauses.forbids]
        clauses += [
            (rows, f"locked: {what}" if locked else what)
            for (rows, _, locked), what in zip(self.clauses.says, said[n:], strict=True)
        ]
        lines = []
        for rows, what in clauses:
            moving = rows[rows[:, 1:].any(axis=1)]
            where = " and ".join(half_space(row, components, self.codevectors) for row in moving)
            lines.append(f"{what} where {where}" if where else what)
        return "\n".join([*lines, f"otherwise {text}"])

    def _decided(self, said: Sequence[str], components: Sequence[str]) -> str:
        if len(set(said)) == 1:
            return f"always {said[0]}"
        if len(self.scores) == 2:
            row = self.scores[1] - self.scores[0]
            if not row[1:].any():
                return f"always {said[int(row[0] > 0.0)]}"
            where = half_space(row, components, self.codevectors)
            below = "\n" if self.continuous and self.outputs.shape[1] == 1 else " "
            return f"{said[1]} if {where},{below}else {said[0]}"
        if (columns := self._columns_of_modes()).size:
            return self._by_mode(columns, said, components)
        scores, digits = shortest(self.scores, self.codevectors)
        rows = [affine(row, components, digits) for row in scores]
        rows = [row if row != "0" else "0, otherwise" for row in rows]
        width = max(map(len, rows))
        lines = [f"  {row:{width}}  : {what}" for row, what in zip(rows, said, strict=True)]
        return "\n".join(["the highest score decides (ties: the first):", *lines])

    def _columns_of_modes(self) -> IntArray:
        """Return components by whose few values cells are told apart: slopes rise with them."""
        columns = []
        places = self.codevectors[: len(self.scores)]  # those of clauses follow
        for j, (own, slopes) in enumerate(zip(places.T, self.scores.T[1:], strict=True)):
            values, first, mode = np.unique(own, return_index=True, return_inverse=True)
            rising = (np.diff(slopes[first]) > 0.0).all() and (slopes == slopes[first][mode]).all()
            if 1 < len(values) < len(own) and rising:
                columns.append(j)
        return np.array(columns, dtype=np.int64)

    def _by_mode(self, columns: IntArray, said: Sequence[str], components: Sequence[str]) -> str:
        """Put the scores of each mode into words, which differ by other components only."""
        places = self.codevectors[: len(self.scores), columns]
        modes, cells = np.unique(places, axis=0, return_inverse=True)
        others, lines = self.scores.copy(), []
        others[:, 1 + columns] = 0.0
        for m, mode in enumerate(modes):
            own = np.flatnonzero(cells.ravel() == m)
            others[own, 0] -= others[own, 0].mean()
            part = RulePolicy(others[own], self.outputs[own], self.codevectors[own])
            text = part._decided([said[k] for k in own.tolist()], components)
            values = [f"{components[j]} is {number(x)}" for j, x in zip(columns, mode, strict=True)]
            lines.append(f"where {' and '.join(values)}, or nearest to it: {text}")
        return "\n".join(lines)


def named_as(rule: RulePolicy, interface: Interface) -> RulePolicy:
    """Return a rule with the names and bounds of an interface."""
    bounds = None if interface.box is None else interface.box.bounds
    return rule.named(interface.names, interface.action_names, bounds)


def in_box(units: FloatArray, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
    """Return offsets and slopes, shape (K, p, 1 + d), in an action's own units."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    own = 0.5 * (high - low)[:, None] * units
    own[:, :, 0] += 0.5 * (low + high)
    own[:, :, 0][np.abs(own[:, :, 0]) < _RESIDUE * (high - low)] = 0.0
    return np.asarray(own)


def reduced(rule: RulePolicy, states: FloatArray) -> RulePolicy:
    """Drop cells in which no state, shape (n, d), lies, and those that print like an earlier one.

    A rule with clauses stays as it is: they may need any cell.
    """
    if rule.clauses is not None or len(states) == 0:
        return rule
    cells = rule.cells(states)
    kept = np.unique(cells)
    scores, outputs, codevectors = rule.scores[kept], rule.outputs[kept], rule.codevectors[kept]
    means = np.array([states[cells == k].mean(axis=0) for k in kept])
    short, digits = shortest(scores, means)
    digits = max(digits, _output_digits(outputs, means)) if rule.continuous else digits
    numbers = np.column_stack([short, outputs.reshape(len(kept), -1)])
    rows = np.sort(np.unique(_printed(numbers, digits), axis=0, return_index=True)[1])
    return RulePolicy(scores[rows], outputs[rows], codevectors[rows])


def placed(rule: RulePolicy, states: FloatArray) -> RulePolicy:
    """Return a rule with codevectors, given states of shape (n, d), n > 0.

    The codevector of a cell is the mean of the states in it (or the state nearest to that, where
    the mean is in another cell); without any a point deep inside the cell, within the bounding box
    of all states if possible; and where it decides nowhere the mean of all states.
    """
    cells = rule.cells(states)
    codevectors = np.tile(states.mean(axis=0), (rule.n_cells, 1))
    idle = []
    for k in range(rule.n_cells):
        own = states[cells == k]
        if len(own) == 0:
            idle.append(k)
            continue
        codevectors[k] = own.mean(axis=0)
        if rule.cells(codevectors[k : k + 1])[0] != k:  # edited: not convex
            codevectors[k] = own[np.abs(own - codevectors[k]).sum(axis=1).argmin()]
    if idle:
        unbounded = np.full(states.shape[1], np.inf)
        boxes = (states.min(axis=0), states.max(axis=0)), (-unbounded, unbounded)
        for low, high in boxes[::-1]:  # what lies in the first one is written last
            for piece in rule.pieces_within(low, high):
                if piece.cell in idle and rule.cells(piece.inside[None])[0] == piece.cell:
                    codevectors[piece.cell] = piece.inside
    return replace(rule, codevectors=codevectors)


def affine(row: FloatArray, names: Sequence[str], digits: int = _DIGITS) -> str:
    """Return offset and slopes, shape (1 + d,), as a sum."""
    text = ""
    for value, name in zip([*row[1:].tolist(), float(row[0])], [*names, ""], strict=True):
        if value == 0.0:
            continue
        size = number(abs(value), digits)
        term = size if not name else name if size == "1" else f"{size}·{name}"
        sign = "-" if value < 0.0 else "+"
        text += f" {sign} {term}" if text else f"{'-' * (value < 0.0)}{term}"
    return text or "0"


def half_space(row: FloatArray, names: Sequence[str], points: FloatArray) -> str:
    """Say where an affine function, shape (1 + d,), is positive, given points, (n, d), near it."""
    (_, short), digits = shortest(np.array([0.0 * row, row]), points)
    first = short[1:][np.flatnonzero(short[1:])[0]]
    short, relation = (short, ">") if first > 0.0 else (-short, "<")
    left, right = affine(np.append(0.0, short[1:]), names, digits), number(-short[0], digits)
    return f"{left} {relation} {right}"


def number(value: float, digits: int = _DIGITS) -> str:
    """Return a number to some digits."""
    short = f"{value:.{digits}g}"
    rounded = float(short) + 0.0
    return f"{rounded:.15g}" if 1e-4 <= abs(rounded) < 1e7 or rounded == 0.0 else short


def shortest(rows: FloatArray, points: FloatArray) -> tuple[FloatArray, int]:
    """Multiply scores by a positive constant so that the numbers are short; exact if possible.

    With them comes how many digits they need, so that they differ as before at points, (n, d).
    """
    slopes = rows[:, 1:] if rows[:, 1:].any() else rows
    factors = [1.0, *_POWERS, *(1.0 / np.unique(np.abs(slopes[slopes != 0.0])))]
    short = min((factor * rows for factor in factors), key=_cost)
    least = np.abs(short[short != 0.0]).min(initial=np.inf)
    if 1_000.0 < least < np.inf:
        short = short / 10.0 ** np.floor(np.log10(least))
    at = np.insert(points, 0, 1.0, axis=1)
    spread = np.ptp(short @ at.T, axis=0)
    usual = np.quantile(spread, 0.5, method="lower")  # some points are far, or at a boundary
    return short, _digits(short[:, None], at, _LOSS * np.maximum(spread, usual))


def _output_digits(own: FloatArray, points: FloatArray, low: Any = -1.0, high: Any = 1.0) -> int:
    """Return how many digits affine actions, (K, p, 1 + d), need at points of their cells."""
    at = np.insert(points, 0, 1.0, axis=1)[:, None]
    half, middle = np.subtract(high, low) / 2.0, np.add(high, low) / 2.0
    return _digits(own, at, _LOSS * np.maximum(half, np.abs((own * at).sum(axis=-1) - middle)))


def _digits(rows: FloatArray, at: FloatArray, allowed: npt.ArrayLike) -> int:
    """Return how many digits change the sums of products of rows and ``at`` by what is allowed."""
    for digits in range(_DIGITS, _MAX_DIGITS):
        if (np.abs(((_printed(rows, digits) - rows) * at).sum(axis=-1)) <= allowed).all():
            return digits
    return _MAX_DIGITS


def _printed(numbers: FloatArray, digits: int) -> FloatArray:
    rounded = [float(number(value, digits)) for value in numbers.ravel().tolist()]
    return np.reshape(rounded, numbers.shape)


def _cost(rows: FloatArray) -> tuple[bool, int]:
    """Return whether digits are lost, and the number of letters; points count twice."""
    lost, letters = False, 0
    for row in rows.tolist():
        for j, value in enumerate(map(abs, row)):
            text = number(value)
            lost |= abs(float(text) - value) > _EXACT * value
            if value != 0.0 and (j == 0 or text != "1"):
                letters += len(text) + text.count(".") + (j > 0)
    return lost, letters
