"""The tables of exported policies.

An :class:`Export` has everything in double precision, as Python computes with it.
:meth:`Export.tables` leaves out what cancels in a decision:

- Scores are only compared and blended by their differences. So points are measured from the centre
  of the latest observations of training, the row of the cell that lies there is subtracted from all
  rows, and scores are in units of the width: rounding errors are small where decisions are made.
- Where no two cells have the same action, one of them has the score 0, and the cells' numbers are
  the actions, if these are all.
- Where the nearest cell decides, its greedy action is enough. A blended policy needs the advantages
  of actions over action 0; offsets and slopes, which the actions share, cancel.

Continuous actions are numbered by their codevectors, in the action's units; or they are affine
functions of the observation, and their cells are numbered. Numbered states need no cells: their
actions are a table. Where observations are whole numbers, scores of several cells are often equal,
and less than double precision rounds each of them in its own way: scores that differ by less than
``tie`` count as equal, and the first of the cells is the nearest.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.spaces import ActionBox, Interface
from oda_rl.agents.policies.contract import TIE, CellTables, Extent, Policy, Trained
from oda_rl.agents.policies.explaining import choice_names
from oda_rl.agents.policies.joint import JointPolicy
from oda_rl.agents.policies.rules import in_box
from oda_rl.agents.rules.editing import Clauses
from oda_rl.diagram import ordered, rounding

if TYPE_CHECKING:
    from oda_rl.agents.certifying.certificates import Certificate

_LARGEST_INT = 2**31 - 1
_INT16 = 32_767
_TINY = 1e-30  # of what matters in a row, so that exponents have 8 bits
_MAX_SHIFT = 12  # of a row, so that sums of thousands of products stay within 64 bits
_STEPS = 2**18  # of an observation's component, from the centre to the farthest value seen
CLIP = 2**22
"""Components of an observation are clipped at so many steps; float32 holds all integers to that."""
_MAX_STATES = 2**24  # that float32 tells apart
_WHOLE = 1e-6  # by which codevectors that are whole numbers may be off
_TIE = 4.0  # times the largest error of a score where scores are equal
_SPARED = 10  # one of so many states is enough for a median
_BLOCK = 1000  # states whose scores are worked out at once


class Visited(NamedTuple):
    """States of the training."""

    points: FloatArray
    """Observations, shape (n, d)."""
    choices: IntArray
    """The agent's choices there, shape (n,)."""
    tied: FloatArray
    """States in which, or near which, scores of cells are equal, shape (m, d)."""
    equal: float
    """Values of a blended policy's actions that differ by less are equal; else 0."""


class Numbered(NamedTuple):
    """Actions in n numbered states."""

    first: int
    """The least number."""
    actions: npt.NDArray[Any]
    """Actions from 0, shape (n,), or continuous ones, shape (n, p)."""


