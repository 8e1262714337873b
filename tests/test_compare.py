"""The comparison with Stable-Baselines3: measurements, files and texts."""

import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO, one_by_one
from test_scripts import read_rows

from oda_rl.agents import FittedQAgent, comparison
from oda_rl.agents.comparison import COMPETITORS, OWN, Plan, Solved, headline, measure, solved_at
from oda_rl.agents.distilling.playing import draw_seeds
from oda_rl.agents.sb3.baselines import Baseline
from oda_rl.agents.sb3.settings import ALGORITHMS, settings_for
from oda_rl.command.cli import main
from oda_rl.command.comparison import markdown, plot_comparison, write_comparison
from oda_rl.runs import parallel
from oda_rl.runs.results import peak_megabytes

STEPS = 400
SMALL = ["--seeds", "1", "--total-timesteps", str(STEPS)]
FEW = ("FittedQAgent", "PPO")
FILES = ["comparison.csv", "comparison.md", "comparison.png", "runs.jsonl"]
ABOUT = {"parameters": 10, "peak_mb": 50.0, "policy_bytes": 80, "saved_bytes": 900,
         "predict_us": 7.0, "startup": 1.5}  # fmt: skip


def row(algorithm, seed, steps, seconds, mean, threshold=475.0):
    return {"env_id": "CartPole-v1", "algorithm": algorithm, "seed": seed, "steps": steps,
            "seconds": seconds, "loop_seconds": 3.0 * seconds, "mean": mean,
            "least": mean - 1.0, **ABOUT, "solved": int(mean >= threshold)}  # fmt: skip


def by_hand(plan, times, threshold=475.0):
    """Rows of competitors that are solved from given steps on, in given seconds a step."""
    rows = [
        row(name, seed, steps, steps * per_step, 500.0 if steps >= first else 20.0)
        for name, (first, per_step) in times.items()
        for seed in range(plan.counts()[name])
        for steps in plan.checkpoints
    ]
    return comparison.Comparison(plan, threshold, rows, [])


def measured(algorithm, **setting):
    """Make a run of ours in a process of its own, and of others here, where torch is imported."""
    if algorithm in OWN:
        return measure(algorithm=algorithm, **setting)
    return comparison.run(algorithm=algorithm, launched=time.time(), **setting)


def compare_few(out):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "_execute", one_by_one)
        patch.setattr(comparison, "measure", measured)
        patch.setattr(comparison, "COMPETITORS", FEW)
        patch.setattr(comparison, "OWN", {"FittedQAgent": FittedQAgent})
        return main(["compare", "--env-id", "CartPole-v1", *SMALL, "--out", str(out)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "x"
    assert compare_few(out) == 0
    return out


@pytest.mark.slow
def test_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "comparison.md").read_text(encoding="utf-8")
    for name in FEW:
        assert f"| {name} | " in text
        assert f"- {name}: not within 400 steps (1 seed)" in text


@pytest.mark.slow
def test_measurements(folder):
    rows = read_rows(folder / "comparison.csv")
    assert [row["algorithm"] for row in rows] == list(FEW)
    for row in rows:
        assert int(row["steps"]) == STEPS
        assert 8.0 <= float(row["least"]) <= float(row["mean"]) <= 500.0
        assert int(row["solved"]) == (float(row["mean"]) >= 475.0)
        assert min(float(row[name]) for name in ("seconds", "startup", "predict_us")) > 0.0
        looped = row["algorithm"] == "FittedQAgent"
        assert (float(row["loop_seconds"]) != float(row["seconds"])) == looped
        assert 20.0 < float(row["peak_mb"]) < (2000.0 if looped else np.inf)
    entries = {row["algorithm"]: int(row["parameters"]) for row in rows}
    assert entries["PPO"] == 2 * (5 * 64 + 65 * 64) + 65 * 3


@pytest.mark.slow
def test_resumed(folder, capsys):
    before = (folder / "runs.jsonl").read_bytes()
    rows = read_rows(folder / "comparison.csv")
    (folder / "comparison.png").unlink()
    assert compare_few(folder) == 0
    assert (folder / "runs.jsonl").read_bytes() == before  # nothing was left to run
    assert read_rows(folder / "comparison.csv") == rows
    assert (folder / "comparison.png").exists()
    assert "wall seconds of training until 95 % of the seeds are solved" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_is_that_of_the_agent(folder):
    found = read_rows(folder / "comparison.csv")[0]
    seed = int(found["seed"])
    agent = FittedQAgent("CartPole-v1", seed=seed).learn(STEPS)
    envs = [gym.make("CartPole-v1") for _ in range(100)]
    returns = comparison.greedy_returns(lambda seen: agent.predict(seen)[0], envs, seed + 10**8)
    assert [float(found[name]) for name in ("mean", "least")] == [returns.mean(), returns.min()]


def test_greedy_returns_are_those_of_single_episodes():
    agent = FittedQAgent("CartPole-v1", seed=3).learn(1000)
    envs = [gym.make("CartPole-v1") for _ in range(5)]
    together = comparison.greedy_returns(lambda seen: agent.predict(seen)[0], envs, 40)
    seeds = [draw_seeds(np.random.default_rng(seed), 5) for seed in (40, 41)]
    alone = [agent.evaluate(1, env=envs[0], seed=seed)[0] for seed in seeds[0]]
    assert len(set(alone)) > 1
    assert not set(seeds[0]) & set(seeds[1])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=[] if name == "A2C" else pytest.mark.slow) for name in ALGORITHMS],
)
def test_baselines_pause_at_checkpoints_and_learn_the_same(algorithm):
    pauses = []

    def pause(steps, seconds):
        pauses.append((steps, baseline.model.num_timesteps, seconds))

    checkpoints = [300, 310, 1010]  # DQN learns from step 1,000 on
    baseline = Baseline(algorithm, "CartPole-v1", 5)
    baseline.learn(checkpoints, pause)
    steps, taken, seconds = np.transpose(pauses)
    assert list(steps) == checkpoints
    assert set(taken - steps) <= {*range(257)}  # a rollout of PPO, or a train_freq of DQN
    assert list(seconds) == sorted(seconds)
    alone = Baseline(algorithm, "CartPole-v1", 5)
    alone.learn([1010], lambda *_: None)
    ours, theirs = (one.model.policy.state_dict() for one in (baseline, alone))
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)


