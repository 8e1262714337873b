"""How far a training has come, and where the environment is: what it takes to go on with it."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.actors import Crew
from oda_rl.agents.base.progress import Interrupt
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.envs.dynamics import stateful
from oda_rl.files.schema import Member, Sizes, check, number, real, require

TRAINING: dict[str, Member] = {
    "training_state": real("n_state", optional=True),
    "training_observation": real("d", optional=True),
}
"""What a checkpoint has beside an agent: of the environment, if it can be left and entered."""

_KEYS = {"total", "steps", "chosen", "elapsed", "every", "part", "seed"}
_NEVER = 2**62


@dataclass
class TrainingRun:
    """A training on its way.

    The training loops note in it how far they have come before they yield, so that a checkpoint can
    be taken there; a loop that is given one that is ``resumed`` goes on from there.
    """

    total: int
    """Environment steps of all of it."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    one_by_one: bool = False
    """Whether each episode is told of as it ends."""
    every: int | None = None
    """Steps from one checkpoint to the next; None: there are none."""
    steps: int = 0
    """Taken so far."""
    observation: Any = None
    """What the next action is for."""
    chosen: bool = False
    """Whether that has been chosen already."""
    resumed: bool = False
    """Whether the environment is in the midst of it."""
    part: int | None = None
    """At how many steps another learner has taken over, if one has."""
    can_stop: bool = True
    """Whether a checkpoint can be taken."""
    crew: Crew | None = None
    """Who plays, if it is not the agent itself."""
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

    def keep(self, every: int | None) -> None:
        """Ask for checkpoints, so many steps apart."""
        self.every = every
        self.taken()

    def taken(self) -> None:
        """Note that a checkpoint has been taken."""
        if self.every is not None:
            self._due = (self.steps // self.every + 1) * self.every

    def insist(self) -> None:
        """Ask for a checkpoint, if there are any: the next one may be far."""
        if self.every is not None:
            self._due = self.steps

    def stop(self, most: int) -> int:
        """Return up to where a loop may go without a stop: at most so many steps."""
        end = min(self.steps + most, self.total, max(self._due, self.steps + 1))
        if self._outer is not None:
            end = min(end, self._outer.stop(most) - self._begun)
        return end

    def at(self, steps: int, observation: Any, chosen: bool = False) -> None:
        """Note how far it has come."""
        self.steps, self.observation, self.chosen = steps, observation, chosen
        if self._outer is not None:
            self._outer.at(self._begun + steps, observation, chosen)

    def within(self, total: int) -> "TrainingRun":
        """Return the run of the part that has begun, of so many steps, for its learner."""
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
        place = stateful(env) if isinstance(env, gym.Env) and run.crew is None else None
        known = run.total, run.steps, run.chosen, run.part, run.every, seed
        if place is None:
            return cls(*known, 0, None, None)
        observation = np.array(run.observation, dtype=np.float64).ravel()
        return cls(*known, place.elapsed_steps, place.read_state(), observation)

    def to_file(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return metadata and arrays, for a file."""
        metadata = {name: getattr(self, name) for name in sorted(_KEYS)}
        arrays = {"training_state": self.state, "training_observation": self.observation}
        return metadata, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_file(cls, metadata: Any, arrays: dict[str, FloatArray]) -> "Snapshot":
        """Make one of what :meth:`to_file` returned, or raise InvalidFileError."""
        require(isinstance(metadata, dict) and metadata.keys() == _KEYS, f"training has no {_KEYS}")
        chosen = metadata["chosen"]
        require(type(chosen) is bool, f"training.chosen is {chosen!r}: it must be true or false")

        def count(name: str, span: str, optional: bool = False) -> Any:
            value = metadata[name]
            if optional and value is None:
                return None
            require(type(value) is int, f"training.{name} is {value!r}: it must be an integer")
            number(value, f"training.{name}", span)
            return value

        total = count("total", f"[1, {_NEVER}]")
        steps = count("steps", f"[0, {total}]")
        sizes: Sizes = {}
        check(arrays, TRAINING, sizes)
        require(len(arrays) in (0, 2), "training_ has a state or an observation, but not both")
        part, every = count("part", f"[0, {steps}]", True), count("every", f"[1, {_NEVER}]", True)
        seed = count("seed", "[0, inf)", True)
        elapsed = count("elapsed", f"[0, {_NEVER}]")
        own = arrays.get("training_state"), arrays.get("training_observation")
        return cls(total, steps, chosen, part, every, seed, elapsed, *own)

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
        found = place.read_state().shape, first.size
        if found != (self.state.shape, self.observation.size):
            raise ValueError(
                f"env has a state of shape {found[0]} and observations of {found[1]} numbers: the "
                f"training was in one of {self.state.shape} and {self.observation.size}"
            )
        place.write_state(self.state, self.elapsed)
        own = self.observation.reshape(first.shape)
        return own.astype(first.dtype) if (own.astype(first.dtype) == own).all() else own
