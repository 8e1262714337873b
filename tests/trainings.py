"""Trainings that are stopped and resumed, and what is compared then; also a process to be killed.

    python tests/trainings.py NAME FILE

trains the case of that name with checkpoints in a file, or goes on with what is there.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from oda_rl import persistence
from oda_rl.agents import Agent, CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.engine.checkpoints import Checkpoints

BARTO = "oda_rl/BartoCartPole-v0"
PARTITIONS = ("oda", "gmm", "grid", "infex", "som")
QUICK = {"generations": 2, "population": 8, "starts": 4}


class Plain(gym.Wrapper):
    """A wrapper that does nothing, so that the environment takes the Python loop."""


@dataclass(frozen=True)
class Case:
    """A training."""

    kind: type[Agent]
    env_id: str
    steps: int
    every: int
    plain: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def env(self) -> gym.Env:
        env = gym.make(self.env_id)
        return Plain(env) if self.plain else env

    def agent(self) -> Agent:
        return self.kind(self.env(), seed=3, **dict(self.settings))

    def load(self, path: Path) -> Agent:
        return self.kind.load(path, env=self.env())

    def go_on(self, path: Path) -> Agent:
        """Train with checkpoints, from the last one if there is one."""
        kept = {"checkpoint": path, "checkpoint_every": self.every}
        if path.exists():
            return self.load(path).resume(**kept)
        return self.agent().learn(self.steps, **kept)


def _cases() -> Iterator[tuple[str, Case]]:
    for plain, way in ((False, "fused"), (True, "python")):
        for name in PARTITIONS:
            cells = (("partition", name),)
            yield f"{name} {way}", Case(TwoTimescaleAgent, BARTO, 6000, 170, plain, cells)
        yield f"pendulum {way}", Case(TwoTimescaleAgent, "Pendulum-v1", 3000, 130, plain)
        yield f"fitted {way}", Case(FittedQAgent, "CartPole-v1", 2500, 130, plain)
        bounded = (("max_transitions", 800),)
        yield f"bounded {way}", Case(FittedQAgent, "Acrobot-v1", 2000, 130, plain, bounded)
    yield "codevectors", Case(CodevectorAgent, "Pendulum-v1", 1000, 70)
    quick = tuple(QUICK.items())
    yield "model", Case(ModelAgent, "CartPole-v1", 600, 50, settings=quick)
    yield "model of torques", Case(ModelAgent, "Pendulum-v1", 700, 45, settings=quick)


CASES = dict(_cases())


def content(agent: Agent, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All that is in an agent's file, but for times, and how its environment is wrapped."""
    agent.save(path)
    metadata, arrays = persistence.load_archive(path)
    for name in ("training_seconds", "env_spec"):
        del metadata[name]
    own = {name: array[:, :2] if name == "episodes" else array for name, array in arrays.items()}
    return metadata, {name: array.tobytes() for name, array in own.items()}


class Stopped(BaseException):
    """A training has been stopped."""


@contextmanager
def stopped_after(checkpoints: int, seen: list[Any] | None = None) -> Iterator[None]:
    """Stop a training when it has written so many checkpoints."""
    usual: Callable[..., None] = Checkpoints.write
    written = 0

    def write(self: Checkpoints, agent: Any, course: Any, seed: int | None) -> None:
        nonlocal written
        usual(self, agent, course, seed)
        written += 1
        if seen is not None:
            seen.append(course.steps)
        if written == checkpoints:
            raise Stopped

    Checkpoints.write = write  # type: ignore[method-assign]
    try:
        yield
    finally:
        Checkpoints.write = usual  # type: ignore[method-assign]


if __name__ == "__main__":
    name, file = sys.argv[1:]
    CASES[name].go_on(Path(file))
