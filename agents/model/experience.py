"""All steps and episodes so far, and the rules that episodes were played with.

``values`` decides which rule is delivered: imagined returns, corrected by what real episodes
returned beyond what the model imagines from the same starts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Self

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.rules.editing import Clauses, check_outputs, decisions, done_at
from oda_rl.agents.worlds.learning import Arrays, CodedSteps
from oda_rl.files.schema import Member, check, flags, members_of, real, whole

_FIRST_CAPACITY = 256
_GROWTH, _MAX_GUESS = 2, 400  # horizon guess, at least: factor of the longest episode, up to steps
_UNSEEN = 10  # at most: factor of the longest episode
_PRIOR_EPISODES, _PRIOR_FREEDOM = 2.0, 3.0
_WINDOW = 20  # latest episodes of a rule that count

MEMORY: dict[str, Member] = {  # members of a file that belong to `Memory`
    **members_of(CodedSteps),
    "first": flags("steps"),
    "since": whole("1", "[0, steps]"),
}
OUTCOMES: dict[str, Member] = {  # members of a file that belong to `Outcomes`
    "returns": real("returns"),
    "lengths": whole("returns", "[1, 1000000000]"),
    "terminated": flags("returns"),
}
CANDIDATE: dict[str, Member] = {  # members of a file that belong to `Candidate`
    "scores": real("K, 1+d"),
    "outputs": real("K, n, m"),
    "promised": real("1", "[-inf, inf)"),
    "starts": real("returns, d"),
    **OUTCOMES,
    "moments": whole("returns"),
    "imagined": real("returns"),
}


class Memory:
    """Transitions, the oldest first, in arrays that grow.

    ``n`` is their number, ``since`` the first one of the present world; an observation has
    ``n_features`` components, an action's code ``n_codes``.
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

    def restore(self, state: Mapping[str, Array]) -> None:
        self.n, self.since = len(state["rewards"]), int(state["since"][0])
        for name in self._FIELDS:
            missing = max(_FIRST_CAPACITY - self.n, 0)
            widths = [(0, missing), *[(0, 0)] * (state[name].ndim - 1)]
            setattr(self, name, np.pad(state[name], widths))


@dataclass
class Outcomes:
    """Finished real episodes, and the horizon of imagined ones, which begins at ``guess``."""

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
        or else a guess of at most ten times the longest, which grows with those that terminate.

        >>> outcomes = Outcomes(guess=200)
        >>> outcomes.append(1.0, 5, terminated=True)
        >>> first = outcomes.horizon
        >>> outcomes.append(1.0, 150, terminated=True)
        >>> first, outcomes.horizon
        (50, 300)
        """
        if self.limit is not None or self._truncates:
            return self.limit or self._longest
        first = min(self.guess, _UNSEEN * self._longest or self.guess)
        return max(first, min(_GROWTH * self._longest, _MAX_GUESS))

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
        return _columns(self)

    def restore(self, arrays: Mapping[str, Array]) -> None:
        for outcome in zip(*(arrays[name].tolist() for name in OUTCOMES), strict=True):
            self.append(*outcome)


@dataclass(eq=False)
class Candidate:
    """A rule, and the real episodes played with it from start to end."""

    scores: FloatArray
    outputs: FloatArray
    clauses: Clauses | None = None
    promised: float = -math.inf  # mean return in the present model
    starts: list[FloatArray] = field(default_factory=list)  # one entry for each episode,
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)  # steps of the agent when it ended
    imagined: list[float] = field(default_factory=list)  # mean returns in the present model

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

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns of the latest episodes."""
        return np.subtract(self.returns[-_WINDOW:], self.imagined[-_WINDOW:])

    def compared(self, horizon: int) -> IntArray:
        """Return the steps to imagine, (n,): a terminated episode returns the same over more."""
        lengths = np.array(self.lengths, dtype=np.int64)
        return np.where(self.terminated, np.maximum(lengths, horizon), lengths)

    @property
    def rule(self) -> tuple[FloatArray, FloatArray]:
        """Scores and outputs."""
        return self.scores, self.outputs

    def note(self, start: FloatArray, outcome: tuple[float, int, bool], moment: int) -> None:
        """Record a real episode, which has yet to be imagined."""
        entry = start.copy(), *outcome, moment
        for name, value in zip(("starts", *OUTCOMES, "moments"), entry, strict=True):
            getattr(self, name).append(value)

    def keep_since(self, moment: int) -> None:
        """Forget real episodes that ended before."""
        kept = np.array(self.moments) > moment
        for name in ("starts", "imagined", "moments", *OUTCOMES):
            setattr(self, name, list(compress(getattr(self, name), kept)))

    def to_arrays(self) -> Arrays:
        return {
            "scores": self.scores,
            "outputs": self.outputs,
            "promised": np.array([self.promised]),
            "starts": np.array(self.starts).reshape(-1, self.scores.shape[1] - 1),
            **_columns(self),
            "moments": np.array(self.moments, dtype=np.int64),
            "imagined": np.array(self.imagined),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, d: int, n_outputs: int, boxed: bool) -> Self:
        """Restore what :meth:`to_arrays` returned, or raise InvalidFileError."""
        check(arrays, CANDIDATE, {"d": d, "n": n_outputs, "m": 1 + d * boxed})
        check_outputs(arrays["outputs"], 1 + d)
        columns = {name: arrays[name].tolist() for name in (*OUTCOMES, "moments", "imagined")}
        return cls(
            arrays["scores"].copy(), arrays["outputs"].copy(), None, float(arrays["promised"][0]),
            list(arrays["starts"]), **columns,
        )  # fmt: skip


def _columns(episodes: Outcomes | Candidate) -> Arrays:
    types = zip(OUTCOMES, (np.float64, np.int64, np.bool_), strict=True)
    return {name: np.array(getattr(episodes, name), dtype) for name, dtype in types}


def values(rules: Sequence[Candidate]) -> FloatArray:
    """Return the value of each rule, shape (n,).

    The model's mean return from many starts, plus the mean surprise of its real episodes, shrunk
    towards the median of all rules if that is negative, minus a standard error.

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
