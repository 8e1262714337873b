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
functions of the observation, and their cells are numbered. Discrete states need no cells: their
actions are a table. Where observations are whole numbers, scores of several cells are often equal:
they stay in double precision, in an order in which the first of these cells is the nearest.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.environments.spaces import ActionBox, Interface
from oda_rl.agents.policies.contract import TIE, CellTables, Extent, Policy, Trained
from oda_rl.agents.policies.explaining import choice_names
from oda_rl.agents.policies.joint import JointPolicy
from oda_rl.agents.policies.rules import in_box
from oda_rl.diagram import ordered

_LARGEST_INT = 2**31 - 1
_INT16 = 32_767
_TINY = 1e-30  # of what matters in a row, so that exponents have 8 bits
_MAX_SHIFT = 12  # of a row, so that sums of thousands of products stay within 64 bits
_STEPS = 2**18  # of an observation's component, from the centre to the farthest value seen
CLIP = 2**22  # steps at which components are clipped; float32 holds all integers up to that
_MAX_STATES = 2**24  # that float32 tells apart
_BLOCK = 1000  # states whose scores are worked out at once


class Numbered(NamedTuple):
    """Actions in n discrete states."""

    first: int  # the smallest number
    actions: Array  # actions from 0, shape (n,), or continuous ones, shape (n, p)


@dataclass(frozen=True)
class Export:
    """A policy as arrays in double precision, and the meaning of its numbers."""

    cells: CellTables
    codevectors: FloatArray  # in the observation's units, shape (K, d)
    extent: Extent
    interface: Interface
    action_names: list[str]  # names of the actions, or of the action codevectors
    env_id: str | None = None
    numbered: Numbered | None = None  # the policy as a table, if states are discrete
    recent: FloatArray | None = None  # latest states of training, shape (n, d)
    choices: IntArray | None = None  # the agent's choices in these states, shape (n,)
    whole: bool = False  # whether states are whole numbers, so that cells can be equally near
    tie: float = 0.0  # values closer than that are equal; see Tables
    joint: JointPolicy | None = None  # decides, if cells are of states and actions

    @property
    def box(self) -> ActionBox | None:
        """Bounds of continuous actions."""
        return self.interface.box

    @property
    def limits(self) -> Array:
        """Bounds of continuous actions in single precision, rounded into the box, shape (2, p)."""
        assert self.box is not None
        inner = self.box.bounds.astype(np.float32)
        outside = (inner - self.box.bounds) * [[-1.0], [1.0]] > 0.0
        return np.where(outside, np.nextafter(inner, inner[::-1]), inner)

    @property
    def actions(self) -> FloatArray | None:
        """The action codevectors, not clipped, shape (K, A, p), if there are any."""
        if self.cells.parts is None or self.box is None:
            return None
        low, high = self.box.bounds
        return np.asarray(0.5 * (low + high) + 0.5 * (high - low) * self.cells.parts)

    @property
    def affine(self) -> FloatArray | None:
        """Affine actions of cells, (K, p, 1 + d), not clipped, of observations less the origin."""
        affine, box = self.cells.affine, self.box
        return None if box is None or affine is None else in_box(affine, *box.bounds)

    def tables(self) -> "Tables":
        """Leave out what decisions do not need."""
        cells, (centre, reach), affine = self.cells, self.extent, self.affine
        if self.whole:  # sums of whole numbers have no rounding errors
            centre = np.zeros(len(centre))
        shift, clauses = cells.origin - centre, cells.clauses
        actions = np.asarray(cells.values.argmax(axis=1))
        diagram = _moved(cells.diagram, shift)
        choosing = self.box is not None or cells.values.shape[1] > 1
        blended = cells.common is not None and choosing
        if cells.common is not None and not blended:  # all cells have the only action
            diagram, actions = diagram[:1], actions[:1]
        in_order = blended or clauses is not None or self.whole
        apart = not in_order and len(np.unique(actions)) == len(actions)
        order = actions.argsort() if apart else np.arange(len(diagram))
        row = order[0] if apart else diagram[:, 0].argmin()
        scores = ordered(diagram) if self.whole else (diagram - diagram[row])[order]
        scores = scores / cells.width
        used = np.asarray(scores[:, 1:].reshape(len(scores), -1, len(centre)).any(axis=(0, 1)))
        if affine is not None:
            affine = _moved(affine, shift)
            used |= affine[:, :, 1:].any(axis=(0, 1))
        # Far from 0, a + <g, x> would be a small difference of large numbers.
        near = bool((np.abs(centre) <= reach)[used].all())
        found = Tables(scores, centre, near, self.whole, apart, affine=affine)
        if blended:
            n, advantages = min(cells.n_nearest, len(diagram)), _advantages(cells.values)
            found = found._replace(advantages=advantages, parts=self.actions)
            return found._replace(n_nearest=n, tie=self.tie)
        if affine is None and not (apart and (actions[order] == np.arange(len(order))).all()):
            found = found._replace(actions=actions[order] if clauses is None else actions)
        return found if clauses is None else found._replace(conditions=clauses.conditions)


