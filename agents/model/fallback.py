"""Fallback where a learned world is not trusted: learning goes on in the real environment.

A fitted agent learns there, from the remembered steps and further ones. Continuous actions are
codevectors, or chosen from a grid if many steps are left. If discrete actions have many steps left
in one environment, its policy is distilled into a rule of a few cells, which is climbed, pruned and
confirmed in real episodes. Else real returns decide between its policy, the rules of the learned
world and one of affine advantages (:mod:`oda_rl.agents.fitting.affine`), which is fitted to the
same steps. Where continuous actions have many steps left, one affine rule is climbed instead
(``climbing``), unless episodes terminate though survival does not pay.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray
from oda_rl.agents.base.loops import NO_EPISODE, Progress
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.distilling.distil import Distilled, small_rule
from oda_rl.agents.distilling.imitation import teacher_of
from oda_rl.agents.distilling.playing import BudgetedEnv, draw_seeds
from oda_rl.agents.distilling.search import race
from oda_rl.agents.distilling.simplifying import Confirming
from oda_rl.agents.environments.adaptation import WithOptions
from oda_rl.agents.environments.spaces import Interface, action_choices
from oda_rl.agents.fitted import changes
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.codevectors import CodevectorAgent
from oda_rl.agents.fitting.affine import MAX_COLUMNS, affine_rule
from oda_rl.agents.model.climbing import MANY_EPISODES, MIN_HORIZON, Climb, Episodes, survival_bonus
from oda_rl.agents.model.experience import Candidate
from oda_rl.agents.model.linear_quadratic import HIGH_COSTS, MAX_WIDTH, linear_quadratic_rules
from oda_rl.agents.offline import Steps, as_rows
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy, TablePolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.laws import is_constant
from oda_rl.agents.worlds.learning import CodedSteps, trajectories
from oda_rl.agents.worlds.quality import Trust
from oda_rl.agents.worlds.world import World
from oda_rl.files.schema import prefixed, require, within

if TYPE_CHECKING:
    from oda_rl.agents.model.agent import ModelAgent
    from oda_rl.agents.model.engine import ModelEngine
    from oda_rl.agents.model.planner import Planner

_JUDGED_FIRST = 3000  # steps after which a world is judged first,
_JUDGED_SHARE, _MIN_JUDGED = 0.2, 500  # or a share of all, but not before 500;
_JUDGED_AGAIN = 2.0  # and factor of the steps until it is judged again
_JUDGED_SOONER = 0.5  # share of those first steps, where a climb or few steps' values could follow
_MAX_DISTRUSTED = 2  # times in a row
_EARLY = 1000  # steps, before which a world is judged as a whole
_COMPLETE_FROM = 500  # steps, after which discrete actions need rewards that are predicted:
_MIN_REWARD_R2 = 0.99
_MIN_LEFT = 20_000  # steps, with fewer of which no rule is distilled
_MIN_EPISODES, _SURE, _SHORT = 5, 2.0, 0.2  # standard errors; share of the gain over random play
_LEARNING, _MAX_LEARNING = 0.6, 250_000  # share and maximum of the steps to learn values
_BEFORE_RULE, _MAX_PLAYED = 0.5, 4  # share of few steps before rules of values; episodes of one
_FOR_AFFINE = 0.1  # share of many steps after values are learned, for such rules
_TRYING = 0.1  # share of what is left to play a rule that is not the best
_CELLS = 16
_GRID = 3  # values of each component of a continuous action, if many steps are left for values
_OF_FEW_STEPS = {"gamma": 0.985, "n_fits": 5}  # if no rule is distilled
_DECISIONS, _SHARE, _HOLD = 6.0, 0.06, 3  # random ones an episode, if few steps are left
_STARTING, _TRIALS = 0.3, 3  # share of the steps to choose a climb's first rule; whole episodes
_RACING = 0.05  # share of the steps to race the rule against the one before
_MODELLED = 0.02  # share of the steps before a climb competes with a trusted world
_PLANNED = 0.005  # share of the steps between two plans until then
_COMPETES = "a rule climbed in real episodes may return more than the best of the model"
_WINS = "a rule climbed in real episodes returns more than the best of the model"
_MAX_COMPONENTS = 3  # of an action: with more, the first world has to be trusted for any rules
_NEEDS_NONE = "a climb needs no model of more than three components of an action"
_TOO_WIDE = f"a climb needs no model of more than {MAX_WIDTH} components of an observation"
_UNLIMITED = 1000  # steps of an episode without a time limit


@dataclass
class Fallback:
    """Judges the world while an agent learns, and takes over where it is not trusted."""

    reason: str | None = None  # why it has taken over; None if it has not
    doubt: str | None = None  # why the world is not trusted at the end, where it has not taken over
    rule: RulePolicy | None = None
    climb: Climb | None = None  # the climb to an affine rule, once it has taken over
    fitted: FittedQAgent | None = None  # the agent that learns values, once it has taken over
    _judged_at: int = 0
    _distrusted: int = 0
    _rewards_only: bool = False  # whether only rewards are judged yet
    _rule_returns: list[float] = field(default_factory=list)  # of the rule from fresh starts

    def train(
        self, agent: "ModelAgent", training: Progress, run: TrainingRun, rng: np.random.Generator
    ) -> Progress:
        """Train as long as the world is trusted, then in the real environment alone."""
        n, total = agent.interface.n_components, agent.num_timesteps + run.total - run.steps
        climbs = n > _MAX_COMPONENTS and total >= _MIN_LEFT
        if n > _MAX_COMPONENTS and agent.interface.n_features > MAX_WIDTH:
            self.reason = _TOO_WIDE
        if self.reason is None:
            modelled = _modelled(agent, run.total - run.steps)
            agent._engine.min_wait = 0 if modelled == math.inf else int(_PLANNED * total)
            if self._judged_at == 0:
                early = max(int(_JUDGED_SHARE * total), _MIN_JUDGED)
                sooner = _JUDGED_SOONER if (n > 0) == (total >= _MIN_LEFT) else 1.0
                self._judged_at = int(sooner * min(_JUDGED_FIRST, early))
                self._rewards_only = n == 0 and sooner < 1.0
                if climbs:
                    self._judged_at = _MIN_JUDGED
                    agent._engine.postpone(2 * _EARLY)  # it is judged first
            for steps, episodes in training:
                if len(episodes) > 0 or agent.episodes.count == 0:
                    self._judge(agent, run.total - steps, climbs)
                    enough = agent.num_timesteps >= modelled and self.reason is None
                    if enough and agent.models_laws and not _has_goal(agent._engine):
                        self.reason = _COMPETES
                yield steps, episodes
                if self.reason is not None:
                    break
            if self.reason is None and agent.models_laws:
                self._judge_at_end(agent)
        if not run.over:
            many = run.total - run.steps >= _MIN_LEFT or n > _MAX_COMPONENTS
            new = n > 0 and many and self.fitted is None
            new &= self.reason in (_NEEDS_NONE, _TOO_WIDE) or not _has_goal(agent._engine)
            run.part = run.steps if run.part is None else run.part
            really = self._climbing if self.climb is not None or new else self._really
            yield from really(agent.env, agent._engine, run, rng)

    def _judge(self, agent: "ModelAgent", left: int, climbs: bool) -> None:
        """Judge the world if it is time; warn if it is not trusted any more, unless it climbs."""
        if agent.num_timesteps < self._judged_at or left < 1:
            return
        rules = agent._engine.rules
        if climbs and not agent.models_laws:  # before a search, which takes long
            rules.learned = rules.learn(agent._engine.outcomes.comparable)
            if not agent.world.trust:
                self.reason = _NEEDS_NONE
                return
        world = agent.world if agent.models_laws else None
        self.reason = _incomplete(agent, world)
        if self.reason is None and world is not None:
            doubled = int(_JUDGED_AGAIN * self._judged_at)
            soon = self._rewards_only and agent.num_timesteps < doubled
            self._judged_at = doubled if soon else int(_JUDGED_AGAIN * agent.num_timesteps)
            report = world.report()  # as a whole, while walls are too rare to judge each component
            trust = report.overall if agent.num_timesteps < _EARLY else world.trust
            trust = _fulfilled(agent._engine) and trust
            self._distrusted = 0 if trust or soon else self._distrusted + 1
            self._rewards_only = False
            self.reason = trust.reason if self._distrusted >= _MAX_DISTRUSTED else None
            if not trust and agent.interface.n_components > 0 and left >= _MIN_LEFT:
                agent._engine.postpone(self._judged_at - agent.num_timesteps)
        if self.reason is not None:
            hint = "; FittedQAgent may need fewer steps" if agent.interface.box is None else ""
            said = f"learning goes on in the real environment alone{hint}"
            _warn(f"the learned world is not trusted ({self.reason}): {said}")

    def _judge_at_end(self, agent: "ModelAgent") -> None:
        """Judge the world once more where it was not trusted; warn if it is not now."""
        trust = _fulfilled(agent._engine)
        if agent.interface.n_components > 0 and not trust:
            self._distrusted = max(self._distrusted, 1)  # real returns decide between rules
        trust = trust and agent.world.trust if self._distrusted else Trust(True, "")
        self.doubt = None if trust else trust.reason
        if self.doubt is not None:
            _warn(f"the learned world is not trusted ({self.doubt}): real returns chose the rule")

    def _really(
        self, env: Any, engine: "ModelEngine", run: TrainingRun, rng: np.random.Generator
    ) -> Progress:
        """Learn values with a share of the steps, and distil them with the rest."""
        assert run.part is not None
        begun, total = run.part, run.total - run.part
        learning = min(int(_LEARNING * total), _MAX_LEARNING)
        boxed, few = engine.interface.box is not None, total < _MIN_LEFT
        if not isinstance(env, gym.Env) or isinstance(env.action_space, gym.spaces.Box):
            learning = total
        elif few:
            learning = int(_BEFORE_RULE * total) if _suits_affine(engine) else total
        if self.fitted is None:
            on_grid = not few and 0 < engine.interface.n_components <= _MAX_COMPONENTS
            bins = _GRID if on_grid else engine.config.action_bins
            settings: dict[str, Any] = {} if bins is None else {"action_bins": bins}
            if few and not boxed:
                settings |= _OF_FEW_STEPS
                if not is_constant(np.array(engine.outcomes.returns)):
                    decisions = min(_DECISIONS, _SHARE * float(np.mean(engine.outcomes.lengths)))
                    settings |= {"exploration": decisions, "longest_hold": _HOLD}
            kind = CodevectorAgent if boxed and not on_grid else FittedQAgent
            self.fitted = kind(env, seed=int(rng.integers(2**31)), **settings)
            _remember(self.fitted, engine.memory.transitions, engine.memory.first)
        fitted = self.fitted
        fitted._enter(env)
        place = fitted._require_env()
        if run.reset_options is not None and isinstance(place, gym.Env):
            place = WithOptions(place, run.reset_options)
        yield from self._learning(engine, fitted, place, run, learning)
        done = run.steps - begun
        if done >= total:  # several environments may have made a few more
            return
        started = env if run.reset_options is None else WithOptions(env, run.reset_options)
        budgeted = BudgetedEnv(started, _CELLS, total - done)
        run.can_stop, before = False, 0
        deciding: Iterator[None] = iter([None])
        if _suits_affine(engine):
            budgeted.allow((1.0 if few else _FOR_AFFINE) * budgeted.most)
            deciding = chain(self._comparing(budgeted, engine, fitted, rng), deciding)
        if not few:
            deciding = chain(deciding, self._distilling(budgeted, fitted, rng), [None])
        for _ in deciding:
            engine.state.steps += budgeted.steps - before
            before = budgeted.steps
            yield begun + done + before, NO_EPISODE
        if few and done + before < total:
            run.at(begun + done + before, None)
            yield from self._learning(engine, fitted, place, run, total)
            if self.rule is not None and self._bounds(engine, [self._rule_returns])[0].argmax() > 0:
                self.rule = None  # values have become better

    def _learning(
        self, engine: "ModelEngine", fitted: FittedQAgent, env: Any, run: TrainingRun, until: int
    ) -> Progress:
        """Learn values, up to a number of steps since it has taken over."""
        assert run.part is not None
        own = run.within(until)
        done = own.steps
        for steps, episodes in fitted._train(env, own):
            engine.state.steps += steps - done
            done = steps
            if own.over:
                run.schedule(now=True)
            yield run.part + done, episodes

    def _climbing(
        self, env: Any, engine: "ModelEngine", run: TrainingRun, rng: np.random.Generator
    ) -> Progress:
        """Climb in real episodes; where these are few, from the best rule of the learned world."""
        assert run.part is not None
        longest = engine.outcomes.limit or _UNLIMITED
        begun, before = run.steps, 0
        place = Episodes(env if run.reset_options is None else WithOptions(env, run.reset_options))
        budgeted = BudgetedEnv(place, 1, run.total - begun)
        if self.climb is None:
            known = np.empty((0, engine.interface.n_components, 1 + engine.interface.n_features))
            # With more steps, a climb from a rule of the model would end at a local optimum.
            few = run.total < MANY_EPISODES * longest
            if engine.rules.candidates and few:
                known = _known(engine.rules, budgeted, place, longest, rng)
            self.climb = Climb(known, engine.memory.transitions.before)
        climb, climbed = self.climb, begun - run.part
        competes = self.reason in (_COMPETES, _WINS)
        rival = engine.rules.delivered(engine.rules.best()) if competes else None
        for episodes in climb.run(budgeted, place, longest, climbed, rng, rival, run.actors):
            engine.state.steps += budgeted.steps - before
            before = budgeted.steps
            run.at(begun + before, place.observation)
            run.can_stop = not climb.decides
            if climb.loses:
                self.climb = self.reason = None
            elif climb.decides and competes:
                self.reason = _WINS
            yield run.steps, episodes
        if not (climb.loses or climb.output.any()):
            _warn(f"no rule better than zeros found in {budgeted.steps:,} steps: learn for longer")

    def _comparing(
        self, budgeted: BudgetedEnv, engine: "ModelEngine", fitted: FittedQAgent,
        rng: np.random.Generator,
    ) -> Iterator[None]:  # fmt: skip
        """Play a rule of affine advantages, and further ones as long as one of them is the best."""
        values, rules = fitted._engine, [] if self.rule is None else [self.rule]
        played = [self._rule_returns] if self._rule_returns else []  # returns of the rules
        best, goes_on = -1, True
        fitted.begin_episode()
        while budgeted.left > 0 and goes_on:
            if len(rules) == len(played):
                rules.append(affine_rule(values.seen, fitted.config.gamma))
            played.append([])
            while budgeted.left > 0 and goes_on and len(played[-1]) < _MAX_PLAYED:
                taken, over = budgeted.record_episode(rules[-1], rng)
                yield
                points, actions, rewards, after, ended = taken
                column = actions[:, None].astype(np.float64)
                steps = Steps(points, column, rewards, after, ended, ended)
                values.remember(*as_rows(steps, [np.arange(len(rewards))]))
                if over:
                    played[-1].append(float(rewards.sum()))
                    low, high = self._bounds(engine, played)
                    best, may_be = int(low.argmax()), high[len(played) - 1] >= low.max()
                    tried = budgeted.steps >= _TRYING * budgeted.most
                    goes_on = may_be and (best < len(played) or not tried)
            goes_on &= best < len(played)
        if best >= 0:  # else no episode has come to its end
            found = best < len(played)
            self.rule, self._rule_returns = (rules[best], played[best]) if found else (None, [])

    def _distilling(
        self, budgeted: BudgetedEnv, fitted: FittedQAgent, rng: np.random.Generator
    ) -> Iterator[None]:
        master = teacher_of(fitted, budgeted.interface)
        steps = int((budgeted.most - budgeted.steps) * (1.0 - _RACING * (self.rule is not None)))
        confirming = Confirming(master, rng)
        rule, returns = yield from small_rule(
            budgeted, master, _CELLS, steps, rng, confirming, known=self.rule
        )
        taught = np.array(confirming.taught)
        found = Distilled(rule, budgeted.interface, None, returns, taught, budgeted.steps)
        if found.worse:
            return  # its teacher is delivered
        if self.rule is not None:
            budgeted.allow(budgeted.most - budgeted.steps)
            if race(budgeted, [self.rule, rule], rng, incumbent=0).best == 0:
                return
        self.rule, self._rule_returns = rule, returns.tolist()

    def policy(self, engine: "ModelEngine") -> RulePolicy | TablePolicy | CellPolicy:
        """Return the rule made in the real environment, or what has the best real returns."""
        if (rule := self._real_rule) is not None:
            return rule
        best, box = self._best(engine), engine.interface.box
        if isinstance(best, Candidate):
            return engine.rules.delivered(best)
        policy = best.policy
        if box is None or type(policy) is not CellPolicy:
            return policy
        grid = action_choices(gym.spaces.Box(-1.0, 1.0, (len(box.low),), np.float64), _GRID)
        return CodevectorPolicy(**vars(policy), parts=np.repeat(grid[None], policy.n_cells, axis=0))

    @property
    def _real_rule(self) -> RulePolicy | None:
        """The rule made in real episodes; that of a climb which competes has to win first."""
        if self.climb is None or self.reason == _COMPETES:
            return self.rule
        return self.climb.rule

    def delivered_return(self, engine: "ModelEngine") -> float:
        """Return the mean return of what :meth:`policy` delivers; NaN if it is unknown."""
        if self.climb is not None and self.reason != _COMPETES:
            return self.climb.mean_return
        if self.rule is not None:
            return float(np.mean(self._rule_returns)) if self._rule_returns else math.nan
        best = self._best(engine)
        if isinstance(best, Candidate):
            return float(np.mean(best.returns))
        return best.delivered_return

    def _best(self, engine: "ModelEngine") -> "Candidate | FittedQAgent | ModelEngine":
        """Return who has the best real returns; the engine while its world is not in doubt."""
        if self.fitted is None and not self._distrusted:
            return engine
        rules = [one for one in engine.rules.candidates if one.returns]
        if not rules:
            return self.fitted or engine
        best = int(self._bounds(engine)[0].argmax())
        return rules[best] if best < len(rules) else self.fitted or engine

    def _bounds(
        self, engine: "ModelEngine", played: Sequence[Sequence[float]] = ()
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds of mean returns, a standard error to either side.

        Of rules with the returns ``played``, of those of the learned world, and of values.
        """
        rows = [*played, *(one.returns for one in engine.rules.candidates if one.returns)]
        records = self.fitted._engine.records if self.fitted is not None else []
        n, means, deviation = _compared(rows, records)
        return means - deviation / np.sqrt(n), means + deviation / np.sqrt(n)

    def to_file(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return metadata and arrays for a file."""
        metadata: dict[str, Any] = {
            "reason": self.reason, "doubt": self.doubt, "judged_at": self._judged_at,
            "distrusted": self._distrusted, "rewards_only": self._rewards_only,
            "rule_returns": self._rule_returns,
        }  # fmt: skip
        arrays: dict[str, Array] = {}
        if self.fitted is not None:
            own, remembered = self.fitted._to_file()
            metadata["fitted"] = {**own, "interface": self.fitted.interface.to_json()}
            arrays = prefixed("fitted_", remembered)
        if self.rule is not None:
            arrays |= prefixed("rule_", self.rule.arrays)
        if self.climb is not None:
            arrays |= prefixed("climb_", self.climb.to_arrays())
        return metadata, arrays

    @classmethod
    def from_file(cls, metadata: Any, arrays: dict[str, Array], interface: Interface) -> "Fallback":
        """Restore what :meth:`to_file` returned, or raise InvalidFileError."""
        require(isinstance(metadata, dict), "real is missing")
        keys = ("reason", "doubt", "judged_at", "distrusted", "rewards_only", "rule_returns")
        require(metadata.keys() - {"fitted"} == set(keys), f"real must hold {keys}")
        reason, doubt, judged_at, distrusted, rewards_only, returns = map(metadata.get, keys)
        right = all(s is None or (type(s) is str and len(s) <= 1000) for s in (reason, doubt))
        right &= all(type(n) is int and 0 <= n < 2**53 for n in (judged_at, distrusted))
        right &= isinstance(returns, list) and all(type(one) is float for one in returns)
        right = right and bool(np.isfinite(returns).all())
        require(right and isinstance(rewards_only, bool), f"real is {metadata!r}"[:300])
        names = ("rule_", "fitted_", "climb_")
        own, learned, climbed = parts = [within(arrays, name) for name in names]
        require(sum(map(len, parts)) == len(arrays), "real_ has members that are unknown")
        rule, fitted = RulePolicy.from_arrays(own) if own else None, None
        d, p = interface.n_features, interface.n_components
        climb = Climb.from_arrays(climbed, d, p) if climbed else None
        if rule is not None:
            n = interface.n_actions
            right = rule.scores.shape[1] == 1 + d and rule.outputs.shape[1:] == (n, 1)
            require(right, f"real_rule_outputs has shape {rule.outputs.shape}: not (K, {n}, 1)")
        if "fitted" in metadata:
            boxed = metadata["fitted"].get("interface", {}).get("box") is not None
            kind = CodevectorAgent if boxed else FittedQAgent
            fitted = kind._from_file(metadata["fitted"], learned)
            require(fitted.interface.n_features == d, "real.fitted is of other observations")
            fitted._env_seeded = True  # it has learned in its environment
        return cls(reason, doubt, rule, climb, fitted, judged_at, distrusted, rewards_only, returns)


def _warn(text: str) -> None:
    """Warn without a line of source code, which would say nothing."""
    warnings.warn_explicit(text, UserWarning, "ModelAgent", 0)


def _modelled(agent: "ModelAgent", left: int) -> float:
    """Return after how many steps a climb competes with a trusted world, if episodes are many."""
    total, longest = agent.num_timesteps + left, agent._engine.outcomes.limit or _UNLIMITED
    n = agent.interface.n_components
    many = total >= MANY_EPISODES * longest or n > _MAX_COMPONENTS
    many &= n > 0 and left >= _MIN_LEFT
    return max(_MODELLED * total, _JUDGED_FIRST) if many else math.inf


def _known(
    rules: "Planner", env: BudgetedEnv, place: Episodes, longest: int, rng: np.random.Generator
) -> FloatArray:
    """Return the output of the best affine rule of the learned world, (1, p, 1 + d).

    It is the most visited cell of the best rule. Where episodes terminate, linear-quadratic rules
    compete with it in short episodes, of which many show rare failures; one of the best three has
    to survive a whole one. Where survival is a bonus, and moving pays more, they would stand still.
    """
    rule, seen = rules.delivered(rules.best()), rules.memory.transitions.before
    output = rule.outputs[[np.bincount(rule.cells(seen)).argmax()]]
    rewards = rules.memory.present.rewards
    hides = survival_bonus(rewards[rules.memory.present_first], rewards) > 0.0
    if rules.learned is None or hides or not any(rules.outcomes.terminated):
        return output
    none = np.zeros_like(rule.scores[:1])
    found = linear_quadratic_rules(rules.memory.present, rules.learned.at, HIGH_COSTS)
    rivals = [replace(rule, scores=none, outputs=one) for _, one in [(none, output), *found]]
    place.horizon = min(MIN_HORIZON, longest)
    env.allow(_STARTING * env.most)
    order = race(env, [*rivals], rng).order
    place.horizon = longest
    for k, seed in zip(order, draw_seeds(rng, _TRIALS), strict=False):
        env.allow(longest)
        env.play(rivals[k], [seed])
        if len(place.rewards) == longest:
            return rivals[k].outputs
    return output


def _incomplete(agent: "ModelAgent", world: World | None) -> str | None:
    """Return why a search among discrete actions would exploit errors; None if it would not.

    Without a ``world`` of laws, it is about a table.
    """
    engine = agent._engine
    if engine.interface.box is not None or agent.num_timesteps < _COMPLETE_FROM:
        return None
    if world is not None:
        report, steps = world.report(), world.seen
        if report.inner_reward_r2 < _MIN_REWARD_R2:
            return f"R² of rewards within episodes is {report.inner_reward_r2:.2g}"
        fine = report.trust or is_constant(steps.rewards[~steps.ended])
        return None if fine else report.trust.reason
    counted = engine.planner is engine.tables and not engine.interface.n_values
    if counted and not engine.tables.is_reliable:
        return "it is a table of random outcomes, with few visits of each state and action"
    return None


def _suits_affine(engine: "ModelEngine") -> bool:
    """Return whether affine advantages can be fitted, and rules of them compared in episodes."""
    interface = engine.interface
    size = interface.n_actions * (1 + interface.n_features)
    discrete = interface.box is None and interface.n_values == 0
    return discrete and size <= MAX_COLUMNS and len(engine.outcomes.lengths) > 0


def _has_goal(engine: "ModelEngine") -> bool:
    """Return whether episodes terminate though survival does not pay: at a goal, or in a crash."""
    seen, first = engine.memory.present, engine.memory.present_first
    survival = survival_bonus(seen.rewards[first], np.array([np.inf]))  # whatever else pays
    return survival == 0.0 and any(engine.outcomes.terminated)


def _fulfilled(engine: "ModelEngine") -> Trust:
    """Return whether real episodes return about what is imagined from the same starts.

    Where actions are continuous, the best rule also has to be better than random actions.
    """
    played, outcomes = engine.rules.candidates, engine.outcomes
    real = np.array([total for one in played for total in one.returns])
    imagined = np.array([total for one in played for total in one.imagined])
    if len(real) < _MIN_EPISODES:
        return Trust(True, "few episodes have been played by rules")
    n_random = int(np.searchsorted(np.cumsum(outcomes.lengths), engine.config.random_steps)) + 1
    random = float(np.mean(outcomes.returns[:n_random]))
    _, means, deviation = _compared([one.returns for one in played if one.returns])
    if engine.interface.box is not None and means.max() - random <= deviation:
        return Trust(False, f"the best rule returns {means.max():.4g}, random actions {random:.4g}")
    gain = float(imagined.mean()) - random
    missing = imagined - real
    error = float(missing.std()) / math.sqrt(len(missing))
    return Trust(
        bool(missing.mean() <= max(_SURE * error, _SHORT * gain)),
        f"rules return {real.mean():.4g} where {imagined.mean():.4g} is imagined",
    )


def _compared(
    returns: Sequence[Sequence[float]], records: Sequence[changes.Record] = ()
) -> tuple[FloatArray, FloatArray, float]:
    """Return the number and mean of each policy's returns, and the deviation within policies.

    It is that of the better half of the policies: the returns of others have heavy tails.
    """
    rows = [(len(one), np.mean(one), np.var(one) * len(one)) for one in returns]
    n, means, squares = np.array([*rows, *((one.n, one.mean, one.m2) for one in records)]).T
    better = means >= np.median(means)
    prior, freedom = means[better].var(), (n[better] - 1.0).sum()
    return n, means, math.sqrt((squares[better].sum() + prior) / (freedom + 1.0))


def _remember(fitted: FittedQAgent, seen: CodedSteps, first: BoolArray) -> None:
    """Let a fitted agent learn from steps of another agent, unless its actions are others."""
    interface, actions = fitted.interface, seen.codes[:, 1:]
    if interface.box is None:
        if seen.codes.shape[1] != interface.n_actions:
            return
        actions = seen.codes.argmax(axis=1)[:, None]
    steps = Steps(seen.before, actions, seen.rewards, seen.after, seen.ended, seen.ended)
    fitted._engine.remember(*as_rows(steps, trajectories(seen, first), interface.n_components))
    fitted._engine.refit()
