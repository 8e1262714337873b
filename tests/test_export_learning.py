"""What learns in C learns as the online agent does."""

import re
import subprocess
from functools import partial

import numpy as np
import oracles
import pytest
from environments import BARTO, Grid, quick_rule
from test_export import PROGRAMS, linked

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, export_policy
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.policies.contract import SLOPE_RATE
from oda_rl.agents.policies.joint import Codebook
from oda_rl.agents.two_timescale import cells
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.command.cli import main

REPLAY = """
#include <stdio.h>
#include <stdlib.h>
#include "policy.h"

typedef struct {
    float obs[ODA_FEATURES], reward;
    int32_t begins, terminated;
} transition;

static oda_learner learner;

int main(int argc, char **argv)
{
    transition one;
    oda_init(&learner, 42u, argc > 1 ? atoi(argv[1]) : 0);
    while (fread(&one, sizeof one, 1, stdin) == 1) {
        if (one.begins) {
            oda_begin(&learner, one.obs);
        } else {
            oda_step(&learner, one.obs, one.reward, one.terminated);
        }
        fwrite(&learner.action, sizeof learner.action, 1, stdout);
        fwrite(&learner.next_value, sizeof learner.next_value, 1, stdout);
    }
    fwrite(learner.values, sizeof learner.values, 1, stdout);
    return 0;
}
"""
BAD_STEP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "policy.h"

static oda_learner learner;

int main(int argc, char **argv)
{
    float obs[ODA_FEATURES] = {0};
    float bad[ODA_FEATURES] = {0};
    bad[0] = argc > 1 ? strtof(argv[1], NULL) : 0.0f;
    oda_init(&learner, 1u, 1);
    printf("%d", (int)sizeof learner);
    oda_begin(&learner, obs);
    for (int i = 0; i < 3; ++i) {
        const float reward = i == 0 && argc > 2 ? strtof(argv[2], NULL) : 2.0f;
        oda_step(&learner, i == 0 ? bad : obs, reward, 0);
        printf(" %d", memcmp(learner.values, oda_learned, sizeof oda_learned) != 0);
    }
    printf(" %g %d", (double)learner.next_value, oda_greedy(&learner, obs));
    return 0;
}
"""
CASES = {
    "learned": (BARTO, 1, {}),
    "from nothing": (BARTO, 0, {"step_exponent": 0.7, "trace_decay": 1.0, "min_step_size": 0.2}),
    "2 by 3": (Grid, 0, {"trace_decay": 0.0, "gamma": 0.9, "exploration": 1.0}),
}


def run(program, data=b"", *arguments):
    done = subprocess.run([program, *arguments], input=data, capture_output=True, check=True)
    return done.stdout


def small_agent(env=BARTO, steps=3_000, **settings):
    made = make_env(env) if isinstance(env, str) else env()
    return TwoTimescaleAgent(made, seed=0, max_cells=24, **settings).learn(steps)


def exported(agent, folder, source):
    export_policy(agent, folder / "policy.h", learn=True)
    return linked(folder, source, ["-lm"])


def recorded(agent, env, steps):
    """Observations of the agent's policy, half of whose actions are random, some cut off."""
    d, n_actions = agent.interface.n_features, agent.interface.n_actions
    env = make_env(env) if isinstance(env, str) else env()
    kind = np.dtype([
        ("obs", np.float32, d), ("reward", np.float32),
        ("begins", np.int32), ("terminated", np.int32),
    ])  # fmt: skip
    rows, rng, over = np.zeros(steps, dtype=kind), np.random.default_rng(0), True
    for row in rows:
        row["begins"] = over
        if over:
            obs, over = env.reset(seed=int(rng.integers(2**31)))[0], False
        else:
            action = int(agent.policy.choices(np.reshape(obs, (1, d)))[0])
            if rng.random() < 0.5:
                action = int(rng.integers(n_actions))
            obs, row["reward"], terminated, truncated, _ = env.step(
                agent.interface.first_action + action
            )
            row["terminated"] = terminated
            over = terminated or truncated or rng.random() < 0.005
        row["obs"] = np.ravel(obs)
    return rows


def learned_in_python(agent, rows, actions, learned):
    """Values of all actions in each row, and in the end of all cells, by the agent's kernels."""
    engine, config = agent._engine, agent.config
    d, n_actions = agent.interface.n_features, agent.interface.n_actions
    policy = Codebook(*(part[ql.BEST].copy() for part in engine._books))
    t = agent.num_timesteps if learned else 0
    if not learned:
        optimism = policy.models[: int(policy.head[0]), d : d + n_actions].max()
        policy.models[:, :d], policy.models[:, d:] = 0.0, optimism
    n, k = engine.n_nearest, len(policy.models)
    near = np.zeros(1 + n, dtype=np.int64)
    blend = cells.Blend(near, np.zeros(n), np.zeros((n, d)), np.zeros(d), np.zeros(k))
    traces = np.zeros((k, 1 + d + n_actions))
    values, after, points = np.zeros(n_actions), np.zeros((len(rows), n_actions)), []
    for i, (row, action) in enumerate(zip(rows, actions, strict=True)):
        points.append((row["obs"] - engine.units[0]) * engine.units[1])
        cells.evaluate(policy, points[i], blend, after[i])
        if row["begins"]:
            traces[:], traces[:, cells.LAST] = 0.0, -1.0
        else:
            t += 1
            cells.evaluate(policy, points[i - 1], blend, values)
            value, target = values[actions[i - 1]], row["reward"]
            if not row["terminated"]:
                target += config.gamma * after[i, action]
            size = config.step_size * (1.0 + t / config.step_size_steps) ** -config.step_exponent
            cells.update(
                policy, traces, blend, actions[i - 1], target - value,
                value - after[i - 1, actions[i - 1]],
                max(size, config.min_step_size), SLOPE_RATE, config.gamma * config.trace_decay, t,
            )  # fmt: skip
    return after, policy.models[: int(policy.head[0]), d : d + n_actions]


