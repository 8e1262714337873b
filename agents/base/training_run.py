"""The progress of a training, and its snapshot in a checkpoint."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.progress import Interrupt
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.environments.state import read_state, write_state
from oda_rl.envs.dynamics import stateful
from oda_rl.files.schema import Member, check, number, real, require

TRAINING: dict[str, Member] = {
    "training_state": real("n_state", optional=True),
    "training_observation": real("d", optional=True),
}
"""Members of a checkpoint for the environment's state, if that can be saved."""

_NEVER = 2**62


@dataclass
class TrainingRun:
    """A training in progress.

    Training loops record their progress in it before they yield, so that a checkpoint can be
    written; they continue from there if it is ``resumed``.
    """

    total: int
    """Environment steps in all."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    one_by_one: bool = False
    """Whether loops yield at the end of each episode."""
    every: int | None = None
    """Steps between checkpoints; None for no checkpoints."""
    steps: int = 0
    """Steps taken so far."""
    observation: Any = None
    """Observation for the next action."""
    chosen: bool = False
    """Whether the next action has been chosen."""
    resumed: bool = False
    """Whether the environment is already where the training continues."""
    part: int | None = None
    """Steps at which another learner has taken over; None if none has."""
    can_stop: bool = True
    """Whether a checkpoint can be written now."""
    reset_options: dict[str, Any] | None = None
    """``options`` of each reset."""
    actors: tuple[Any, Any, int] | None = None
    """First arguments of :func:`train_by_actors`; None without actors."""
    _due: int = _NEVER
    _outer: "TrainingRun | None" = None

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
            resumed=self.resumed and self.steps > self.part, _outer=self,
        )  # fmt: skip

    @property
    def _begun(self) -> int:
        assert self._outer is not None
        assert self._outer.part is not None
        return self._outer.part


@dataclass(frozen=True)
class Snapshot:
    """A training in a checkpoint."""

    total: int
    steps: int
    chosen: bool
    part: int | None
    every: int | None
    seed: int | None
    """Seed of the agent; None if it was given none."""
    elapsed: int
    """Steps of the running episode, for the environment's time limit."""
    state: FloatArray | None
    """State of the environment, shape (n_state,); None if training continues from a reset."""
    observation: FloatArray | None
    """Shape (d,)."""
    env: dict[str, Any] | None = None
    """State of an environment without compiled dynamics (:func:`read_state`)."""

    @classmethod
    def of(cls, run: TrainingRun, env: AnyEnv, seed: int | None) -> "Snapshot":
        """Take a snapshot of a run and its environment."""
        progress = run.total, run.steps, run.chosen, run.part, run.every, seed
        if not isinstance(env, gym.Env) or run.actors is not None:
            return cls(*progress, 0, None, None)
        observation = np.array(run.observation, dtype=np.float64).ravel()
        compiled = stateful(env)
        if compiled is None:
            state = read_state(env)
            return cls(*progress, 0, None, None if state is None else observation, state)
        return cls(*progress, compiled.elapsed_steps, compiled.read_state(), observation)

    def to_file(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return metadata and arrays for a file."""
        metadata = dict(vars(self))
        state, observation = metadata.pop("state"), metadata.pop("observation")
        arrays = {"training_state": state, "training_observation": observation}
        return metadata, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_file(cls, metadata: Any, arrays: dict[str, FloatArray]) -> "Snapshot":
        """Make a snapshot from metadata and arrays of a file, or raise InvalidFileError."""
        names = {"total", "steps", "chosen", "part", "every", "seed", "elapsed", "env"}
        right = isinstance(metadata, dict) and metadata.keys() == names
        require(right, f"training must have {sorted(names)}")
        chosen = metadata["chosen"]
        require(type(chosen) is bool, f"training.chosen is {chosen!r}: it must be true or false")
        for name, span, optional in (
            ("total", f"[1, {_NEVER}]", False),
            ("steps", "[0, total]", False),
            ("part", "[0, steps]", True),
            ("every", f"[1, {_NEVER}]", True),
            ("seed", "[0, inf)", True),
            ("elapsed", f"[0, {_NEVER}]", False),
        ):
            value = metadata[name]
            if value is None and optional:
                continue
            require(type(value) is int, f"training.{name} is {value!r}: it must be an integer")
            number(value, f"training.{name}", span, metadata)
        check(arrays, TRAINING, {})
        state, observation = arrays.get("training_state"), arrays.get("training_observation")
        states = (state is not None) + (metadata["env"] is not None)
        right = states == (observation is not None)
        require(right, "training_ has a state or an observation, but not both")
        return cls(**metadata, state=state, observation=observation)

    def enter(self, env: gym.Env[Any, Any], native: gym.Env[Any, Any]) -> Any:
        """Restore the environment's state and return the observation; None if it was not saved.

        ``native`` is the environment as the user has it, within ``env``. Raises ValueError if the
        state or observation has a different size.
        """
        if self.observation is None:
            return None
        compiled = None if self.state is None else stateful(env)
        if compiled is None and self.env is None:
            return None
        first = np.asarray(env.reset()[0])
        if compiled is None or self.state is None:
            right = first.size == self.observation.size and write_state(native, self.env)
            return self._rounded(first) if right else None
        shape = compiled.read_state().shape
        if (shape, first.size) != (self.state.shape, self.observation.size):
            raise ValueError(
                f"env has a state of shape {shape} and observations of {first.size} numbers: the "
                f"training was in one of {self.state.shape} and {self.observation.size}"
            )
        compiled.write_state(self.state, self.elapsed)
        return self._rounded(first)

    def _rounded(self, first: Any) -> Any:
        """Return the observation in the type of another, if that can hold it."""
        assert self.observation is not None
        observation = self.observation.reshape(first.shape)
        rounded = observation.astype(first.dtype)
        return rounded if (rounded == observation).all() else observation