class Tables(NamedTuple):
    """Tables that decisions need, in double precision."""

    scores: FloatArray  # of the diagram, less the row at the origin, in widths, (K, 1 + d)
    origin: FloatArray  # subtracted from observations, shape (d,)
    near: bool = True  # whether the origin is so near to 0 that it can be folded into offsets
    whole: bool = False  # whether scores stay in double precision
    apart: bool = False  # whether actions of cells differ; scores of the first are 0
    actions: IntArray | None = None  # of cells, then of clauses, unless numbered so
    advantages: FloatArray | None = None  # over action 0, shape (K, A - 1)
    parts: FloatArray | None = None  # action codevectors, shape (K, A, p)
    affine: FloatArray | None = None  # continuous actions, (K, p, 1 + d)
    conditions: FloatArray | None = None  # rows of clauses, of observations, shape (R, 1 + d)
    n_nearest: int = 1  # number of cells that decide together
    tie: float = 0.0
    """Advantages closer than that are equal. Python's tolerance is relative to the greatest value,
    which the tables cannot tell; this is relative to the median of cells' largest values."""

    @property
    def curved(self) -> bool:
        """Whether scores are of squares, too: the diagram has the shape (K, 1 + 2 d)."""
        return bool(self.scores.shape[1] > 1 + len(self.origin))

    def in_floats(self) -> dict[str, Array]:
        """Round to single precision; raise ValueError if something is beyond its range.

        The ``origin`` is left out if it is folded into offsets.
        """
        origin = None if self.near else single(self.origin)
        offsets = self.origin if origin is None else self.origin - origin.astype(np.float64)
        scores = _moved(self.scores, offsets)
        arrays = {
            "origin": origin,
            "diagram": scores if self.whole else single(scores),
            "codevectors": single(self.parts),
            "affine": None if self.affine is None else single(_moved(self.affine, offsets)),
            "conditions": self.conditions,  # not rounded: a forbidden action is never taken
            "advantages": single(self.advantages),
        }
        return {name: array for name, array in arrays.items() if array is not None}

    def in_integers(self, reach: FloatArray) -> "IntegerTables":
        """Round to 16 bits, offsets to 32, with a scale for each column and a shift for each row.

        The largest slope of a column becomes 32,767, and steps of the observation's components are
        such that all products have the same unit; ``reach``, shape (d,), is the largest distance
        from the origin to be expected. Rows of smaller entries have smaller steps. Offsets have
        more bits because they alone count near the origin.
        """
        continuous = self.parts is not None or self.affine is not None
        if continuous or self.conditions is not None or self.curved:
            what = "cells of a mixture" if self.curved else "a rule with clauses"
            what = "continuous actions" if continuous else what
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
        shifts = np.clip(_exponents(slopes), -_MAX_SHIFT, 0)
        unit /= 2.0**_MAX_SHIFT
        one = max(math.ceil(largest[0] / (_LARGEST_INT * unit)), 1)
        arrays = {
            "origin": origin,
            "scale": scale,
            "offsets": np.rint(scores[:, 0] / (unit * one)).astype(np.int32),
            "slopes": _at_exponents(slopes, shifts),
            "shifts": (shifts + _MAX_SHIFT).astype(np.int8),
        }
        if self.advantages is not None:
            exponents = _exponents(self.advantages)
            arrays["exponents"] = exponents.astype(np.int8)
            arrays["advantages"] = _at_exponents(single(self.advantages), exponents)
        return IntegerTables(arrays, one, unit, self.n_nearest, self.tie)


