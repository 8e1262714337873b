"""Comparison of our agents with DQN, PPO and A2C of Stable-Baselines3; it can be resumed.

Each run is a process with one thread. Before the clock starts, it loads its compiled code, or
torch, and trains briefly; the time for that is reported as ``startup``. At each checkpoint the
clock stops, and the policy plays 100 greedy episodes with the same seeds for all.

Where dynamics are compiled, our agents that learn values train in one compiled loop, which
Stable-Baselines3 cannot do. So the same steps are also timed in a Python loop.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from oda_rl._types import Array, FloatArray
from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.distilling.playing import draw_seeds
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.sb3.settings import ALGORITHMS, settings_for
from oda_rl.envs.dynamics import compiled_dynamics
from oda_rl.runs.parallel import Rows, failures, origins_of, rows_of, run_all
from oda_rl.runs.results import Origin, peak_megabytes

OWN: dict[str, type[Agent]] = {
    one.__name__: one for one in (FittedQAgent, TwoTimescaleAgent, ModelAgent)
}
COMPETITORS = (*OWN, *ALGORITHMS)
SOLVED_SHARE = 0.95
EVALUATION_EPISODES = 100

_GRID = (1, 2, 3, 5, 7)
# Enough for everything to be called once.
_WARM_UP_STEPS = {"FittedQAgent": 3000, "TwoTimescaleAgent": 3000, "ModelAgent": 500}
_CALLS, _BLOCKS = 200, 5
_CHILD = """
import json, sys
from oda_rl.agents.comparison import run
print("\\n" + json.dumps(run(**json.loads(sys.argv[1]))))
"""

Pause = Callable[[int, float], None]


class Own:
    """One of our agents, with its defaults; see :class:`oda_rl.agents.sb3.baselines.Baseline`."""

    def __init__(self, algorithm: str, env: str | gym.Env[Any, Any], seed: int) -> None:
        self.agent: Agent = OWN[algorithm](env, seed=seed)

    @staticmethod
    def warm_up(algorithm: str, env_id: str) -> None:
        """Load or compile all code that training calls."""
        OWN[algorithm](env_id, seed=0).learn(_WARM_UP_STEPS[algorithm])

    def learn(self, checkpoints: Sequence[int], pause: Pause) -> None:
        for steps in checkpoints:
            self.agent.learn(steps - self.agent.num_timesteps)
            pause(steps, self.agent.training_seconds)

    def predict(self, observations: Array) -> Array:
        return np.asarray(self.agent.predict(observations)[0])

    @property
    def n_parameters(self) -> int:
        return sum(array.size for array in self.agent.policy.parameters)

    def save_policy(self, folder: Path) -> Path:
        path = folder / "policy"
        path.write_bytes(b"".join(array.tobytes() for array in self.agent.policy.parameters))
        return path

    def save(self, folder: Path) -> Path:
        self.agent.save(folder / "model.zip")
        return folder / "model.zip"


@dataclass(frozen=True)
class Plan:
    """Settings of a comparison."""

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; 'module:id' imports a module first."""
    seeds: int = 20  # number of runs of each of our agents, and of PPO
    total_timesteps: int = 50_000  # environment steps of each run
    threshold: float | None = None
    """Minimum mean return of a solved seed; by default the environment's reward threshold."""

    @property
    def checkpoints(self) -> list[int]:
        """Steps after which policies are evaluated.

        >>> Plan(total_timesteps=4000).checkpoints
        [1000, 2000, 3000, 4000]
        """
        first, total = min(1000, self.total_timesteps), self.total_timesteps
        grid = sorted(digit * 10**power for power in range(12) for digit in _GRID)
        return [*(steps for steps in grid if first <= steps < total), total]

    def counts(self) -> dict[str, int]:
        """Return the number of seeds of each competitor."""
        few, compared = min(self.seeds, 5), (*OWN, "PPO")  # of DQN and of A2C
        return {name: self.seeds if name in compared else few for name in COMPETITORS}

    def settings(self) -> list[dict[str, Any]]:
        """Return the arguments of :func:`measure` for all runs, with all first seeds first."""
        counts = self.counts()
        return [
            {"env_id": self.env_id, "algorithm": name, "seed": 57_000_000 + i,
             "checkpoints": self.checkpoints}
            for i in range(max(counts.values()))
            for name in COMPETITORS if i < counts[name]
        ]  # fmt: skip


@dataclass(frozen=True)
class Solved:
    """The first checkpoint at which enough seeds were solved."""

    steps: int
    seconds: float  # median seconds of training up to it
    loop_seconds: float  # the same in a Python loop


