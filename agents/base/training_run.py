"""How far a training has come, and where the environment is: what it takes to go on with it."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.progress import Interrupt
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.envs.dynamics import stateful
from oda_rl.files.schema import Member, check, number, real, require

TRAINING: dict[str, Member] = {
    "training_state": real("n_state", optional=True),
    "training_observation": real("d", optional=True),
}
"""Arrays of a checkpoint beside an agent's: of the environment, if its state can be saved."""

_NEVER = 2**62


@dataclass
class TrainingRun:
    """A training under way.

    The training loops note in it how far they have come before they yield, so that a checkpoint can
    be taken there; a loop that is given one that is ``resumed`` goes on from there.
    """

    total: int
    """Environment steps of all of it."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    one_by_one: bool = False
    """Whether loops yield at the end of each episode."""
    every: int | None = None
    """Steps from one checkpoint to the next; None: there are none."""
    steps: int = 0
    """Taken so far."""
    observation: Any = None
    """What the next action is for."""
    chosen: bool = False
    """Whether that has been chosen already."""
    resumed: bool = False
    """Whether the environment is in the middle of it."""
    part: int | None = None
    """At how many steps another learner has taken over, if one has."""
    can_stop: bool = True
    """Whether a checkpoint can be taken."""
    actors: tuple[Any, Any, int] | None = None
    """First arguments of :func:`train_by_actors`, if others play."""
    _due: int = _NEVER
    _outer: "TrainingRun | None" = None

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.steps >= self.total

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.can_stop and self.steps >= self._due

    def schedule(self, now: bool = False) -> None:
        """Set when the next checkpoint is due: after ``every`` steps, or at once."""
        if self.every is not None:
            self._due = self.steps if now else (self.steps // self.every + 1) * self.every

    def stop(self, max_steps: int) -> int:
        """Return the step up to which a loop may go without a stop."""
        end = min(self.steps + max_steps, self.total, max(self._due, self.steps + 1))
        if self._outer is not None:
            end = min(end, self._outer.stop(max_steps) - self._begun)
        return end

    def at(self, steps: int, observation: Any, chosen: bool = False) -> None:
        """Note how far it has come."""
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
    """A training as a checkpoint has it."""

    total: int
    steps: int
    chosen: bool
    part: int | None
    every: int | None
    seed: int | None
    """Of the agent, if it was given one."""
    elapsed: int
    """Steps of the running episode, as the environment's limit counts them."""
    state: FloatArray | None
    """Of the environment, shape (n_state,); None if it goes on from a reset."""
    observation: FloatArray | None
    """Shape (d,)."""

    @classmethod
    def of(cls, run: TrainingRun, env: AnyEnv, seed: int | None) -> "Snapshot":
        """Take one of a run that can stop."""
        place = stateful(env) if isinstance(env, gym.Env) and run.actors is None else None
        known = run.total, run.steps, run.chosen, run.part, run.every, seed
        if place is None:
            return cls(*known, 0, None, None)
        observation = np.array(run.observation, dtype=np.float64).ravel()
        return cls(*known, place.elapsed_steps, place.read_state(), observation)

    def to_file(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return metadata and arrays, for a file."""
        metadata = dict(vars(self))
        state, observation = metadata.pop("state"), metadata.pop("observation")
        if state is None:
            return metadata, {}
        return metadata, {"training_state": state, "training_observation": observation}

    @classmethod
    def from_file(cls, metadata: Any, arrays: dict[str, FloatArray]) -> "Snapshot":
        """Make one of what :meth:`to_file` returned, or raise InvalidFileError."""
        names = {"total", "steps", "chosen", "part", "every", "seed", "elapsed"}
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
        require(len(arrays) in (0, 2), "training_ has a state or an observation, but not both")
        place = arrays.get("training_state"), arrays.get("training_observation")
        return cls(**metadata, state=place[0], observation=place[1])

    def enter(self, env: gym.Env[Any, Any]) -> Any:
        """Put an environment where it was, and return the observation; None if it cannot be put.

        Raises
        ------
        ValueError
            If the environment is another.
        """
        place = stateful(env)
        if self.state is None or self.observation is None or place is None:
            return None
        first = np.asarray(env.reset()[0])
        shape = place.read_state().shape
        if (shape, first.size) != (self.state.shape, self.observation.size):
            raise ValueError(
                f"env has a state of shape {shape} and observations of {first.size} numbers: the "
                f"training was in one of {self.state.shape} and {self.observation.size}"
            )
        place.write_state(self.state, self.elapsed)
        seen = self.observation.reshape(first.shape)
        return seen.astype(first.dtype) if (seen.astype(first.dtype) == seen).all() else seen
