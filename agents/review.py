"""Differences between policies: in which cells, in which states, and in return."""

import difflib
import math
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
from oda_rl.agents.environments.names import without_units
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.policies.rules import RulePolicy, named_as, number
from oda_rl.runs.statistics import mean_interval

Bound = tuple[int, str, float]  # component, ">" or "<", and threshold


@dataclass(frozen=True)
class Bounds:
    """A conjunction of bounds that describes a set of states."""

    bounds: tuple[Bound, ...]
    precision: float  # share of the states within the bounds that are in the set
    recall: float  # share of the states in the set that are within the bounds

    def said(self, names: Sequence[str]) -> str:
        """Return it in words, by the names of the components."""
        short = without_units(names)
        parts = [f"{short[j]} {side} {number(value, 15)}" for j, side, value in self.bounds]
        return " and ".join(parts) or "everywhere"


def _short(threshold: float, values: FloatArray) -> float:
    """Round a threshold to as few digits, at least 4, as keep all values on their side."""
    each = (float(number(threshold, digits)) for digits in range(4, 16))
    return next((a for a in each if ((values > a) == (values > threshold)).all()), threshold)


def where(states: FloatArray, members: BoolArray) -> Bounds:
    """Find precise bounds with high recall for the ``members``, (n,), of states, shape (n, d)."""
    if members.all() or not members.any():
        return Bounds((), float(members.all()), 1.0)
    from sklearn.tree import DecisionTreeClassifier

    fitted = DecisionTreeClassifier(
        max_depth=4, class_weight="balanced", ccp_alpha=0.01, random_state=0
    )
    inside = fitted.fit(states, members).decision_path(states).toarray().astype(bool)
    hits, sizes = inside[members].sum(axis=0), inside.sum(axis=0)
    best = int((hits / (sizes + members.sum())).argmax())  # of harmonic means of both shares
    tree, node = fitted.tree_, 0
    bounds: dict[tuple[int, str], float] = {}
    while node != best:  # nodes are numbered depth first: those on the left before the right
        left = best < tree.children_right[node]
        j = int(tree.feature[node])
        bounds[j, "<" if left else ">"] = _short(float(tree.threshold[node]), states[:, j])
        node = int((tree.children_left if left else tree.children_right)[node])
    found = tuple(sorted((j, side, value) for (j, side), value in bounds.items()))
    return Bounds(found, hits[best] / sizes[best], hits[best] / members.sum())


_TOLERANCE = 0.02  # difference of continuous actions, as a share of a component's range
_STEPS = 10_000_000


@dataclass(frozen=True, eq=False)
class Difference:
    """Difference of a policy from an earlier one; ``print`` it."""

    states: FloatArray  # states in which the policies are compared, shape (n, d)
    differs: BoolArray  # whether the actions differ in each state, shape (n,)
    share: float  # share of the states in which they differ
    cells: IntArray  # cells of the earlier policy in the states, shape (n,)
    changed: dict[int, float]  # the same share in each cell with such states
    region: Bounds  # bounds of the states in which they differ
    before: FloatArray  # returns of the earlier policy, shape (m,); empty without an environment
    after: FloatArray  # returns of the later policy from the same starts, shape (m,)
    interval: tuple[float, float]  # 95 % confidence interval of :attr:`change`; NaN like that
    names: tuple[str, ...]  # names of the components
    texts: tuple[str, str]  # both rules in words; empty for a policy that is no rule

    @property
    def change(self) -> float:
        """Mean change of the return; NaN without an environment."""
        return float((self.after - self.before).mean()) if len(self.after) else np.nan

    def __str__(self) -> str:
        n, lines = len(self.states), []
        before, after = (text.splitlines() for text in self.texts)
        if before != after:
            rules = difflib.unified_diff(before, after, "before", "after", lineterm="", n=99)
            first, second, _, *rest = rules
            lines += ["```diff", first, second, *rest, "```", ""]
        if self.differs.any():
            cells = ", ".join(f"{share:.1%} of cell {k}" for k, share in self.changed.items())
            lines += [
                f"They decide differently in {self.share:.1%} of {n:,} states: {cells}.",
                f"Where: {self.region.said(self.names)} (precision {self.region.precision:.2f}, "
                f"recall {self.region.recall:.2f}).",
            ]
        else:
            lines.append(f"They decide alike in all of {n:,} states.")
        if len(self.after):
            low, high = self.interval
            lines.append(
                f"Return: {self.before.mean():.4g} before, {self.after.mean():.4g} after: "
                f"{self.change:+.4g} ({low:+.4g} to {high:+.4g}) from {len(self.after)} common "
                "starts."
            )
        return "\n".join(lines)


