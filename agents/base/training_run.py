"""The progress of a training, and its snapshot in a checkpoint."""

from dataclasses import dataclass, field, fields
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl.agents.base.progress import Interrupt
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.environments.state import read_state, write_state
from oda_rl.files.schema import conforms, number, require

_NEVER = 2**62
_SPANS = {"total": f"[1, {_NEVER}]", "steps": "[0, total]", "part": "[0, steps]",
          "every": f"[1, {_NEVER}]", "seed": "[0, inf)"}  # fmt: skip


@dataclass
class TrainingRun:
    """A training in progress, which loops record before they yield, so that it can be saved."""

    total: int  # environment steps in all
    interrupt: Interrupt = field(default_factory=Interrupt)
    one_by_one: bool = False  # whether loops yield at the end of each episode
    every: int | None = None  # steps between checkpoints; None for no checkpoints
    steps: int = 0  # steps taken so far
    observation: Any = None  # observation for the next action
    chosen: bool = False  # whether the next action has been chosen
    resumed: bool = False  # whether the environment is already where the training continues
    part: int | None = None  # steps at which another learner has taken over; None if none has
    can_stop: bool = True  # whether a checkpoint can be written now
    reset_options: dict[str, Any] | None = None  # ``options`` of each reset
    actors: tuple[Any, Any, int] | None = None  # of :func:`train_by_actors`
    _due: int = _NEVER
    _outer: "TrainingRun | None" = None
    _begun: int = 0  # steps of that one at the beginning of this one

    @property
    def over(self) -> bool:
        return self.steps >= self.total

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.can_stop and self.steps >= self._due

    def schedule(self, now: bool = False) -> None:
        """Schedule the next checkpoint: at the next multiple of ``every``, or at once."""
        if self.every is not None:
            self._due = self.steps if now else (self.steps // self.every + 1) * self.every

    def stop(self, max_steps: int) -> int:
        """Return the step up to which a loop may run without a stop."""
        end = min(self.steps + max_steps, self.total, max(self._due, self.steps + 1))
        if self._outer is not None:
            end = min(end, self._outer.stop(max_steps) - self._begun)
        return end

    def at(self, steps: int, observation: Any, chosen: bool = False) -> None:
        """Record the progress."""
        self.steps, self.observation, self.chosen = steps, observation, chosen
        if self._outer is not None:
            self._outer.at(self._begun + steps, observation, chosen)

    def within(self, total: int) -> "TrainingRun":
        """Return the run of the learner that took over at ``part``, of ``total`` steps."""
        assert self.part is not None
        return TrainingRun(
            total, self.interrupt, one_by_one=True, steps=self.steps - self.part,
            observation=self.observation, chosen=self.chosen,
            resumed=self.resumed and self.steps > self.part, _outer=self, _begun=self.part,
        )  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """A training in a checkpoint."""

    total: int
    steps: int
    chosen: bool
    part: int | None
    every: int | None
    seed: int | None  # seed of the agent; None if it was given none
    env: dict[str, Any] | None  # its state (:func:`read_state`); None: after a reset
    observation: list[float]  # d numbers; none without the environment's state

    @classmethod
    def of(cls, run: TrainingRun, env: AnyEnv, seed: int | None) -> "Snapshot":
        """Take a snapshot of a run and its environment."""
        state = read_state(env) if isinstance(env, gym.Env) and run.actors is None else None
        observation = [] if state is None else np.ravel(run.observation).astype(float).tolist()
        return cls(run.total, run.steps, run.chosen, run.part, run.every, seed, state, observation)

    @classmethod
    def from_json(cls, given: Any) -> "Snapshot":
        """Make a snapshot from its fields in a file, or raise InvalidFileError."""
        names = {field.name for field in fields(cls)}
        right = isinstance(given, dict) and given.keys() == names
        require(right, f"training must have {sorted(names)}")
        chosen, observation = given["chosen"], given["observation"]
        require(type(chosen) is bool, f"training.chosen is {chosen!r}: it must be true or false")
        require(conforms(observation, list[float]), "training.observation must be numbers")
        for name, span in _SPANS.items():
            value = given[name]
            if value is not None or name in ("total", "steps"):
                require(type(value) is int, f"training.{name} is {value!r}: it must be an integer")
                number(value, f"training.{name}", span, given)
        return cls(**given)

    def enter(self, env: gym.Env[Any, Any], native: gym.Env[Any, Any]) -> Any:
        """Restore the state of ``native``, within ``env``; return the observation, or None."""
        if self.env is None:
            return None
        first = np.asarray(env.reset()[0])
        if first.size != len(self.observation) or not write_state(native, self.env):
            return None
        observation = np.reshape(self.observation, first.shape)
        rounded = observation.astype(first.dtype)
        return rounded if (rounded == observation).all() else observation
