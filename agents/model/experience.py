"""All steps and episodes so far, and the candidates that episodes were played with.

``values`` and ``values_of_tables`` decide which candidate is delivered: imagined returns, corrected
by what real episodes returned beyond what the model imagines from the same starts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.policies.cells import TablePolicy
from oda_rl.agents.rules.editing import Clauses, check_outputs, decisions, done_at
from oda_rl.agents.worlds.learning import CodedSteps
from oda_rl.diagram import ordered
from oda_rl.files.schema import Member, check, flags, real, require, whole

Arrays = dict[str, npt.NDArray[Any]]

_FIRST_CAPACITY = 256
_GROWTH, _MAX_GUESS = 2, 400  # horizon guess: factor of the longest episode, maximum
_PRIOR_EPISODES, _PRIOR_FREEDOM = 2.0, 3.0
_SIGNIFICANT = 2.0  # standard errors by which tables have to differ

MEMORY: dict[str, Member] = {
    "before": real("steps, d"),
    "codes": real("steps, C"),
    "rewards": real("steps"),
    "after": real("steps, d"),
    "ended": flags("steps"),
    "first": flags("steps"),
    "since": whole("1", "[0, steps]"),
}
"""Members of a file that belong to :class:`Memory`."""
OUTCOMES: dict[str, Member] = {
    "returns": real("returns"),
    "lengths": whole("returns", "[1, 1000000000]"),
    "terminated": flags("returns"),
}
"""Members of a file that belong to :class:`Outcomes`."""
_TRIED: dict[str, Member] = {
    "cells": whole("R", "[1, 1000000]"),
    "counts": whole("R", "[0, 1000000000]"),
    "returns": real("episodes"),
    "lengths": whole("episodes", "[1, 1000000000]"),
    "terminated": flags("episodes"),
    "imagined": real("episodes"),
    "promised": real("R", "[-inf, inf)"),
}
_RULES: dict[str, Member] = {
    "scores": real("cells, 1+d"),
    "outputs": real("cells, n, m"),
    "starts": real("episodes, d"),
    **_TRIED,
}
_TABLES: dict[str, Member] = {
    "states": real("cells, d"),
    "q_values": real("cells, A"),
    "starts": whole("episodes"),
    **_TRIED,
    "variances": real("R", "[0, inf)"),
}


class Memory:
    """Transitions, the oldest first, in arrays that grow.

    Parameters
    ----------
    n_features, n_codes : int
        Components of an observation, and of an action's code.

    Attributes
    ----------
    n : int
        Transitions so far.
    since : int
        The first transition of the present world.
    """

    _FIELDS = (*CodedSteps._fields, "first")

    def __init__(self, n_features: int, n_codes: int) -> None:
        self.before: FloatArray = np.zeros((_FIRST_CAPACITY, n_features))
        self.codes: FloatArray = np.zeros((_FIRST_CAPACITY, n_codes))
        self.rewards: FloatArray = np.zeros(_FIRST_CAPACITY)
        self.after: FloatArray = np.zeros((_FIRST_CAPACITY, n_features))
        self.ended: BoolArray = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.first: BoolArray = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.n = self.since = 0

    def append(
        self, before: Any, code: Any, reward: float, after: Any, ended: bool, first: bool
    ) -> None:
        """Remember a step, and whether it was the first one of an episode."""
        n = self.n
        if n == len(self.rewards):
            for name in self._FIELDS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.before[n], self.codes[n], self.after[n] = before, code, after
        self.rewards[n], self.ended[n], self.first[n] = reward, ended, first
        self.n += 1

    @property
    def transitions(self) -> CodedSteps:
        """All transitions."""
        return CodedSteps._make(getattr(self, name)[: self.n] for name in CodedSteps._fields)

    @property
    def present(self) -> CodedSteps:
        """Transitions of the present world."""
        return CodedSteps._make(array[self.since :] for array in self.transitions)

    @property
    def present_first(self) -> BoolArray:
        """Whether each of these began an episode, shape (n,)."""
        return self.first[self.since : self.n]

    @property
    def starts(self) -> FloatArray:
        """First observations of the episodes in the present world, shape (m, d)."""
        return self.present.before[self.present_first]

    def state(self) -> Arrays:
        """Return arrays for a file."""
        fields = {name: getattr(self, name)[: self.n] for name in self._FIELDS}
        return {**fields, "since": np.array([self.since])}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what :meth:`state` returned."""
        self.n, self.since = len(state["rewards"]), int(state["since"][0])
        for name in self._FIELDS:
            missing = max(_FIRST_CAPACITY - self.n, 0)
            widths = [(0, missing), *[(0, 0)] * (state[name].ndim - 1)]
            setattr(self, name, np.pad(state[name], widths))


