"""Editing rules: clauses that forbid actions or fix them where conditions hold.

Each step of an editor returns the editor, and ``done()`` the edited policy.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.rules.proofs import component_number, point_in
from oda_rl.files.schema import Member, check, real, require, whole

if TYPE_CHECKING:
    from oda_rl.agents.policies.rules import RulePolicy

_AND = re.compile(r"\s+and\s+|\s*&+\s*")
_COMPARED = re.compile(r"^(.*?)(<=|>=|<|>)(.*)$")
_TERM = re.compile(r"\s*([+-]?)\s*([^+-]+?)\s*(?=[+-]|$)")
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"
_FACTOR = re.compile(rf"^({_NUMBER})\s*[*·]?\s*(.*)$", re.IGNORECASE)


def condition_rows(text: str, calls: Sequence[Sequence[str]]) -> FloatArray:
    """Read a condition: the rows, shape (m, 1 + d), that are positive where it holds.

    A condition is comparisons of sums, joined by "and"; components are ``x[2]``, or any of their
    names in ``calls``. Raises ValueError if the text cannot be read, or does not depend on the
    observation.

    >>> condition_rows("angle > .1 and 2*speed + x[0] < 3", [["angle", "speed"]])
    array([[-0.1,  1. ,  0. ],
           [ 3. , -1. , -2. ]])
    """
    short, marks = _marked(text, calls)
    rows = []
    for part in _AND.split(short.strip()):
        found = _COMPARED.match(part)
        if found is None:
            raise ValueError(f"where is {text!r}: it must be comparisons, as in 'x[2] > .1'")
        left, relation, right = found.groups()
        d = len(calls[0])
        row = _sum(left, text, marks, calls[0], d) - _sum(right, text, marks, calls[0], d)
        if not row[1:].any():
            raise ValueError(f"where is {text!r}: it must depend on the observation")
        rows.append(row if ">" in relation else 0.0 - row)
    return np.array(rows)


def _marked(text: str, calls: Sequence[Sequence[str]]) -> tuple[str, list[int]]:
    """Put a mark for each component's name, the longest first; names may be of any characters."""
    known = {name: j for names in calls for j, name in enumerate(names)}
    marks: list[int] = []
    for name in sorted(known, key=len, reverse=True):
        pattern = rf"(?<![\w\[]){re.escape(name)}(?![\w\]])"
        if re.search(pattern, text):
            text = re.sub(pattern, f"@{len(marks)}@", text)
            marks.append(known[name])
    return text, marks


def _sum(part: str, text: str, marks: Sequence[int], names: Sequence[str], d: int) -> FloatArray:
    """Read a sum: offset and slopes, shape (1 + d,)."""
    row, at = np.zeros(1 + d), 0
    part = re.sub(r"(?<=\de)-", "~", part, flags=re.IGNORECASE).rstrip()
    while at < len(part):
        found = _TERM.match(part, at)
        if found is None or found.end() == at:
            raise ValueError(f"where is {text!r}: {part!r} must be a sum, as in '6*x[2] + x[3]'")
        sign, term = found.groups()
        factor = _FACTOR.match(term := term.replace("~", "-"))
        value, name = (factor.groups() if factor else ("1", term)) if term else ("1", "")
        size = float(value) * (-1.0 if sign == "-" else 1.0)
        row[_place(name.strip(), text, marks, names)] += size
        at = found.end()
    return row


def _place(name: str, text: str, marks: Sequence[int], names: Sequence[str]) -> int:
    if not name:  # a number alone
        return 0
    if name.startswith("@") and name.endswith("@"):
        return 1 + marks[int(name.strip("@"))]
    try:
        return 1 + component_number(name, [names])
    except ValueError as error:
        raise ValueError(
            f"where is {text!r}, with {name!r}: it must speak of {list(names)}, or x[0] to "
            f"x[{len(names) - 1}]"
        ) from error


SCHEMA: dict[str, Member] = {
    "conditions": real("rows, 1+d"),
    "ends": whole("clauses", "[0, rows]"),
    "forbidden": whole("bans", "[0, n)"),
    "outputs": real("says, n, m"),
    "locks": whole("says", "[0, 1]"),
}
"""What a file has of them."""