@dataclass(frozen=True)
class Export:
    """A policy as arrays in double precision, and the meaning of its numbers."""

    cells: CellTables
    codevectors: FloatArray
    """In the observation's units, shape (K, d)."""
    extent: Extent
    env_id: str | None
    observation_shape: tuple[int, ...]
    names: list[str]
    action_names: list[str]
    """Names of the actions, or of the action codevectors."""
    first_action: int
    """The environment's number of action 0."""
    box: ActionBox | None = None
    """Bounds of continuous actions."""
    parts: Sequence[str] = ()
    """Names of their components."""
    certificate: "Certificate | None" = None
    numbered: Numbered | None = None
    """The policy as a table, if states are numbered."""
    visited: Visited | None = None
    """States of the training, if the agent remembers any."""
    joint: JointPolicy | None = None
    """The policy, if its cells are of states and actions; ``cells`` do not decide then."""

    @property
    def blended(self) -> bool:
        """Whether the nearest cells decide together."""
        return self.cells.common is not None

    @property
    def equal(self) -> float:
        """Values of actions that differ by less are equal."""
        return 0.0 if self.visited is None else self.visited.equal

    @property
    def actions(self) -> FloatArray | None:
        """The action codevectors, not clipped, shape (K, A, p), if there are any."""
        if self.cells.parts is None or self.box is None:
            return None
        low, high = self.box.bounds
        return np.asarray(0.5 * (low + high) + 0.5 * (high - low) * self.cells.parts)

    @property
    def affine(self) -> FloatArray | None:
        """Affine actions of cells, not clipped, functions of the observation less the origin.

        Shape (K, p, 1 + d); None if actions are not affine.
        """
        if self.cells.affine is None or self.box is None:
            return None
        return in_box(self.cells.affine, self.box.low, self.box.high)

    def tables(self) -> "Tables":
        """Leave out what decisions do not need."""
        cells, (centre, reach), affine = self.cells, self.extent, self.affine
        shift, edited = cells.origin - centre, cells.clauses
        actions = np.asarray(cells.values.argmax(axis=1))
        tied = np.empty((0, len(centre))) if self.visited is None else self.visited.tied - centre
        in_order = self.blended or edited is not None or len(tied) > 0
        apart = not in_order and len(np.unique(actions)) == len(actions)
        order = actions.argsort() if apart else np.arange(len(cells.diagram))
        diagram = _moved(cells.diagram, shift)
        row = order[0] if apart else diagram[:, 0].argmin()
        scores = ((diagram - diagram[row]) / cells.width)[order]
        used = np.asarray(scores[:, 1:].any(axis=0))
        if affine is not None:
            affine = _moved(affine, shift)
            used |= affine[:, :, 1:].any(axis=(0, 1))
        if edited is not None:
            edited = replace(edited, conditions=_moved(edited.conditions, shift))
            used |= edited.conditions[:, 1:].any(axis=0)
        # Far from 0, a + <g, x> would be a small difference of large numbers.
        near = bool((np.abs(centre) <= reach)[used].all())
        if self.blended:
            advantages = _advantages(cells.values)
            n = min(cells.n_nearest, len(diagram))
            return Tables(
                scores, centre, near, None, advantages, self.actions, tied=tied, n_nearest=n
            )
        numbered = affine is not None or (apart and (actions[order] == np.arange(len(order))).all())
        own = None if numbered else actions if edited is not None else actions[order]
        return Tables(
            scores, centre, near, own, None, affine=affine, apart=apart, clauses=edited, tied=tied
        )


