"""Differences between policies: in which cells, where, and at what cost."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.distilling.playing import BudgetedEnv, draw_seeds
from oda_rl.agents.environments.making import make_env, spec_of
from oda_rl.agents.environments.spaces import matching_names, matching_parts
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.policies.rules import RulePolicy, number, without_units
from oda_rl.runs.statistics import mean_interval

_MAX_BOUNDS = 4
_MIN_GAIN = 0.02  # of the harmonic mean
_CANDIDATES = 64  # thresholds of a component


@dataclass(frozen=True)
class Bounds:
    """A conjunction of bounds, and how well it says where the states lie."""

    bounds: tuple[tuple[int, str, float], ...]
    """Component, ``">"`` or ``"<"``, and threshold of each."""
    precision: float
    """Share of the states within that are meant."""
    recall: float
    """Share of those that are meant that lie within."""

    def said(self, names: Sequence[str]) -> str:
        """Say it in words, by the names of the components.

        >>> Bounds(((1, ">", 0.5),), 1.0, 0.9).said(["x", "speed (m/s)"])
        'speed > 0.5'
        """
        short = without_units(names)
        parts = [f"{short[j]} {side} {number(value)}" for j, side, value in self.bounds]
        return " and ".join(parts) or "everywhere"

    def within(self, states: FloatArray) -> BoolArray:
        """Whether states, shape (n, d), are within all bounds, shape (n,)."""
        inside = np.ones(len(states), dtype=np.bool_)
        for j, side, value in self.bounds:
            inside &= _side(states[:, j], side, value)
        return inside


def where(states: FloatArray, meant: BoolArray) -> Bounds:
    """Find bounds that hold in most of the states that are meant, and in few others.

    Parameters
    ----------
    states : ndarray, shape (n, d)
    meant : ndarray of bool, shape (n,)

    Examples
    --------
    >>> states = np.linspace(0.0, 1.0, 101)[:, None]
    >>> found = where(states, states[:, 0] > 0.755)
    >>> found.said(["x"]), found.precision, found.recall
    ('x > 0.755', 1.0, 1.0)
    """
    bounds: list[tuple[int, str, float]] = []
    if not meant.any():
        return Bounds((), 0.0, 1.0)
    best = _harmonic(np.ones(len(states), dtype=np.bool_), meant)
    while len(bounds) < _MAX_BOUNDS:
        found = _best_bound(states, meant, bounds)
        if found[0] < best + _MIN_GAIN:
            break
        best = found[0]
        bounds.append(found[1])
    for k in range(len(bounds)):
        others = bounds[:k] + bounds[k + 1 :]
        moved = _best_bound(states, meant, others)
        if moved[0] > best:
            best, bounds = moved[0], [*others, moved[1]]
    bounds.sort()
    inside = Bounds(tuple(bounds), 0.0, 0.0).within(states)
    hits = int((inside & meant).sum())
    return Bounds(tuple(bounds), hits / max(int(inside.sum()), 1), hits / int(meant.sum()))


def _best_bound(
    states: FloatArray, meant: BoolArray, bounds: list[tuple[int, str, float]]
) -> tuple[float, tuple[int, str, float]]:
    inside = Bounds(tuple(bounds), 0.0, 0.0).within(states)
    best = (-1.0, (0, ">", -np.inf))
    for j in range(states.shape[1]):
        for side in (">", "<"):
            for value in _thresholds(states[inside, j], meant[inside]):
                score = _harmonic(inside & _side(states[:, j], side, value), meant)
                if score > best[0]:
                    best = (score, (j, side, float(value)))
    return best


def _thresholds(values: FloatArray, meant: BoolArray) -> FloatArray:
    """Return where a bound may lie: half-way between neighbours, at quantiles of what is meant."""
    distinct = np.unique(values)
    middles = 0.5 * (distinct[1:] + distinct[:-1])
    if len(middles) <= _CANDIDATES or not meant.any():
        return middles[:: max(len(middles) // _CANDIDATES, 1)]
    own = np.quantile(values[meant], np.linspace(0.0, 1.0, _CANDIDATES // 2))
    all_ = np.quantile(values, np.linspace(0.0, 1.0, _CANDIDATES // 2))
    at = np.concatenate([own, all_])
    near = np.searchsorted(middles, at)
    both = np.concatenate([near - 1, near])
    return np.asarray(middles[np.unique(np.clip(both, 0, len(middles) - 1))])


def _side(values: FloatArray, side: str, threshold: float) -> BoolArray:
    return values > threshold if side == ">" else values < threshold


def _harmonic(inside: BoolArray, meant: BoolArray) -> float:
    return 2.0 * float((inside & meant).sum()) / float(inside.sum() + meant.sum())


_OTHERWISE = 0.02  # of the range of a component: what continuous actions may differ by
_STEPS = 10_000_000


@dataclass(frozen=True, eq=False)
class Difference:
    """How a policy differs from an earlier one; ``print`` it."""

    states: FloatArray
    """Where both were asked, shape (n, d)."""
    differs: BoolArray
    """Where they decide differently, shape (n,)."""
    share: float
    """Of the states in which they do."""
    cells: IntArray
    """Cells of the earlier policy in the states, shape (n,)."""
    changed: dict[int, float]
    """For each of its cells in which something is done otherwise, in which share of its states."""
    region: Bounds
    """Where, in a few bounds of components."""
    before: FloatArray
    """Returns of the earlier policy, shape (m,); none without an environment."""
    after: FloatArray
    """Returns of the later one from the same starts, shape (m,)."""
    interval: tuple[float, float]
    """95 % confidence interval of the mean change of the return; NaN without an environment."""
    names: tuple[str, ...]
    """Of the components."""
    texts: tuple[str, str]
    """Both rules in words; empty of what is no rule."""

    @property
    def change(self) -> float:
        """Mean change of the return; NaN without an environment."""
        return float((self.after - self.before).mean()) if len(self.after) else np.nan

    def __str__(self) -> str:
        return "\n".join([*self._rules(), *self._where(), *self._costs()])

    def _rules(self) -> list[str]:
        before, after = (text.splitlines() for text in self.texts)
        if before == after:
            return []
        lines = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=99))
        return ["```diff", *lines[:2], *lines[3:], "```", ""]

    def _where(self) -> list[str]:
        n = len(self.states)
        if not self.differs.any():
            return [f"They decide alike in all of {n:,} states."]
        cells = ", ".join(f"{share:.1%} of cell {k}" for k, share in self.changed.items())
        return [
            f"They decide differently in {self.share:.1%} of {n:,} states: {cells}.",
            f"Where: {self.region.said(self.names)} (precision {self.region.precision:.2f}, "
            f"recall {self.region.recall:.2f}).",
        ]

    def _costs(self) -> list[str]:
        if len(self.after) == 0:
            return []
        low, high = self.interval
        return [
            f"Return: {self.before.mean():.4g} before, {self.after.mean():.4g} after: "
            f"{self.change:+.4g} ({low:+.4g} to {high:+.4g}) from {len(self.after)} common starts."
        ]


@one_thread()
def diff(
    before: Any,
    after: Any,
    states: npt.ArrayLike,
    env: str | gym.Env[Any, Any] | None = None,
    episodes: int = 50,
    seed: int | None = None,
    names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> Difference:
    """Say how a policy differs from an earlier one.

    Parameters
    ----------
    before, after : Policy, or agent
        With observations of as many components.
    states : array_like, shape (n, ...)
        In which to ask both, as from ``agent.visited_states``.
    env : str or gymnasium.Env, optional
        Where to play both, from the same starts, to say what the change costs.
    episodes : int
        Of each there.
    seed : int, optional
        Of these starts.
    names, action_names : sequence of str, optional
        Of the components of the observation, and of the actions, or of the components of a
        continuous one; by default those of known environments.

    Raises
    ------
    ValueError
        For states, names or policies of other sizes.

    Examples
    --------
    >>> scores = np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 4)))
    >>> edited = rule.edit().forbid(0, where="x[2] > .05").done()
    >>> states = np.random.default_rng(0).uniform(-0.1, 0.1, (500, 4)) * [1, 1, 1, 9]
    >>> print(diff(rule, edited, states, "CartPole-v1", seed=0, episodes=20))
    ```diff
    --- before
    +++ after
    -push right if 6·pole angle + pole angular velocity > 0, else push left
    +never push left where pole angle > 0.05
    +otherwise push right if 6·pole angle + pole angular velocity > 0, else push left
    ```
    <BLANKLINE>
    They decide differently in 7.6% of 500 states: 14.8% of cell 0.
    Where: pole angle > 0.05178 and pole angular velocity < -0.4427 (precision 0.97, recall 0.97).
    Return: 500 before, 500 after: +0 (+0 to +0) from 20 common starts.
    """
    old, new = (_policy(one, name) for one, name in ((before, "before"), (after, "after")))
    d = old.codevectors.shape[1]
    if new.codevectors.shape[1] != d:
        raise ValueError(
            f"after takes observations of {new.codevectors.shape[1]} components: it must take {d}, "
            "as the earlier one does"
        )
    points = np.array(states, dtype=np.float64)
    points = points.reshape(len(points), -1) if points.ndim > 1 else points[:, None]
    if len(points) == 0 or points.shape[1] != d:
        raise ValueError(f"states has shape {np.shape(states)}: it must be (n, {d}), n at least 1")
    known, known_actions, bounds = _known(env, d)
    components = known if names is None else tuple(names)
    if len(components) != d:
        raise ValueError(f"names is {names!r}: it must be a sequence of {d}")
    actions = known_actions if action_names is None else action_names
    gap = np.abs(np.subtract(old.act(points), new.act(points)))
    tolerated = 2.0 * _OTHERWISE if gap.ndim > 1 else 0.0  # units are from -1 to 1
    differs = (gap > tolerated).reshape(len(points), -1).any(axis=1)
    cells = old.cells(points)
    shares = {k: float(differs[cells == k].mean()) for k in np.unique(cells).tolist()}
    first, second = _returns((old, new), env, episodes, seed)
    ends = (np.nan, np.nan)
    if len(first):
        ends = mean_interval(second - first)
    texts = tuple(_said(one, components, actions, bounds) for one in (old, new))
    return Difference(
        points, differs, float(differs.mean()), cells,
        {k: share for k, share in shares.items() if share > 0.0}, where(points, differs),
        first, second, ends, components, (texts[0], texts[1]),
    )  # fmt: skip


def _policy(given: Any, name: str) -> Policy:
    """Return a policy, or that of an agent."""
    found = getattr(given, "policy", given)
    if not (hasattr(found, "act") and hasattr(found, "codevectors")):
        raise ValueError(f"{name} is {given!r}: it must be a policy, or an agent")
    policy: Policy = found
    return policy


def _known(
    env: str | gym.Env[Any, Any] | None, d: int
) -> tuple[tuple[str, ...], Sequence[str] | None, FloatArray | None]:
    """Return names of components and actions, and the bounds of continuous ones."""
    numbered = tuple(f"observation[{j}]" for j in range(d))
    if env is None:
        return numbered, None, None
    made = make_env(env) if isinstance(env, str) else env
    interface, spec = BudgetedEnv(made, 1, 0).interface, spec_of(made)
    env_id = None if spec is None else spec.id
    names, actions = matching_names(env_id, interface)
    if interface.box is not None:
        actions = matching_parts(env_id, interface)
    bounds = None if interface.box is None else interface.box.bounds
    return numbered if names is None else tuple(names), actions, bounds


def _said(
    policy: Policy,
    names: Sequence[str],
    actions: Sequence[str] | None,
    bounds: FloatArray | None,
) -> str:
    return policy.rules(names, actions, bounds) if isinstance(policy, RulePolicy) else ""


def _returns(
    policies: tuple[Policy, Policy],
    env: str | gym.Env[Any, Any] | None,
    episodes: int,
    seed: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Return the returns of both from common starts."""
    if env is None:
        return np.empty(0), np.empty(0)
    budgeted = BudgetedEnv(env, max(one.n_cells for one in policies), _STEPS)
    seeds = draw_seeds(np.random.default_rng(seed), checked_count("episodes", episodes))
    first, second = (budgeted.play(one, seeds) for one in policies)
    return first, second