@dataclass
class Outcomes:
    """Finished real episodes, and the horizon of imagined ones.

    Parameters
    ----------
    guess : int
        Smallest horizon while no time limit is known.
    limit : int, optional
        The environment's time limit.
    """

    guess: int
    limit: int | None = None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    _longest: int = 0
    _truncates: bool = False

    def append(self, episode_return: float, length: int, terminated: bool) -> None:
        """Record an episode that has terminated or was truncated."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.terminated.append(terminated)
        self._longest = max(self._longest, length)
        self._truncates |= not terminated

    @property
    def horizon(self) -> int:
        """Maximum number of steps of an imagined episode.

        The environment's time limit. Without one, the longest episode so far if any was truncated,
        or else a guess, which grows with the episodes that terminate.

        >>> outcomes = Outcomes(guess=200)
        >>> outcomes.append(1.0, 150, terminated=True)
        >>> first = outcomes.horizon
        >>> outcomes.append(1.0, 250, terminated=False)
        >>> first, outcomes.horizon
        (300, 250)
        """
        if self.limit is not None:
            return self.limit
        if self._truncates:
            return self._longest
        return max(self.guess, min(_GROWTH * self._longest, _MAX_GUESS))

    @property
    def latest(self) -> tuple[float, int, bool]:
        """Return, length, and whether it terminated, of the latest episode."""
        return self.returns[-1], self.lengths[-1], self.terminated[-1]

    @property
    def comparable(self) -> list[float]:
        """Returns comparable to imagined ones: not those of episodes truncated earlier."""
        episodes = zip(self.returns, self.lengths, self.terminated, strict=True)
        horizon = self.horizon
        return [total for total, length, over in episodes if over or length >= horizon]

    def to_arrays(self) -> Arrays:
        """Return arrays for a file."""
        return {
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths, dtype=np.int64),
            "terminated": np.array(self.terminated, dtype=np.bool_),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what :meth:`to_arrays` returned."""
        for outcome in zip(*(arrays[name].tolist() for name in OUTCOMES), strict=True):
            self.append(*outcome)


@dataclass(eq=False, kw_only=True)
class Tried:
    """A candidate for delivery, and the real episodes played with it from start to end."""

    starts: list[Any] = field(default_factory=list)  # one entry for each episode,
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    imagined: list[float] = field(default_factory=list)
    """Mean returns in the present model, from the same starts in as many steps."""
    promised: float = -math.inf
    """Mean return in the present model."""

    window: ClassVar[int | None] = None
    """Number of latest episodes that count; None: all."""

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns of the episodes that count."""
        first = 0 if self.window is None else max(len(self.returns) - self.window, 0)
        return np.subtract(self.returns[first:], self.imagined[first:])

    def compared(self, horizon: int) -> IntArray:
        """Return the steps over which real and imagined returns are compared, shape (n,).

        An episode that terminated returns the same over more steps; a truncated one does not.

        >>> Tried(lengths=[30, 30], terminated=[True, False]).compared(100)
        array([100,  30])
        """
        lengths = np.array(self.lengths, dtype=np.int64)
        return np.where(self.terminated, np.maximum(lengths, horizon), lengths)

    def note(self, start: Any, episode_return: float, length: int, terminated: bool) -> None:
        """Record a real episode, which has yet to be imagined."""
        self.starts.append(start)
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.terminated.append(terminated)

    def keep(self, kept: Iterable[bool]) -> None:
        """Forget the other real episodes."""
        for name in ("starts", "returns", "lengths", "terminated", "imagined"):
            setattr(self, name, list(compress(getattr(self, name), kept)))


@dataclass(eq=False)
class Candidate(Tried):
    """A rule (:class:`~oda_rl.agents.policies.rules.RulePolicy`) and its real episodes."""

    scores: FloatArray
    outputs: FloatArray
    clauses: Clauses | None = None

    window: ClassVar[int | None] = 20

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the number of the action in a state, and its code."""
        if self.clauses is not None:
            cell = int(decisions(self.scores, self.outputs, self.clauses, point[None])[0])
            output = done_at(self.scores, self.outputs, self.clauses, point[None])[0]
        else:
            cell = int(np.argmax(self.scores[:, 0] + self.scores[:, 1:] @ point))
            output = self.outputs[cell]
        if output.shape[1] == 1:
            return int(output[:, 0].argmax()), output[:, 0]
        units = np.clip(output[:, 0] + output[:, 1:] @ point, -1.0, 1.0)
        return cell, np.concatenate([[1.0], units])


