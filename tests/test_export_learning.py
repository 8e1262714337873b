"""What learns in C learns as the online agent does."""

import re
import subprocess
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from environments import BARTO, Exploring, Grid, quick_rule
from test_export import FLAGS, PROGRAMS, linked
from test_qlearning import make_core, transition

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, export_policy
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.policies.export_tables import export_of
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.command.cli import main

REPLAY = """
#include <stdio.h>
#include "policy.h"

typedef struct {
    float obs[ODA_FEATURES], next_obs[ODA_FEATURES], reward;
    int32_t action, terminated, truncated;
} transition; /* a negative action: the learner's own */

static oda_learner learner;

int main(void)
{
    transition one;
    oda_init(&learner, 42u);
    while (fread(&one, sizeof one, 1, stdin) == 1) {
        int32_t action = oda_act(&learner, one.obs);
        if (one.action >= 0) {
            learner.action = one.action;
        }
        fwrite(&action, sizeof action, 1, stdout);
        oda_learn(&learner, one.next_obs, one.reward, one.terminated, one.truncated);
    }
    fwrite(learner.values, sizeof learner.values, 1, stdout);
    fwrite(learner.traces, sizeof learner.traces, 1, stdout);
    fwrite(learner.updates, sizeof learner.updates, 1, stdout);
    return 0;
}
"""
STEP_SIZES = """
#include <stdio.h>
#include "policy.h"

int main(void)
{
    uint32_t n;
    while (fread(&n, sizeof n, 1, stdin) == 1) {
        float size = oda_step_size(n);
        fwrite(&size, sizeof size, 1, stdout);
    }
    return 0;
}
"""
RANDOM = """
#include <stdio.h>
#include <stdlib.h>
#include "policy.h"

int main(int argc, char **argv)
{
    oda_learner learner;
    oda_init(&learner, argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0);
    for (int i = 0; i < 1000; ++i) {
        uint32_t bits = oda_random(&learner);
        fwrite(&bits, sizeof bits, 1, stdout);
    }
    return 0;
}
"""
ONE_STEP = """
#include <stdio.h>
#include "policy.h"

int main()
{
    oda_learner learner;
    float obs[ODA_FEATURES] = {0};
    oda_init(&learner, 1u);
    oda_act(&learner, obs);
    int learned = oda_learn(&learner, obs, REWARD, 0, 0);
    float sum = 0.0f;
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            sum += learner.values[k][a];
        }
    }
    printf("%d %d %g %d", (int)sizeof learner, learned, (double)sum, oda_greedy(&learner, obs));
    return 0;
}
"""
CASES = {
    "as it is": (BARTO, {}),
    "never rests": (BARTO, {"solved_episodes": 0, "restart_after": 0}),
    "easily content": (BARTO, {"restart_after": 500}),
    "never content": (BARTO, {"solved_episodes": 0, "restart_after": 500}),
    "content at once": (BARTO, {"solved_episodes": 1, "restart_after": 500}),
    "2 by 3": (Grid, {"trace_decay": 0.5, "step_exponent": 1.0, "gamma": 0.9}),
}


def run(program, data=b"", *arguments):
    done = subprocess.run([program, *arguments], input=data, capture_output=True, check=True)
    return done.stdout


def exported(agent, folder, source):
    export_policy(agent, folder / "policy.h", learn=True)
    return linked(folder, source, [])


def placed(env, settings):
    """An agent whose cells are placed."""
    return TwoTimescaleAgent(
        make_env(env) if isinstance(env, str) else env(), seed=0, **settings
    ).learn(8_000)


def recorded(agent, env, steps):
    """Steps of the agent's policy, half of them random; half of the actions are prescribed."""
    d, first = agent.interface.n_features, agent.interface.first_action
    env = Exploring(make_env(env) if isinstance(env, str) else env(), 0.5)
    kind = np.dtype([
        ("obs", np.float32, d), ("next_obs", np.float32, d), ("reward", np.float32),
        ("action", np.int32), ("terminated", np.int32), ("truncated", np.int32),
    ])  # fmt: skip
    rows, rng = np.zeros(steps, dtype=kind), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for row in rows:
        action = int(agent.policy.choices(np.reshape(obs, (1, d)))[0])
        after, reward, terminated, truncated, _ = env.step(first + action)
        truncated = truncated or rng.random() < 0.005
        choice = action if rng.random() < 0.5 else -1
        row["obs"], row["next_obs"] = np.ravel(obs), np.ravel(after)
        row["reward"], row["action"] = reward, choice
        row["terminated"], row["truncated"] = terminated, truncated
        obs = env.reset()[0] if terminated or truncated else after
    return rows


