"""Editing rules: clauses that forbid actions or fix them where conditions hold."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.environments.names import without_units
from oda_rl.agents.rules.proofs import point_in, split
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import check, members_of, real, require, whole

if TYPE_CHECKING:
    from oda_rl.agents.policies.rules import RulePolicy


def condition_rows(text: str, calls: Sequence[Sequence[str]]) -> FloatArray:
    """Parse a condition into rows, shape (m, 1 + d), that are positive where it holds.

    A condition is comparisons of sums by > or <, joined by "and"; components are ``x[2]``, or any
    of their names in ``calls``. Raises ValueError if the text cannot be parsed, or does not depend
    on the observation.
    """
    numbers = {name: j for names in calls for j, name in enumerate(names)}
    longest_first = "|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
    named = rf"(?<![\w\[])({longest_first})(?![\w\[\]])"  # names may hold any characters
    code = re.sub(named, lambda name: f" x[{numbers[name[1]]}] ", text.replace("·", "*"))
    refused = ValueError(
        f"where is {text!r}: it must be comparisons by > or <, as in 'x[2] > .1'; for whole "
        "numbers, 'x[2] > 3.5' means at least 4"
    )
    try:
        body = ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        raise refused from None
    rows = []
    joined = isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And)
    for part in body.values if isinstance(body, ast.BoolOp) and joined else [body]:
        if not isinstance(part, ast.Compare):
            raise refused
        terms = [_sum(term, text, calls[0]) for term in (part.left, *part.comparators)]
        for left, relation, right in zip(terms, part.ops, terms[1:], strict=False):
            if not isinstance(relation, ast.Gt | ast.Lt):
                raise refused
            row = left - right if isinstance(relation, ast.Gt) else right - left
            if not row[1:].any():
                raise ValueError(f"where is {text!r}: it must depend on the observation")
            rows.append(row)
    return np.array(rows)


def _sum(node: ast.expr, text: str, names: Sequence[str]) -> FloatArray:
    """Return a sum's offset and slopes, shape (1 + d,)."""
    units = np.eye(1 + len(names))
    match node:
        case ast.Constant(value=int() | float() as value) if abs(value) <= LARGEST:
            return np.asarray(value * units[0])
        case ast.Subscript(value=ast.Name("x" | "observation"), slice=ast.Constant(int() as j)):
            if j < len(names):
                return np.asarray(units[1 + j])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return 0.0 - _sum(operand, text, names)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            first, second = _sum(left, text, names), _sum(right, text, names)
            if isinstance(op, ast.Add):
                return first + second
            if isinstance(op, ast.Sub):
                return first - second
            if not first[1:].any() or not second[1:].any():  # a number times a sum
                return np.asarray(first[0] * second if not first[1:].any() else second[0] * first)
    raise ValueError(
        f"where is {text!r}, with {ast.unparse(node)!r}: it must name one of {list(names)}, or "
        f"x[0] to x[{len(names) - 1}], in sums as '6*x[2] + x[3]'"
    )


