"""First calls: processor seconds of whole processes, with an empty cache and with code in it.

For each piece of work two processes share a cache folder that is empty at first: the first one
compiles, the second one loads. All processor seconds count (user and system), including the start
of Python and imports. For comparison, a process imports Stable-Baselines3 and lets PPO learn one
rollout; it compiles nothing.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
from common.experiment import CONSOLE, Experiment, chosen, say
from common.summaries import Column, Row, Rows, Table, Text
from rich.progress import track

EXPERIMENT = Experiment("benchmark_first_call")
_POINTS = "import numpy as np; X = np.random.default_rng(0).normal(size=(1000, 4)); "
_AGENT = "from oda_rl.agents import {0}; {0}('{1}', seed=0).learn({2})"
_COPIES = (
    "import gymnasium as gym; from oda_rl.agents import {0}; "
    "envs = gym.make_vec('{1}', 64, vectorization_mode='vector_entry_point'); "
    "{0}(envs, seed=0).learn({2})"
)
_ESTIMATOR = _POINTS + "from oda_rl import {0}; {0}({1}random_state=0).fit(X{2})"
PPO = "PPO of Stable-Baselines3, CartPole-v1"
WORK = {
    "TwoTimescaleAgent, CartPole-v1": _AGENT.format("TwoTimescaleAgent", "CartPole-v1", 20_000),
    "FittedQAgent, CartPole-v1": _AGENT.format("FittedQAgent", "CartPole-v1", 5_000),
    "TwoTimescaleAgent, MountainCar-v0":
        _AGENT.format("TwoTimescaleAgent", "MountainCar-v0", 5_000),
    "FittedQAgent, MountainCar-v0": _AGENT.format("FittedQAgent", "MountainCar-v0", 5_000),
    "TwoTimescaleAgent, 64 copies of CartPole-v1":
        _COPIES.format("TwoTimescaleAgent", "CartPole-v1", 20_000),
    "FittedQAgent, 64 copies of CartPole-v1":
        _COPIES.format("FittedQAgent", "CartPole-v1", 5_000),
    "ModelAgent, CartPole-v1": _AGENT.format("ModelAgent", "CartPole-v1", 250),
    "ODAClusterer": _ESTIMATOR.format("ODAClusterer", "10, ", ""),
    "ODAClassifier": _ESTIMATOR.format("ODAClassifier", "10, ", ", X[:, 0] > 0"),
    "SGDGaussianMixture": _ESTIMATOR.format("SGDGaussianMixture", "16, ", ""),
    "INFEX": _ESTIMATOR.format("INFEX", "", ""),
    PPO: "from stable_baselines3 import PPO; PPO('MlpPolicy', 'CartPole-v1').learn(2048)",
}  # fmt: skip


def seconds(code: str, cache: str) -> float:
    one = {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    words = [sys.executable, "-W", "ignore", "-c", code]
    process = subprocess.Popen(words, env={**os.environ, **one})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, words)
    return usage.ru_utime + usage.ru_stime


def measure(work: str, repetition: int) -> Row:
    with TemporaryDirectory() as cache:
        cold = seconds(WORK[work], cache)
        return {"work": work, "repetition": repetition, "cold": cold,
                "cached": seconds(WORK[work], cache)}  # fmt: skip


def name(line: Rows) -> str:
    kind, _, env_id = line[0]["work"].partition(", ")
    shown = f"`{kind}`" if line[0]["work"] != PPO else kind
    return f"{shown}, {env_id}" if env_id else shown


def times(key: str) -> Text:
    return lambda line: f"{np.median(line.column(key)):.2f} ({max(line.column(key)):.2f})"


def share_of(line: Rows, competitor: Rows) -> str:
    """Return a first call as a share of the competitor's, which is the same at any call."""
    if not competitor or line[0]["work"] == PPO:
        return ""
    usual = np.median([competitor.column(key) for key in ("cold", "cached")])
    return f"{np.median(line.column('cold')) / usual:.2f}"


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("", name),
        Column("first call on a machine (max)", times("cold")),
        Column("later ones (max)", times("cached")),
        Column("first call / PPO's", partial(share_of, competitor=rows.where(work=PPO))),
    ]
    return {"first call": Table("processor seconds", columns, rows.groups("work"))}


@dataclass(frozen=True)
class Options:
    only: tuple[str, ...] = ()  # Names of the work to do; all by default
    repetitions: int = 5  # Repetitions of each, in turns


def main(options: Options) -> None:
    names = chosen(options.only, WORK)
    turns = [(work, turn) for turn in range(options.repetitions) for work in names]
    rows = [measure(*turn) for turn in track(turns, "processes", console=CONSOLE)]
    stored = EXPERIMENT.write(rows, ("work",))
    say(*tables(stored).values())