@dataclass(frozen=True)
class Tables:
    """What decisions need, in double precision."""

    scores: FloatArray
    """The diagram less the row of the cell at the origin, in units of the width, (K, 1 + d)."""
    origin: FloatArray
    """Subtracted from observations, shape (d,)."""
    near: bool
    """Whether the origin is so near to 0 that it may be folded into the scores' offsets."""
    actions: npt.NDArray[np.int64] | None
    """Greedy action of each cell (from 0), shape (K,); None for a blended policy, and where that is
    the number of the cell."""
    advantages: FloatArray | None
    """Advantages of actions 1 ... A - 1 over action 0, shape (K, A - 1); None unless blended."""
    parts: FloatArray | None = None
    """Action codevectors, shape (K, A, p)."""
    affine: FloatArray | None = None
    """Offsets and slopes of each cell's continuous action, shape (K, p, 1 + d)."""
    apart: bool = False
    """Whether no two cells have the same action; then the scores of the first are 0."""
    clauses: Clauses | None = None
    """Beside the cells; their entries of ``actions`` and ``affine`` follow those of the cells."""
    tied: FloatArray | None = None
    """States less the origin where scores are equal, shape (m, d)."""
    n_nearest: int = 1
    """Number of cells that decide together."""

    def _tie(self, scores: Callable[[FloatArray], npt.NDArray[Any]], unit: float = 1.0) -> float:
        """Return up to which difference scores of lower precision, in a unit, count as equal."""
        if self.tied is None or len(self.tied) == 0:
            return 0.0
        exact = scores_of(self.scores, self.tied) / unit
        near = exact.argsort(axis=1)[:, : 1 + self.n_nearest]
        errors = scores(self.tied + self.origin) - exact
        return _TIE * float(np.ptp(np.take_along_axis(errors, near, axis=1), axis=1).max())

    def in_floats(self) -> "FloatTables":
        """Round to single precision; raise ValueError if something is beyond its range."""
        origin = None if self.near else single(self.origin)
        offsets = self.origin if origin is None else self.origin - origin.astype(np.float64)
        scores = single(_moved(self.scores, offsets))
        affine = None if self.affine is None else single(_moved(self.affine, offsets))
        edited = None
        if self.clauses is not None:
            edited = single(_moved(self.clauses.conditions, offsets))
        parts = single(self.parts)
        tables = FloatTables(scores, origin, single(self.advantages), parts, affine, edited)
        return replace(tables, tie=self._tie(tables.scores_at))

    def in_integers(self, reach: FloatArray) -> "IntegerTables":
        """Round to 16 bits, offsets to 32, with a scale for each column and a shift for each row.

        The largest slope of a column becomes 32,767, and steps of the observation's components are
        such that all products have the same unit; ``reach``, shape (d,), is the largest distance
        from the origin to be expected. Rows of smaller entries have smaller steps. Offsets have
        more bits because they alone count near the origin.
        """
        continuous = self.parts is not None or self.affine is not None
        if continuous or self.clauses is not None:
            what = "continuous actions" if continuous else "a rule with clauses"
            raise ValueError(
                f"fixed_point is True: it must be False for {what}, which are in single precision"
            )
        origin = single(self.origin)
        scores = _moved(self.scores, self.origin - origin.astype(np.float64))
        largest = np.abs(scores).max(axis=0)
        furthest = (largest * np.append(1.0, reach)).max()
        unit = furthest / (_INT16 * _STEPS) if furthest > 0.0 else 1.0
        scale = single(largest[1:] / (_INT16 * unit))
        steps = unit * scale.astype(np.float64)
        slopes = scores[:, 1:] / np.where(steps > 0.0, steps, 1.0)
        shifts = np.clip(_exponents(slopes), -_MAX_SHIFT, 0) + _MAX_SHIFT
        unit /= 2.0**_MAX_SHIFT
        one = max(math.ceil(largest[0] / (_LARGEST_INT * unit)), 1)
        advantages = single(self.advantages)
        exponents = None if advantages is None else _exponents(advantages)
        tables = IntegerTables(
            np.rint(scores[:, 0] / (unit * one)).astype(np.int32),
            _at_exponents(slopes, shifts - _MAX_SHIFT),
            shifts.astype(np.int8),
            one,
            unit,
            origin,
            scale,
            None if exponents is None else _at_exponents(advantages, exponents),
            None if exponents is None else exponents.astype(np.int8),
            n_nearest=self.n_nearest,
        )
        return replace(tables, tie=math.ceil(self._tie(tables.scores_at, unit)))


@dataclass(frozen=True)
class FloatTables:
    """What decisions need, in single precision."""

    scores: npt.NDArray[np.float32]
    origin: npt.NDArray[np.float32] | None
    """Subtracted from the observation; None if it is folded into the scores."""
    advantages: npt.NDArray[np.float32] | None
    parts: npt.NDArray[np.float32] | None
    affine: npt.NDArray[np.float32] | None
    conditions: npt.NDArray[np.float32] | None = None
    """Rows of clauses, shape (R, 1 + d)."""
    tie: float = 0.0
    """Scores that differ by less are equal; 0 where none seem to be."""

    def scores_at(self, observations: FloatArray) -> npt.NDArray[np.float32]:
        """Return the scores of observations, shape (n, d), as C works them out: shape (n, K)."""
        points = observations.astype(np.float32)
        return scores_of(self.scores, points if self.origin is None else points - self.origin)