def lengths_so_far(rows):
    found, length = np.zeros(len(rows), dtype=int), 0
    for i, row in enumerate(rows):
        length += 1
        found[i] = length
        if row["terminated"] or row["truncated"]:
            length = 0
    return found


def cells_in_single_precision(agent, points):
    tables = export_of(agent).tables(in_order=True).in_floats()
    if tables.origin is not None:
        points = points - tables.origin
    scores = np.repeat(tables.scores[None, :, 0], len(points), axis=0)
    for j in range(points.shape[1]):
        scores = scores + tables.scores[None, :, 1 + j] * points[:, j, None]
    assert scores.dtype == np.float32
    return scores.argmin(axis=1)


def step_sizes_in_c(agent, folder, numbers):
    program = exported(agent, folder, STEP_SIZES)
    return np.frombuffer(run(program, np.uint32(numbers).tobytes()), dtype=np.float32)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n == "never rests" else []) for n in CASES],
)
def test_tables_are_those_of_single_precision(name, tmp_path):
    env, settings = CASES[name]
    agent = placed(env, settings)
    steps = 100_000 if name == "never rests" else 20_000
    rows = recorded(agent, env, steps)
    if "content" in name:  # many episodes return as much as the best
        rows["reward"][lengths_so_far(rows) > 30] = 0.0
    sizes = np.append(0.0, step_sizes_in_c(agent, tmp_path, np.arange(1, steps + 1)))
    bits = oracles.pcg32(42, steps)
    oracle = oracles.SinglePrecisionQ(*agent.q_values.shape, sizes, agent.config, bits)
    cells, after = (cells_in_single_precision(agent, rows[key]) for key in ("obs", "next_obs"))
    actions, restarts, rested = np.zeros(steps, dtype=int), 0, 0
    for i, row in enumerate(rows):
        actions[i], greedy = oracle.act(cells[i])
        action = actions[i] if row["action"] < 0 else row["action"]
        oracle.update(
            cells[i], action, greedy, row["reward"], after[i], row["terminated"], row["truncated"]
        )
        restarts += oracle.steps == 0
        rested += oracle.resting
    found = run(exported(agent, tmp_path, REPLAY), rows.tobytes())
    first, (n, a) = agent.interface.first_action, agent.q_values.shape
    np.testing.assert_array_equal(np.frombuffer(found[: 4 * steps], np.int32), actions + first)
    tables = np.frombuffer(found[4 * steps :], np.float32).reshape(3, n, a)
    np.testing.assert_array_equal(tables[0], oracle.values)
    np.testing.assert_array_equal(tables[1], oracle.traces)
    np.testing.assert_array_equal(tables[2].view(np.uint32), oracle.updates)
    assert oracle.values.any()
    if name == "never rests":
        assert restarts == rested == 0
    if name == "easily content":
        assert min(restarts, rested) > 0
    if name == "never content":
        assert restarts > rested == 0


@pytest.mark.parametrize("trace_decay", [0.0, 0.5, 0.98])
def test_single_precision_is_the_agents_update(trace_decay):
    core = make_core(gamma=0.9, trace_decay=trace_decay)
    settings = SimpleNamespace(
        gamma=0.9, trace_decay=trace_decay, solved_episodes=0, restart_after=0, warmup_steps=0,
    )  # fmt: skip
    sizes = np.arange(1, 3002).astype(float) ** -0.2
    oracle = oracles.SinglePrecisionQ(5, 3, np.append(0.0, sizes).astype(np.float32), settings)
    rng, cell = np.random.default_rng(0), 0
    for _ in range(3000):
        greedy = int(oracle.values[cell].argmax())
        action = greedy if rng.random() < 0.7 else int(rng.integers(3))
        next_cell, reward = int(rng.integers(5)), float(rng.normal())
        terminated, truncated = bool(rng.random() < 0.05), bool(rng.random() < 0.05)
        transition(core, cell, action, reward, next_cell, terminated, truncated)
        oracle.update(cell, action, greedy, reward, next_cell, terminated, truncated)
        cell = int(rng.integers(5)) if terminated or truncated else next_cell
    # An update of values below 10 is wrong by less than 2e-6, and by step sizes from 0.2 on errors
    # shrink to a share of 1 - 0.2 (1 - 0.9) each time: they add up to less than 1e-4.
    np.testing.assert_allclose(oracle.values, core.table[ql.VALUES, :5], atol=1e-4, rtol=0)
    np.testing.assert_array_equal(oracle.updates, core.table[ql.VISITS, :5])


