"""Run folders: locked before training, of one agent afterwards, and resumed."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import gymnasium as gym
import pytest
from common.trainings import content
from environments import Plain

from oda_rl._lock import locked
from oda_rl.agents import TwoTimescaleAgent, load_agent
from oda_rl.agents.base.files import FIGURES, OF_AGENT
from oda_rl.agents.policies.export import SUFFIXES
from oda_rl.command import training
from oda_rl.command.cli import main, parse
from oda_rl.files.archive import load_archive, save_archive

ONLINE = ["train", "--algo", "two-timescale", "--n-eval-episodes", "2"]
STEPS = 8_000


class Failing(Plain):
    """Breaks at a step."""

    at = 700

    def __init__(self, env):
        super().__init__(env)
        Failing.t = 0

    def step(self, action):
        Failing.t += 1
        if Failing.t == Failing.at:
            Failing.fail()
        return self.env.step(action)

    @staticmethod
    def fail():
        raise ZeroDivisionError("the robot fell over")


gym.register(
    "Failing-v0",
    lambda **kwargs: Failing(gym.make("CartPole-v1", **kwargs).unwrapped),
    max_episode_steps=500,
)


def command(*words):
    return [sys.executable, "-m", "oda_rl.command.cli", *words]


def files_in(folder):
    return {path.name for path in folder.iterdir()}


def kill_when(process, due):
    while process.poll() is None and not due():
        time.sleep(0.005)
    process.kill()
    process.wait()


# ---------------------------------------------------------------- resuming


@pytest.mark.usefixtures("without_figures")
def test_a_killed_training_is_resumed(tmp_path, capsys):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    options = [*("--seed", "5", "--partition", "som", "--gamma", "0.99")]
    options += ["--total-timesteps", str(STEPS), "--checkpoint-every", "2000"]
    assert main([*ONLINE, *options, "--out", str(whole)]) == 0
    checkpoint = folder / "checkpoint.zip"
    words = command(*ONLINE, *options, "--out", str(folder))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    kill_when(process, lambda: checkpoint.exists() and steps_in(checkpoint) >= 2000)
    assert "agent.zip" not in files_in(folder)
    alone = parse(["train", "--resume", "--out", str(folder)])
    given = parse([*ONLINE, *options, "--resume", "--out", str(folder)])
    for name in ("seed", "config", "total_timesteps", "checkpoint_every"):
        assert getattr(alone, name) == getattr(given, name)
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    assert "resuming after" in capsys.readouterr().out
    assert files_in(folder) == files_in(whole)
    ends = [content(load_agent(one), tmp_path / "a.zip") for one in (whole, folder)]
    assert ends[0] == ends[1]
    configs = [json.loads((one / "config.json").read_text()) for one in (whole, folder)]
    assert configs[0] == configs[1]
    assert configs[0]["seed"] == 5
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    assert f"has ended after {STEPS:,} steps" in capsys.readouterr().out
    more = ["--total-timesteps", str(STEPS + 500), "--n-eval-episodes", "2"]
    assert main(["train", "--resume", "--out", str(folder), *more]) == 0
    assert load_agent(folder).num_timesteps == STEPS + 500


def steps_in(file):
    return load_archive(file)[0]["training"]["steps"]


@pytest.fixture
def interrupted(tmp_path):
    """A folder with a checkpoint of 2000 of 5000 steps."""
    agent = TwoTimescaleAgent("CartPole-v1", seed=0)
    agent.learn(
        5000, lambda one: one.num_timesteps < 1500, checkpoint=tmp_path / "checkpoint.zip",
        checkpoint_every=1000,
    )  # fmt: skip
    metadata, arrays = load_archive(tmp_path / "checkpoint.zip")
    metadata["training"]["total"] = 5000
    save_archive(tmp_path / "checkpoint.zip", metadata, arrays)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "message"),
    [(["--seed", "3"], "seed is 3: the resumed training has 0"),
     (["--total-timesteps", "9"], "total_timesteps is 9: the resumed training has 5000"),
     (["--algo", "fitted"], "has 'two-timescale'"), (["--gamma", "0.5"], "config is"),
     (["--env-id", "Acrobot-v1"], "env_id is 'Acrobot-v1'"),
     (["--config", "config.json"], "--resume uses the options of the checkpoint")],
)  # fmt: skip
def test_options_of_another_training_are_refused(given, message, interrupted, capsys):
    assert main(["train", "--resume", "--out", str(interrupted), *given]) == 2
    assert message in capsys.readouterr().err
    assert files_in(interrupted) == {"checkpoint.zip"}


def test_no_module_is_imported_that_only_a_file_names(interrupted, capsys):
    file = interrupted / "checkpoint.zip"
    metadata, arrays = load_archive(file)
    metadata["env_id"] = metadata["env_spec"]["id"] = "Evil-v0"
    metadata["env_spec"]["module"] = "evil_module"
    save_archive(file, metadata, arrays)
    resume = ["train", "--resume", "--out", str(interrupted)]
    for given in ([], ["--env-id", "Evil-v0"], ["--env-id", "other:Evil-v0"]):
        assert main([*resume, *given]) == 2
        assert "add --trust-env" in capsys.readouterr().err
    for given in (["--trust-env"], ["--env-id", "evil_module:Evil-v0"]):
        assert main([*resume, *given]) == 2
        assert "No module named 'evil_module'" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_without_a_checkpoint_it_begins(tmp_path):
    arguments = [*ONLINE, "--total-timesteps", "700", "--resume", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    assert load_agent(tmp_path / "run").num_timesteps == 700


@pytest.mark.usefixtures("without_figures")
def test_a_run_is_replaced_only_if_asked_for(interrupted, capsys):
    again = [*ONLINE, "--total-timesteps", "2000", "--out", str(interrupted)]
    assert main(again) == 2
    assert "already has a run: add --overwrite" in capsys.readouterr().err
    assert main([*again, "--overwrite"]) == 0
    assert "checkpoint.zip" not in files_in(interrupted)


@pytest.mark.parametrize("name", ["config.json", "monitor.csv", "metric.png", "tensorboard/events"])
def test_files_of_no_earlier_run_are_kept(name, tmp_path, capsys):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    assert main([*ONLINE, "--out", str(tmp_path), "--overwrite"]) == 2
    assert f"where {name.partition('/')[0]} would be replaced" in capsys.readouterr().err
    if "/" not in name:
        with pytest.raises(ValueError, match=f"where {name} would be replaced"):
            TwoTimescaleAgent("CartPole-v1", seed=0).save(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert len(files_in(tmp_path)) == 1


# Runs the command, and sends a signal when the agent has learned from episodes.
SIGNALLED = """
import os, runpy, signal, sys, threading, time
from oda_rl.agents import Agent