@dataclass(frozen=True)
class IntegerTables:
    """What decisions need, in 16 bits, and offsets in 32.

    With ``x = round((observation - origin) * scale)``, the score of cell k is ``unit`` times
    ``offsets[k] * one + 2**shifts[k] * <slopes[k], x>``.
    """

    offsets: npt.NDArray[np.int32]
    slopes: npt.NDArray[np.int16]
    shifts: npt.NDArray[np.int8]
    one: int
    unit: float
    origin: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.int16] | None
    """To be multiplied by 2 to the power of the row's exponent."""
    exponents: npt.NDArray[np.int8] | None
    tie: int = 0
    """Scores that differ by less are equal; 0 where none seem to be."""
    n_nearest: int = 1
    """Number of cells that decide together."""

    def scores_at(self, observations: FloatArray) -> IntArray:
        """Return the scores of observations, shape (n, d), as C works them out: shape (n, K)."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = (observations.astype(np.float32) - self.origin) * self.scale
        steps = np.clip(steps, -CLIP, CLIP)
        x = np.trunc(steps + np.copysign(np.float32(0.5), steps)).astype(np.float64)
        sums = (x @ self.slopes.T.astype(np.float64)).astype(np.int64)  # below 2**53: exact
        offsets = self.offsets.astype(np.int64) * self.one
        return np.asarray((sums << self.shifts.astype(np.int64)) + offsets)

    def choices(self, observations: FloatArray, actions: IntArray | None, equal: float) -> IntArray:
        """Return the choices at observations, shape (n,), given the ``actions`` of cells.

        Values of actions that differ by less than ``equal`` are equal.
        """
        if len(observations) > _BLOCK:
            parts = np.split(observations, range(_BLOCK, len(observations), _BLOCK))
            return np.concatenate([self.choices(part, actions, equal) for part in parts])
        scores, rows = self.scores_at(observations), np.arange(len(observations))
        cells: list[IntArray] = []
        least: list[IntArray] = []
        for _ in range(self.n_nearest):
            bound = scores.min(axis=1) + self.tie
            cells.append((scores <= bound[:, None]).argmax(axis=1))
            score = scores[rows, cells[-1]]
            if least:
                score = np.where(score < least[-1] + self.tie, least[-1], score)
            least.append(score)
            scores[rows, cells[-1]] = np.iinfo(np.int64).max // 2
        if self.advantages is None or self.exponents is None:
            return np.asarray(cells[0] if actions is None else actions[cells[0]])
        advantages = np.zeros((len(rows), 1 + self.advantages.shape[1]), dtype=np.float32)
        for cell, score in zip(cells, least, strict=True):
            weight = np.exp((least[0] - score).astype(np.float32) * np.float32(self.unit))
            weight = np.ldexp(weight, self.exponents[cell])
            advantages[:, 1:] += weight[:, None] * self.advantages[cell]
        min_advantage = advantages.max(axis=1, keepdims=True) - np.float32(equal)
        return np.asarray((advantages >= min_advantage).argmax(axis=1))


def export_of(agent: Trained, certificate: "Certificate | None" = None) -> Export:
    """Return the policy of an agent for export.

    Raises ValueError if it is no agent, has learned nothing yet, has spaces that cannot be
    exported, or if the certificate is that of another policy.

    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> export = export_of(TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000))
    >>> export.blended, export.action_names
    (True, ['push left', 'push right'])
    """
    if not hasattr(agent, "policy"):
        raise ValueError(f"agent is {agent!r}: it must be an agent, which has a policy")
    policy, interface = agent.policy, agent.interface
    first, n = interface.first_action, interface.n_actions
    if not -_LARGEST_INT <= first <= _LARGEST_INT - n:
        raise ValueError(
            f"action_space is Discrete({n}, start={first}): its actions must be integers of 32 bits"
        )
    learned = policy.q_values.any() or policy.n_actions == 1  # of one, no value is needed
    if agent.scale_ is None or not learned:
        raise ValueError(
            f"agent has learned nothing yet in {agent.num_timesteps} steps: it must have been "
            "trained, with learn(total_timesteps) or 'oda-rl train', for longer"
        )
    if certificate is not None:
        ours, theirs = decisive(policy), certificate.policy
        same = ours.keys() == theirs.keys()
        if not (same and all(np.array_equal(ours[name], theirs[name]) for name in ours)):
            raise ValueError(
                f"certificate is one of another policy: {certificate.lines[0]}; certify this one"
            )
    cells, visited = policy.tables, _visited(agent, policy)
    if visited is not None and len(visited.tied):
        cells = cells._replace(diagram=ordered(cells.diagram))
    return Export(
        cells=cells,
        codevectors=policy.codevectors,
        extent=agent.extent,
        env_id=agent.env_id,
        observation_shape=interface.observation_shape,
        names=list(interface.names),
        action_names=list(choice_names(agent)),
        first_action=interface.first_action,
        box=interface.box,
        parts=() if interface.box is None else interface.action_names,
        certificate=certificate,
        numbered=_numbered(policy, interface),
        visited=visited,
        joint=policy if isinstance(policy, JointPolicy) else None,
    )


def _visited(agent: Trained, policy: Policy) -> Visited | None:
    """Return the states that an agent remembers; None if it remembers none."""
    points, cells = getattr(agent, "recent", None), policy.tables  # no agent of one's own need
    if points is None or len(points) == 0:
        return None
    equal = 0.0
    if cells.common is not None:
        greatest = policy.values(points[::_SPARED]).max(axis=1)
        equal = float(np.float32(TIE * np.median(np.abs(greatest))))  # which can be 0
    whole = np.abs(policy.codevectors - np.rint(policy.codevectors)).max() < _WHOLE
    tied = points if whole else points[_ties(cells, points)]
    return Visited(points, policy.choices(points), tied[:: 1 + len(tied) // _BLOCK], equal)


def _numbered(policy: Policy, interface: Interface) -> Numbered | None:
    native = interface.native
    if native is None or not isinstance(native.observation_space, spaces.Discrete):
        return None
    first, n = int(native.observation_space.start), int(native.observation_space.n)
    if not -_MAX_STATES <= first <= _MAX_STATES - n:
        raise ValueError(
            f"observation_space is Discrete({n}, start={first}): exported policies take "
            f"observations in single precision, which tells numbers up to {_MAX_STATES:,} apart"
        )
    acts = policy.act(first + np.arange(n, dtype=np.float64)[:, None])
    box = interface.box
    return Numbered(first, acts if box is None else box.actions(acts).reshape(n, -1))


def _ties(cells: CellTables, points: FloatArray) -> npt.NDArray[np.bool_]:
    """Return at which points, shape (n, d), two of the nearest cells have equal scores."""
    near = 1 + (1 if cells.common is None else cells.n_nearest)
    equal = rounding(cells.diagram) * (1 + len(cells.diagram))  # ordered ones differ by this much
    found = np.zeros(len(points), dtype=np.bool_)
    for i in range(0, len(points), _BLOCK):
        scores = scores_of(cells.diagram, points[i : i + _BLOCK] - cells.origin)
        least = np.sort(scores, axis=1)[:, :near]
        found[i : i + _BLOCK] = (np.diff(least, axis=1) <= equal).any(axis=1)
    return found


def scores_of(diagram: npt.NDArray[Any], points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the scores, shape (n, K), of points, (n, d), in a diagram, (K, 1 + d)."""
    return np.asarray(diagram[:, 0] + points @ diagram[:, 1:].T)