@pytest.mark.parametrize("exponent", [0.0, 0.2, 0.5, 1.0])
def test_step_sizes_without_a_library(exponent, tmp_path):
    agent = TwoTimescaleAgent(
        "CartPole-v1", seed=0, step_exponent=exponent, min_step_size=1e-10
    ).learn(1_000)
    numbers = np.unique(np.geomspace(1, 2**31, 5_000).astype(np.uint32))
    found = step_sizes_in_c(agent, tmp_path, numbers)
    # Up to 31 products, and of the constant the error 31 times.
    np.testing.assert_allclose(found, numbers.astype(float) ** -exponent, rtol=62 * 2.0**-24)
    assert found[0] == pytest.approx(1.0, abs=2e-7)
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, min_step_size=0.3).learn(1_000)
    assert step_sizes_in_c(agent, tmp_path, [2**20])[0] == np.float32(0.3)


def test_random_numbers_are_the_published_ones(tmp_path):
    program = exported(TwoTimescaleAgent("CartPole-v1", seed=0).learn(1_000), tmp_path, RANDOM)
    for seed in (0, 42, 2**32 - 1):
        found = np.frombuffer(run(program, b"", str(seed)), dtype=np.uint32)
        assert found.tolist() == oracles.pcg32(seed, 1000)
        if seed == 42:  # of the generator's own demonstration
            assert found[:4].tolist() == [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293]


@pytest.mark.parametrize(
    "compiler",
    [["gcc", *FLAGS], ["g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("reward", ["2.0f", "0.0f / zero"])
def test_it_is_clean_and_as_large_as_it_says(compiler, reward, tmp_path):
    agent = TwoTimescaleAgent(BARTO, seed=0).learn(8_000)
    text = export_policy(agent, tmp_path / "policy.h", learn=True).read_text()
    source = ONE_STEP.replace("int main()", "static float zero = 0.0f;\n\nint main(void)")
    source = source.replace("obs);\n    int", "obs);\n    zero *= 1.0f;\n    int")
    name = tmp_path / ("program.cpp" if compiler[0] == "g++" else "program.c")
    name.write_text(source.replace("REWARD", reward))
    subprocess.run([*compiler, name, "-o", tmp_path / "program"], check=True)
    size, learned, total, action = run(tmp_path / "program").split()
    assert int(size) == int(re.search(r"State: (\d+) bytes", text)[1]) <= 2048
    assert f"Cells: {agent.n_cells}," in text
    assert "math.h" not in text
    assert (int(learned), float(total)) == ((1, 2.0) if reward == "2.0f" else (0, 0.0))
    assert int(action) in (0, 1)


def test_the_cart_pole_from_nothing(tmp_path):
    agent = TwoTimescaleAgent(BARTO, seed=0).learn(50_000)
    export_policy(agent, tmp_path / "policy.h", learn=True)
    program = linked(tmp_path, (PROGRAMS / "learning.c").read_text(), ["-lm"])
    _, *lengths = run(program, b"", "0", "200000").split(b"\n")
    assert np.mean([int(length) for length in lengths if length]) >= 950


@pytest.mark.parametrize("kind", [FittedQAgent, quick_rule])
def test_others_can_not_learn_in_c(kind, tmp_path):
    agent = kind("CartPole-v1", seed=0).learn(500 if kind is quick_rule else 2_000)
    message = f"learn is True: it must be False for a {type(agent).__name__}, whose policy is no Q"
    with pytest.raises(ValueError, match=message):
        export_policy(agent, tmp_path / "policy.h", learn=True)
    assert not list(tmp_path.iterdir())


def test_bad_arguments(tmp_path):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(1_000)
    for arguments, message in (
        (("json",), "learn is True: it must be False for the format 'json'"),
        (("onnx",), "learn is True: it must be False for the format 'onnx'"),
        (("c", True), "learn is True: it must be False for fixed_point"),
    ):
        with pytest.raises(ValueError, match=message):
            export_policy(agent, tmp_path / "x", *arguments, learn=True)
    assert not list(tmp_path.iterdir())


def test_it_does_not_know_what_is_solved(tmp_path):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, restart_after=0).learn(1_000)
    text = export_policy(agent, tmp_path / "policy.h", learn=True).read_text()
    assert "475" not in text
    assert "#define ODA_RESTART_AFTER UINT32_C(4294967294)" in text


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
