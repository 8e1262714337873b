"""Planning between episodes: learn the world, search for a rule in it, decide which is best."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.progress import report_work
from oda_rl.agents.distilling.coding import Coding, GradedCoding, degrees_of
from oda_rl.agents.distilling.search import Effort, Imagination, search
from oda_rl.agents.distilling.simplifying import MAX_SIMPLIFIED, Rule, simplified
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.model.experience import Candidate, Memory, Outcomes, values
from oda_rl.agents.model.linear_quadratic import linear_quadratic_rules
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.rules import RulePolicy, placed, reduced
from oda_rl.agents.rules.editing import Clauses, decisions, within
from oda_rl.agents.worlds import learning
from oda_rl.agents.worlds.laws import depends_on_actions_alone, is_constant
from oda_rl.agents.worlds.learning import N_LAWS, Arrays, Learned, learn_world
from oda_rl.agents.worlds.quality import outdated
from oda_rl.agents.worlds.simulation import starts_between
from oda_rl.files import schema
from oda_rl.files.schema import check, require, whole

_MIN_STEPS, _MAX_WAIT = 100, 0.5  # between two plans; as a share of the known steps
_FREE, _PER_STEP = 5e9, 8e6  # multiplications of a plan: 2 s; and 3 ms for each step until the next
_PROMISE_STARTS = 48
_FINAL_STARTS, _N_FINALISTS = 200, 6
_N_KNOWN = 3  # best rules that a search begins with
_FRESH_EVERY = 3  # every third search begins from new rules alone
_KEPT_BEST, _KEPT_LATEST = 10, 20
_SURE = 10  # episodes after which a perfect rule is left alone
_TOLERANCE = 1e-6
_MAX_REPEATS = 4  # further searches, while episodes could be longer
_LITTLE = 0.02  # share of the difference between the best return and the worst
_SIMPLIFYING_STARTS, _SIMPLIFYING_STATES = 32, 500
_RARE = 0.01  # share of the latest states
_TOLERATED_ERROR, _TOLERATED_SHARE = 0.5, 0.003  # loss of a simpler rule: standard errors, share
_SHORT = 8.0  # steps: a search begins shorter episodes from more starts
_MAX_CELLS = 20
_MAX_NUMBERS = 700  # of a rule: a search for more is slow
_N_LATEST = 2000  # states that place a rule's codevectors
_N_REDUCING = 20_000  # states of which each used cell must have one


def n_cells_for(n_actions: int) -> int:
    """Return the number of cells: two for each pair of actions, at most 20 or one per action."""
    return max(n_actions, min(n_actions * max(n_actions - 1, 2), _MAX_CELLS))


@dataclass
class Planner:
    """The learned world, the rules found in it, and which of them is best."""

    memory: Memory
    interface: Interface
    outcomes: Outcomes
    config: ModelConfig
    rng: np.random.Generator
    candidates: list[Candidate] = field(default_factory=list)
    learned: Learned | None = None
    searches: int = 0
    clauses: Clauses | None = None  # rules are searched and played within these
    _work: float = 0.0  # multiplications of the last search
    _placed: tuple[tuple[Candidate, int, Clauses | None], RulePolicy] | None = None
    """The last delivered rule, with its key: predictions ask for it again and again."""

    @property
    def _boxed(self) -> bool:
        return self.interface.box is not None

    @property
    def _n_outputs(self) -> int:
        return self.interface.n_components if self._boxed else self.interface.n_actions

    def wait(self, steps: int) -> int:
        """Return how many new steps to take, after ``steps``, before the next plan."""
        if self.learned is None:
            return self.config.random_steps
        known = steps - self.memory.since
        slow = min((self._work - _FREE) / _PER_STEP, _MAX_WAIT * known)
        return int(max(_MIN_STEPS, self.config.plan_every * known, slow))

    def plan(self, returns: Sequence[float]) -> Candidate:
        """Learn the world anew, and find a rule; ``returns`` are comparable to imagined ones."""
        self._forget()
        self._work, seen = 0.0, self.memory.present
        self.learned = self.learn(returns)
        explore = is_constant(seen.rewards) and (len(returns) == 0 or np.ptp(returns) == 0.0)
        self._judge()
        if self.candidates and not explore:
            best = self.best()
            if self._is_perfect(best):
                return best
            explore = self._avoids_all_cost(best, returns)
        order = np.argsort(-values(self.candidates), kind="stable")[:_N_KNOWN]
        known: list[Candidate] = [self.candidates[k] for k in order.tolist()]
        self.searches += 1
        where = self._imagination()
        graded = self._graded(where.coding)
        fresh = self.searches % _FRESH_EVERY == 0 or (graded is not None and not known)
        rules = [one.rule for one in known]
        if self._boxed:
            rules += linear_quadratic_rules(seen, self.learned.at, rewarded=True)
        effort = self._effort(fine=self.searches % _FRESH_EVERY == 2 and not explore)
        if fresh and not explore and self._ends_save_costs():
            costless = where.from_lowest_reward()
            rules.append(search(costless, (), False, True, effort, self.rng, graded)[:2])
            fresh = False
        scores, outputs, promised = search(where, rules, explore, fresh, effort, self.rng, graded)
        for again in range(0 if explore else _MAX_REPEATS):
            if not self._falls_short(promised):
                break
            rules, effort = [*rules[: len(known)], (scores, outputs)], self._effort(again % 2 == 0)
            found = search(where, rules, False, again % 2 == 1, effort, self.rng)
            scores, outputs, promised = found
        if explore:  # the search has promised novelty, not a return
            promised = self._promise(where, (scores, outputs))
        world = self.learned.arrays
        used = world.laws[0], world.locals[0, :3], world.codevectors[0], world.waves[0]
        # Discrete actions use a part of the laws, and need short searches.
        self._work = float(self._boxed * where.steps * sum(array.size for array in used))
        for one in known:
            if one.scores is scores:
                return one
        if not explore and self.config.simplify:
            scores, outputs = self._simplified(where, (scores, outputs))
        return Candidate(scores, outputs, promised=promised, clauses=self.clauses)

    def learn(self, returns: Sequence[float]) -> Learned:
        """Return the present world, learned anew."""
        before = None if self.learned is None else self.learned.chosen
        worst, seen = min(returns, default=-math.inf), self.memory.present
        return learn_world(seen, worst, self._boxed, N_LAWS, before, self.rng)

    def note(self, played: Any, start: FloatArray, outcome: tuple[float, int, bool]) -> None:
        """Record a real episode: its start, (d,); its return, length, and whether it ended."""
        if not isinstance(played, Candidate):
            return
        if not any(played is one for one in self.candidates):
            self.candidates.append(played)
            self._drop_worst()
        played.note(start, outcome, self.memory.n)
        latest = played.compared(self.outcomes.horizon)[-1:]
        played.imagined.append(self._imagined_from(played, start[None], latest)[0])

    def best(self) -> Candidate:
        """Return the candidate with the highest value."""
        return self.candidates[int(np.argmax(values(self.candidates)))]

    def policy(self, newest: Any) -> RulePolicy:
        """Return the delivered rule: the best candidate, or else ``newest``, or a constant."""
        best = self.best() if self.candidates else newest
        if best is not None:
            return self.delivered(best)
        d, n = self.interface.n_features, self._n_outputs
        output = np.zeros((1, n, 1 + d)) if self._boxed else np.eye(n)[:1, :, None]
        constant = RulePolicy(np.zeros((1, 1 + d)), output, np.zeros((1, d)))
        return constant if self.clauses is None else within(constant, self.clauses)

    def constrain(self, policy: RulePolicy) -> Candidate | None:
        """Search within a policy's clauses from now on; return it as a candidate in a world."""
        self.clauses, self.candidates = policy.clauses, []
        if self.learned is None:
            return None
        promised = self._promise(self._imagination(), (policy.scores, policy.outputs))
        return Candidate(policy.scores, policy.outputs, promised=promised, clauses=policy.clauses)

    def _promise(self, where: Imagination, rule: Rule) -> float:
        return float(where.returns_of(rule, self.draw_starts(_PROMISE_STARTS)).mean())

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the first law's cells, shape (K, d)."""
        assert self.learned is not None
        at, points = self.learned.at, self.learned.arrays.codevectors[0].T
        return np.asarray(points * np.where(at.ignored, 0.0, at.scale) + at.mean)

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the components, 0 for constants; None before learning."""
        if self.learned is None:
            return None
        seen, at = self.memory.present.before, self.learned.at
        deviations = np.where(at.ignored, seen.std(axis=0), at.scale) * (np.ptp(seen, axis=0) > 0.0)
        return np.asarray(np.divide(1.0, deviations, out=deviations, where=deviations > 0.0))

    @property
    def _varies(self) -> BoolArray:
        """Which components vary, and are not noise: rules are of these."""
        assert self.learned is not None
        varies = np.ptp(self.memory.present.before, axis=0) > 0.0
        return np.asarray(varies & ~self.learned.at.ignored)

    def to_arrays(self, known: Sequence[Any]) -> Arrays:
        """Return arrays for a file, with the ``known`` rules."""
        arrays: Arrays = {"searches": np.array([self.searches])}
        if self.clauses is not None:
            arrays |= schema.prefixed("clauses_", self.clauses.arrays)
        if self.learned is not None:
            arrays |= schema.prefixed("learned_", learning.world_to_arrays(self.learned))
        for k, one in enumerate(known):
            arrays |= schema.prefixed(f"rule{k}_", one.to_arrays())
        return arrays

    def restore(self, arrays: Mapping[str, Array], n_candidates: int) -> list[Any]:
        """Restore what :meth:`to_arrays` returned; return the known rules, candidates first."""
        d, n, boxed = self.interface.n_features, self._n_outputs, self._boxed
        clauses, learned = (schema.within(arrays, name) for name in ("clauses_", "learned_"))
        known: list[Candidate] = []
        while rule := schema.within(arrays, f"rule{len(known)}_"):
            known.append(Candidate.from_arrays(rule, d, n, boxed))
        parts = "clauses_", "learned_", *(f"rule{k}_" for k in range(len(known)))
        rest = {k: arrays[k] for k in arrays if not k.startswith(parts)}
        check(rest, {"searches": whole("1")}, {})
        (self.searches,) = arrays["searches"].tolist()
        self.clauses = Clauses.from_arrays(clauses, d, (n, 1 + d * boxed)) if clauses else None
        self.learned = None
        if learned:
            self.learned = learning.world_from_arrays(learned, boxed, self.memory.codes.shape[1], d)
        for one in known:
            one.clauses = self.clauses
        self.candidates = known[:n_candidates]
        right = self.learned is not None or not self.candidates
        require(right, "there are candidates, but no world in which they were found")
        return known

    def draw_starts(self, n: int) -> FloatArray:
        """Draw states, (n, d), between first observations of episodes, or, if few, between all."""
        assert self.learned is not None
        seen = self.memory.starts
        if len(seen) <= 1:
            seen = self.memory.present.before
        return starts_between(seen, self.learned.at, n, self.rng)

    def _draw_seen(self, n: int) -> FloatArray:
        seen = self.memory.present.before
        return np.asarray(seen[self.rng.integers(len(seen), size=n)])

    def _imagination(self) -> Imagination:
        assert self.learned is not None
        world, at = self.learned.arrays, self.learned.at
        if self.clauses is not None:
            edits = self.clauses
            first = np.full(len(edits.ends), -1)
            first[: len(edits.forbidden)] = edits.forbidden
            ends = np.column_stack([edits.ends, first])
            world = world._replace(conditions=edits.conditions, clauses=ends, said=edits.outputs)
        width = (1 + len(at.mean)) * (1 + self._n_outputs * self._boxed)
        wanted = self.interface.n_actions if self._boxed else n_cells_for(self._n_outputs)
        n_cells = min(wanted, max(_MAX_NUMBERS // width, 2 if self._boxed else self._n_outputs))
        coding = Coding(
            at.mean, at.scale, n_cells, self._n_outputs, self._boxed, self._boxed,
            np.flatnonzero(self._varies),
        )  # fmt: skip
        horizon = self.outcomes.horizon
        return Imagination(world, coding, horizon, self.draw_starts, self._draw_seen)

    def _graded(self, coding: Coding) -> Coding | None:
        """Return a graded coding if actions are degrees of one quantity."""
        assert self.learned is not None
        if coding.boxed:
            return None
        seen = self.memory.present.before
        degrees = degrees_of(self.learned.arrays, self.learned.at, seen, coding.n_outputs)
        return None if degrees is None else GradedCoding(**vars(coding), degrees=degrees)

    def _frequent(self, rule: Rule) -> list[Rule]:
        """Return the rules of the most visited cell, and of those with over 1 % of the states."""
        cells = decisions(*rule, None, self.memory.present.before[-_N_LATEST:])
        shares = np.bincount(cells, minlength=len(rule[0])) / len(cells)
        masks = shares == shares.max(), shares > _RARE
        return [rule if kept.all() else (rule[0][kept], rule[1][kept]) for kept in masks]

    def _effort(self, fine: bool) -> Effort:
        config, lengths = self.config, self.outcomes.lengths
        more = max(round(_SHORT / float(np.mean(lengths))), 1) if lengths else 1
        return Effort(
            generations=config.generations, population=config.population,
            starts=config.starts * more * (2 if fine else 1), sigma=0.1 if fine else 0.4,
        )  # fmt: skip

    def _ends_save_costs(self) -> bool:
        """Whether a search may stop at rules that end an episode at once, as each step costs."""
        seen = self.memory.present
        ends, others = seen.rewards[seen.ended], seen.rewards[~seen.ended]
        return min(len(ends), len(others)) > 0 and bool(ends.mean() < others.mean() < 0.0)

    def _falls_short(self, promised: float) -> bool:
        """Whether every step pays the same, and an episode could be longer than promised."""
        most, constant = self._max_return, is_constant(self.memory.present.rewards)
        return most > 0.0 and constant and promised < (1.0 - _TOLERANCE) * most

    @property
    def _max_return(self) -> float:
        """Return of the longest episode if each step pays the maximum observed reward."""
        assert self.learned is not None
        return float(self.learned.arrays.bounds[1]) * self.outcomes.horizon

    def _is_perfect(self, best: Candidate) -> bool:
        """Whether a rule has the highest possible return, imagined and real."""
        most, horizon = self._max_return, self.outcomes.horizon
        if most <= 0.0 or not best.returns:
            return False
        least = (1.0 - _TOLERANCE) * most
        real = np.array(best.returns) >= least * best.compared(horizon) / horizon
        return bool(best.promised >= least and real[-_SURE:].all())

    def _avoids_all_cost(self, best: Candidate, returns: Sequence[float]) -> bool:
        """Whether a rule avoids all cost of actions, and no reward is known that pays."""
        most, seen = self._max_return, self.memory.present
        if most > 0.0 or not returns or seen.ended.any():
            return False  # it pays to end an episode that only costs
        if not depends_on_actions_alone(seen.codes, seen.rewards):
            return False
        return most - best.promised <= _LITTLE * (best.promised - min(returns))

    def _forget(self) -> None:
        """Forget steps and returns from before the world changed, if it has."""
        if self.learned is None:
            return
        rng = np.random.default_rng(self.memory.n)  # another one: results stay if nothing changed
        outdated_steps = outdated(self.learned, self.memory.present, rng)
        if outdated_steps:
            self.memory.since += outdated_steps
            self.learned = None
            for one in self.candidates:
                one.keep_since(self.memory.since)

    def _simplified(self, where: Imagination, rule: Rule) -> Rule:
        """Drop cells, numbers and digits that do not matter in imagination."""

        def judge_by(first: Rule, starts: FloatArray) -> Callable[[Rule], bool]:
            before = where.returns_of(first, starts)

            def as_good(other: Rule) -> bool:
                report_work("simplifying a rule")
                change = where.returns_of(other, starts) - before
                error = float(change.std()) / math.sqrt(len(starts))
                lost = min(_TOLERATED_ERROR * error, _TOLERATED_SHARE * abs(float(before.mean())))
                return bool(change.mean() >= -lost)

            return as_good

        if self._boxed:  # cells have to matter in episodes from their starts
            as_good = judge_by(rule, self.draw_starts(_FINAL_STARTS))
            rule = next(filter(as_good, self._frequent(rule)), rule)
        halves = self.draw_starts(_SIMPLIFYING_STARTS), self._draw_seen(_SIMPLIFYING_STARTS)
        as_good = judge_by(rule, np.concatenate(halves))
        return simplified(rule, self._draw_seen(_SIMPLIFYING_STATES), as_good, MAX_SIMPLIFIED)

    def delivered(self, candidate: Candidate) -> RulePolicy:
        """Return a rule with a codevector in each of its cells, from the latest states."""
        key = candidate, self.memory.n, self.clauses
        if self._placed is not None and self._placed[0] == key:
            return self._placed[1]
        seen = self.memory.transitions.before
        points = seen[-_N_LATEST:]
        rule = RulePolicy(*candidate.rule, np.zeros((len(candidate.scores), points.shape[1])))
        if self.clauses is None:
            sample = seen[:: max(len(seen) // _N_REDUCING, 1)]
            rule = reduced(rule, np.concatenate([sample, points]))
        rule = placed(rule if self.clauses is None else within(rule, self.clauses), points)
        self._placed = key, rule
        return rule

    def _judge(self) -> None:
        """Imagine all candidates in the present model."""
        if not self.candidates:
            return
        starts, horizon = self.draw_starts(_PROMISE_STARTS), self.outcomes.horizon
        where = self._imagination()
        for one in self.candidates:
            report_work("imagining episodes of all rules")
            one.promised = float(where.returns_of(one.rule, starts).mean())
            begun = np.reshape(one.starts, (-1, starts.shape[1]))
            one.imagined = self._imagined_from(one, begun, one.compared(horizon)).tolist()
        finalists = np.argsort(-values(self.candidates), kind="stable")[:_N_FINALISTS]
        more = self.draw_starts(_FINAL_STARTS)
        for k in finalists.tolist():
            one = self.candidates[k]
            found = float(where.returns_of(one.rule, more).mean())
            total = _PROMISE_STARTS * one.promised + _FINAL_STARTS * found
            one.promised = total / (_PROMISE_STARTS + _FINAL_STARTS)

    def _imagined_from(
        self, candidate: Candidate, starts: FloatArray, lengths: IntArray
    ) -> FloatArray:
        """Return the mean return over all laws from each start in ``lengths`` steps, shape (n,)."""
        where, means = self._imagination(), np.empty(len(starts))
        for steps in np.unique(lengths).tolist():
            where.horizon, rows = steps, lengths == steps
            returns = where.returns_of(candidate.rule, np.repeat(starts[rows], N_LAWS, axis=0))
            means[rows] = returns.reshape(-1, N_LAWS).mean(axis=1)
        return means

    def _drop_worst(self) -> None:
        if len(self.candidates) > _KEPT_BEST + _KEPT_LATEST:
            older, latest = self.candidates[:-_KEPT_LATEST], self.candidates[-_KEPT_LATEST:]
            kept = np.sort(np.argsort(-values(older), kind="stable")[:_KEPT_BEST])
            self.candidates = [*(older[k] for k in kept.tolist()), *latest]
