"""Speed of the agents on a cart-pole: compiled with its dynamics, in a Python loop, as a command.

Fused: nanoseconds per step of the online agent, including the metric, over 200,000 steps, and of
the bare dynamics; each the minimum of 30 trainings.

In a loop: microseconds that the online agent adds to a step of Gymnasium's CartPole in Python, over
the same episodes.

As a command: seconds and memory of ``oda-rl train`` with evaluation and figures, code in the cache.

Seeds start at 40,000,000. The suite measures how well the agents learn.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import CONSOLE, FIRST_SEEDS, Experiment, say, seconds
from common.summaries import Row, Rows
from numba import njit
from rich.progress import track

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step

EXPERIMENT = Experiment("benchmark_speed")
BARTO, CARTPOLE = "oda_rl/BartoCartPole-v0", "CartPole-v1"
FUSED_STEPS, LOOP_STEPS, COMMAND_STEPS = 200_000, 50_000, 50_000
FUSED_TIMES = 30  # of about 15 ms, in which most machines also do something else
# The command, which says at last what memory it has had: what the system counts for a process
# begins with what the one that started it had.
TRAIN = """
import sys
from oda_rl.command.cli import run
try:
    run()
finally:
    from oda_rl.runs.results import peak_megabytes
    print(peak_megabytes(), file=sys.stderr)
"""
Work = Callable[[], Any]


@njit
def bare_dynamics(parameters: Any, actions: Any, steps: int) -> float:
    """Step a cart-pole without an agent, from near its middle after each failure."""
    state = np.zeros(4)
    for i in range(steps):
        if cartpole_step(parameters, state, actions[i % actions.shape[0]])[1]:
            state[:] = 0.01
    return state[0]


def least(repetitions: int, steps: int, make: Callable[[], tuple[Work, Work]]) -> Row:
    """Return seconds per step without and with an agent, each the minimum of some times."""
    taken = [[seconds(work) for work in make()] for _ in range(repetitions)]
    alone, together = (min(times) / steps for times in zip(*taken, strict=True))
    return {"alone": alone, "together": together}


def fused(seed: int, steps: int) -> Row:
    """Time the same training, beside the bare dynamics: ns a step."""
    parameters = cartpole_parameters(BartoCartPoleEnv())
    actions = np.random.default_rng(0).integers(2, size=1024)

    def make() -> tuple[Work, Work]:
        agent = TwoTimescaleAgent(BARTO, seed=seed)
        return partial(bare_dynamics, parameters, actions, steps), partial(agent.learn, steps)

    return {name: 1e9 * taken for name, taken in least(FUSED_TIMES, steps, make).items()}


class Recording(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper, so that training takes the Python loop, that keeps what was done."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.actions: list[int] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        self.actions.append(action)
        return self.env.step(action)


def replay(env: gym.Env[Any, Any], seeds: list[int | None], actions: list[int]) -> None:
    """Step an environment through the same episodes without an agent."""
    resets = iter(seeds)
    env.reset(seed=next(resets))
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset(seed=next(resets))


def looped(seed: int, steps: int) -> Row:
    """Time the same episodes without and with an agent: µs a step."""
    recording = Recording(gym.make(CARTPOLE))
    TwoTimescaleAgent(recording, seed=seed).learn(steps)

    def make() -> tuple[Work, Work]:
        env, agent = gym.make(CARTPOLE), TwoTimescaleAgent(Recording(gym.make(CARTPOLE)), seed=seed)
        alone = partial(replay, Recording(env), recording.seeds, recording.actions)
        return alone, partial(agent.learn, steps)

    return {name: 1e6 * taken for name, taken in least(5, steps, make).items()}


def command(algorithm: str, steps: int) -> Row:
    """Measure the seconds and the peak memory of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", TRAIN, "train", "--env-id", CARTPOLE, "--algo", algorithm]
        words += ["--total-timesteps", str(steps), "--out", f"{folder}/run"]
        begun = time.perf_counter()
        done = subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return {
            "seconds": time.perf_counter() - begun,
            "megabytes": float(done.stderr.splitlines()[-1]),
        }


def tables(rows: Rows) -> dict[str, str]:
    fused_ns, loop_us = (
        np.array([rows.where(what=what).column(key) for key in ("alone", "together")])
        for what in ("fused", "loop")
    )
    fitted, online = (rows.where(what=name) for name in ("fitted", "two-timescale"))
    sentences = [
        f"Compiled together with BartoCartPole the online agent takes {np.median(fused_ns[1]):.0f} "
        f"ns a step ({fused_ns[1].min():.0f} to {fused_ns[1].max():.0f}), metric included, "
        f"{np.median(fused_ns[1] / fused_ns[0]):.1f} times the bare dynamics (median of "
        f"{fused_ns.shape[1]} trainings of {rows.where(what='fused')[0]['steps']:,} steps, each "
        f"the minimum of {FUSED_TIMES} times).",
        f"In a Python loop it adds {np.median(loop_us[1] - loop_us[0]):.1f} µs to the "
        f"{np.median(loop_us[0]):.1f} µs of CartPole-v1's `env.step` (median of "
        f"{loop_us.shape[1]} seeds).",
        f"`oda-rl train` for {fitted[0]['steps']:,} steps of CartPole-v1, evaluation and "
        f"figures included, takes {np.median(fitted.column('seconds')):.1f} s and "
        f"{np.median(fitted.column('megabytes')):.0f} MB, with `--algo two-timescale` "
        f"{np.median(online.column('seconds')):.1f} s.",
    ]
    return {"speed": "\n".join(sentences)}


@dataclass(frozen=True)
class Options:
    repetitions: int = 20  # Fused trainings; of the others a quarter as many


def main(options: Options) -> None:
    few = max(options.repetitions // 4, 1)
    TwoTimescaleAgent(BARTO, seed=0).learn(30_000)  # compiles, or loads
    bare_dynamics(cartpole_parameters(BartoCartPoleEnv()), np.zeros(1, dtype=np.int64), 10)
    command("fitted", 1_000)
    work: list[tuple[str, int, int, Callable[[int, int], Row]]] = [
        ("fused", options.repetitions, FUSED_STEPS, fused),
        ("loop", few, LOOP_STEPS, looped),
        ("fitted", few, COMMAND_STEPS, lambda _, n: command("fitted", n)),
        ("two-timescale", few, COMMAND_STEPS, lambda _, n: command("two-timescale", n)),
    ]
    first = FIRST_SEEDS[EXPERIMENT.name]
    todo = [(what, first + i, n, action) for what, count, n, action in work for i in range(count)]
    rows = [
        {"what": what, "seed": seed, "steps": n, **action(seed, n)}
        for what, seed, n, action in track(todo, "measuring", console=CONSOLE)
    ]
    say(*tables(EXPERIMENT.write(rows, ("what",))).values())