@dataclass(frozen=True)
class Comparison:
    """Results: a row for each run and checkpoint."""

    plan: Plan
    threshold: float | None
    rows: Rows
    failed: list[str]  # a line for each failed run
    origins: list[Origin] = field(default_factory=list)  # commit, command and versions


def compare(
    plan: Plan, path: str | Path, workers: int = 1, retry_failed: bool = False
) -> Comparison:
    """Make all runs of a plan that are not in the file, by default one at a time: for timing."""
    threshold = _checked(plan)
    runs = run_all(measure, plan.settings(), path, workers, retry_failed, title=plan.env_id)
    rows = [
        {**{key: value for key, value in row.items() if key != "checkpoints"},
         "solved": int(threshold is not None and row["mean"] >= threshold)}
        for row in rows_of(runs)
    ]  # fmt: skip
    rows.sort(key=lambda row: (COMPETITORS.index(row["algorithm"]), row["seed"]))
    return Comparison(plan, threshold, rows, failures(runs), origins_of(runs))


def solved_at(rows: Rows, counts: Mapping[str, int]) -> dict[str, Solved | None]:
    """Return the first checkpoint at which 95 % of each competitor's ``counts`` are solved."""
    first: dict[str, Solved | None] = dict.fromkeys(counts)
    for name, count in counts.items():
        for steps in sorted({row["steps"] for row in rows if row["algorithm"] == name}):
            at = [row for row in rows if (row["algorithm"], row["steps"]) == (name, steps)]
            if sum(row["solved"] for row in at) >= SOLVED_SHARE * count:
                first[name] = Solved(steps, _median(at, "seconds"), _median(at, "loop_seconds"))
                break
    return first


def _median(rows: Rows, key: str) -> float:
    return float(np.median([row[key] for row in rows]))


def headline(comparison: Comparison) -> list[str]:
    """Return lines with the seconds until each competitor is solved, and PPO's ratio to ours."""
    plan, threshold = comparison.plan, comparison.threshold
    if threshold is None:
        return [f"{plan.env_id} has no threshold from which it is solved: --threshold gives one"]
    counts = plan.counts()
    solved = solved_at(comparison.rows, counts)
    lines = [
        f"{plan.env_id}: wall seconds of training until {100 * SOLVED_SHARE:.0f} % of the seeds "
        f"are solved (mean return of {EVALUATION_EPISODES} greedy episodes ≥ {threshold:g})"
    ]
    for name, when in solved.items():
        if when is None:
            text = f"not within {plan.total_timesteps:,} steps"
        else:
            text = f"{when.seconds:.3g} s, {when.steps:,} steps"
            if when.loop_seconds != when.seconds:
                text += f"; {when.loop_seconds:.3g} s in a Python loop"
        n = counts[name]
        lines.append(f"{name}: {text} ({n} seed{'s' * (n > 1)})")
    return lines + [_ratio(comparison.rows, name, solved) for name in OWN]


def _ratio(rows: Rows, name: str, solved: Mapping[str, Solved | None]) -> str:
    """Return a line with the ratio of PPO's seconds to those of one of our agents."""
    ours, ppo = solved[name], solved["PPO"]
    label = f"PPO's seconds / {name}'s"
    if ours is None:
        return f"{label}: unknown, because {name} is not solved"
    if ppo is not None:
        ratio, looped = ppo.seconds / ours.seconds, ppo.seconds / ours.loop_seconds
        return f"{label}: {ratio:,.0f}; in a Python loop {looped:,.0f}"
    of_ppo = [row for row in rows if row["algorithm"] == "PPO"]
    if not of_ppo:
        return f"{label}: unknown, because no run of PPO has succeeded"
    last = max(row["steps"] for row in of_ppo)
    seconds = _median([row for row in of_ppo if row["steps"] == last], "seconds")
    return f"{label}: more than {seconds / ours.seconds:,.0f}, because PPO is not solved"


def origin_of_settings(algorithm: str, env_id: str) -> str:
    """Return the source of a competitor's hyperparameters."""
    if algorithm in OWN:
        return "package defaults"
    source = settings_for(algorithm, env_id).source
    if source is None:
        return "SB3's defaults"
    return "rl-zoo's" if source == env_id.rpartition(":")[2] else f"rl-zoo's for {source}"


