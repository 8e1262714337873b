"""What an agent does, without the agent: the tables that exported policies consist of.

A :class:`Policy` has everything in double precision, as Python computes with it. A decision needs
less, and :meth:`Policy.tables` leaves out what cancels:

- Scores are only compared, and enter the blending as differences. So points are measured from where
  the latest observations of training were, and the row of the cell that lies there is subtracted
  from all rows: sums are small, and so are their rounding errors, where decisions are made. Scores
  are given in units of the width.
- Actions are only compared, too. An online agent needs the greedy action of each cell. A blended
  policy needs the advantages of actions over action 0: offsets and slopes, which the actions share,
  do not change the decision.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl.agents.config import matching_names
from oda_rl.agents.environments.validation import require_numbered_actions
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.policies.cells import TIE
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent

if TYPE_CHECKING:
    from oda_rl.agents.base import Agent

FloatArray = npt.NDArray[np.float64]

_LARGEST_INT = 2**31 - 1
_INT16 = 32_767
_LEAST = 1e-30  # of what matters in a row, so that exponents have 8 bits
_MOST_SHIFT = 12  # of a row, so that sums of thousands of products stay within 64 bits
_LATEST = 2_000  # observations that say where decisions are made
_STEPS = 2**18  # of an observation's component, from the centre to the farthest value seen
CLIP = 2**22
"""Components of an observation are clipped at so many steps; float32 holds all integers to that."""


@dataclass(frozen=True)
class Policy:
    """A policy as arrays in double precision, and what its numbers mean."""

    env_id: str | None
    observation_shape: tuple[int, ...]
    names: list[str]
    action_names: list[str]
    first_action: int
    """The environment's number of action 0."""
    origin: FloatArray
    """Subtracted from observations, shape (d,)."""
    diagram: FloatArray
    """Affine diagram of the cells, shape (K, 1 + d)."""
    values: FloatArray
    """Value of each action in each cell, shape (K, A); of a blended policy without what the actions
    share."""
    common: FloatArray | None
    """Offset and slope of each cell, shape (K, 1 + d), of a blended policy; else None."""
    width: float
    """Of the blending; 1 if there is none."""
    codevectors: FloatArray
    """In the observation's units, shape (K, d)."""
    centre: FloatArray
    """Mean of the latest observations in training, shape (d,)."""
    reach: FloatArray
    """Largest distance of an observation seen in training from the centre, shape (d,)."""

    @property
    def blended(self) -> bool:
        """Whether the three nearest cells decide together."""
        return self.common is not None

    def tables(self) -> "Tables":
        """Leave out what decisions do not need."""
        diagram = _moved(self.diagram, self.origin - self.centre)
        scores = (diagram - diagram[diagram[:, 0].argmin()]) / self.width
        used = scores[:, 1:].any(axis=0)
        # Elsewhere a + <g, x> would be a small difference of large numbers.
        near = bool((np.abs(self.centre) <= self.reach)[used].all())
        if self.blended:
            return Tables(scores, self.centre, near, None, _advantages(self.values))
        return Tables(scores, self.centre, near, self.values.argmax(axis=1), None)


@dataclass(frozen=True)
class Tables:
    """What a decision needs, in double precision."""

    scores: FloatArray
    """The diagram less the row of the cell at the origin, in units of the width, (K, 1 + d)."""
    origin: FloatArray
    """Subtracted from observations, shape (d,)."""
    near: bool
    """Whether the origin is so near to 0 that it may be folded into the scores' offsets."""
    actions: npt.NDArray[np.int64] | None
    """Greedy action of each cell (from 0), shape (K,), or None for a blended policy."""
    advantages: FloatArray | None
    """Of actions 1 ... A - 1 over action 0, shape (K, A - 1), or None for one that is not."""

    def in_floats(self) -> "FloatTables":
        """Round to single precision; raise ValueError if something is beyond its range."""
        origin = None if self.near else _single(self.origin)
        offsets = self.origin if origin is None else self.origin - origin.astype(np.float64)
        return FloatTables(_single(_moved(self.scores, offsets)), origin, _single(self.advantages))

    def in_integers(self, reach: FloatArray) -> "IntegerTables":
        """Round to 16 bits, offsets to 32, with a scale for each column and a shift for each row.

        The step size of a column of slopes is such that its largest entry is 32,767, and that of
        the observation's component such that all products have the same unit. In that unit the
        column that counts most reaches furthest. Rows of smaller entries have smaller steps.
        Offsets have more bits because they are all that counts where the states are.

        Parameters
        ----------
        reach : ndarray of shape (d,)
            Largest distance of a component from the origin that is to be expected.
        """
        origin = _single(self.origin)
        scores = _moved(self.scores, self.origin - origin.astype(np.float64))
        largest = np.abs(scores).max(axis=0)
        furthest = (largest * np.append(1.0, reach)).max()
        unit = furthest / (_INT16 * _STEPS) if furthest > 0.0 else 1.0
        scale = _single(largest[1:] / (_INT16 * unit))
        steps = unit * scale.astype(np.float64)
        slopes = scores[:, 1:] / np.where(steps > 0.0, steps, 1.0)
        shifts = np.clip(_exponents(slopes), -_MOST_SHIFT, 0) + _MOST_SHIFT
        unit /= 2.0**_MOST_SHIFT
        one = max(math.ceil(largest[0] / (_LARGEST_INT * unit)), 1)
        advantages = _single(self.advantages)
        exponents = None if advantages is None else _exponents(advantages)
        return IntegerTables(
            np.rint(scores[:, 0] / (unit * one)).astype(np.int32),
            _at_exponents(slopes, shifts - _MOST_SHIFT),
            shifts.astype(np.int8),
            one,
            unit,
            origin,
            scale,
            None if exponents is None else _at_exponents(advantages, exponents),
            None if exponents is None else exponents.astype(np.int8),
        )


