"""Explanations of an agent's actions, and tables of policies, cell by cell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.names import number_text, scales_between, without_units
from oda_rl.agents.environments.validation import checked_points
from oda_rl.agents.policies.alternatives import kept_in_single
from oda_rl.agents.policies.contract import Trained
from oda_rl.agents.policies.rules import RulePolicy, in_box

_COMPONENTS = 12  # of an observation that are printed
_ROUNDING = 1e-6  # relative: actions may be in single precision
_TERMS = 4  # of a component of the action that are printed


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why an agent acts as it does in one state; ``print`` it.

    Where actions are continuous, numbered actions are action codevectors, levels of which the
    nearest one counts, or the cells of a rule.
    """

    observation: FloatArray  #: The state, in the shape of the observation space.
    cell: int  #: The (nearest) cell.
    n_cells: int  #: Number of cells.
    codevector: FloatArray  #: Codevector of the cell, in the observation's units and shape.
    q_values: FloatArray
    """Value of each action in this state, shape (n_actions,), as ``predict`` compares them; minus
    infinity for an action that is never chosen."""
    action: Any  #: Result of ``predict``: a number, or an array of the action space's shape.
    choice: int  #: Index (from 0) of the best action.
    margin: float  #: Its value minus that of the runner-up; inf if there is none.
    runner_up: int | None  #: The next best action; None if no other is ever chosen.
    visits: FloatArray
    """Times the agent has learned from each action in this cell, shape (n_actions,). Online:
    updates of the table. Fitted: transitions in the memory, whichever policy took them."""
    distance: float
    """Distance of :attr:`nearest_other` in standard deviations; inf if there is no such state. An
    upper bound of the smallest change that changes the action, unless :attr:`exact`."""
    at_least: float  #: Lower bound of that change (up to values that are equal to nine digits).
    exact: bool  #: Whether the distance is exact, because one cell decides.
    nearest_other: FloatArray | None  #: A state just beyond the boundary, shaped as observations.
    other_action: Any  #: Result of ``predict`` there.
    other_choice: int | None  #: Index (from 0) of the best action there.
    names: tuple[str, ...]  #: Names of the observation's components.
    scale: FloatArray  #: Inverse standard deviations of the components, (d,); 0 for constants.
    action_names: tuple[str, ...]  #: Names of the actions.
    first_action: int  #: The environment's number for the first of them.
    in_words: str  #: The choice, with the action if that is continuous.
    other_in_words: str  #: The other choice; "" if there is none.
    value_name: str = "value"  #: Quantity by which actions are compared: a value, or a score.
    choice_name: str = "action"  #: Kind of choice: an action, action codevector, level or cell.
    terms: Mapping[str, FloatArray] = field(default_factory=dict)
    """Sum that a rule computes for each component of a continuous action, before it is clipped to
    its bounds: a constant, then coefficients times components of the state, shape (1 + d,)."""

    def __str__(self) -> str:
        names, by = self.action_names, ""
        if self.runner_up is not None:
            verb = "worth" if self.value_name == "value" else "scored"
            by = f", {verb} {self.margin:.3g} more than {names[self.runner_up - self.first_action]}"
        values = ", ".join(map("{} {}".format, names, map(value_text, self.q_values)))
        visits = ", ".join(map("{} {:,.0f}".format, names, self.visits))
        if self.choice_name in ("cell", "level"):  # no choice is learned from alone
            visits = f"{self.visits.sum():,.0f}"
        lines = [
            self.in_words + by,
            f"{self.value_name}s: {values}",
            f"cell {self.cell} of {self.n_cells}, times learned from: {visits}",
        ]
        return "\n".join([*lines, *self._sums(), "", *self._where(), "", self._how_far()])

    def _sums(self) -> list[str]:
        """Return the sum that is each component of the action, the largest terms first."""
        lines, state = [], self.observation.ravel()
        for (name, terms), done in zip(self.terms.items(), np.ravel(self.action), strict=False):
            total, products = terms.sum(), terms[1:]
            ranked = np.argsort(-np.abs(products), kind="stable")
            parts = [
                f"{products[j] / state[j]:.4g}·{state[j]:.4g} = {products[j]:.4g} ({self.names[j]})"
                for j in ranked[:_TERMS]
                if products[j] != 0.0
            ]
            if (others := products[ranked[_TERMS:]]).any():
                parts.append(f"others together {others.sum():.4g}")
            if terms[0] != 0.0:
                parts.append(f"constant {terms[0]:.4g}")
            clipped = abs(total - done) > _ROUNDING * (1.0 + np.abs(terms).sum())
            end = f", clipped to {done:.4g}" if clipped else ""
            lines.append(f"{name} = {total:.4g}{end}: {', '.join(parts) or '0'}")
        return lines

    def _where(self) -> list[str]:
        """Return a table of the components; of too many those that change most."""
        columns: dict[str, FloatArray] = {
            "state": self.observation.ravel(),
            "codevector": self.codevector.ravel(),
        }
        d = len(self.names)
        order = list(range(min(d, _COMPONENTS)))
        if self.nearest_other is not None:
            there = self.nearest_other.ravel()
            columns[self.action_names[self.other_choice or 0]] = there
            change = columns["change"] = there - columns["state"]
            order = sorted(np.argsort(-np.abs(change), kind="stable")[:_COMPONENTS].tolist())
        rows = [["component", *columns]]
        for j in order:
            cells = [number_text(v[j], self.scale[j]) for v in columns.values()]
            if "change" in columns and columns["change"][j] >= 0.0:
                cells[-1] = f"+{cells[-1]}"
            rows.append([self.names[j], *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        widths[1:] = [max(11, len(title)) for title in columns]
        lines = [
            "  ".join([f"{row[0]:{widths[0]}}", *map("{:>{}}".format, row[1:], widths[1:])])
            for row in rows
        ]
        return [*lines, *[f"and {d - len(order)} more components"] * (d > len(order))]

    def _how_far(self) -> str:
        what = f"another {self.choice_name}"
        if self.at_least == np.inf:
            single = self.choice_name == "cell" and self.n_cells == 1
            return "one cell decides in every state" if single else f"no state has {what}"
        sure = f"no state within {self.at_least:.3g} standard deviations has {what}"
        if self.other_choice is None:
            return f"{sure}, and none farther away is known"
        nearest = "the nearest state" if self.exact else "a state"
        away = f"is {self.distance:.3g} standard deviations away"
        where = f"{nearest} with {what} ({self.other_in_words}) {away}"
        return where if self.exact or self.at_least == 0.0 else f"{where}; {sure}"


@dataclass(frozen=True, eq=False)
class Overview:
    """A policy as a table: row i is about a cell; the most visited cells come first."""

    cells: IntArray  # numbers of the cells, shape (n,)
    codevectors: FloatArray  # in the observation's units, shape (n, d)
    q_values: FloatArray
    """Value of each action (or action codevector, or cell of a rule with continuous actions) at the
    codevector, as ``predict`` compares them; shape (n, n_actions)."""
    actions: IntArray  # indices (from 0) of the best there, shape (n,)
    labels: tuple[str, ...]  # the actions there, in words
    margins: FloatArray  # their values minus those of the runners-up, shape (n,)
    visits: FloatArray  # times learned from the cell, as in :class:`Explanation`, shape (n,)
    shares: FloatArray  # shares of the states visited, shape (n,); NaN if none were given
    agreement: float
    """Share of the states visited in which the agent takes the action of the cell's row: 1 unless
    cells are blended. NaN if none were given."""
    scale: FloatArray  # inverse standard deviations of the components, shape (d,); 0 for constants
    names: tuple[str, ...]  # names of the observation's components
    action_names: tuple[str, ...]  # names of the actions
    value_name: str = "value"  # or a score, by which actions are compared
    nowhere: int = 0  # number of cells without a row: no visited state is known in them


def explain(agent: Trained, observation: npt.ArrayLike) -> Explanation:
    """Explain what an agent does in a state; see :meth:`oda_rl.agents.Agent.explain`."""
    scale = _require_learned(agent)
    interface, policy = agent.interface, agent.policy
    points = checked_points(interface.point("observation", observation), interface)
    shape = interface.observation_shape
    cell, choice = int(policy.cells(points)[0]), int(policy.choices(points)[0])
    values = policy.values(points)
    ranked = np.argsort(-values[0], kind="stable")
    others = [int(a) for a in ranked if a != choice and values[0, a] > -np.inf]
    action, other_action, other_choice = _performed(agent, policy.act(points))[0], None, None
    terms = {}
    if isinstance(policy, RulePolicy) and policy.continuous and interface.box is not None:
        own = in_box(policy.all_outputs[cell : cell + 1], *interface.box.bounds)[0]
        terms = dict(zip(interface.action_names, own * np.append(1.0, points[0]), strict=True))
    nearest = policy.alternative(points[0], choice, scale)
    if interface.dtype == "float32":
        nearest = kept_in_single(policy, nearest, points[0], choice, scale)
    if (there := nearest.point) is not None:
        other_choice = int(policy.choices(there[None])[0])
        other_action = _performed(agent, policy.act(there[None]))[0]
    return Explanation(
        observation=points.reshape(shape),
        cell=cell,
        n_cells=policy.n_cells,
        codevector=policy.codevectors[cell].reshape(shape),
        q_values=values[0],
        action=action,
        choice=choice,
        margin=float(margins_of(values, np.array([choice]))[0]),
        runner_up=others[0] + interface.first_action if others else None,
        visits=agent.visits[cell].copy(),
        distance=nearest.distance,
        at_least=nearest.at_least,
        exact=policy.exact,
        nearest_other=None if there is None else there.reshape(shape),
        other_action=other_action,
        other_choice=other_choice,
        names=interface.names,
        scale=scale,
        action_names=choice_names(agent),
        first_action=interface.first_action,
        in_words=_in_words(agent, choice, action),
        other_in_words="" if other_choice is None else _in_words(agent, other_choice, other_action),
        value_name=policy.value_name,
        choice_name=policy.choice_name,
        terms=terms,
    )


def overview(agent: Trained, visited: FloatArray | None = None) -> Overview:
    """Return the policy of a trained agent as a table.

    If ``visited`` states, (n, d), are given, cells without one are left out.

    Raises ValueError if the agent has learned nothing yet.
    """
    scale = _require_learned(agent)
    policy, interface, actions = agent.policy, agent.interface, choice_names(agent)
    codevectors, discrete = policy.codevectors, policy.choice_name == "action"
    values = policy.q_values if policy.exact else policy.values(codevectors)
    best = values.argmax(axis=1) if policy.exact else policy.choices(codevectors)
    taken = _performed(agent, best if discrete else policy.act(codevectors))
    labels = [_in_words(agent, a, action) for a, action in zip(best, taken, strict=True)]
    shares, agreement = np.full(policy.n_cells, np.nan), np.nan
    visits = agent.visits.sum(axis=1)
    known = (policy.cells(codevectors) == np.arange(policy.n_cells)) | (visits > 0)
    if visited is not None and len(visited):
        points = checked_points(visited, interface)
        cells = policy.cells(points)
        shares = np.bincount(cells, minlength=policy.n_cells) / len(cells)
        known = shares > 0
        agree = (best[cells] == policy.choices(points)).mean()
        agreement = 1.0 if policy.exact else float(agree)
    order = np.lexsort([-visits, -shares])
    order = order[known[order]]
    return Overview(
        cells=order,
        codevectors=codevectors[order],
        q_values=values[order],
        actions=best[order],
        labels=tuple(labels[k] for k in order),
        margins=margins_of(values, best)[order],
        visits=visits[order],
        shares=shares[order],
        agreement=agreement,
        scale=scale,
        names=interface.names,
        action_names=actions,
        value_name=policy.value_name,
        nowhere=policy.n_cells - len(order),
    )


def margins_of(values: FloatArray, actions: IntArray) -> FloatArray:
    """Return each row's value of its action minus the best of the others, at least 0."""
    rows = np.arange(len(values))
    others = values.copy()
    others[rows, actions] = -np.inf
    return np.asarray(np.maximum(values[rows, actions] - others.max(axis=1), 0.0))


def value_text(value: float) -> str:
    """Return a value to four digits."""
    return "never" if value == -np.inf else f"{value:.4g}"


def _require_learned(agent: Trained) -> FloatArray:
    scale = agent.scale_
    if scale is None:
        raise ValueError(
            f"agent.scale_ is None: the agent has learned nothing yet after {agent.num_timesteps} "
            "steps; it must learn for some more first"
        )
    return scale


def choice_names(agent: Trained) -> tuple[str, ...]:
    """Return the names of the actions, or numbers of what else the policy chooses among."""
    policy = agent.policy
    if policy.choice_name == "action":
        return agent.interface.action_names
    return tuple(f"{policy.choice_name} {k}" for k in range(policy.n_actions))


def _performed(agent: Trained, acts: npt.NDArray[Any]) -> list[Any]:
    """Return actions as ``predict`` does: numbers, or arrays of the action space's shape."""
    performed = agent.interface.performed(acts)
    return [action if np.ndim(action) else action.item() for action in performed]


def _in_words(agent: Trained, choice: int, action: Any) -> str:
    """Return a choice's name, with the action that it is if that is continuous."""
    name, box = choice_names(agent)[choice], agent.interface.box
    if box is None:
        return name
    numbers = map(number_text, np.ravel(action).tolist(), scales_between(*box.bounds))
    said = map("{} {}".format, without_units(agent.interface.action_names), numbers)
    return f"{name} ({', '.join(said)})"
