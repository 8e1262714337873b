"""Everyday worlds, beside rules by hand and constant actions.

Thirteen small worlds (common/everyday.py). Agents and Stable-Baselines3's PPO and DQN have their
defaults. 0 is the best constant action and 1 the rule by hand, both by 100 episodes; a method has
the mean of 100 greedy episodes.
"""

import time

import numpy as np
from common.everyday import WORLDS
from common.experiment import Experiment, MethodSelection, chosen
from common.learning import FITTED, MODEL, ONLINE, play, sb3_learner
from common.summaries import Column, Row, Rows, Table, among, the

EXPERIMENT = Experiment("benchmark_everyday")
STEPS = {MODEL: 5_000, FITTED: 20_000, ONLINE: 20_000, "PPO": 20_000, "DQN": 20_000}
REFERENCES = ("rule", "constant")


def measure(world: str, method: str, seed: int) -> Row:
    make, begun = WORLDS[world], time.process_time()
    if method == "rule":
        rules = [make.rule]
    elif method == "constant":
        rules = [lambda _, action=action: action for action in range(make().action_space.n)]
    elif method in ("PPO", "DQN"):
        model = sb3_learner(method, make(), STEPS[method], seed)
        rules = [lambda seen: int(model.predict(seen, deterministic=True)[0])]
    else:
        from oda_rl import agents

        agent = getattr(agents, method)(make(), seed=seed).learn(STEPS[method])
        rules = [lambda seen: agent.predict(seen)[0]]
    mean = max(play(rule, make(), 0)["mean"] for rule in rules)  # the same seed for everybody
    return {"mean": mean, "seconds": time.process_time() - begun}


def tables(rows: Rows) -> dict[str, Table]:
    def reached(own: Rows) -> str:
        every = rows.where(world=own[0]["world"])
        low, high = (every.where(method=name)[0]["mean"] for name in ("constant", "rule"))
        found = (own.column("mean") - low) / (high - low)
        return f"{np.median(found):.2f} ({np.mean(found >= 0.9):.2f})"

    columns = [
        Column("", the("world")),
        Column("best constant", among(the("mean", ".5g"), method="constant")),
        Column("rule by hand", among(the("mean", ".5g"), method="rule")),
        *(
            Column(f"{method}, {steps:,} steps", among(reached, method=method))
            for method, steps in STEPS.items()
            if rows.where(method=method)
        ),
    ]
    title = "way from the best constant (0) to the rule (1): median (share of seeds from 0.9 on)"
    return {"everyday": Table(title, columns, [rows.where(world=name) for name in WORLDS])}


Options = MethodSelection


def settings(options: MethodSelection) -> list[Row]:
    seeds = EXPERIMENT.seeds(options)
    return [
        {"world": world, "method": method, "seed": seed}
        for world in chosen(options.only, WORLDS)
        for method in (*REFERENCES, *chosen(options.methods, STEPS))
        for seed in (seeds[:1] if method in REFERENCES else seeds)
    ]
