"""Who is imitated, and what it costs to do otherwise."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.fit import ChoiceCosts, Costs, SquareCosts
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import action_index
from oda_rl.agents.policies.contract import InLoops, Policy
from oda_rl.agents.policies.rules import RulePolicy

_MISTAKE = 0.1  # of the mean loss, that every mistake costs

Values = Callable[[FloatArray], npt.ArrayLike]
"""Of all actions, shape (n, A), in states, shape (n, d)."""


class Teacher(Protocol):
    """Plays, and says what mistakes cost."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it; None if they cannot."""

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return what mistakes cost in states, shape (n, d)."""

    def outputs(self, found: Array) -> Array:
        """Return what cells do, as :meth:`Coding.vector` takes it, by what was found cheapest."""


@dataclass(frozen=True)
class Valued:
    """A policy that knows what its choices are worth: a mistake costs what it loses of that."""

    policy: Policy
    units: FloatArray | None
    """Of its choices, shape (A, p), if these are a grid of continuous actions."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Do what is worth most."""
        acts = self.policy.act(points)
        return acts if self.units is None else self.units[acts]

    @property
    def in_loops(self) -> InLoops | None:
        """As the policy."""
        return self.policy.in_loops if self.units is None else None

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return what is lost of the greatest value; of units what the mean choice loses."""
        values = self.policy.values(states)
        lost = values.max(axis=1, keepdims=True) - values
        lost = np.minimum(lost, lost[np.isfinite(lost)].max())  # infinite where nothing is known
        if self.units is not None or not coding.boxed:
            return ChoiceCosts(with_mistakes(lost, lost.argmin(axis=1)))
        targets, weights = self.policy.act(states), lost.mean(axis=1) + 1e-300
        return SquareCosts(coding.points(states), targets, weights, coding.affine)

    def outputs(self, found: Array) -> Array:
        """Return actions, or their units."""
        return found if self.units is None else self.units[found][:, :, None]


@dataclass(frozen=True)
class Labelling:
    """Who says what to do, and no more: all mistakes cost the same."""

    decide: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    """Actions of the environment for a batch of observations."""
    interface: Interface

    values: Values | None = None
    """What actions are worth, if that is known, or has been found out."""
    in_loops: InLoops | None = None
    rule: RulePolicy | None = None
    """What decides, if it is a rule."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Do as is said."""
        shape = (len(points), *self.interface.observation_shape)
        actions = self.decide(points.reshape(shape).astype(self.interface.dtype))
        if self.interface.box is not None:
            return np.array([self.interface.box.units(action) for action in actions])
        return np.array([action_index(action, self.interface) for action in actions])

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return what is lost by everything else, or 1; of continuous actions a square."""
        acts = self.act(states)
        if not coding.boxed and self.values is None:
            return ChoiceCosts(1.0 - np.eye(coding.n_outputs)[acts])
        if not coding.boxed:
            values = checked_values(self.values, states, coding.n_outputs)
            lost = np.maximum(np.take_along_axis(values, acts[:, None], axis=1) - values, 0.0)
            return ChoiceCosts(with_mistakes(lost, acts))
        return SquareCosts(coding.points(states), acts, np.ones(len(acts)), coding.affine)

    def outputs(self, found: Array) -> Array:
        """Return what was found."""
        return found


def with_mistakes(lost: FloatArray, acts: IntArray) -> FloatArray:
    """Add to what is lost by actions a little for each that is not the teacher's.

    >>> with_mistakes(np.array([[0.0, 0.0, 3.0]]), np.array([1]))
    array([[0.1, 0. , 3.1]])
    """
    others = 1.0 - np.eye(lost.shape[1])[acts]
    return lost + _MISTAKE * float(lost.mean()) * others


def checked_values(values: Values | None, states: FloatArray, n_actions: int) -> FloatArray:
    """Return what actions are worth in states, shape (n, A); raise ValueError if it is not that."""
    assert values is not None
    found = np.asarray(values(states), dtype=np.float64)
    if found.shape != (len(states), n_actions) or not np.isfinite(found).all():
        raise ValueError(
            f"values returned shape {found.shape} for {len(states)} states: it must be finite "
            f"numbers of shape {(len(states), n_actions)}, one for each action"
        )
    return found


def teacher_of(teacher: Any, interface: Interface, values: Values | None = None) -> Teacher:
    """Return who is imitated, of what :func:`~oda_rl.agents.distilling.distil.distill` takes."""
    policy = getattr(teacher, "policy", teacher)
    if hasattr(policy, "values") and hasattr(policy, "act"):
        if values is None and not isinstance(policy, RulePolicy):
            return _valued(policy, interface)
        known = _valued(policy, interface)

        def decide(batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return interface.performed(known.act(batch.reshape(len(batch), -1)))

        rule = policy if isinstance(policy, RulePolicy) else None
        return Labelling(decide, interface, values, known.in_loops, rule)
    if hasattr(teacher, "predict"):
        return Labelling(
            lambda batch: teacher.predict(batch, deterministic=True)[0], interface, values
        )
    if callable(teacher):
        return Labelling(lambda batch: np.array([teacher(one) for one in batch]), interface, values)
    raise TypeError(
        f"policy is {teacher!r}: it must be an agent, a policy, a model of Stable-Baselines3, or "
        "a function of an observation"
    )


def _valued(policy: Policy, interface: Interface) -> Valued:
    d = policy.codevectors.shape[1]
    if d != interface.n_features:
        raise ValueError(
            f"policy has learned from observations of {d} components: it must be from as many as "
            f"the environment's {interface.n_features}"
        )
    n = policy.n_actions
    acts = policy.act(np.zeros((1, d)))
    box = interface.box
    if box is None:
        if acts.ndim == 1 and n == interface.n_actions:
            return Valued(policy, None)
    elif acts.ndim == 2:
        if acts.shape[1] == interface.n_components:
            return Valued(policy, None)
    elif (bins := round(n ** (1.0 / interface.n_components))) ** interface.n_components == n:
        axis = np.linspace(-1.0, 1.0, bins).tolist()
        return Valued(policy, np.array(list(product(axis, repeat=interface.n_components))))
    raise ValueError(
        f"policy chooses among {n} actions: they must be those of the environment, of which there "
        f"are {interface.n_actions if box is None else f'{interface.n_components} components'}"
    )