@pytest.mark.parametrize("name", CASES)
def test_it_learns_what_the_agents_kernels_learn(name, tmp_path):
    env, learned, settings = CASES[name]
    agent, steps = small_agent(env, **settings), 4_000
    rows, n_actions = recorded(agent, env, steps), agent.interface.n_actions
    told = run(exported(agent, tmp_path, REPLAY), rows.tobytes(), str(learned))
    decisions = np.frombuffer(told[: 8 * steps], [("action", np.int32), ("value", np.float32)])
    actions = decisions["action"].astype(np.int64)
    after, values = learned_in_python(agent, rows, actions, learned)
    # A step rounds a value by 2**-24 of the largest, and the share of an error that a step
    # size of 0.02 leaves adds up to that of 50 steps; cells at the cut have weights of e**-7.
    atol = 2e-4 * np.abs(after).max()
    np.testing.assert_allclose(decisions["value"], after[np.arange(steps), actions], atol=atol)
    table = np.frombuffer(told[8 * steps :], np.float32).reshape(len(values), -1)
    np.testing.assert_allclose(table[:, :n_actions], values, atol=atol)
    assert np.ptp(values) > 100.0 * atol
    bits, t, n_random = iter(oracles.pcg32(42, 2 * steps)), agent.num_timesteps * learned, 0
    for row, action, q in zip(rows, actions, after, strict=True):
        t += not row["begins"]
        elapsed = np.float32(1.0) + np.float32(t) / np.float32(agent.config.exploration_decay)
        if np.float32(next(bits) >> 8) * elapsed < np.float32(agent.config.exploration * 2**24):
            assert action == next(bits) % n_actions
            n_random += 1
        else:
            assert q[action] >= q.max() - 2.0 * atol
    assert 0 < n_random < steps


def test_bad_numbers_teach_nothing_and_it_is_as_large_as_it_says(tmp_path):
    agent = small_agent()
    text = export_policy(agent, tmp_path / "policy.h", learn=True).read_text()
    (tmp_path / "program.cpp").write_text(BAD_STEP)  # C++, too, can use it
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "program.cpp"]
    subprocess.run([*command, "-o", "program", "-lm"], cwd=tmp_path, check=True)
    assert f"Cells: {agent.policy.n_cells}," in text
    for observed, reward, changes in (
        ("0", "2", [1, 1, 1]),
        ("0", "nan", [0, 1, 1]),
        ("0", "-inf", [0, 1, 1]),
        ("0", "3e38", [0, 1, 1]),
        ("nan", "2", [0, 0, 1]),  # nor from the step that begins there
        ("inf", "2", [0, 0, 1]),
    ):
        size, *changed, value, action = run(tmp_path / "program", b"", observed, reward).split()
        assert [int(word) for word in changed] == changes
        assert np.isfinite(float(value))
        assert int(action) in (0, 1)
        assert int(size) == int(re.search(r"State: (\d+) bytes", text)[1]) <= 4096


def test_the_cart_pole_from_nothing(tmp_path):
    agent = small_agent(steps=20_000)
    export_policy(agent, tmp_path / "policy.h", learn=True)
    program = linked(tmp_path, (PROGRAMS / "learning.c").read_text(), ["-lm"])
    _, *lengths = run(program, b"", "0", "50000", "0").split(b"\n")
    assert np.mean([int(length) for length in lengths if length]) >= 100


@pytest.mark.parametrize(
    "kind", [FittedQAgent, quick_rule, partial(TwoTimescaleAgent, partition="gmm")]
)
def test_others_can_not_learn_in_c(kind, tmp_path):
    agent = kind("CartPole-v1", seed=0).learn(500 if kind is quick_rule else 2_000)
    message = f"must be False for (a {type(agent).__name__}, which does not|cells with weights)"
    with pytest.raises(ValueError, match=message):
        export_policy(agent, tmp_path / "policy.h", learn=True)
    assert not list(tmp_path.iterdir())


def test_bad_arguments(tmp_path):
    agent = small_agent()
    for arguments, message in (
        (("json",), "learn is True: it must be False for the format 'json'"),
        (("onnx",), "learn is True: it must be False for the format 'onnx'"),
        (("c", True), "learn is True: it must be False for fixed_point"),
    ):
        with pytest.raises(ValueError, match=message):
            export_policy(agent, tmp_path / "x", *arguments, learn=True)
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, capsys):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(1_000)
    agent.save(tmp_path / "x")
    assert main(["export", str(tmp_path / "x"), "--learn"]) == 0
    export_policy(agent, tmp_path / "policy.h", learn=True)
    written = (tmp_path / "x" / "policy.h").read_text()
    assert written == (tmp_path / "policy.h").read_text()
    capsys.readouterr()
    assert main(["export", str(tmp_path / "x"), "--learn", "--format", "json"]) == 2
    assert "learn is True" in capsys.readouterr().err