@dataclass(frozen=True, eq=False)
class Clauses:
    """C clauses: the first F forbid an action where they hold, the others fix it."""

    conditions: Annotated[FloatArray, real("rows, 1+d")]  # of all clauses, offsets and slopes
    ends: Annotated[IntArray, whole("clauses", "[0, rows]")]  # cumulative number of rows
    forbidden: Annotated[IntArray, whole("bans", "[0, n)")]  # actions that the first ones forbid
    outputs: Annotated[FloatArray, real("says, n, m")]
    """Outputs of the other clauses, as of :class:`~oda_rl.agents.policies.rules.RulePolicy`, shape
    (C - F, A, 1) or (C - F, p, 1 + d)."""
    locks: Annotated[IntArray, whole("says", "[0, 1]")]  # 1 for the output of a locked cell

    @classmethod
    def of(
        cls,
        forbids: list[tuple[FloatArray, int]],
        says: list[tuple[FloatArray, FloatArray, bool]],
        like: FloatArray,
    ) -> "Clauses":
        """Combine clauses: (rows, action) and (rows, output, whether it is locked).

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
        """Clauses that forbid: (rows, action)."""
        return list(zip(self.rows, self.forbidden.tolist(), strict=False))

    @property
    def says(self) -> list[tuple[FloatArray, FloatArray, bool]]:
        """Clauses that fix the output: (rows, output, whether it is locked)."""
        later = self.rows[len(self.forbidden) :]
        return list(zip(later, self.outputs, self.locks.astype(bool).tolist(), strict=True))

    @property
    def actions(self) -> IntArray:
        """Discrete actions that the other clauses fix, shape (C - F,)."""
        return np.asarray(self.outputs[:, :, 0].argmax(axis=1), dtype=np.int64)

    def at(self, points: Array) -> tuple[BoolArray, IntArray]:
        """Return which actions are forbidden at n points, shape (n, A), and which clause decides.

        Shape (n,); counted from the first that fixes the output, -1 where none does.
        """
        above = self.conditions[:, 0] + points @ self.conditions[:, 1:].T > 0.0
        parts = np.split(above, self.ends[:-1], axis=1)
        holding = np.column_stack([part.all(axis=1) for part in parts])
        n, count = len(self.forbidden), self.outputs.shape[1]
        barred = holding[:, :n] @ (self.forbidden[:, None] == np.arange(count))
        says = holding[:, n:]
        if says.shape[1] == 0:
            return barred, np.full(len(points), -1)
        if self.outputs.shape[2] == 1:
            says = says & ~barred[:, self.actions]
        return barred, np.where(says.any(axis=1), says.argmax(axis=1), -1)

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays for a file."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], d: int, size: tuple[int, ...]) -> "Clauses":
        """Restore clauses, with outputs of the shape ``size``, or raise InvalidFileError."""
        sizes = {"d": d, "n": size[0], "m": size[1]}
        check(arrays, members_of(cls), sizes)
        clauses = cls(**arrays)
        ends, outputs = clauses.ends, clauses.outputs
        rise = (np.diff(ends, prepend=0) >= 0).all()
        require(rise and (ends[-1:] == sizes["rows"]).all(), f"ends is {ends.tolist()}")
        right = len(ends) == sizes["bans"] + sizes["says"] and (len(ends) or not sizes["rows"])
        require(right, f"ends has {len(ends)} clauses: {sizes['bans']} forbid, {sizes['says']} say")
        check_outputs(outputs, 1 + d)
        require(size[1] == 1 or sizes["bans"] == 0, "forbidden is of discrete actions alone")
        return clauses


def check_outputs(outputs: FloatArray, width: int) -> None:
    """Raise InvalidFileError unless outputs are valid actions; width is 1 + d."""
    require(outputs.shape[1] >= 1, f"outputs has shape {outputs.shape}: there is no action")
    if outputs.shape[2] == 1:
        numbers = outputs[:, :, 0]
        one_hot = np.isin(numbers, (0.0, 1.0)).all() and (numbers.sum(axis=1) == 1.0).all()
        require(one_hot, "outputs of discrete actions must be a one among zeros")
    else:
        require(outputs.shape[2] == width, f"outputs has {outputs.shape[2]} columns, not {width}")


def decisions(
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: Array
) -> IntArray:
    """Return which cell of a rule (from 0) or clause (from K) decides at points, shape (n,).

    Where all cells are forbidden it is the first allowed action, counted from K + C - F.
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
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: Array
) -> FloatArray:
    """Return the outputs of a rule within clauses at points, shape (n, ...)."""
    rows = decisions(scores, outputs, clauses, points)
    if clauses is None:
        return np.asarray(outputs[rows])
    last = np.eye(outputs.shape[1])[:, :, None] if outputs.shape[2] == 1 else outputs[:0]
    return np.asarray(np.concatenate([outputs, clauses.outputs, last])[rows])