@dataclass(frozen=True, eq=False)
class Clauses:
    """C clauses, of which the first F forbid and the others say what is done.

    >>> high = np.array([[-0.1, 1.0]])  # where x - 0.1 > 0
    >>> clauses = Clauses.of([(high, 0)], [(-high, np.eye(2)[:, 1:], False)], np.eye(2)[:, :, None])
    >>> clauses.at(np.array([[0.0], [0.2]]))[0].tolist()
    [[False, False], [True, False]]
    >>> clauses.at(np.array([[0.0], [0.2]]))[1].tolist()
    [0, -1]
    """

    conditions: FloatArray
    """Rows of all clauses, offsets and slopes, shape (R, 1 + d)."""
    ends: IntArray
    """Number of rows of each clause and those before it, shape (C,)."""
    forbidden: IntArray
    """Actions that the first ones forbid, shape (F,)."""
    outputs: FloatArray
    """What the others do, as outputs of a :class:`~oda_rl.agents.policies.rules.RulePolicy`, shape
    (C - F, A, 1) or (C - F, p, 1 + d)."""
    locks: IntArray
    """1 for what was a cell's and is locked, else 0; shape (C - F,)."""

    @classmethod
    def of(
        cls,
        forbids: list[tuple[FloatArray, int]],
        says: list[tuple[FloatArray, FloatArray, bool]],
        like: FloatArray,
    ) -> "Clauses":
        """Put clauses together: (rows, action) and (rows, output, whether it is locked).

        ``like`` are the outputs of the rule, shape (K, A, 1) or (K, p, 1 + d).
        """
        rows = [one for one, _ in forbids] + [one for one, _, _ in says]
        width = rows[0].shape[1] if rows else like.shape[2]
        return cls(
            np.concatenate([np.zeros((0, width)), *rows]),
            np.cumsum([len(one) for one in rows], dtype=np.int64),
            np.array([action for _, action in forbids], dtype=np.int64),
            np.array([one[1] for one in says]).reshape(-1, *like.shape[1:]),
            np.array([one[2] for one in says], dtype=np.int64),
        )

    @property
    def rows(self) -> list[FloatArray]:
        """Rows of each clause, shape (m, 1 + d)."""
        return np.split(self.conditions, self.ends[:-1]) if len(self.ends) else []

    @property
    def forbids(self) -> list[tuple[FloatArray, int]]:
        """The clauses that forbid: (rows, action)."""
        return list(zip(self.rows, self.forbidden.tolist(), strict=False))

    @property
    def says(self) -> list[tuple[FloatArray, FloatArray, bool]]:
        """The others: (rows, output, whether it is locked)."""
        later = self.rows[len(self.forbidden) :]
        return list(zip(later, self.outputs, self.locks.astype(bool).tolist(), strict=True))

    @property
    def actions(self) -> IntArray:
        """Actions that the others say, where these are discrete, shape (C - F,)."""
        return np.asarray(self.outputs[:, :, 0].argmax(axis=1), dtype=np.int64)

    def holds(self, points: npt.NDArray[Any]) -> BoolArray:
        """Whether each clause holds at each of n points, shape (n, C)."""
        above = self.conditions[:, 0] + points @ self.conditions[:, 1:].T > 0.0
        parts = np.split(above, self.ends[:-1], axis=1)
        return np.column_stack([part.all(axis=1) for part in parts])

    def at(self, points: npt.NDArray[Any]) -> tuple[BoolArray, IntArray]:
        """Return what is forbidden at n points, shape (n, A), and which of the others decides.

        That is its number, shape (n,), or -1 where none does.
        """
        holding = self.holds(points)
        n, count = len(self.forbidden), self.outputs.shape[1]
        barred = holding[:, :n] @ (self.forbidden[:, None] == np.arange(count))
        says = holding[:, n:]
        if self.outputs.shape[2] == 1:
            says = says & ~barred[:, self.actions]
        some = says.any(axis=1) if says.shape[1] else np.zeros(len(points), dtype=np.bool_)
        first = says.argmax(axis=1) if says.shape[1] else np.zeros(len(points), dtype=np.int64)
        return barred, np.where(some, first, -1)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, for a file."""
        return dict(vars(self))

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, npt.NDArray[Any]], d: int, size: tuple[int, ...]
    ) -> "Clauses":
        """Make some of what :attr:`arrays` returned, or raise InvalidFileError.

        ``size`` is (A, 1) or (p, 1 + d), of what a cell of the rule does.
        """
        sizes = {"d": d, "n": size[0], "m": size[1]}
        check(arrays, SCHEMA, sizes)
        clauses = cls(**arrays)
        ends, outputs = clauses.ends, clauses.outputs
        rise = (np.diff(ends, prepend=0) >= 0).all()
        require(rise and (ends[-1:] == sizes["rows"]).all(), f"ends is {ends.tolist()}")
        told = len(ends) == sizes["bans"] + sizes["says"] and (len(ends) or not sizes["rows"])
        require(told, f"ends has {len(ends)} clauses: {sizes['bans']} forbid, {sizes['says']} say")
        check_outputs(outputs, 1 + d)
        require(size[1] == 1 or sizes["bans"] == 0, "forbidden is of discrete actions alone")
        return clauses


def check_outputs(outputs: FloatArray, width: int) -> None:
    """Raise InvalidFileError unless cells, or clauses, do what can be done; width is 1 + d."""
    require(outputs.shape[1] >= 1, f"outputs has shape {outputs.shape}: nothing is done")
    if outputs.shape[2] == 1:
        numbers = outputs[:, :, 0]
        one_hot = np.isin(numbers, (0.0, 1.0)).all() and (numbers.sum(axis=1) == 1.0).all()
        require(one_hot, "outputs of discrete actions must be a one among zeros")
    else:
        require(outputs.shape[2] == width, f"outputs has {outputs.shape[2]} columns, not {width}")


def decisions(
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: npt.NDArray[Any]
) -> IntArray:
    """Return which cell of a rule (from 0), or clause (from K) decides at points, shape (n,).

    Where no cell is left it is the first action that is not forbidden: A of them follow the C - F
    clauses that say something.
    """
    found = scores[:, 0] + np.asarray(points) @ scores[:, 1:].T
    if clauses is None:
        return np.asarray(found.argmax(axis=1))
    barred, said = clauses.at(points)
    if len(clauses.forbidden):
        own = outputs[:, :, 0].argmax(axis=1)
        found = np.where(barred[:, own], -np.inf, found)
    cells = found.argmax(axis=1)
    last = len(scores) + len(clauses.outputs) + (~barred).argmax(axis=1)
    cells = np.where(found.max(axis=1) == -np.inf, last, cells)
    return np.asarray(np.where(said >= 0, len(scores) + said, cells))


def done_at(
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: npt.NDArray[Any]
) -> FloatArray:
    """Return what a rule within clauses does at points: rows of outputs, shape (n, ...)."""
    rows = decisions(scores, outputs, clauses, points)
    if clauses is None:
        return np.asarray(outputs[rows])
    last = np.eye(outputs.shape[1])[:, :, None] if outputs.shape[2] == 1 else outputs[:0]
    return np.asarray(np.concatenate([outputs, clauses.outputs, last])[rows])


def completed(clauses: Clauses, outputs: FloatArray) -> Clauses:
    """Return clauses that also say what is done where all cells of a rule are forbidden.

    Raises ValueError if all actions are forbidden somewhere.
    """
    n_actions = outputs.shape[1]
    if len(clauses.forbidden) == 0:
        return clauses
    for rows in _together(clauses, range(n_actions)):
        where = point_in(rows)
        assert where is not None
        raise ValueError(
            f"every action is forbidden at {where.round(4).tolist()}: one must be left"
        )
    own = np.unique(outputs[:, :, 0].argmax(axis=1)).tolist()
    others = [a for a in range(n_actions) if a not in own]
    more = [
        (rows, np.eye(n_actions)[:, a : a + 1], False)
        for rows in _together(clauses, own)
        for a in others
    ]
    return Clauses.of(clauses.forbids, [*clauses.says, *more], outputs) if more else clauses


def _together(clauses: Clauses, actions: Any) -> list[FloatArray]:
    """Return rows that say where some actions are all forbidden, if that is anywhere."""
    each = [[rows for rows, b in clauses.forbids if b == a] for a in actions]
    joined = [np.concatenate(some) for some in product(*each)]
    return [rows for rows in joined if point_in(rows) is not None]


class Editor:
    """Edits a rule, which stays as it is.

    Forbidding comes first: what is forbidden is not done, whatever else is said. Of clauses that
    say what is done the latest decides; but what was said before a lock is not changed by what is
    said after it. Methods raise ValueError for cells, components or actions that do not exist,
    cells that are locked, and numbers that are not finite.

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
        policy: "RulePolicy",
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
        """Lock a cell: where its score is greatest now, what it does stays, while others change."""
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
        """
        first = max((k + 1 for k, one in enumerate(self._says) if one[2]), default=0)
        self._says.insert(first, (self._rows(condition), self._output(do), False))
        return self

    def merge(self, cell: int, other: int) -> Self:
        """Merge two cells: where the other one decides, too, what the first one does is done."""
        k, j = self._cell("cell", cell), self._open("other", other)
        self._outputs[j] = self._outputs[k]
        return self

    def set(self, cell: int, coefficients: Mapping[str | int, float]) -> Self:
        """Set finite coefficients of a cell's score.

        They are slopes by the names or numbers of components; ``"offset"`` is the offset.
        """
        k = self._open("cell", cell)
        for name, value in coefficients.items():
            if not np.isfinite(value):
                raise ValueError(f"coefficients[{name!r}] is {value!r}: it must be finite")
            at = 0 if name == "offset" else 1 + component_number(name, self._calls)
            self._scores[k, at] = value
        return self

    def done(self) -> "RulePolicy":
        """Return the edited policy; raise ValueError if all actions are forbidden somewhere."""
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


def within(rule: "RulePolicy", clauses: Clauses) -> "RulePolicy":
    """Return a rule within clauses; raise ValueError if all actions are forbidden somewhere."""
    full = completed(clauses, rule.outputs)
    own = rule.codevectors[: len(rule.scores)]
    middle = own.mean(axis=0)
    places = [own]
    for rows, _, _ in full.says:
        holds = (rows[:, 0] + rows[:, 1:] @ middle > 0.0).all()
        inside = None if holds else point_in(rows)
        places.append(middle[None] if inside is None else inside[None])
    return replace(rule, clauses=full, codevectors=np.concatenate(places))
