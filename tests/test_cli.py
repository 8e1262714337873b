"""The oda-rl command as a person uses it."""

import json
import signal
import subprocess
import sys
import time

import pytest

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.cli import Train, main, parse

FILES = [
    "agent.zip",
    "bifurcation.png",
    "config.json",
    "learning_curve.png",
    "monitor.csv",
    "partition.png",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "x"
    arguments = ["--env-id", "CartPole-v1", "--seed", "0", "--total-timesteps", "30000"]
    assert main(["train", *arguments, "--out", str(folder)]) == 0
    return folder


def test_train_writes_a_run_folder(run):
    assert sorted(path.name for path in run.iterdir()) == FILES
    assert TwoTimescaleAgent.load(run).num_timesteps == 30_000
    assert (run / "monitor.csv").read_text().splitlines()[1] == "r,l,t"
    for name in FILES:
        assert (run / name).stat().st_size > 500


def test_train_prints_a_table(tmp_path, capsys):
    assert main(["train", "--total-timesteps", "2000", "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    for text in ("2,000", "cells", "mean", "median", "min", "training time", "run"):
        assert text in out
    assert "100 greedy episodes" in out


def test_evaluate(run, capsys):
    assert main(["evaluate", str(run), "--episodes", "7"]) == 0
    returns = TwoTimescaleAgent.load(run).evaluate(7, seed=0)
    expected = f"7 greedy episodes: mean {returns.mean():.1f}, median"
    assert expected in capsys.readouterr().out


def test_plot_draws_anew(run, capsys):
    (run / "partition.png").unlink()
    assert main(["plot", str(run)]) == 0
    assert (run / "partition.png").stat().st_size > 5000
    assert "partition.png" in capsys.readouterr().out


def test_options_come_from_the_configuration(tmp_path):
    folder = tmp_path / "run"
    arguments = ["--max-cells", "3", "--discount", "0.9", "--state-scale", "1", "2", "3", "4"]
    assert main(["train", "--total-timesteps", "500", "--out", str(folder), *arguments]) == 0
    config = json.loads((folder / "config.json").read_text())["config"]
    assert (config["max_cells"], config["discount"]) == (3, 0.9)
    assert config["state_scale"] == [1, 2, 3, 4]


@pytest.mark.parametrize("form", [["--env-id", "{}"], ["--env-id={}"], ["--env_id", "{}"]])
def test_defaults_are_those_of_the_environment(form):
    known = parse(["train", *[part.format("CartPole-v1") for part in form]])
    other = parse(["train", *[part.format("Acrobot-v1") for part in form]])
    assert isinstance(known, Train)
    assert isinstance(other, Train)
    assert known.config.state_scale == (2.4, 3.0, 0.21, 0.7)
    assert other.config.state_scale is None


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["train", "--help"])
    assert stop.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in ("--discount", "Discount factor", "--trace-decay", "--out", "Run folder"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--env-id", "NoSuchEnv-v0"], "env_id is 'NoSuchEnv-v0'"),
        (["train", "--total-timesteps", "-5"], "total_timesteps is -5"),
        (["train", "--discount", "1.5"], "discount is 1.5"),
        (["train", "--seed", "-1"], "seed is -1"),
        (["train", "--partition", "cubes"], "partition is 'cubes'"),
        (["train", "--env-id", "FrozenLake-v1"], "FlattenObservation"),
        (["train", "--total-timesteps", "many"], "many"),
        (["train", "--no-such-option", "1"], "no-such-option"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "{run}", "--episodes", "0"], "n_episodes is 0"),
        (["plot", "nowhere"], "nowhere"),
        ([], "train"),
    ],
)
def test_bad_input_takes_one_line_and_exit_code_2(arguments, message, run, tmp_path, capsys):
    arguments = [argument.format(run=run) for argument in arguments]
    out = ["--out", str(tmp_path / "out")] if arguments[:1] == ["train"] else []
    assert main([*arguments, *out]) == 2
    error = capsys.readouterr().err
    assert error.startswith("oda-rl: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "out").exists()


def test_damaged_run(tmp_path, capsys):
    (tmp_path / "agent.zip").write_bytes(b"nonsense")
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "damaged" in capsys.readouterr().err


def test_out_must_not_be_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["train", "--out", str(tmp_path / "file")]) == 2
    assert "must be a folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1"], ids=["fused", "stepwise"])
def test_ctrl_c_saves_what_was_learned(env_id, tmp_path):
    TwoTimescaleAgent(env_id, seed=0).learn(2000)  # compiles, so that the command need not
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "oda_rl.cli", "train", "--env-id", env_id]
    command += ["--total-timesteps", "2000000000", "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(8.0)  # training has begun long before
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted after" in out
    loaded = TwoTimescaleAgent.load(folder)
    assert loaded.num_timesteps > 1000
    assert len(loaded.episodes.rows) > 0
    assert loaded.evaluate(1, seed=0).shape == (1,)