@dataclass(frozen=True)
class FloatTables:
    """What a decision needs, in single precision."""

    scores: npt.NDArray[np.float32]
    origin: npt.NDArray[np.float32] | None
    """To be subtracted from the observation, unless it is folded into the scores."""
    advantages: npt.NDArray[np.float32] | None


@dataclass(frozen=True)
class IntegerTables:
    """What a decision needs, in 16 bits, and offsets in 32.

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


def policy_of(agent: "Agent") -> Policy:
    """Take an agent's policy out of it.

    Raises
    ------
    ValueError
        If the agent is of another class, has learned nothing yet, or its environment has spaces
        that cannot be exported.

    Examples
    --------
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> policy = policy_of(agent)
    >>> policy.blended, policy.action_names
    (False, ['push left', 'push right'])
    """
    if not isinstance(agent, FittedQAgent | TwoTimescaleAgent):
        raise ValueError(f"agent is {agent!r}: it must be a FittedQAgent or a TwoTimescaleAgent")
    require_numbered_actions(agent.interface, "an exported policy")
    _check_spaces(agent)
    if agent.scale_ is None or not agent.q_values.any():
        raise ValueError(
            f"agent has learned nothing yet in {agent.num_timesteps} steps: it must have been "
            "trained, with learn(total_timesteps) or 'oda-rl train', for longer"
        )
    interface = agent.interface
    names, action_names = matching_names(agent.env_id, interface.n_features, interface.n_actions)
    about = {
        "env_id": agent.env_id,
        "observation_shape": interface.observation_shape,
        "names": list(names or (f"observation[{j}]" for j in range(interface.n_features))),
        "action_names": list(action_names or (f"action {a}" for a in range(interface.n_actions))),
        "first_action": interface.first_action,
    }
    return _fitted(agent, about) if isinstance(agent, FittedQAgent) else _online(agent, about)


def _fitted(agent: FittedQAgent, about: dict[str, Any]) -> Policy:
    policy, core = agent.policy, agent._core
    seen = core.memory.observations[: core.memory.rows(core.lane)]
    centre = seen[-_LATEST:].mean(axis=0, dtype=np.float64)
    d = len(policy.origin)
    return Policy(
        **about,
        origin=policy.origin,
        diagram=policy.diagram,
        values=policy.models[:, 1 + d :],
        common=policy.models[:, : 1 + d],
        width=policy.width,
        codevectors=policy.codevectors,
        centre=centre,
        reach=np.abs(seen - centre).max(axis=0),
    )


def _online(agent: TwoTimescaleAgent, about: dict[str, Any]) -> Policy:
    core = agent._core
    seen = core._ring()[0]
    centre = seen.mean(axis=0)
    return Policy(
        **about,
        origin=core.origin.copy(),
        diagram=agent.partition.diagram[: agent.n_cells].copy(),
        values=agent.q_values.copy(),
        common=None,
        width=1.0,
        codevectors=agent.codevectors,
        centre=core.origin + centre,
        reach=np.abs(seen - centre).max(axis=0),
    )


def _check_spaces(agent: "Agent") -> None:
    if agent.env is not None:
        observations, actions = agent.env.observation_space, agent.env.action_space
        if not isinstance(observations, spaces.Box):
            raise ValueError(
                f"observation_space is {observations}: an exported policy takes a Box; train in "
                "the environment wrapped by gymnasium.wrappers.FlattenObservation"
            )
        if not isinstance(actions, spaces.Discrete):
            raise ValueError(
                f"action_space is {actions}: an exported policy returns Discrete actions"
            )
    first, n = agent.interface.first_action, agent.interface.n_actions
    if not -_LARGEST_INT <= first <= _LARGEST_INT - n:
        raise ValueError(
            f"action_space is Discrete({n}, start={first}): its actions must be integers of 32 bits"
        )


def _moved(diagram: FloatArray, shift: FloatArray) -> FloatArray:
    """Return the diagram for points that are greater by ``shift``."""
    offsets = diagram[:, 0] - diagram[:, 1:] @ shift
    return np.column_stack([offsets, diagram[:, 1:]])


def _advantages(values: FloatArray) -> FloatArray:
    """Return the advantages over action 0; those that Python takes for equal are equal."""
    tolerance = TIE * np.abs(values).max(axis=1)
    snapped = values.copy()
    for a in range(1, values.shape[1]):
        for b in range(a):
            equal = np.abs(snapped[:, a] - snapped[:, b]) <= tolerance
            snapped[equal, a] = snapped[equal, b]
    return snapped[:, 1:] - snapped[:, :1]


def _exponents(table: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return for each row the least power of two in units of which it fits into 16 bits."""
    largest = np.abs(table).max(axis=1, initial=0.0).astype(np.float64)
    return np.asarray(np.ceil(np.log2(np.maximum(largest, _LEAST) / _INT16)), dtype=np.int64)


def _at_exponents(
    table: npt.NDArray[Any], exponents: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    """Round rows to multiples of two to the power of their exponents."""
    integers = np.rint(np.ldexp(table.astype(np.float64), -exponents[:, None]))
    return np.clip(integers, -_INT16, _INT16).astype(np.int16)


def _single(array: Any) -> Any:
    """Return an array in single precision, and None for None."""
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