def decisive(policy: Policy) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a policy that decide."""
    return {name: array for name, array in policy.arrays.items() if name != "codevectors"}


def _moved(rows: FloatArray, shift: FloatArray) -> FloatArray:
    """Return offsets and slopes, shape (..., 1 + d), for points increased by ``shift``."""
    moved = rows.copy()
    moved[..., 0] = rows[..., 0] - rows[..., 1:] @ shift
    return moved


def _advantages(values: FloatArray) -> FloatArray:
    """Return advantages over action 0, exactly equal where Python takes values for equal."""
    tolerance = TIE * np.abs(values).max(axis=1)
    snapped = values.copy()
    for a in range(1, values.shape[1]):
        for b in range(a):
            equal = np.abs(snapped[:, a] - snapped[:, b]) <= tolerance
            snapped[equal, a] = snapped[equal, b]
    return snapped[:, 1:] - snapped[:, :1]


def _exponents(table: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return for each row the exponent of 2 in units of which it fits into 16 bits."""
    largest = np.abs(table).max(axis=1, initial=0.0).astype(np.float64)
    return np.asarray(np.ceil(np.log2(np.maximum(largest, _TINY) / _INT16)), dtype=np.int64)


def _at_exponents(
    table: npt.NDArray[Any], exponents: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    """Round rows to multiples of 2**exponent."""
    integers = np.rint(np.ldexp(table.astype(np.float64), -exponents[:, None]))
    return np.clip(integers, -_INT16, _INT16).astype(np.int16)


def single(array: Any) -> Any:
    """Round an array to single precision; None stays None."""
    if array is None:
        return None
    with np.errstate(over="ignore"):
        rounded = np.asarray(array).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(
            f"agent has a table with numbers up to {np.abs(array).max():g}: an exported policy "
            "computes in single precision, up to 3e38; scale observations or rewards"
        )
    return rounded