class IntegerTables(NamedTuple):
    """Tables that decisions need, in 16 bits, and offsets in 32.

    With ``x = round((observation - origin) * scale)``, the score of cell k is ``unit`` times
    ``offsets[k] * one + 2**shifts[k] * <slopes[k], x>``. A row of advantages is to be multiplied by
    2 to the power of its exponent.
    """

    arrays: dict[str, Array]
    one: int
    unit: float
    n_nearest: int  # number of cells that decide together
    tie: float  # of advantages

    def choices(self, observations: FloatArray, actions: IntArray | None) -> IntArray:
        """Return the choices at observations, shape (n,), as C does, given the cells' actions."""
        if len(observations) > _BLOCK:
            parts = np.split(observations, range(_BLOCK, len(observations), _BLOCK))
            return np.concatenate([self.choices(part, actions) for part in parts])
        arrays = self.arrays
        with np.errstate(over="ignore", invalid="ignore"):
            steps = (observations.astype(np.float32) - arrays["origin"]) * arrays["scale"]
        steps = np.clip(steps, -CLIP, CLIP)
        x = np.trunc(steps + np.copysign(np.float32(0.5), steps)).astype(np.float64)
        sums = (x @ arrays["slopes"].T.astype(np.float64)).astype(np.int64)  # below 2**53: exact
        scores = (sums << arrays["shifts"].astype(np.int64)) + (
            arrays["offsets"].astype(np.int64) * self.one
        )
        near = scores.argsort(axis=1, kind="stable")[:, : self.n_nearest]
        if "advantages" not in arrays:
            return np.asarray(near[:, 0] if actions is None else actions[near[:, 0]])
        least = np.take_along_axis(scores, near, axis=1)
        weights = np.exp((least[:, :1] - least).astype(np.float32) * np.float32(self.unit))
        weights = np.ldexp(weights, arrays["exponents"][near])
        advantages = np.pad(arrays["advantages"], ((0, 0), (1, 0))).astype(np.float32)[near]
        best, rows = np.zeros(len(near), dtype=np.int64), np.arange(len(near))
        for a in range(1, advantages.shape[2]):
            gain = (weights * (advantages[:, :, a] - advantages[rows, :, best])).sum(axis=1)
            best[gain > self.tie] = a
        return best


def export_of(agent: Trained) -> Export:
    """Return the policy of an agent for export; raise ValueError if it cannot be exported."""
    if not hasattr(agent, "policy"):
        raise ValueError(f"agent is of type {type(agent).__name__}: it must be an agent")
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
    cells, recent = policy.tables, getattr(agent, "recent", None)  # not every object remembers
    whole, choices = False, None
    if recent is not None and len(recent):
        whole = any((one == np.rint(one)).all() for one in (recent, policy.codevectors))
        choices = policy.choices(recent)
    return Export(
        cells=cells._replace(diagram=ordered(cells.diagram)) if whole else cells,
        codevectors=policy.codevectors,
        extent=agent.extent,
        interface=interface,
        action_names=list(choice_names(agent)),
        env_id=agent.env_id,
        numbered=_numbered(policy, interface),
        recent=None if choices is None else recent,
        choices=choices,
        whole=whole,
        tie=TIE * float(np.median(np.abs(policy.q_values).max(axis=1))),
        joint=policy if isinstance(policy, JointPolicy) else None,
    )


def _numbered(policy: Policy, interface: Interface) -> Numbered | None:
    native = interface.native
    if native is None or not isinstance(native.observation_space, spaces.Discrete):
        return None
    first, n = int(native.observation_space.start), int(native.observation_space.n)
    if not -_MAX_STATES <= first <= _MAX_STATES - n:
        raise ValueError(
            f"observation_space is Discrete({n}, start={first}): exported policies take "
            f"observations in single precision, which is exact up to {_MAX_STATES:,}"
        )
    acts = policy.act(first + np.arange(n, dtype=np.float64)[:, None])
    box = interface.box
    return Numbered(first, acts if box is None else box.actions(acts).reshape(n, -1))


def _moved(rows: FloatArray, shift: FloatArray) -> FloatArray:
    """Return offsets and slopes, shape (..., 1 + d), for points increased by ``shift``.

    Slopes by squares, if any, are behind: shape (..., 1 + 2 d).
    """
    moved, (slopes, squares) = rows.copy(), np.split(rows[..., 1:], [len(shift)], axis=-1)
    moved[..., 0] = rows[..., 0] - slopes @ shift
    if squares.size:
        moved[..., 0] += squares @ shift**2
        moved[..., 1 : 1 + len(shift)] -= 2.0 * squares * shift
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


def _exponents(table: Array) -> IntArray:
    """Return for each row the exponent of 2 in units of which it fits into 16 bits."""
    largest = np.abs(table).max(axis=1, initial=0.0)
    return np.asarray(np.ceil(np.log2(np.maximum(largest, _TINY) / _INT16)), dtype=np.int64)


def _at_exponents(table: Array, exponents: IntArray) -> npt.NDArray[np.int16]:
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
