"""The state of a model agent: what it has observed, what it plays, and when it plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._compile import plain
from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.engine import Engine, VectorStep, badness
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.state import (
    EPISODE_END,
    Counters,
    EnvState,
    end_episode,
    new_env_states,
    with_env_states,
)
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import BAD_STEP, LARGEST_REWARD, NOT_FINITE, refuse
from oda_rl.agents.model.experience import MEMORY, OUTCOMES, Candidate, Memory, Outcomes
from oda_rl.agents.model.planner import Planner
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.model.tables import Table, TablePlanner, predicts
from oda_rl.agents.policies.cells import TablePolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.files.schema import MAX, Member, check, prefixed, real, require, whole, within

SCHEMA: dict[str, Member] = {  # members of a file, beside planner_, which are of the planner
    "state": Member(Counters, "1"),
    "env_state": Member(EnvState, "1"),
    "counts": whole("11", f"[-1, {MAX:.0f})"),
    "start": real("d"),
    "code": real("C"),
    **OUTCOMES,
    **prefixed("memory_", MEMORY),
}

_PLAN = 1024  # event: it is time to learn the world anew
_MAX_HOLD = 100
_MAX_IN_A_ROW = 4  # episodes of the best rule before another is played
_PATIENCE = 10  # times as many steps as planning needs, without an episode's end
_MAX_STATES = 5000  # of a table
_MIN_SEEN_AGAIN = 0.5  # a table, if that share of the latest observations has been seen before
_ALL_NEW = 0.98  # share of the moves, more of which lead to new places in a continuous world
_MAX_NEW = 0.5  # share of distinct observations, with more of which it is no table after all
_ANEW = 1.5  # growth of the steps after which table and laws are compared again

Played = Candidate | Table | TablePlanner
"""An episode can be played with it: ``decide`` returns the action in a state, and its code."""


@dataclass(eq=False)
class Running:
    """A running episode."""

    env_state: EnvState
    code: FloatArray  # of the last action
    before: FloatArray  # the observation it was chosen for
    start: FloatArray  # the episode's first observation
    played: Played | None = None  # None: random actions
    whole: bool = True  # whether nothing else has been played in it
    drawn: Any = None  # state of the generator before the last choice, if that drew from it
    last: tuple[int, int, FloatArray, FloatArray, FloatArray] | None = None
    """Action, hold, ``code``, ``before`` and ``start`` before the last choice."""


class ModelEngine(Engine):
    """State and decisions of a model agent, in Python: planning takes longer than its steps."""

    arrays = loop_arrays = ()
    fuses = False

    def __init__(
        self,
        interface: Interface,
        config: ModelConfig,
        limit: int | None,
        explore: np.random.Generator,
        planning: np.random.Generator,
    ) -> None:
        super().__init__(interface, 1, explore)
        boxed = interface.box is not None
        self._n_codes = 1 + interface.n_components if boxed else interface.n_actions
        self.raw, env_states = with_env_states(Counters, 1)
        self.state = Counters(self.raw)
        self.memory = Memory(interface.n_features, self._n_codes)
        self.outcomes = Outcomes(config.horizon, limit)
        self.config = config
        self._planning = planning
        self.rules, self.tables = self._new_rules(), self._new_tables()
        numbered = interface.n_values > 0 and not boxed
        self.planner: Planner | TablePlanner = self.tables if numbered else self.rules
        self._compared = 0  # steps when table and laws were compared last
        self._newest: Played | None = None
        self._next: Played | None = None  # what the next episode is played with
        self._confirming = 0  # episodes in a row
        self._confirmed = 0  # steps
        self._new_steps, self._needed = 0, self.planner.wait(0)
        self.min_wait = 0  # steps between two plans
        self._running = self._begun(env_states)

    def _new_rules(self) -> Planner:
        return Planner(self.memory, self.interface, self.outcomes, self.config, self._planning)

    def _new_tables(self) -> TablePlanner:
        return TablePlanner(self.memory, self.interface.n_actions, self.outcomes, self.config)

    def _begun(self, env_states: list[EnvState]) -> list[Running]:
        code, point = np.zeros(self._n_codes), np.zeros(self.interface.n_features)
        return [Running(one, code, point, point, self._next) for one in env_states]

    @property
    def single(self) -> Running:
        """The episode of the first environment."""
        return self._running[0]

    @property
    def epsilon(self) -> float:
        return float(self._next is None)

    @property
    def scale(self) -> FloatArray | None:
        return self.planner.scale

    @property
    def policy(self) -> RulePolicy | TablePolicy:
        """The best rule, or table."""
        return self.planner.policy(self._newest)

    @property
    def delivered_return(self) -> float:
        rule = self.planner.best() if self.planner.candidates else self._newest
        if isinstance(rule, Candidate | Table) and len(rule.returns):
            return float(np.mean(rule.returns))
        promised = rule.promised if isinstance(rule, Candidate) else np.nan  # in the model
        return promised if np.isfinite(promised) else np.nan

    def act(self, vector: Array) -> int:
        code = self._choose(self.single, vector)
        refuse(max(-code, 0), "observation", self.interface)
        return code

    def chosen(self, vector: Array) -> int:
        self.single.before = np.array(vector, dtype=np.float64)
        return super().chosen(vector)

    def _choose(self, running: Running, vector: Array) -> int:
        """Choose an environment's action; or return minus the event that prevents it."""
        event = self._bad(vector)
        if event:
            return -event
        env_state = running.env_state
        running.last = env_state.action, env_state.held, running.code, running.before, running.start
        running.drawn = None
        self._see(running, vector)
        if running.played is not None:
            env_state.action, running.code = running.played.decide(running.before)
            return env_state.action
        if env_state.held > 0:
            env_state.held -= 1
        else:
            running.drawn = self._explore.bit_generator.state
            env_state.action, running.code = self._random()
            share = max(self._explore.random(), 1.0 / _MAX_HOLD)
            env_state.held = int(1.0 / share) - 1
        if self.rules.clauses is not None:
            self._obey(running, self.rules.clauses)
        return env_state.action

    def _obey(self, running: Running, clauses: Clauses) -> None:
        """Do what clauses say in place of a random action, or the next one that is allowed."""
        env_state = running.env_state
        barred, said = clauses.at(running.before[None])
        if said[0] >= 0:
            output = clauses.outputs[said[0]]
            rule = Candidate(np.zeros((1, len(running.before) + 1)), output[None])
            env_state.action, running.code = rule.decide(running.before)
            env_state.held = 0
        elif self.interface.box is None and barred[0, env_state.action]:
            allowed = np.flatnonzero(~barred[0])
            env_state.action = int(allowed[np.argmax(allowed > env_state.action)])
            running.code = np.eye(self._n_codes)[env_state.action]

    def _see(self, running: Running, vector: Array) -> None:
        running.before = np.array(vector, dtype=np.float64)
        if running.env_state.episode_length == 0:
            running.start = running.before

    def _random(self) -> tuple[int, FloatArray]:
        if self.interface.box is not None:
            units = self._explore.uniform(-1.0, 1.0, self.interface.n_components)
            return 0, np.concatenate([[1.0], units])
        action = int(self._explore.integers(self.interface.n_actions))
        return action, np.eye(self._n_codes)[action]

    def perform(self, number: int) -> Array:
        """Return the last continuous action."""
        assert self.interface.box is not None
        return np.asarray(self.interface.box.actions(self.single.code[None, 1:])[0])

    def replace(self, action: Any) -> None:
        """Replace the chosen action: a number, or one of the box."""
        running = self.single
        box = self.interface.box
        if np.array_equal(running.env_state.action if box is None else self.perform(0), action):
            return
        if box is None:
            running.env_state.action, running.code = action, np.eye(self._n_codes)[action]
        else:
            running.code = np.concatenate([[1.0], box.units(action)])
        running.whole = False

    def step(self, vector: Array, reward: float, terminated: bool, truncated: bool) -> int:
        events = self._bad(vector, reward)
        if events == 0:
            events = self._record(self.single, vector, reward, bool(terminated), bool(truncated))
        return -events if events else self._choose(self.single, vector)

    def update(
        self,
        observation: Array,
        action: int,
        reward: float,
        vector: Array,
        terminated: bool,
        truncated: bool,
    ) -> int:
        events = self._bad(observation) | self._bad(vector, reward)
        if events:
            return events
        running = self.single
        self._see(running, observation)
        if self.interface.box is None:
            self.replace(action)
        return self._record(running, vector, reward, terminated, truncated)

    def _record(
        self, running: Running, vector: Array, reward: float, terminated: bool, truncated: bool
    ) -> int:
        env_state, state = running.env_state, self.state
        first = env_state.episode_length == 0
        self.memory.append(running.before, running.code, reward, vector, terminated, first)
        state.steps += 1
        self._new_steps += 1
        env_state.episode_length += 1
        env_state.episode_return += reward
        if terminated or truncated:
            self.outcomes.append(env_state.episode_return, env_state.episode_length, terminated)
            plain(end_episode)(state, env_state)
            env_state.held = 0
            return EPISODE_END
        return _PLAN if self._new_steps >= self._patience else 0

    @property
    def _patience(self) -> int:
        """Steps after which to plan within episodes: sooner while none seems to end."""
        steps, horizon = _PATIENCE * self._needed, self.outcomes.horizon
        if self.outcomes.limit is None and not self.outcomes.lengths:
            steps = min(steps, max(self._needed, horizon))
        return max(steps, self.n_envs * horizon)

    def _bad(self, vector: Array, reward: float = 0.0) -> int:
        return badness(vector, self.interface) or NOT_FINITE * (not abs(reward) <= LARGEST_REWARD)

    def _attend(self, events: int, running: Running | None = None) -> None:
        if events & EPISODE_END:
            self._end_episode(running or self.single)
        elif events & _PLAN:
            self._plan()
            self._replace_all()

    @one_thread()
    def _end_episode(self, running: Running) -> None:
        """Record the last episode, and decide what the next one is played with."""
        played, whole = running.played, running.whole
        if played is not None and whole:
            self.planner.note(played, running.start, self.outcomes.latest)
        if played is not self._newest:
            self._confirmed += self.state.last_length
            self._confirming += 1
        if self._new_steps >= self._needed and (played is self._newest or not self._confirms()):
            self._plan()
        elif not self._confirms():
            self._next = self._newest
        running.played, running.whole = self._next, True

    @one_thread()
    def _plan(self) -> None:
        """Learn the world anew, and choose what is played next: the new rule, or first the best."""
        self._choose_planner()
        self._newest = self.planner.plan(self.outcomes.comparable)
        self._needed = max(self.planner.wait(self.state.steps), self.min_wait)
        self._new_steps = self._confirming = 0
        self._next = self.planner.best() if self._confirms() else self._newest
        self.note_level(Level(self.state.steps, np.nan, self.planner.codevectors, None))

    def postpone(self, steps: int) -> None:
        """Take at least ``steps`` more before the next plan."""
        self._needed = max(self._needed, self._new_steps + steps)

    def _choose_planner(self) -> None:
        """Plan over a table where states recur, and counts predict as well as laws."""
        if self.interface.box is not None or self.interface.n_values or self.constrained:
            return
        if self.planner is self.tables:
            n = self.tables.n_states
            recurs = n <= _MAX_NEW * self.memory.n or seen_again(self.memory) >= _MIN_SEEN_AGAIN
            if n > _MAX_STATES or not recurs:
                self.planner = self.rules = self._new_rules()
                return
        elif seen_again(self.memory) < _MIN_SEEN_AGAIN:
            return
        if self.memory.n < _ANEW * self._compared:
            return
        self._compared = self.memory.n
        seen, rng = self.memory.present, np.random.default_rng(self.memory.n)
        counted = self.planner is self.tables
        if predicts(seen, self.memory.present_first, rng, counted) == counted:
            return
        if counted:
            self.planner = self.rules = self._new_rules()
        else:
            self.planner = self.tables = self._new_tables()

    def _confirms(self) -> bool:
        """Whether to play the best rule again before the newest one."""
        enough = self._confirmed >= self.config.confirm_share * self.state.steps
        if enough or self._confirming >= _MAX_IN_A_ROW or not self.planner.candidates:
            return False
        best = self.planner.best()
        return best is not self._newest and len(best.returns) < self.config.confirm_episodes

    def _replace_all(self) -> None:
        """Go on with the newest rule within episodes, whose returns then confirm nothing."""
        for running in self._running:
            running.whole, running.env_state.held = running.env_state.episode_length == 0, 0
            if not running.whole and running.played is not self._newest:
                self._confirmed += running.env_state.episode_length
            running.played = self._next if running.whole else self._newest

    def constrain(self, policy: RulePolicy) -> None:
        """Go on within a policy's clauses, and from it; drop running episodes."""
        self._newest = self._next = self.rules.constrain(policy)
        self.begin_episode()

    @property
    def constrained(self) -> bool:
        """Whether it learns within clauses."""
        return self.rules.clauses is not None

    @property
    def env_states(self) -> list[EnvState]:
        return [one.env_state for one in self._running]

    def set_n_envs(self, count: int) -> None:
        self._running = self._begun(new_env_states(np.zeros(count * EnvState.size, np.uint8)))

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        for env in step.learns.nonzero()[0].tolist():
            refuse(self._bad(step.after[env], step.rewards[env]), BAD_STEP, self.interface)
        ended = []
        for env in step.learns.nonzero()[0].tolist():
            running = self._running[env]
            over = bool(step.terminated[env]), bool(step.truncated[env])
            event = self._record(running, step.after[env], float(step.rewards[env]), *over)
            if event & EPISODE_END:
                ended.append((self.state.last_return, float(self.state.last_length)))
            self._attend(event, running)
        actions = np.zeros(self.n_envs, dtype=np.int64)
        for env in step.acts.nonzero()[0].tolist():
            code = self._choose(self._running[env], step.observations[env])
            refuse(max(-code, 0), BAD_STEP, self.interface)
            actions[env] = code
        return actions, np.array(ended).reshape(-1, 2)

    def begin_episode(self) -> None:
        self.leave_envs()
        self.single.env_state.assign({"episode_return": 0.0, "episode_length": 0, "held": 0})
        self.single.played, self.single.whole = self._next, True

    def withdraw_choice(self) -> None:
        one = self.single
        if one.last is not None:
            one.env_state.action, one.env_state.held, one.code, one.before, one.start = one.last
        if one.drawn is not None:
            self._explore.bit_generator.state = one.drawn
        one.last = one.drawn = None

    def state_arrays(self) -> dict[str, Array]:
        single = self.single
        if self.n_envs > 1:  # their episodes end with the file
            (single,) = self._begun(new_env_states(np.zeros(EnvState.size, np.uint8)))
        known, used = [*self.planner.candidates], (self._newest, self._next, single.played)
        for played in used:
            if played is not None and not any(played is one for one in known):
                known.append(played)
        places = [next((k for k, one in enumerate(known) if one is other), -1) for other in used]
        counts = [len(self.planner.candidates), self._confirming, self._confirmed, self._new_steps,
                  self._needed, self._compared, single.whole, self.planner is self.tables,
                  *places]  # fmt: skip
        return {
            "state": self.state.record,
            "env_state": single.env_state.record,
            "counts": np.array(counts, dtype=np.int64),
            "start": single.start,
            "code": single.code,
            **self.outcomes.to_arrays(),
            **prefixed("memory_", self.memory.state()),
            **prefixed("planner_", self.planner.to_arrays(known)),
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        single = self.single
        self._check(arrays)
        self.state.restore(arrays["state"])
        single.env_state.restore(arrays["env_state"])
        numbers = arrays["counts"].tolist()
        n_candidates, self._confirming, self._confirmed, self._new_steps = numbers[:4]
        self._needed, self._compared = numbers[4:6]
        single.whole, is_table = map(bool, numbers[6:8])
        single.start, single.code = np.array(arrays["start"]), np.array(arrays["code"])
        self.outcomes.restore(arrays)
        self.memory.restore(within(arrays, "memory_"))
        self.planner = self.tables if is_table else self.rules
        known = self.planner.restore(within(arrays, "planner_"), n_candidates)
        places = numbers[8:]
        right = n_candidates <= len(known) and all(-1 <= k < len(known) for k in places)
        require(right, f"counts is {numbers}: there are {len(known)} candidates")
        self._newest, self._next, single.played = (known[k] if k >= 0 else None for k in places)

    def _check(self, arrays: Mapping[str, Array]) -> None:
        """Raise InvalidFileError unless all arrays but the planners' are valid."""
        n_actions = self.interface.n_actions
        sizes = {
            "d": self.interface.n_features, "C": self._n_codes, "rows": 1, "env_states": 1,
            "cells": 1, "uniforms": self.room.shape[1], "actions": n_actions,
        }  # fmt: skip
        check({k: arrays[k] for k in arrays if not k.startswith("planner_")}, SCHEMA, sizes)
        counts, boxed = arrays["counts"], self.interface.box is not None
        right = (counts[:8] >= 0).all() and counts[4] >= 1 and (counts[6:8] <= 1).all()
        right &= counts[7] == 0 if boxed else counts[7] == 1 or not self.interface.n_values
        require(right, f"counts is {counts.tolist()}")
        codes = np.concatenate([arrays["memory_codes"], arrays["code"][None]])
        if boxed:
            codes = codes[:-1]
            legal = (codes[:, 0] == 1.0).all() and (np.abs(codes[:, 1:]) <= 1.0).all()
        else:
            codes = codes if codes[-1].any() else codes[:-1]  # no action has been taken yet
            legal = np.isin(codes, (0.0, 1.0)).all() and (codes.sum(axis=1) == 1.0).all()
        require(legal, "memory_codes has a code of no action")


def seen_again(memory: Memory) -> float:
    """Return the share of the latest half of next observations that had been seen before."""
    after = memory.transitions.after
    moved = after[(after != memory.transitions.before).any(axis=1)]
    if len(np.unique(moved, axis=0)) > _ALL_NEW * len(moved):
        return 0.0  # standing still repeats observations in every world
    _, first = np.unique(after, axis=0, return_index=True)
    half = len(after) // 2
    return 1.0 - float((first >= half).sum()) / max(len(after) - half, 1)