@dataclass(eq=False)
class Tabled(Tried):
    """A table (:class:`~oda_rl.agents.policies.cells.TablePolicy`) and its real episodes.

    ``starts`` holds the numbers of states.
    """

    policy: TablePolicy
    variance: float = 0.0
    """Variance of a return in the present model, averaged over the episodes' starts."""

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action in a state, and its code."""
        action = int(self.policy.choices(point[None])[0])
        return action, np.eye(self.policy.n_actions)[action]


def greedy(states: FloatArray, q_values: FloatArray) -> TablePolicy:
    """Return the policy with a cell for each of n states, shape (n, d).

    >>> greedy(np.array([[0.0], [1.0]]), np.eye(2)).act(np.array([[1.0], [-3.0]]))
    array([1, 0])
    """
    diagram = np.column_stack([(states**2).sum(axis=1), -2.0 * states])
    return TablePolicy(np.zeros(states.shape[1]), ordered(diagram), q_values, states.copy())


def rules_to_arrays(rules: Sequence[Candidate]) -> Arrays:
    """Return rules and their episodes as arrays for a file."""
    if not rules:
        return {}
    starts = [start for one in rules for start in one.starts]
    return {
        "scores": np.concatenate([one.scores for one in rules]),
        "outputs": np.concatenate([one.outputs for one in rules]),
        "starts": np.array(starts).reshape(-1, rules[0].scores.shape[1] - 1),
        "cells": np.array([len(one.scores) for one in rules]),
        **_episodes_to_arrays(rules),
    }


def rules_from_arrays(arrays: Arrays, d: int, n_outputs: int, boxed: bool) -> list[Candidate]:
    """Restore what :func:`rules_to_arrays` returned, or raise InvalidFileError."""
    if not arrays:
        return []
    _check(arrays, _RULES, {"d": d, "n": n_outputs, "m": 1 + d * boxed})
    check_outputs(arrays["outputs"], 1 + d)
    scores, outputs = _split(arrays, "cells", "scores", "outputs")
    each = zip(scores, outputs, _episodes(arrays), strict=True)
    return [Candidate(rows.copy(), done.copy(), **episodes) for rows, done, episodes in each]


def tables_to_arrays(tables: Sequence[Tabled]) -> Arrays:
    """Return tables and their episodes as arrays for a file."""
    if not tables:
        return {}
    return {
        "states": np.concatenate([one.policy.codevectors for one in tables]),
        "q_values": np.concatenate([one.policy.q_values for one in tables]),
        "starts": np.array([start for one in tables for start in one.starts], dtype=np.int64),
        "cells": np.array([one.policy.n_cells for one in tables]),
        "variances": np.array([one.variance for one in tables]),
        **_episodes_to_arrays(tables),
    }


def tables_from_arrays(arrays: Arrays, d: int, n_actions: int) -> list[Tabled]:
    """Restore what :func:`tables_to_arrays` returned, or raise InvalidFileError."""
    if not arrays:
        return []
    _check(arrays, _TABLES, {"d": d, "A": n_actions})
    states, q_values = _split(arrays, "cells", "states", "q_values")
    each = zip(states, q_values, arrays["variances"].tolist(), _episodes(arrays), strict=True)
    return [
        Tabled(greedy(rows, values.copy()), variance, **episodes)
        for rows, values, variance, episodes in each
    ]


def _check(arrays: Arrays, schema: dict[str, Member], sizes: dict[str, int]) -> None:
    check(arrays, schema, sizes)
    for name, total in (("cells", sizes["cells"]), ("counts", sizes["episodes"])):
        require(
            arrays[name].sum() == total, f"{name} has the sum {arrays[name].sum()}: not {total}"
        )


def _episodes_to_arrays(known: Sequence[Tried]) -> Arrays:
    """Return the episodes of all candidates, one after the other, without their starts."""
    return {
        "counts": np.array([len(one.returns) for one in known]),
        "returns": np.concatenate([*(one.returns for one in known), []]),
        "lengths": np.array([length for one in known for length in one.lengths], dtype=np.int64),
        "terminated": np.array(
            [ended for one in known for ended in one.terminated], dtype=np.bool_
        ),
        "imagined": np.concatenate([*(one.imagined for one in known), []]),
        "promised": np.array([one.promised for one in known]),
    }


def _split(arrays: Arrays, counts: str, *names: str) -> list[list[npt.NDArray[Any]]]:
    """Split members into the rows of each candidate."""
    ends = np.cumsum(arrays[counts])[:-1]
    return [np.split(arrays[name], ends) for name in names]


def _episodes(arrays: Arrays) -> list[dict[str, Any]]:
    """Return the fields of each :class:`Tried`."""
    names = "returns", "lengths", "terminated", "imagined"
    starts, *columns = _split(arrays, "counts", "starts", *names)
    each = zip(starts, arrays["promised"].tolist(), *columns, strict=True)
    return [
        {"starts": list(begun), "promised": promised,
         **{name: rows.tolist() for name, rows in zip(names, others, strict=True)}}
        for begun, promised, *others in each
    ]  # fmt: skip


def values(rules: Sequence[Candidate]) -> FloatArray:
    """Return the value of each rule, shape (n,).

    The model's mean return from many starts, plus the mean surprise of its real episodes, shrunk
    towards the median of all rules if that is negative, minus a standard error.

    Examples
    --------
    >>> honest = Candidate(np.zeros((1, 2)), np.ones((1, 1, 1)), promised=90.0)
    >>> honest.returns, honest.imagined = [90.0, 90.0], [90.0, 90.0]
    >>> boaster = Candidate(np.zeros((1, 2)), np.ones((1, 1, 1)), promised=100.0)
    >>> boaster.returns, boaster.imagined = [50.0, 50.0], [100.0, 100.0]
    >>> int(values([honest, boaster]).argmax())
    0
    """
    surprises = [rule.surprises for rule in rules]
    pooled = np.concatenate([np.zeros(0), *surprises])
    within = np.concatenate([np.zeros(0), *(one - one.mean() for one in surprises if len(one) > 1)])
    prior = float(pooled.var()) if len(pooled) else 0.0
    freedom = len(within) + _PRIOR_FREEDOM
    deviation = math.sqrt((float(within @ within) + _PRIOR_FREEDOM * prior) / freedom)
    bias = min(float(np.median(pooled)), 0.0) if len(pooled) else 0.0
    return np.array([
        rule.promised
        + (one.sum() + _PRIOR_EPISODES * bias) / (len(one) + _PRIOR_EPISODES)
        - deviation / math.sqrt(len(one) + 1.0)
        for rule, one in zip(rules, surprises, strict=True)
    ])  # fmt: skip


def values_of_tables(tables: Sequence[Tabled]) -> FloatArray:
    """Return the value of each table, shape (n,).

    The model's mean return, plus the mean surprise of real episodes, shrunk towards that of all
    tables, minus the standard deviation of the remaining surprise. Real episodes are counted in the
    model, too, so surprises matter only as far as they differ more between tables than by chance.

    Examples
    --------
    >>> policy = greedy(np.zeros((1, 1)), np.ones((1, 1)))
    >>> honest, boaster = Tabled(policy, promised=90.0), Tabled(policy, promised=100.0)
    >>> honest.returns, honest.imagined = [90.0, 90.0], [90.0, 90.0]
    >>> boaster.returns, boaster.imagined = [50.0, 50.0], [100.0, 100.0]
    >>> int(values_of_tables([honest, boaster]).argmax())
    0
    """
    surprises = [table.surprises for table in tables]
    pooled = np.concatenate([np.zeros(0), *surprises])
    bias = min(float(pooled.mean()), 0.0) if len(pooled) else 0.0
    counts = np.array([len(one) for one in surprises], dtype=float)
    sums = np.array([one.sum() for one in surprises])
    played = counts > 0.0
    n = max(int(played.sum()), 1)
    means = sums[played] / counts[played]
    within = float(sum(((one - one.mean()) ** 2).sum() for one in surprises if len(one)))
    expected = counts @ np.array([table.variance for table in tables]) / max(counts.sum(), 1.0)
    noise = max(within / max(float((counts[played] - 1.0).sum()), 1.0), float(expected))
    margin = 1.0 + _SIGNIFICANT * math.sqrt(2.0 / n)
    chance = noise * float((1.0 / counts[played]).sum()) / n * margin
    between = max(float(((means - bias) ** 2).sum()) / n - chance, 0.0)
    promised = np.array([table.promised for table in tables])
    if between == 0.0:
        return promised + bias
    share = np.where(played, counts * between / np.maximum(counts * between + noise, between), 0.0)
    shrunk = np.where(played, share * sums / np.maximum(counts, 1.0) + (1.0 - share) * bias, bias)
    return promised + shrunk - np.sqrt(between * (1.0 - share))