def measure(env_id: str, algorithm: str, seed: int, checkpoints: list[int]) -> Rows:
    """Make one run in a new process."""
    arguments = {"env_id": env_id, "algorithm": algorithm, "seed": seed, "checkpoints": checkpoints}
    command = [sys.executable, "-c", _CHILD, json.dumps({**arguments, "launched": time.time()})]
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, env={**os.environ, **single}, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(lines[-1])
    return list(json.loads(done.stdout.splitlines()[-1]))


def run(env_id: str, algorithm: str, seed: int, checkpoints: list[int], launched: float) -> Rows:
    """Train once in a process started at time ``launched``; return a row for each checkpoint."""
    kind: Any = Own
    if algorithm not in OWN:
        from oda_rl.agents.sb3.baselines import Baseline

        kind = Baseline
    kind.warm_up(algorithm, env_id)
    startup = time.time() - launched
    competitor = kind(algorithm, env_id, seed)
    envs = [make_env(env_id) for _ in range(EVALUATION_EPISODES)]
    rows: Rows = []

    def pause(steps: int, seconds: float) -> None:
        returns = greedy_returns(competitor.predict, envs, seed + 10**8)  # its own seeds
        mean, least = float(returns.mean()), float(returns.min())
        rows.append({"steps": steps, "seconds": seconds, "mean": mean, "least": least})

    competitor.learn(checkpoints, pause)
    with TemporaryDirectory() as folder:
        policy_file, file = competitor.save_policy(Path(folder)), competitor.save(Path(folder))
        sizes = {"policy_bytes": policy_file.stat().st_size, "saved_bytes": file.stat().st_size}
    observation = envs[0].reset(seed=0)[0]
    spent = timeit.repeat(lambda: competitor.predict(observation), number=_CALLS, repeat=_BLOCKS)
    about = {
        "parameters": competitor.n_parameters,
        "peak_mb": peak_megabytes(),
        **sizes,
        "predict_us": float(1e6 * np.median(spent) / _CALLS),
        "startup": startup,
    }
    looped = [row["seconds"] for row in rows]
    fuses = isinstance(competitor, Own) and competitor.agent._engine.fuses
    if fuses and compiled_dynamics(make_env(env_id)) is not None:
        looped = loop_seconds(algorithm, env_id, seed, checkpoints)
    return [
        {**row, "loop_seconds": seconds, **about} for row, seconds in zip(rows, looped, strict=True)
    ]


def loop_seconds(algorithm: str, env_id: str, seed: int, checkpoints: Sequence[int]) -> list[float]:
    """Return the seconds of training at each checkpoint in a Python loop, over the same steps."""
    # A wrapper that changes nothing hides compiled dynamics.
    OWN[algorithm](gym.Wrapper(make_env(env_id)), seed=0).learn(_WARM_UP_STEPS[algorithm])
    seconds: list[float] = []
    own = Own(algorithm, gym.Wrapper(make_env(env_id)), seed)
    own.learn(checkpoints, lambda _, spent: seconds.append(spent))
    return seconds


def greedy_returns(predict: Callable[[Array], Array], envs: Sequence[Any], seed: int) -> FloatArray:
    """Play an episode in each environment, other ones for each seed, and return the returns."""
    returns, seeds = np.zeros(len(envs)), draw_seeds(np.random.default_rng(seed), len(envs))
    playing = list(range(len(envs)))
    observations = [env.reset(seed=one)[0] for env, one in zip(envs, seeds, strict=True)]
    while playing:
        actions = predict(np.array([observations[i] for i in playing]))
        for i, action in zip(tuple(playing), actions, strict=True):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if terminated or truncated:
                playing.remove(i)
    return returns


def _checked(plan: Plan) -> float | None:
    """Check everything before the first run; return the threshold."""
    for name in ("seeds", "total_timesteps"):
        checked_count(name, getattr(plan, name))
    if plan.threshold is not None and not math.isfinite(plan.threshold):
        raise ValueError(f"threshold is {plan.threshold}: it must be finite")
    env = make_env(plan.env_id)
    kinds = {"observation_space": spaces.Box, "action_space": spaces.Discrete}
    for name, kind in kinds.items():
        space = getattr(env, name)
        if not isinstance(space, kind):
            raise TypeError(
                f"env_id is {plan.env_id!r}, whose {name} is {space}: for a comparison it must be "
                f"{kind.__name__}"
            )
    for module in ("stable_baselines3", "torch"):
        if importlib.util.find_spec(module) is None:
            raise ImportError("a comparison needs Stable-Baselines3: pip install 'oda-rl[sb3]'")
    if plan.threshold is not None or env.spec is None:
        return plan.threshold
    return env.spec.reward_threshold