kind, usual = int(sys.argv.pop(1)), Agent.learn
before = signal.default_int_handler if kind == signal.SIGINT else signal.SIG_DFL
signal.signal(kind, before)

def learn(agent, *arguments, **options):
    threading.Thread(target=press, args=(agent,), daemon=True).start()
    return usual(agent, *arguments, **options)

def press(agent):
    while signal.getsignal(kind) is before or not has_learned(agent):
        time.sleep(0.1)
    os.kill(os.getpid(), kind)

def has_learned(agent):
    return agent.num_timesteps > 2000 and len(agent.episodes.rows) > 0

Agent.learn = learn
runpy.run_module("oda_rl.command.cli", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("algo", "kind", "every"),
    [("two-timescale", signal.SIGTERM, 2000), ("fitted", signal.SIGINT, 10**9)],
)
def test_a_signal_ends_a_compiled_loop_and_saves_what_was_learned(algo, kind, every, tmp_path):
    folder = tmp_path / "run"
    words = ["train", "--algo", algo, "--total-timesteps", "2000000000", "--out", str(folder)]
    words += ["--n-eval-episodes", "1", "--checkpoint-every", str(every)]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(kind)), *words], capture_output=True, text=True
    )
    assert done.returncode == 130, done.stderr
    assert "Interrupted after" in done.stdout
    assert {"agent.zip", "config.json", "checkpoint.zip"} <= files_in(folder)
    loaded = load_agent(folder)
    assert loaded.num_timesteps == steps_in(folder / "checkpoint.zip") > 2000
    assert len(loaded.episodes.rows) > 0


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_do_the_same(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Failing, "fail", lambda: signal.raise_signal(kind))
    usual = signal.default_int_handler if kind == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(kind, usual)  # under nohup it is ignored, and trainings go on
    try:
        assert main([*ONLINE, "--env-id", "Failing-v0", "--out", str(tmp_path)]) == 130
        assert signal.getsignal(kind) == usual
    finally:
        signal.signal(kind, before)
    assert "Interrupted after" in capsys.readouterr().out
    assert load_agent(tmp_path).num_timesteps == Failing.at


