"""What is done between episodes: learn the world, search a rule in it, say which one is best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.distilling.simplifying import Rule, simplified
from oda_rl.agents.model import candidates
from oda_rl.agents.model.candidates import Candidate
from oda_rl.agents.model.episodes import Outcomes
from oda_rl.agents.model.grading import GradedShape, degrees_of
from oda_rl.agents.model.memory import Memory
from oda_rl.agents.model.search import Effort, Imagination, Shape, search
from oda_rl.agents.model.selection import values
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.rules import RulePolicy, placed
from oda_rl.agents.rules.editing import Clauses, within
from oda_rl.agents.worlds import files
from oda_rl.agents.worlds.learning import Learned, learn_world
from oda_rl.agents.worlds.quality import outdated
from oda_rl.agents.worlds.rewards import depends_on_actions_alone, is_constant
from oda_rl.agents.worlds.trajectories import starts_between
from oda_rl.files.schema import Member, check, require, whole

_LAWS = files.N_LAWS
_PROMISE_STARTS = 48
_FINAL_STARTS, _FINALISTS = 200, 6
_KNOWN = 3  # best rules that a search begins with
_FRESH = 3  # every so many searches begin from new rules alone
_KEPT_BEST, _KEPT_LATEST = 10, 20
_SURE = 10  # episodes after which a rule that cannot be bettered is left alone
_TOLERANCE = 1e-6
_REPEATED = 4  # more searches, while episodes could be longer
_LITTLE = 0.02  # of what separates the best return from the worst
_SIMPLIFYING_STARTS, _SIMPLIFYING_STATES = 32, 500
_TOLERATED_ERROR, _TOLERATED_SHARE = 0.5, 0.003  # of the return, that a simpler rule may lose
_LATEST = 2000  # states that say where a rule's cells are


SCHEMA: dict[str, Member] = {"searches": whole("2")}
"""What a file has beside a world: numbers of searches, and of imagined steps."""


@dataclass
class Planner:
    """The model, the rules found in it, and which of them is best.

    Parameters
    ----------
    memory : Memory
        What has been seen.
    shape : Shape
        Of the rules.
    outcomes : Outcomes
        Of all real episodes.
    config : ModelConfig
        Settings of the agent.
    rng : numpy.random.Generator
        Of fits and searches.
    """

    memory: Memory
    shape: Shape
    outcomes: Outcomes
    config: ModelConfig
    rng: np.random.Generator
    candidates: list[Candidate] = field(default_factory=list)
    learned: Learned | None = None
    searches: int = 0
    imagined_steps: int = 0
    clauses: Clauses | None = None
    """Within which rules are searched and played."""
    _placed: tuple[tuple[Candidate, int, Clauses | None], RulePolicy] | None = None
    """The rule delivered last, and what it was made of: predictions ask for it again and again."""

    def wait(self, steps: int) -> int:
        """Return how many new steps there should be, after so many, before the next plan."""
        if self.learned is None:
            return self.config.random_steps
        known = steps - self.memory.since
        return max(self.config.least_steps, int(self.config.plan_every * known))

    def plan(self, returns: Sequence[float]) -> Candidate:
        """Learn the world anew, and search for a rule to play next.

        Parameters
        ----------
        returns : sequence of float
            Of all episodes so far that stand beside imagined ones.
        """
        self._forget()
        seen = self.memory.present
        before = None if self.learned is None else self.learned.chosen
        worst = min(returns, default=-math.inf)
        self.learned = learn_world(seen, worst, self.shape.boxed, _LAWS, before, self.rng)
        explore = is_constant(seen.rewards) and (len(returns) == 0 or np.ptp(returns) == 0.0)
        self._judge()
        if self.candidates and not explore:
            best = self.best()
            if self._cannot_be_bettered(best):
                return best
            explore = self._leaves_nothing(best, returns)
        known = sorted(self.candidates, key=self._value_of, reverse=True)[:_KNOWN]
        self.searches += 1
        where = self._imagination()
        graded = self._graded(where.shape)
        fresh = self.searches % _FRESH == 0 or (graded is not None and not known)
        rules = [(one.scores, one.outputs) for one in known]
        effort = self._effort(fine=self.searches % _FRESH == 2 and not explore)
        scores, outputs, promised = search(where, rules, explore, fresh, effort, self.rng, graded)
        for again in range(0 if explore else _REPEATED):
            if not self._falls_short(promised):
                break
            rules = [*rules[: len(known)], (scores, outputs)]
            effort = self._effort(fine=again % 2 == 0)
            scores, outputs, promised = search(
                where, rules, False, again % 2 == 1, effort, self.rng
            )
        if explore:  # what is promised is a return, not novelty
            starts = self.draw_starts(_PROMISE_STARTS)
            promised = float(where.returns(*_alone((scores, outputs)), starts).mean())
        self.imagined_steps += where.steps
        for one in known:
            if one.scores is scores:
                return one
        if not explore and self.config.simplify:
            scores, outputs = self._simplified(where, (scores, outputs))
        return Candidate(scores, outputs, promised=promised, clauses=self.clauses)

    def _graded(self, shape: Shape) -> Shape | None:
        """Return the shape of rules by degrees, if actions are degrees of one quantity."""
        assert self.learned is not None
        if shape.boxed:
            return None
        seen = self.memory.present.before
        degrees = degrees_of(self.learned.arrays, self.learned.at, seen, shape.n_outputs)
        return None if degrees is None else GradedShape.by(shape, degrees)

    def _effort(self, fine: bool) -> Effort:
        """Return how long to search, and how far from where it begins."""
        config = self.config
        return Effort(
            generations=config.generations, population=config.population,
            starts=config.starts * (2 if fine else 1), sigma=0.1 if fine else 0.4,
        )  # fmt: skip

    def _falls_short(self, promised: float) -> bool:
        """Whether every step pays the same, and an episode could be longer than is promised."""
        most, constant = self._greatest_return, is_constant(self.memory.present.rewards)
        return most > 0.0 and constant and promised < (1.0 - _TOLERANCE) * most

    @property
    def _greatest_return(self) -> float:
        """Of an episode as long as there may be, each step of which pays the most that was seen."""
        assert self.learned is not None
        return float(self.learned.arrays.bounds[1]) * self.outcomes.horizon

    def _forget(self) -> None:
        """Forget what was seen of a world that is no more, and what rules returned there."""
        if self.learned is None:
            return
        rng = np.random.default_rng(self.memory.n)  # its own: where nothing changes it changes none
        outdated_steps = outdated(self.learned, self.memory.present, rng)
        if outdated_steps:
            self.memory.since += outdated_steps
            self.learned = None
            recent = self._recent_starts()
            for one in self.candidates:
                one.keep([start.tobytes() in recent for start in one.starts])

    def _recent_starts(self) -> set[bytes]:
        """Return where the episodes began that ended in the present world; none if in doubt."""
        rows = np.flatnonzero(self.memory.first[: self.memory.n])
        begun = max(int(np.searchsorted(rows, self.memory.since, side="right")) - 1, 0)
        starts = [self.memory.before[row].tobytes() for row in rows]
        old, recent = set(starts[:begun]), set(starts[begun:])
        return recent - old

    def constrain(self, policy: RulePolicy) -> Candidate | None:
        """Search within a policy's clauses from now on, beginning with it; forget what was known.

        Before anything is learned only its clauses are taken.
        """
        self.clauses, self.candidates = policy.clauses, []
        if self.learned is None:
            return None
        return Candidate(policy.scores, policy.outputs, clauses=policy.clauses)

    def _simplified(self, where: Imagination, rule: Rule) -> Rule:
        """Drop what the model says does not matter."""
        seen = self.memory.present.before
        halves = self.draw_starts(_SIMPLIFYING_STARTS), self._draw_seen(_SIMPLIFYING_STARTS)
        starts = np.concatenate(halves)
        before = where.returns(*_alone(rule), starts)[0]
        rows = self.rng.integers(len(seen), size=_SIMPLIFYING_STATES)

        def as_good(other: Rule) -> bool:
            change = where.returns(*_alone(other), starts)[0] - before
            error = float(change.std()) / math.sqrt(len(starts))
            lost = min(_TOLERATED_ERROR * error, _TOLERATED_SHARE * abs(float(before.mean())))
            return bool(change.mean() >= -lost)

        return simplified(rule, seen[rows], as_good)

    def note(self, candidate: Candidate, start: FloatArray, *outcome: Any) -> None:
        """Note a real episode that was played with a rule from its start to its end."""
        if not any(candidate is one for one in self.candidates):
            self.candidates.append(candidate)
            self._drop_worst()
        candidate.note(start.copy(), *outcome)
        latest = candidate.compared(self.outcomes.horizon)[-1:]
        candidate.imagined.append(self._imagined_from(candidate, start[None], latest)[0])

    def best(self) -> Candidate:
        """Return the rule of greatest value."""
        return self.candidates[int(np.argmax(values(self.candidates)))]

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the first law's cells, in the observation's units, shape (K, d)."""
        assert self.learned is not None
        at, points = self.learned.at, self.learned.arrays.codevectors[0].T
        return np.asarray(points * np.where(at.ignored, 0.0, at.scale) + at.mean)

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning.

        0 of what never varied.
        """
        if self.learned is None:
            return None
        varies = np.ptp(self.memory.transitions.before, axis=0) > 0.0
        varies &= ~self.learned.at.ignored
        return np.asarray(varies / self.learned.at.scale)

    def policy(self, newest: Candidate | None) -> RulePolicy:
        """Return the best rule; ``newest`` was planned last."""
        best = self.best() if self.candidates else newest
        if best is not None:
            return self._delivered(best)
        shape = self.shape
        nothing = np.zeros((1, shape.n_outputs, 1 + shape.n_features * shape.boxed))
        if not shape.boxed:
            nothing[0, 0] = 1.0
        blank = RulePolicy(
            np.zeros((1, 1 + shape.n_features)), nothing, np.zeros((1, shape.n_features))
        )
        return blank if self.clauses is None else within(blank, self.clauses)

    def pack(self, known: Sequence[Candidate]) -> dict[str, npt.NDArray[Any]]:
        """Return rules as arrays, for a file."""
        edits = {} if self.clauses is None else files.prefixed("clauses", self.clauses.arrays)
        return {**candidates.to_arrays(list(known)), **edits}

    def unpack(self, arrays: dict[str, npt.NDArray[Any]]) -> list[Candidate]:
        """Make of them what was packed."""
        shape, edits = self.shape, files.part(arrays, "clauses")
        d, n = shape.n_features, shape.n_outputs
        size = (n, 1 + d * shape.boxed)
        self.clauses = Clauses.from_arrays(edits, d, size) if edits else None
        own = {name: array for name, array in arrays.items() if not name.startswith("clauses_")}
        known = candidates.from_arrays(own, d, n, shape.boxed)
        for one in known:
            one.clauses = self.clauses
        return known

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that has to be saved, the candidates apart."""
        counts = {"searches": np.array([self.searches, self.imagined_steps])}
        return counts if self.learned is None else {**counts, **files.to_arrays(self.learned)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], known: list[Candidate]) -> None:
        """Take over what :meth:`state` returned, and candidates; or raise InvalidFileError."""
        world = {name: array for name, array in arrays.items() if name not in SCHEMA}
        check({name: arrays[name] for name in SCHEMA if name in arrays}, SCHEMA, {})
        self.searches, self.imagined_steps = arrays["searches"].tolist()
        shape = self.shape
        self.learned = None
        if world:
            n_codes = self.memory.codes.shape[1]
            self.learned = files.from_arrays(world, shape.boxed, n_codes, shape.n_features)
        right = self.learned is not None or not known
        require(right, "there are candidates, but no world in which they were found")
        self.candidates = known

    def draw_starts(self, n: int) -> FloatArray:
        """Draw states between those in which episodes have begun, shape (n, d).

        As long as there is at most one, between all that were seen.
        """
        assert self.learned is not None
        seen = self.memory.starts
        if len(seen) <= 1:
            seen = self.memory.present.before
        return starts_between(seen, self.learned.at, n, self.rng)

    def _draw_seen(self, n: int) -> FloatArray:
        """Draw states that were seen, shape (n, d)."""
        seen = self.memory.present.before
        return np.asarray(seen[self.rng.integers(len(seen), size=n)])

    def _delivered(self, candidate: Candidate) -> RulePolicy:
        """Return a rule with a point in each of its cells, from the latest states."""
        key = candidate, self.memory.n, self.clauses
        if self._placed is not None and self._placed[0] == key:
            return self._placed[1]
        points = self.memory.transitions.before[-_LATEST:]
        rule = RulePolicy(
            candidate.scores, candidate.outputs, np.zeros((len(candidate.scores), points.shape[1]))
        )
        rule = placed(rule if self.clauses is None else within(rule, self.clauses), points)
        self._placed = key, rule
        return rule

    def _imagination(self) -> Imagination:
        assert self.learned is not None
        world = self.learned.arrays
        if self.clauses is not None:
            edits = self.clauses
            first = np.full(len(edits.ends), -1)
            first[: len(edits.forbidden)] = edits.forbidden
            world = world._replace(
                conditions=edits.conditions,
                clauses=np.column_stack([edits.ends, first]),
                said=edits.outputs,
            )
        drawing, at = (self.draw_starts, self._draw_seen), self.learned.at
        return Imagination(world, at, self.shape.among(at), self.outcomes.horizon, *drawing)

    def _judge(self) -> None:
        """Imagine all candidates anew in the present model."""
        if not self.candidates:
            return
        starts = self.draw_starts(_PROMISE_STARTS)
        where = self._imagination()
        for one in self.candidates:
            rule = one.scores[None], one.outputs[None]
            one.promised = float(where.returns(*rule, starts).mean())
            one.imagined = self._imagined_from(
                one,
                np.reshape(one.starts, (-1, starts.shape[1])),
                one.compared(self.outcomes.horizon),
            ).tolist()
        finalists = np.argsort(-values(self.candidates), kind="stable")[:_FINALISTS]
        more = self.draw_starts(_FINAL_STARTS)
        for k in finalists.tolist():
            one = self.candidates[k]
            rule = one.scores[None], one.outputs[None]
            total = _FINAL_STARTS * float(where.returns(*rule, more).mean())
            one.promised = (_PROMISE_STARTS * one.promised + total) / (
                _PROMISE_STARTS + _FINAL_STARTS
            )
        self.imagined_steps += where.steps

    def _imagined_from(
        self, candidate: Candidate, starts: FloatArray, lengths: IntArray
    ) -> FloatArray:
        """Return the mean of what all laws imagine from each start in so many steps, shape (n,)."""
        where, means = self._imagination(), np.empty(len(starts))
        for steps in np.unique(lengths).tolist():
            where.horizon, rows = steps, lengths == steps
            repeated = np.repeat(starts[rows], _LAWS, axis=0)
            returns = where.returns(candidate.scores[None], candidate.outputs[None], repeated)
            means[rows] = returns.reshape(-1, _LAWS).mean(axis=1)
        self.imagined_steps += where.steps
        return means

    def _cannot_be_bettered(self, best: Candidate) -> bool:
        """Whether a rule has the greatest return there can be, in the model and really."""
        most, horizon = self._greatest_return, self.outcomes.horizon
        if most <= 0.0 or not best.returns:
            return False
        least = (1.0 - _TOLERANCE) * most
        real = np.array(best.returns) >= least * best.compared(horizon) / horizon
        return bool(best.promised >= least and real[-_SURE:].all())

    def _leaves_nothing(self, best: Candidate, returns: Sequence[float]) -> bool:
        """Whether a rule avoids all cost, and nothing that pays has been seen yet.

        Not where costs depend on the state: there, a rule has somewhere to be.
        """
        most, seen = self._greatest_return, self.memory.present
        if most > 0.0 or not returns or seen.ended.any():
            return False  # it pays to end an episode that only costs
        if not depends_on_actions_alone(seen.codes, seen.rewards):
            return False
        return most - best.promised <= _LITTLE * (best.promised - min(returns))

    def _value_of(self, candidate: Candidate) -> float:
        at = next(k for k, one in enumerate(self.candidates) if one is candidate)
        return float(values(self.candidates)[at])

    def _drop_worst(self) -> None:
        if len(self.candidates) > _KEPT_BEST + _KEPT_LATEST:
            older, latest = self.candidates[:-_KEPT_LATEST], self.candidates[-_KEPT_LATEST:]
            kept = np.sort(np.argsort(-values(older), kind="stable")[:_KEPT_BEST])
            self.candidates = [*(older[k] for k in kept.tolist()), *latest]


def _alone(rule: Rule) -> Rule:
    return rule[0][None], rule[1][None]
