"""The oda-rl command."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

import gymnasium as gym
import numpy as np
import pytest

import oda_rl
from oda_rl.agents import (
    FittedQAgent,
    FittedQConfig,
    ModelAgent,
    ModelConfig,
    TwoTimescaleAgent,
    TwoTimescaleConfig,
    load_agent,
)
from oda_rl.agents.distilling import distil
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.videos import _rendered
from oda_rl.command.cli import main, parse
from oda_rl.command.training import TrainFitted, TrainModel, TrainTwoTimescale

COMMON = {"agent.zip", "config.json", "learning_curve.png", "monitor.csv", "partition.png"}
FILES = {
    "fitted": COMMON | {"metric.png"},
    "two-timescale": COMMON | {"bifurcation.png", "metric.png"},
    "model": COMMON,
}
AGENTS = {"fitted": FittedQAgent, "two-timescale": TwoTimescaleAgent, "model": ModelAgent}
STEPS = {"fitted": 4_000, "two-timescale": 12_000, "model": 300}


@pytest.fixture(scope="module", params=AGENTS)
def algo(request):
    return request.param


def train(algo, folder, *arguments):
    assert main(["train", "--algo", algo, *arguments, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, algo):
    """A run folder, and what the command has printed."""
    folder, printed = tmp_path_factory.mktemp("runs") / "x", io.StringIO()
    with redirect_stdout(printed):
        train(algo, folder, "--seed", "0", "--total-timesteps", str(STEPS[algo]))
    return folder, printed.getvalue()


@pytest.fixture
def run(trained):
    return trained[0]


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """The folder of a training too short for a metric."""
    folder = tmp_path_factory.mktemp("short") / "run"
    arguments = ["--total-timesteps", "100", "--n-eval-episodes", "1"]
    run = train("two-timescale", folder, *arguments)
    assert {path.name for path in run.iterdir()} == COMMON
    return run


@pytest.mark.parametrize(
    ("algo", "options"),
    [("two-timescale", "--partition som --total-timesteps 3000"),
     ("codevector", "--env-id Pendulum-v1 --action-bins 3 --total-timesteps 500 "
      '--env-kwargs {"max_episode_steps":50}')],
)  # fmt: skip
def test_train_in_other_ways(algo, options, tmp_path, capsys):
    out = tmp_path / "run"
    train(algo, out, *options.split(), "--n-eval-episodes", "3")
    assert main(["evaluate", str(out), "--episodes", "3"]) == 0
    capsys.readouterr()
    figures = sorted(out.glob("*.png"))
    assert out / "partition.png" in figures
    for path in figures:
        path.unlink()
    assert main(["plot", str(out)]) == 0
    printed = capsys.readouterr().out
    for path in figures:
        assert path.stat().st_size > 5000
        assert path.name in printed


def test_train_writes_a_run_folder(run, algo):
    assert {path.name for path in run.iterdir()} == FILES[algo]
    agent = load_agent(run)
    assert type(agent) is AGENTS[algo]
    assert agent.num_timesteps == STEPS[algo]
    assert json.loads((run / "config.json").read_text())["algorithm"] == AGENTS[algo].__name__
    assert (run / "monitor.csv").read_text().splitlines()[1] == "r,l,t"
    for name in FILES[algo]:
        assert (run / name).stat().st_size > 300


def test_train_gives_the_same_agent_as_python(run, algo):
    agent = AGENTS[algo]("CartPole-v1", seed=0).learn(STEPS[algo])
    np.testing.assert_array_equal(load_agent(run).q_values, agent.q_values)


def test_train_prints_tables(algo, trained):
    run, out = trained
    for text in (f"{STEPS[algo]:,}", "cells", "mean", "median", "min", "training time", "run"):
        assert text in out
    assert "100 greedy episodes" in out
    if algo == "model":
        assert f"the rule: {load_agent(run).rules()}" in out
        assert "the model is trusted" in out


def test_evaluate(run, capsys):
    assert main(["evaluate", str(run), "--episodes", "7"]) == 0
    returns = load_agent(run).evaluate(7, seed=0)  # the seed of the training
    expected = f"7 greedy episodes, seed 0: mean {returns.mean():.1f}, median"
    assert expected in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_options_come_from_the_configuration(tmp_path):
    shared = ["--max-cells", "3", "--gamma", "0.9", "--metric", "std"]
    also = {"max_cells": 3, "gamma": 0.9, "metric": "std"}
    own = {
        "fitted": (["--max-transitions", "400", *shared], {"max_transitions": 400, **also}),
        "two-timescale": (["--warmup-steps", "50", *shared], {"warmup_steps": 50, **also}),
        "model": (
            ["--generations", "2", "--no-simplify", "--action-bins", "4"],
            {"generations": 2, "simplify": False, "action_bins": 4},
        ),
    }
    for algo, (more, expected) in own.items():
        config = parse(["train", "--algo", algo, *more]).config
        assert {name: getattr(config, name) for name in expected} == expected
    more, expected = own["fitted"]
    steps = ["--total-timesteps", "300", "--n-eval-episodes", "2"]
    folder = train("fitted", tmp_path / "run", *steps, *more)
    config = json.loads((folder / "config.json").read_text())["config"]
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize("form", [["--algo", "{}"], ["--algo={}"]])
def test_the_algorithm_decides_on_the_options(form):
    fitted = parse(["train", *[part.format("fitted") for part in form]])
    online = parse(["train", "--seed", "3", *[part.format("two-timescale") for part in form]])
    assert type(fitted) is TrainFitted
    assert type(online) is TrainTwoTimescale
    assert (fitted.config, fitted.algo) == (FittedQConfig(), "fitted")
    assert (online.config, online.algo) == (TwoTimescaleConfig(), "two-timescale")
    model = parse(["train", *[part.format("model") for part in form]])
    assert type(model) is TrainModel
    assert (model.config, model.algo) == (ModelConfig(), "model")
    assert online.seed == 3
    assert parse(["train"]) == fitted


@pytest.mark.parametrize(
    ("algo", "own"),
    [("fitted", ("--gamma", "Discount factor", "--trace-decay", "--max-transitions")),
     ("two-timescale", ("--gamma", "Discount factor", "--trace-decay", "--warmup-steps")),
     ("model", ("--random-steps", "before the world is learned", "--action-bins", "affine"))],
)  # fmt: skip
def test_help_explains_every_option(algo, own, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["train", "--algo", algo, "--help"])
    assert stop.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in ("--out", "Run folder", *own):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--env-id", "NoSuchEnv-v0"], "env_id is 'NoSuchEnv-v0'"),
        (["train", "--total-timesteps", "-5"], "total_timesteps is -5"),
        (["train", "--gamma", "1.5"], "gamma is 1.5"),
        (["train", "--seed", "-1"], "seed is -1"),
        (["train", "--algo", "two-timescale", "--partition", "cubes"], "partition is 'cubes'"),
        (["train", "--partition", "oda"], "is an option of --algo two-timescale: algo is 'fitted'"),
        (["train", "--algo", "model", "--learning-rate", "0.1"], "other agents have no step sizes"),
        (["train", "--out", "{run}"], "which already has a run: add --overwrite to replace it"),
        (["train", "--env-kwargs", "{{g: 1}}"], "which is not JSON"),
        (["train", "--out", ""], "out is ''"),
        (["train", "--env-kwargs", "[1]"], "it must be an object"),
        (["train", "--env-kwargs", '{{"no_such": 1}}'], "no_such"),
        (["train", "--out", "{run}/monitor.csv"], "which is a file: it must be a folder"),
        (["train", "--config", "{run}/monitor.csv"], "which is not JSON"),
        (["train", "--config", "{run}/nowhere.json"], "nowhere.json"),
        (["train", "--n-eval-episodes", "0"], "n_eval_episodes is 0"),
        (["train", "--total-timesteps", "1.5e0"], "1.5e0"),
        (
            ["train", "--algo", "two-timescale", "--partition", "grid", "--max-cells", "3"],
            "max_cells is a setting of partition='oda'",
        ),
        (["train", "--algo", "model", "--gamma", "0.9"], "gamma"),
        (["train", "--algo", "model", "--population", "3"], "population is 3"),
        (["train", "--algo", "sarsa"], "sarsa"),
        (["train", "--env-id", "CartPole-v1", "--algo", "codevector"], "bounded Box"),
        (["train", "--algo"], "algo"),
        (["train", "--no-such-option", "1"], "no-such-option"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "{run}/config.json"], "is damaged"),
        (["evaluate", "{run}", "--episodes", "0"], "episodes is 0"),
        (["explain", "{run}", "--steps", "0"], "steps is 0"),
        (["explain", "{run}", "--observation", "0", "1"], "has 2 components: it must have 4 (cart"),
        (["train", "--algo", "two-timescale", "--metric", "1", "0"], "--config can give a matrix"),
        (["export", "{run}", "--format", "rust"], "rust"),
        (["export", "{run}", "--format", "json", "--fixed-point"], "fixed_point is True"),
        (["export"], "PATH"),
        ([], "train"),
    ],
)
def test_bad_input_is_named_and_has_exit_code_2(arguments, message, short_run, tmp_path, capsys):
    arguments = [argument.format(run=short_run) for argument in arguments]
    out = ["--out", str(tmp_path / "out")] if arguments[:1] == ["train"] else []
    assert main([*arguments, *(out if "--out" not in arguments else [])]) == 2
    error = capsys.readouterr().err
    assert error.startswith("oda-rl: ")
    assert "Traceback" not in error
    assert message in error
    assert not (tmp_path / "out").exists()


def test_one_state_is_explained_as_in_python(tmp_path, capsys):
    agent, state = FittedQAgent("CartPole-v1", seed=0).learn(1000), [0.1, 0.0, -0.05, -0.2]
    agent.save(tmp_path)
    assert main(["explain", str(tmp_path), "--observation", *map(str, state)]) == 0
    assert capsys.readouterr().out == f"{agent.explain(state)}\n"


def test_simplify_prints_the_rule_and_the_curve(tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    FittedQAgent("CartPole-v1", seed=0).learn(4_000).save(run)
    monkeypatch.setattr(distil, "SIZES", (2, 3))
    assert main(["simplify", str(run), "--steps", "30000"]) == 0
    printed = capsys.readouterr().out
    assert "the rule:" in printed
    assert "what rules return" in printed
    assert "push" in (run / "rule.txt").read_text(encoding="utf-8")
    assert main(["simplify", str(run), "--cells", "1"]) == 2
    assert "n_cells is 1: it must be at least 2" in capsys.readouterr().err


@pytest.mark.parametrize("n", [9, 1])
def test_a_rule_that_is_worse_or_not_compared_is_not_written(n, tmp_path, capsys, monkeypatch):
    TwoTimescaleAgent("CartPole-v1", seed=0).save(tmp_path)
    rule = RulePolicy(np.zeros((1, 5)), np.eye(2)[:1, :, None], np.zeros((1, 4)))
    returns, taught = np.full(n, -116.0), np.full(n, 245.0)
    curve = distil.Size(2, rule, returns), distil.Size(3, rule, returns[:0])
    worse = distil.Distilled(rule, Interface((4,), 2, 0), None, returns, taught, 900, curve)
    monkeypatch.setattr(TwoTimescaleAgent, "simplify", lambda *given, **more: worse)
    assert main(["simplify", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "add --accept-worse" in printed
    assert not {"nan", "inf"} & {*printed.split()}
    assert not (tmp_path / "rule.txt").exists()
    assert main(["simplify", str(tmp_path), "--accept-worse"]) == 0
    assert "always" in (tmp_path / "rule.txt").read_text(encoding="utf-8")


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"oda-rl {oda_rl.__version__}\n"


def test_steps_in_scientific_notation():
    assert parse(["train", "--total-timesteps", "1e5"]).total_timesteps == 100_000
    assert parse(["train", "--total-timesteps=2.5E4"]).total_timesteps == 25_000


@pytest.mark.usefixtures("without_figures")
def test_a_configuration_is_read_back_and_flags_win(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    kwargs = '{"is_slippery": false, "max_episode_steps": 30}'
    lake = ["--env-id", "FrozenLake-v1", "--env-kwargs", kwargs, "--seed", "4"]
    own = ["--algo", "two-timescale", "--partition", "grid", "--gamma", "0.9"]
    common = ["train", *lake, *own, "--total-timesteps", "5e2", "--n-eval-episodes", "3"]
    assert main([*common, "--out", str(first)]) == 0
    config = ["--config", str(first / "config.json")]
    known = parse(["train", *config])
    assert (known.env_id, known.seed, known.total_timesteps) == ("FrozenLake-v1", 4, 500)
    assert json.loads(known.env_kwargs) == json.loads(kwargs)
    assert (known.partition, known.config.gamma) == ("grid", 0.9)
    assert parse(["train", *config, "--gamma", "0.8"]).config.gamma == 0.8
    assert main(["train", *config, "--out", str(second)]) == 0
    same, other = load_agent(first), load_agent(second)
    np.testing.assert_array_equal(same.q_values, other.q_values)
    assert same._require_env().spec.kwargs["is_slippery"] is False


@pytest.mark.usefixtures("without_figures")
def test_episodes_are_logged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    arguments = ["--algo", "two-timescale", "--total-timesteps", "1500", "--n-eval-episodes", "1"]
    assert main(["train", *arguments, "--log", "tensorboard", "--out", str(tmp_path)]) == 0
    episodes = load_agent(tmp_path).episodes.rows
    logged = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("episode/return")
    np.testing.assert_allclose([event.value for event in logged], episodes[:, 0])
    assert [event.step for event in logged] == np.cumsum(episodes[:, 1]).tolist()


@pytest.mark.usefixtures("without_figures")
def test_an_environment_in_a_module(tmp_path, monkeypatch, capsys):
    entry = "gymnasium.envs.classic_control:CartPoleEnv"
    code = f"import gymnasium as gym\ngym.register('There-v0', '{entry}', max_episode_steps=30)\n"
    (tmp_path / "module_of_there.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    arguments = ["--algo", "two-timescale", "--total-timesteps", "300", "--n-eval-episodes", "2"]
    assert main(["train", "--env-id", "module_of_there:There-v0", *arguments]) == 0
    run = str(tmp_path / "runs" / "module_of_there-There-v0-two-timescale-1")
    del sys.modules["module_of_there"], gym.registry["There-v0"]  # as in another process
    assert main(["evaluate", run, "--episodes", "2"]) == 2
    assert "--trust-env" in capsys.readouterr().err
    assert "module_of_there" not in sys.modules
    assert main(["evaluate", run, "--episodes", "2", "--trust-env"]) == 0
    assert main(["simplify", run, "--cells", "2", "--steps", "3000", "--trust-env"]) in (0, 1)
    del sys.modules["module_of_there"], gym.registry["There-v0"]
    again = ["train", "--config", f"{run}/config.json", "--n-eval-episodes", "2"]
    assert main(again) == 2
    assert "for which the module 'module_of_there' would be imported" in capsys.readouterr().err
    assert "module_of_there" not in sys.modules
    assert main([*again, "--trust-env"]) == 0
    assert main(again) == 0  # nothing is to be imported any more
    made = sorted(path.name for path in (tmp_path / "runs").glob("module*"))
    assert made == [f"module_of_there-There-v0-two-timescale-{n}" for n in (1, 2)]
    del gym.registry["There-v0"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("env_id", "evil_module:CartPole-v1"), ("env_spec", None),
     ("env_spec", {"module": "evil_module", "id": "There-v0"}),
     ("env_spec", {"kwargs": {"command": "rm"}, "id": "Unknown-v0"})],
)  # fmt: skip
def test_a_configuration_imports_nothing(name, value, short_run, tmp_path, capsys):
    config = json.loads((short_run / "config.json").read_text())
    config["env_id"] = "evil_module:There-v0"
    if name == "env_id":
        config["env_id"] = value
    elif value is not None:
        gym.register("Unknown-v0", "evil_module:Evil")
        config["env_spec"] |= value
        config["env_id"] = value["id"]
    else:
        config["env_spec"] = None
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    for given in ([], ["--seed", "1"]):
        assert main(["train", "--config", str(file), *given]) == 2
        error = capsys.readouterr().err
        assert f"{str(file)!r} names the environment" in error
        assert "'evil_module' would be imported: add --trust-env" in error
    assert main(["train", f"--config={file}", "--trust-env"]) == 2
    assert "evil_module" in capsys.readouterr().err
    gym.registry.pop("Unknown-v0", None)


def test_watching(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    agent = TwoTimescaleAgent(gym.make("CartPole-v1", max_episode_steps=12), seed=0).learn(200)
    agent.save(tmp_path / "run")
    films = tmp_path / "films"
    enjoy = ["enjoy", str(tmp_path / "run"), "--episodes", "2"]
    assert main([*enjoy, "--video", str(films)]) == 0
    assert len(list(films.glob("*.mp4"))) == 2
    assert main(enjoy) == 0
    assert "returns: " in capsys.readouterr().out
    monkeypatch.setitem(
        gym.envs.classic_control.CartPoleEnv.metadata, "render_modes", ["rgb_array"]
    )
    assert main(enjoy) == 2
    assert "there must be 'human' among them; --video films it" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("oda_rl.agents.videos.find_spec", lambda name: None)
    assert main([*enjoy, "--video", str(films)]) == 2
    assert "pip install 'oda-rl[video]'" in capsys.readouterr().err
    assert main(enjoy) == 2
    assert "pip install 'oda-rl[render]'" in capsys.readouterr().err
    agent = TwoTimescaleAgent("InvertedPendulum-v5", seed=0)  # which is drawn by MuJoCo
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    for mode in ("human", "rgb_array"):
        with pytest.raises(ValueError, match="no display.*MUJOCO_GL=egl or osmesa"):
            _rendered(agent, mode)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    _rendered(agent, "rgb_array").close()


def test_the_module_is_the_command_and_finds_environments_where_it_runs(tmp_path):
    (tmp_path / "still.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.toy_text import CliffWalkingEnv\n"
        "gym.register('Still-v0', CliffWalkingEnv, max_episode_steps=20)\n"
    )
    arguments = "train --algo fitted --env-id still:Still-v0 --total-timesteps 200 --out \u03b8"
    command = [sys.executable, "-m", "oda_rl", *arguments.split(), "--n-eval-episodes", "1"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stderr
    assert "files in \\u03b8: agent.zip" in done.stdout
    assert (tmp_path / "\u03b8" / "agent.zip").is_file()


def test_a_pager_may_be_quit():
    command = [sys.executable, "-m", "oda_rl", "train", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert (running.stderr.read(), running.wait()) == (b"", 1)


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("env_id", "steps", "fails"), [("MountainCar-v0", "1000", True), ("CartPole-v1", "5000", False)]
)
def test_a_training_that_fails_says_so(tmp_path, capsys, env_id, steps, fails):
    train("fitted", tmp_path / "run", "--env-id", env_id, "--total-timesteps", steps)
    printed = " ".join(capsys.readouterr().out.split())
    assert ("not better than random play: mean return -200 against -200" in printed) == fails
    assert ("ModelAgent" in printed) == fails
