"""Everyday worlds that nothing was tuned on, beside rules by hand and constant actions.

Thirteen small worlds (common/everyday.py): stock, queues, delays, energy, traffic, dosing,
maintenance, prices, schedules, levels, lifts. Agents and Stable-Baselines3's PPO and DQN have their
defaults. 0 is the best constant action and 1 the rule by hand, both by 100 episodes; a method has
the mean of 100 greedy episodes.

Run: python scripts/benchmark.py everyday [--only Tank ...] [--methods FittedQAgent ...]
     [--seeds 20]
Runs are stored in results/benchmark_everyday.jsonl, and not repeated; writes
results/benchmark_everyday.csv.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from common.everyday import WORLDS
from common.experiment import Experiment, SharedOptions, chosen, say
from common.learning import FITTED, MODEL, ONLINE
from common.summaries import Column, Row, Rows, Table, among

EXPERIMENT = Experiment("benchmark_everyday")
STEPS = {MODEL: 5_000, FITTED: 20_000, ONLINE: 20_000, "PPO": 20_000, "DQN": 20_000}
REFERENCES = ("rule", "constant")
EPISODES = 100
GOOD = 0.9


def mean_return(make: Callable[[], gym.Env[Any, Any]], decide: Callable[[Any], Any]) -> float:
    """Return the mean return of 100 episodes, whose seeds are the same for everybody."""
    env, total = make(), 0.0
    for seed in range(EPISODES):
        observation, _ = env.reset(seed=10**8 + seed)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(decide(observation))
            total += float(reward)
            over = terminated or truncated
    return total / EPISODES


def measure(world: str, method: str, seed: int) -> Row:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    make, rule = WORLDS[world]
    begun = time.process_time()
    if method == "rule":
        mean = mean_return(make, rule)
    elif method == "constant":
        actions = range(make().action_space.n)  # type: ignore[attr-defined]
        mean = max(mean_return(make, lambda _, action=action: action) for action in actions)
    elif method in ("PPO", "DQN"):
        import stable_baselines3 as sb3
        import torch

        torch.set_num_threads(1)
        env = make()
        several = isinstance(env.observation_space, gym.spaces.Dict)
        name = "MultiInputPolicy" if several else "MlpPolicy"
        model = getattr(sb3, method)(name, env, seed=seed, device="cpu").learn(STEPS[method])
        mean = mean_return(make, lambda seen: int(model.predict(seen, deterministic=True)[0]))
    else:
        from oda_rl import agents

        agent = getattr(agents, method)(make(), seed=seed).learn(STEPS[method])
        mean = mean_return(make, lambda seen: agent.predict(seen)[0])
    return {"mean": mean, "seconds": time.process_time() - begun}


def tables(rows: Rows) -> dict[str, Table]:
    def shares(own: Rows) -> Any:
        every = rows.where(world=own[0]["world"])
        low, high = (every.where(method=name)[0]["mean"] for name in ("constant", "rule"))
        return (own.column("mean") - low) / (high - low)

    def reached(own: Rows) -> str:
        found = shares(own)
        return f"{np.median(found):.2f} ({np.mean(found >= GOOD):.2f})"

    def reference(name: str) -> Callable[[Rows], str]:
        return lambda own: f"{own.where(method=name)[0]['mean']:.5g}"

    lines = [own for name in WORLDS if (own := rows.where(world=name)).where(method="rule")]
    columns = [
        Column("", lambda own: own[0]["world"]),
        Column("best constant", reference("constant")),
        Column("rule by hand", reference("rule")),
        *(
            Column(f"{method}, {steps:,} steps", among(reached, method=method))
            for method, steps in STEPS.items()
        ),
    ]
    title = "way from the best constant (0) to the rule (1): median (share of seeds from 0.9 on)"
    return {"everyday": Table(title, columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    only: tuple[str, ...] = ()
    """Names of the worlds to do; all by default."""
    methods: tuple[str, ...] = ()
    """Names of the agents and algorithms; all by default."""


def main(options: Options) -> None:
    seeds = EXPERIMENT.seeds(options)
    settings = [
        {"world": world, "method": method, "seed": seed}
        for world in chosen(options.only, WORLDS)
        for method in (*REFERENCES, *chosen(options.methods, STEPS))
        for seed in (seeds[:1] if method in REFERENCES else seeds)
    ]
    rows = EXPERIMENT.run(measure, settings, options.execution)
    say(*tables(rows).values())
