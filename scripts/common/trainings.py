"""Trainings that are stopped and resumed, and what is compared then; also a process to be killed.

    python scripts/common/trainings.py NAME FILE [long]

trains the case of that name with checkpoints in a file, or goes on with what is there.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from oda_rl.agents import Agent, CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.files.archive import load_archive

COMMAND = [sys.executable, __file__]
BARTO = "oda_rl/BartoCartPole-v0"
PARTITIONS = ("oda", "gmm", "grid", "infex", "som")
QUICK = {"generations": 2, "population": 8, "starts": 4}


@dataclass(frozen=True)
class Case:
    """A training, in tests; and how many steps it has where there is more time."""

    kind: type[Agent]
    env_id: str
    steps: int
    every: int
    long: int
    plain: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def longer(self) -> "Case":
        """Return the long training, with 60 checkpoints, so that it may be killed anywhere."""
        return replace(self, steps=self.long, every=self.long // 60)

    def env(self) -> gym.Env:
        env = gym.make(self.env_id)
        return gym.Wrapper(env) if self.plain else env  # of which no compiled loop is known

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
    bounded, quick = (("max_transitions", 800),), tuple(QUICK.items())
    online, fitted, barto, model = TwoTimescaleAgent, FittedQAgent, BARTO, ModelAgent
    long = {"gmm": 200_000, "infex": 100_000}
    for name in PARTITIONS:
        own, steps = (("partition", name),), long.get(name, 1_000_000)
        yield f"{name}, fused", Case(online, barto, 2400, 150, steps, False, own)
        yield f"{name}, in Python", Case(online, barto, 2400, 150, 80_000, True, own)
    yield "torques, fused", Case(online, "Pendulum-v1", 1600, 120, 1_000_000)
    yield "torques, in Python", Case(online, "Pendulum-v1", 1600, 120, 30_000, True)
    yield "fitted, fused", Case(fitted, "CartPole-v1", 1500, 120, 50_000)
    yield "fitted, in Python", Case(fitted, "CartPole-v1", 1500, 120, 30_000, True)
    yield "bounded, fused", Case(fitted, "Acrobot-v1", 2000, 130, 50_000, False, bounded)
    yield "bounded, in Python", Case(fitted, "Acrobot-v1", 2000, 130, 15_000, True, bounded)
    yield "codevectors", Case(CodevectorAgent, "Pendulum-v1", 1000, 70, 10_000)
    yield "model", Case(model, "CartPole-v1", 400, 34, 3000, False, quick)
    yield "model of torques", Case(model, "Pendulum-v1", 420, 35, 1500, False, quick)


CASES = dict(_cases())


def content(agent: Agent, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All that is in an agent's file, but for times, and how its environment is wrapped."""
    agent.save(path)
    metadata, arrays = load_archive(path)
    for name in ("training_seconds", "env_spec"):
        del metadata[name]
    timeless = {"episodes": 4}  # columns that are not of time
    own = {name: array[:, : timeless.get(name)] if name in timeless else array
           for name, array in arrays.items()}  # fmt: skip
    return metadata, {name: array.tobytes() for name, array in own.items()}


if __name__ == "__main__":
    name, file, *long = sys.argv[1:]
    case = CASES[name]
    (case.longer() if long else case).go_on(Path(file))