def _all_forbidden(
    clauses: Clauses, actions: Iterable[int]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield rows that hold where all of some actions are forbidden, and a point there."""
    each = [[rows for rows, b in clauses.forbids if b == a] for a in actions]
    for some in product(*each):
        rows = np.concatenate(some)
        where = point_in(rows)
        if where is not None:
            yield rows, where


class Editor:
    """Edits a copy of a rule. Each method returns the editor, :meth:`done` the edited policy.

    A forbidden action is never taken. Of clauses that fix an action the latest decides, except that
    a later clause does not override a lock. Methods raise ValueError for unknown components or
    actions, and cells that decide nowhere. ``calls`` name the components in one or more ways;
    ``bounds``, shape (2, p), are those of continuous actions.
    """

    def __init__(
        self,
        policy: "RulePolicy",
        calls: Sequence[Sequence[str]],
        action_names: Sequence[str],
        bounds: FloatArray,
    ) -> None:
        self._policy, self._calls, self._action_names = policy, calls, action_names
        self._bounds, edited = bounds, policy.clauses
        self._forbids = [] if edited is None else edited.forbids
        self._says = [] if edited is None else edited.says

    def lock(self, cell: int) -> Self:
        """Lock a cell: its output stays where its score is greatest now."""
        scores, outputs = self._policy.scores, self._policy.outputs
        if int(cell) != cell or not 0 <= cell < len(scores):
            raise ValueError(f"cell is {cell!r}: it must be an integer from 0 to {len(scores) - 1}")
        clause, k = (_cell_rows(scores, int(cell)), outputs[cell].copy()), len(self._says)
        error = f"cell is {cell}, which decides nowhere: it must decide where no earlier edit does"
        return self._insert(k, [clause], error, locked=True)

    def forbid(self, action: str | int, where: str | None = None) -> Self:
        """Forbid a discrete action, everywhere or where a condition holds.

        Parameters
        ----------
        action : str or int
            Its name, or its number from 0.
        where : str, optional
            As in ``"pole angle > 0.1 and x[0] < 2"``.
        """
        if self._policy.continuous:
            raise ValueError(
                f"forbid({action!r}): actions are continuous; fix the action with where(...)"
            )
        self._forbids.append((self._rows(where), self._action(action)))
        return self

    def where(self, condition: str, do: Any) -> Self:
        """Fix the action where a condition holds: "where x[2] > 0.1: push right".

        Parameters
        ----------
        condition : str
            Comparisons of sums of components by > or <, joined by "and".
        do : str or int, or for continuous actions a number or a sequence of p
            The action; or a dict with values of some components of a continuous one, by their names
            or numbers: the others stay as the rule has them.
        """
        first = max((k + 1 for k, one in enumerate(self._says) if one[2]), default=0)
        rows, scores, outputs = self._rows(condition), self._policy.scores, self._policy.outputs
        if not self._policy.continuous:
            clauses = [(rows, np.eye(outputs.shape[1])[:, self._action(do)][:, None])]
        else:
            columns, units = self._units(do)
            clauses = [(rows, np.zeros_like(outputs[0]))]
            if len(columns) < outputs.shape[1]:  # the others stay as each clause and cell has them
                later = [one[:2] for one in self._says[first:]]
                later += [(_cell_rows(scores, k), one) for k, one in enumerate(outputs)]
                clauses = [(np.concatenate([rows, own]), one.copy()) for own, one in later]
            for _, output in clauses:
                output[columns], output[columns, 0] = 0.0, units
        error = f"where is {condition!r}: it must hold where no earlier edit locks or forbids this"
        return self._insert(first, clauses, error)

    def _insert(
        self, k: int, clauses: list[tuple[FloatArray, FloatArray]], error: str, locked: bool = False
    ) -> Self:
        """Insert clauses that fix the output, except those that decide nowhere; or fail."""
        before, discrete = [one[:2] for one in self._says[:k]], not self._policy.continuous
        space = np.outer([-np.inf, np.inf], np.ones(self._policy.scores.shape[1] - 1))
        none, inserted = (self._policy.scores[:0], self._policy.actions[:0]), False
        for rows, output in reversed(clauses):
            says = [(a, int(b[:, 0].argmax()) * discrete) for a, b in [*before, (rows, output)]]
            if any(one.cell == k for one in split(*none, self._forbids, says, space)):
                self._says.insert(k, (rows, output, locked))
                inserted = True
        if not inserted:
            raise ValueError(error)
        return self

    def done(self) -> "RulePolicy":
        """Return the edited policy; raise ValueError if all actions are forbidden somewhere."""
        if not self._forbids and not self._says:
            return self._policy
        return within(self._policy, Clauses.of(self._forbids, self._says, self._policy.outputs))

    def _rows(self, where: str | None) -> FloatArray:
        if where is None:
            return np.zeros((0, self._policy.scores.shape[1]))
        rows = condition_rows(where, self._calls)
        if point_in(rows) is None:
            raise ValueError(f"where is {where!r}, which holds nowhere: it must hold somewhere")
        return rows

    def _action(self, action: str | int) -> int:
        names = list(self._action_names)
        for known in (names, list(without_units(names))):
            if action in known:
                return known.index(str(action))
        if isinstance(action, str) or int(action) != action or not 0 <= action < len(names):
            raise ValueError(
                f"action is {action!r}: it must be one of {names}, or a number from 0 to "
                f"{len(names) - 1}"
            )
        return int(action)

    def _units(self, do: Any) -> tuple[list[int], FloatArray]:
        """Return which components of an action are given, and their values in units of the box."""
        given = do if isinstance(do, Mapping) else dict(enumerate(np.atleast_1d(do)))
        columns = [self._action(name) for name in given]
        values = np.array([one if isinstance(one, Real) else np.nan for one in given.values()])
        low, high = self._bounds[:, columns]
        n = len(self._bounds[0])
        complete = len(columns) > 0 if isinstance(do, Mapping) else len(columns) == n
        if not complete or not ((values >= low) & (values <= high)).all():
            ends = " to ".join(str(end.tolist()) for end in self._bounds)
            raise ValueError(
                f"do is {do!r}: it must be {n} numbers, from {ends}, or a dict with numbers of "
                "some components"
            )
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        units = np.zeros(len(columns))  # half is 0 where there is only one action
        return columns, np.divide(values - middle, half, out=units, where=half > 0.0)


def _cell_rows(scores: FloatArray, cell: int) -> FloatArray:
    """Return rows that are positive where a cell's score is greatest."""
    rows = scores[cell] - scores
    kept = rows.any(axis=1) | (np.arange(len(rows)) < cell)  # of equal ones the first
    return np.asarray(rows[kept])


def within(rule: "RulePolicy", clauses: Clauses) -> "RulePolicy":
    """Return a rule within clauses; raise ValueError if all actions are forbidden somewhere.

    Where all actions of its cells are forbidden, clauses fix another one.
    """
    outputs, says = rule.outputs, clauses.says
    if len(clauses.forbidden):
        n_actions, used = rule.n_actions, np.unique(outputs[:, :, 0].argmax(axis=1)).tolist()
        for _, where in _all_forbidden(clauses, range(n_actions)):
            point = ", ".join(f"{value:.6g}" for value in where)
            raise ValueError(f"every action is forbidden at [{point}]: one must be left")
        says += [
            (rows, np.eye(n_actions)[:, a : a + 1], False)
            for rows, _ in _all_forbidden(clauses, used)
            for a in range(n_actions)
            if a not in used
        ]
    codevectors = list(rule.codevectors[: len(rule.scores)])
    middle = np.mean(codevectors, axis=0)
    for rows, _, _ in says:
        holds = (rows[:, 0] + rows[:, 1:] @ middle > 0.0).all()
        inside = None if holds else point_in(rows)
        codevectors.append(middle if inside is None else inside)
    full = Clauses.of(clauses.forbids, says, outputs)
    return replace(rule, clauses=full, codevectors=np.array(codevectors))