def test_memory_is_that_of_the_process():
    array = np.ones(40_000_000)  # which must not count in a child process
    code = (
        "import numpy as np; from oda_rl.runs.results import peak_megabytes as m; "
        "print(m()); np.ones(20_000_000); print(m())"
    )
    less, more = map(float, subprocess.check_output([sys.executable, "-c", code]).split())
    assert 100.0 < more - less < 250.0
    assert array.nbytes / 1e6 < peak_megabytes()
    assert less < 320.0


def test_settings():
    assert settings_for("PPO", BARTO).source == "CartPole-v1"
    assert settings_for("PPO", BARTO).parameters["learning_rate"](0.5) == 5e-4
    assert settings_for("DQN", "Nonsense-v0").parameters == {}
    settings_for("A2C", "CartPole-v1").parameters["n_envs"] = 3
    assert settings_for("A2C", "CartPole-v1").parameters["n_envs"] == 8
    said = [
        comparison.origin_of_settings("PPO", env)
        for env in ("CartPole-v1", BARTO, "x:CartPole-v1", "Y")
    ]
    assert said == ["rl-zoo's", "rl-zoo's for CartPole-v1", "rl-zoo's", "SB3's defaults"]
    assert comparison.origin_of_settings("FittedQAgent", "Y") == "package defaults"


def test_checkpoints():
    assert Plan(total_timesteps=500).checkpoints == [500]
    assert Plan(total_timesteps=1000).checkpoints == [1000]
    assert Plan().checkpoints[-3:] == [20_000, 30_000, 50_000]
    settings = Plan(seeds=6).settings()
    assert len(settings) == 2 * 5 + 4 * 6  # of PPO as many as of ours
    assert len({setting["seed"] for setting in settings}) == 6
    assert [setting["algorithm"] for setting in settings[:6]] == list(COMPETITORS)


def test_solved_at_counts_missing_seeds():
    rows = [row("PPO", seed, 1000, 1.0 + seed, 480.0) for seed in range(19)]
    assert solved_at(rows, {"PPO": 20}) == {"PPO": Solved(1000, 10.0, 30.0)}
    assert solved_at(rows, {"PPO": 21}) == {"PPO": None}
    rows.append(row("PPO", 19, 1000, 99.0, 474.0))
    assert solved_at(rows, {"PPO": 20})["PPO"].seconds == 10.5  # of all seeds, at 19 of 20