def test_a_second_ctrl_c_saves_nothing_more(tmp_path, monkeypatch, capsys):
    def evaluate(agent, *arguments, **options):
        with training.ending_as_interrupts():
            raise training.Stopped

    monkeypatch.setattr(TwoTimescaleAgent, "evaluate", evaluate)
    assert main([*ONLINE, "--total-timesteps", "1000", "--out", str(tmp_path / "run")]) == 130
    assert "stopped" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- before training


def test_a_second_training_is_refused(tmp_path, capsys):
    with locked(tmp_path / ".lock", "it"):
        assert main([*ONLINE, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"out {str(tmp_path)!r} is in use by process {os.getpid()}" in error
    assert files_in(tmp_path) == set()


@pytest.mark.usefixtures("without_figures")
def test_leftovers_are_swept(tmp_path):
    for name in (".agent.zip.12345678", ".partition.png.abcdefgh", ".checkpoint.zip.a_b_c_d_"):
        (tmp_path / name).write_text("half")
    for name in ("notes.txt", ".agent.zip.mine"):
        (tmp_path / name).write_text("mine")
    assert main([*ONLINE, "--total-timesteps", "1000", "--out", str(tmp_path)]) == 0
    hidden = {name for name in files_in(tmp_path) if name.startswith(".")}
    assert hidden == {".agent.zip.mine"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_invalid_folders(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main([*ONLINE, "--out", str(tmp_path / "file" / "run")]) == 2
    assert "which cannot be written to: Not a directory" in capsys.readouterr().err


def test_a_disk_without_space_is_refused(tmp_path, capsys):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
    try:
        assert main([*ONLINE, "--out", str(tmp_path / "run")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert "where 32 MB for the agent and its checkpoint cannot be" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- what fails


@pytest.mark.usefixtures("without_figures")
def test_when_the_environment_fails_the_agent_is_saved_first(tmp_path, capsys):
    words = [*ONLINE, "--env-id", "Failing-v0", "--out", str(tmp_path)]
    with pytest.raises(ZeroDivisionError, match="the robot fell over"):
        main(words)
    assert "after 699 steps" in capsys.readouterr().out
    assert load_agent(tmp_path).num_timesteps == 699
    assert ".lock" not in files_in(tmp_path)


def test_before_the_first_step_there_is_nothing_to_save(tmp_path, monkeypatch):
    monkeypatch.setattr(Failing, "at", 1)
    with pytest.raises(ZeroDivisionError):
        main([*ONLINE, "--env-id", "Failing-v0", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_when_a_figure_fails_the_agent_is_saved_first(tmp_path, monkeypatch, capsys):
    def fails(*arguments, **options):
        raise RuntimeError("no fonts")

    kept = ["--checkpoint-every", "500", "--out", str(tmp_path)]
    monkeypatch.setattr(training, "write_figures", fails)
    with pytest.raises(RuntimeError, match="no fonts"):
        main([*ONLINE, "--total-timesteps", "1000", *kept])
    assert load_agent(tmp_path).num_timesteps == 1000
    monkeypatch.undo()
    assert main(["train", "--resume", "--out", str(tmp_path)]) == 0  # evaluates and draws
    assert "learning_curve.png" in files_in(tmp_path)
    assert "checkpoint.zip" not in files_in(tmp_path)


# ---------------------------------------------------------------- of one agent


def test_a_folder_is_of_one_agent(tmp_path):
    common = ["--total-timesteps", "1000", "--n-eval-episodes", "1", "--out", str(tmp_path)]
    assert main(["train", "--algo", "fitted", *common, "--log", "tensorboard"]) == 0
    for kind in SUFFIXES:
        assert main(["export", str(tmp_path), "--format", kind]) == 0
    assert main(["explain", str(tmp_path), "--steps", "100"]) == 0
    for name in ("rule.txt", "report.html", "notes.txt"):
        (tmp_path / name).write_text("mine")
    before = files_in(tmp_path)
    assert before <= {*OF_AGENT, "notes.txt", "tensorboard"}
    assert {"policy.h", "policy.onnx", "metric.png"} <= before
    assert main([*ONLINE, "--partition", "grid", *common, "--overwrite"]) == 0
    after = files_in(tmp_path)
    own = {"agent.zip", "config.json", "monitor.csv", "learning_curve.png", "partition.png"}
    assert after == own | {"notes.txt"} | (after & {"metric.png", "bifurcation.png"})
    assert {f"{name}.png" for name in FIGURES} >= {name for name in after if name.endswith("png")}
