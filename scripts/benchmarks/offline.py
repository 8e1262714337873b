"""Fitted Q from logged data: 5,000 steps of another policy, and no further interaction.

The behaviour is random; mixed, with a share of random actions drawn anew for each episode; or
expert, the rule by hand (common/hand_rules.py). Pendulum's torques are mapped to the nearest of
five. FittedQAgent.fit with package defaults is compared with the behaviour: the mean return of 100
greedy episodes, and the smallest gain over the log. The estimated return is compared with the true
discounted return, the mean of 100 real episodes without a time limit (500 steps, after which
nothing counts). Seeds start at 51,550,000, and chose no setting.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, Selection, chosen
from common.hand_rules import RULES
from common.summaries import Column, Row, Rows, Table, among, count, of, the

from oda_rl._types import FloatArray

EXPERIMENT = Experiment("benchmark_offline")
STEPS, EPISODES, TRUE_EPISODES, LONGEST = 5_000, 100, 100, 500
TASKS = {"CartPole-v1": 475.0, "MountainCar-v0": -140.0, "Pendulum-v1": -300.0}
QUALITIES = {"random": 1.0, "mixed": None, "expert": 0.0}
BEHAVIOUR, OURS = "behaviour", "`fit`"


def logged(task: str, quality: str, seed: int) -> list[Any]:
    """Return observations, actions, rewards, next observations, terminated and truncated."""
    env, rng, rule = gym.make(task), np.random.default_rng(seed), RULES[task]
    env.action_space.seed(seed)
    rows = []
    observation, _ = env.reset(seed=seed)
    share = given = QUALITIES[quality]
    for k in range(STEPS):
        if share is None:
            share = rng.random()
        at_random = rng.random() < share
        action = env.action_space.sample() if at_random else rule(observation)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, after, terminated, truncated or k == STEPS - 1))
        observation = after
        if terminated or truncated:
            observation, share = env.reset()[0], given
    return [np.array(column) for column in zip(*rows, strict=True)]


def true_return(agent: Any, task: str, seed: int) -> float:
    """Return the mean discounted return of real episodes without a limit of time."""
    copies = [gym.make(task, max_episode_steps=LONGEST) for _ in range(TRUE_EPISODES)]
    seen = np.array([copy.reset(seed=seed + k)[0] for k, copy in enumerate(copies)])
    total, weight, running = 0.0, 1.0, list(range(TRUE_EPISODES))
    while running:
        actions, _ = agent.predict(seen[running])
        for k, action in zip(tuple(running), actions, strict=True):
            seen[k], reward, terminated, truncated, _ = copies[k].step(action)
            total += weight * float(reward)
            if terminated or truncated:
                running.remove(k)
        weight *= agent.config.gamma
    return total / TRUE_EPISODES


def measure(task: str, quality: str, seed: int) -> list[Row]:
    from oda_rl.agents import FittedQAgent

    log = logged(task, quality, seed)
    ends = log[4] | log[5]
    returns = np.diff(np.concatenate([[0.0], np.cumsum(log[2])[ends]]))
    complete = returns[:-1] if len(returns) > 1 else returns
    agent = FittedQAgent(task, seed=seed).fit(log)
    found = agent.estimate_return()
    true = true_return(agent, task, seed + 10**8)
    return [
        _row(BEHAVIOUR, complete),
        {**_row(OURS, agent.evaluate(EPISODES, seed=seed + 10**8)), "estimate": found.mean,
         "low": found.low, "high": found.high, "true": true},
    ]  # fmt: skip


def _row(method: str, returns: FloatArray) -> Row:
    blank = dict.fromkeys(("estimate", "low", "high", "true"), float("nan"))
    spread = {"mean": float(returns.mean()), "least": float(returns.min())}
    return {"method": method, **spread, **blank}


def tables(rows: Rows) -> dict[str, Table]:
    def covered(line: Rows) -> str:
        low, high, true = (line.column(name) for name in ("low", "high", "true"))
        return f"{((low <= true) & (true <= high)).mean():.2f}"

    def width(line: Rows) -> str:
        middle = [np.median(line.column(name)) for name in ("low", "high", "true")]
        return "{:.0f} to {:.0f} ({:.0f})".format(*middle)

    def above(line: Rows) -> str:
        logs = rows.where(task=line[0]["task"], quality=line[0]["quality"], method=BEHAVIOUR)
        means = {row["seed"]: row["mean"] for row in logs}
        return f"{min(row['mean'] - means[row['seed']] for row in line):+.0f}"

    columns = [
        Column("5,000 steps", lambda line: f"{line[0]['task']}, {line[0]['quality']}", once=True),
        Column("", the("method")),
        Column("seeds", count),
        *(Column(f.__name__, of(f, "mean", ".0f")) for f in (np.mean, np.median, np.min)),
        Column("min, minus the log's", among(above, method=OURS)),
        Column("share solved", lambda line: line.share_from(TASKS[line[0]["task"]])),
        Column("interval (truth), medians", among(width, method=OURS)),
        Column("coverage", among(covered, method=OURS)),
    ]
    lines = [
        rows.where(task=task, quality=quality, method=method)
        for task in TASKS
        for quality in QUALITIES
        for method in (BEHAVIOUR, OURS)
    ]
    levels = ", ".join(f"{task} {level:g}" for task, level in TASKS.items())
    note = f"Solved is a mean return of at least: {levels}."
    return {"offline": Table("learned from a log alone", columns, lines, note=note)}


Options = Selection


def settings(options: Selection) -> list[Row]:
    return [
        {"task": task, "quality": quality, "seed": seed}
        for seed in EXPERIMENT.seeds(options)
        for task in chosen(options.only, TASKS)
        for quality in QUALITIES
    ]