def test_headline():
    plan = Plan(total_timesteps=3000)
    times = {"FittedQAgent": (1000, 1e-5), "TwoTimescaleAgent": (2000, 1e-6),
             "ModelAgent": (1000, 1e-3), "DQN": (9999, 1e-3), "PPO": (3000, 1e-3),
             "A2C": (2000, 1e-3)}  # fmt: skip
    found = by_hand(plan, times)
    for one in found.rows:
        if one["algorithm"] not in ("FittedQAgent", "TwoTimescaleAgent"):
            one["loop_seconds"] = one["seconds"]
    lines = headline(found)
    assert "mean return of 100 greedy episodes ≥ 475" in lines[0]
    assert lines[1:] == [
        "FittedQAgent: 0.01 s, 1,000 steps; 0.03 s in a Python loop (20 seeds)",
        "TwoTimescaleAgent: 0.002 s, 2,000 steps; 0.006 s in a Python loop (20 seeds)",
        "ModelAgent: 1 s, 1,000 steps (20 seeds)",
        "DQN: not within 3,000 steps (5 seeds)",
        "PPO: 3 s, 3,000 steps (20 seeds)",
        "A2C: 2 s, 2,000 steps (5 seeds)",
        "PPO's seconds / FittedQAgent's: 300; in a Python loop 100",
        "PPO's seconds / TwoTimescaleAgent's: 1,500; in a Python loop 500",
        "PPO's seconds / ModelAgent's: 3; in a Python loop 3",
    ]
    never = headline(by_hand(plan, {**times, "PPO": (9999, 1e-3), "FittedQAgent": (9999, 1.0)}))
    assert (
        never[-3] == "PPO's seconds / FittedQAgent's: unknown, because FittedQAgent is not solved"
    )
    assert never[-2].endswith("more than 1,500, because PPO is not solved")
    del times["PPO"]
    assert "because no run of PPO has succeeded" in headline(by_hand(plan, times))[-1]


def test_without_a_threshold():
    plan = Plan(seeds=1, total_timesteps=2000)
    found = by_hand(plan, dict.fromkeys(COMPETITORS, (1000, 1e-3)), threshold=None)
    assert headline(found) == ["CartPole-v1 has no threshold from which it is solved: "
                               "--threshold gives one"]  # fmt: skip
    assert "| PPO | rl-zoo's | 1 | 2,000 | 500.0 | 500.0 | - | - | - | 2 | 6 |" in markdown(found)
    left, right = plot_comparison([found])
    assert len(left.lines) == len(right.lines) == len(COMPETITORS)


def test_runs_that_fail_are_reported(tmp_path):
    plan = Plan(seeds=1, total_timesteps=1000)
    rows = [row(name, 0, 1000, 1.0, 480.0) for name in COMPETITORS if name != "DQN"]
    found = comparison.Comparison(plan, 475.0, rows, ["{'algorithm': 'DQN'}: ValueError: no"])
    text = markdown(found)
    assert "| DQN | rl-zoo's | 1 | 1,000 | failed |" in text
    assert "ValueError: no" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    empty = comparison.Comparison(plan, 475.0, [], ["{'algorithm': 'DQN'}: ValueError: no"])
    with pytest.raises(ValueError, match="no run succeeded.*ValueError: no"):
        write_comparison(empty, tmp_path)


def test_a_run_says_why_it_failed():
    with pytest.raises(RuntimeError, match="ValueError: env_id is 'Nonsense-v0'"):
        measure("Nonsense-v0", "FittedQAgent", 0, [100])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--env-id", "Nonsense-v0"], "env_id is 'Nonsense-v0'"),
     (["--env-id", "Pendulum-v1"], "whose action_space is Box("),
     (["--env-id", "CliffWalking-v1"], "whose observation_space is Discrete("),
     (["--total-timesteps", "0"], "total_timesteps is 0"),
     (["--threshold", "nan"], "threshold is nan"), (["--workers", "0"], "workers is 0")],
)  # fmt: skip
def test_bad_input(arguments, message, tmp_path, capsys):
    out = tmp_path / "x"
    assert main(["compare", *arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
    out.write_text("")
    assert main(["compare", "--out", str(out)]) == 2
    assert "it must be a folder" in capsys.readouterr().err


def test_without_stable_baselines3(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ImportError, match="pip install 'oda-rl\\[sb3\\]'"):
        comparison.compare(Plan(), tmp_path / "runs.jsonl")


def test_policy_files_hold_the_tables(tmp_path):
    for algorithm in OWN:
        own = comparison.Own(algorithm, "CartPole-v1", 0)
        own.learn([500 if algorithm == "ModelAgent" else 3000], lambda *_: None)
        assert own.save_policy(tmp_path).stat().st_size == 8 * own.n_parameters
        assert own.n_parameters >= own.agent.q_values.size
        assert own.save(tmp_path).stat().st_size > 8 * own.n_parameters


def test_the_model_agent_trains_step_by_step_with_compiled_dynamics_too():
    rows = comparison.run("CartPole-v1", "ModelAgent", 3, [100, 250], time.time())
    assert [one["steps"] for one in rows] == [100, 250]
    assert all(one["loop_seconds"] == one["seconds"] for one in rows)
    assert rows[-1]["mean"] > 400.0