@one_thread()
def diff(
    before: Any,
    after: Any,
    states: npt.ArrayLike,
    env: str | gym.Env[Any, Any] | None = None,
    episodes: int = 50,
    seed: int | None = None,
) -> Difference:
    """Compare a policy with an earlier one.

    Parameters
    ----------
    before, after : Policy or agent
        Names of components and actions are those of an agent, or else of ``env``, or of the rules.
    states : array_like, shape (n, ...)
        States in which to compare actions, for example from ``agent.visited_states``.
    env : str or gymnasium.Env, optional
        Environment in which to compare returns.
    episodes : int
        Number of episodes of each policy, from the same starts.
    seed : int, optional
        Seed of the starts.

    Raises
    ------
    ValueError
        If states or policies do not have the same number of components.

    Examples
    --------
    >>> scores = np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 4)))
    >>> edited = rule.edit().forbid(0, where="x[2] > 0.05").done()
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
    Where: pole angle > 0.05178 and pole angular velocity < -0.3465 (precision 0.93, recall 1.00).
    Return: 500 before, 500 after: +0 (+0 to +0) from 20 common starts.
    """
    old, new = (_policy(one, name) for one, name in ((before, "before"), (after, "after")))
    d = old.codevectors.shape[1]
    if new.codevectors.shape[1] != d:
        raise ValueError(
            f"after takes observations of {new.codevectors.shape[1]} components: it must take {d}, "
            "as the earlier one does"
        )
    points = np.array(states, dtype=np.float64, ndmin=1)
    points = points.reshape(len(points), math.prod(points.shape[1:]))
    if points.size == 0 or points.shape[1] != d:
        raise ValueError(f"states has shape {np.shape(states)}: it must be (n, {d}), n at least 1")
    owners = (getattr(one, "interface", None) for one in (before, after))
    interface = next((one for one in owners if isinstance(one, Interface)), None)
    if interface is None and env is not None:
        interface = BudgetedEnv(env, 1, 0).interface
    components = tuple(f"observation[{j}]" for j in range(d))
    rules = [one if isinstance(one, RulePolicy) else None for one in (old, new)]
    if interface is not None and interface.n_features == d:
        components = interface.names
        rules = [None if one is None else named_as(one, interface) for one in rules]
    else:
        components = next((one.names for one in rules if one and one.names), components)
    gap = np.abs(np.subtract(old.act(points), new.act(points)))
    tolerated = 2.0 * _TOLERANCE if gap.ndim > 1 else 0.0  # units are from -1 to 1
    differs = np.asarray((gap > tolerated).reshape(len(points), -1).any(axis=1))
    cells = old.cells(points)
    shares = {k: float(differs[cells == k].mean()) for k in np.unique(cells).tolist()}
    first = second = np.empty(0)
    interval = (np.nan, np.nan)
    if env is not None:
        budgeted = BudgetedEnv(env, max(old.n_cells, new.n_cells), _STEPS)
        seeds = draw_seeds(np.random.default_rng(seed), checked_count("episodes", episodes))
        first, second = (budgeted.play(one, seeds) for one in (old, new))
        interval = mean_interval(second - first)
    before_text, after_text = ("" if one is None else one.rules() for one in rules)
    return Difference(
        points, differs, float(differs.mean()), cells,
        {k: share for k, share in shares.items() if share > 0.0}, where(points, differs),
        first, second, interval, components, (before_text, after_text),
    )  # fmt: skip


def _policy(given: Any, name: str) -> Policy:
    policy: Policy = getattr(given, "policy", given)
    if not (hasattr(policy, "act") and hasattr(policy, "codevectors")):
        raise ValueError(
            f"{name} is of type {type(given).__name__}: it must be a policy, or an agent"
        )
    return policy
