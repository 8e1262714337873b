"""Training by actors: episodes played by Dask workers, of which one may die."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import test_fitted
from distributed import LocalCluster
from environments import NONSENSE, Broken, Slow, Toy, Varied, quick_rule, same
from test_climbing import Follow
from test_run_folders import steps_in

from oda_rl.agents import (
    Actors,
    CodevectorAgent,
    FittedQAgent,
    ModelAgent,
    TwoTimescaleAgent,
    load_agent,
)
from oda_rl.agents.base.memory import ACTION, CUT, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.model import fallback
from oda_rl.command.cli import main

PAUSE = 0.001  # seconds a step
TWO = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}


class Nonsense(Broken):
    """Observations that are not finite, from the 50th step on."""

    def __init__(self, env):
        super().__init__(env, NONSENSE[0].values[0])


class Endless(Toy):
    """A toy whose episodes never end."""

    def __init__(self):
        super().__init__(length=None)


gym.register("Varied-v0", Varied, max_episode_steps=30)
gym.register("Endless-v0", Endless)
gym.register("Follow-v0", Follow, kwargs={"noise": 9.0})


@pytest.fixture(scope="module")
def threads():
    """A scheduler in this process, whose workers are threads."""
    with LocalCluster(processes=False, **TWO) as own:
        yield Actors(2, own.scheduler_address)


def in_turns(agent, steps, count):
    """Train with ``count`` actors, whose episodes are played here one by one."""
    agent.begin_episode()
    learner, taken, ended = agent._actors_learner(Actors(count)), 0, []
    learner.begin(count)
    requests = [(i, learner.task(i, steps)) for i in range(count)]
    while taken < steps:
        i, task = requests.pop(0)
        episode = task.play().cut(steps - taken)
        learner.learn(i, episode)
        taken += episode.length
        if episode.over:
            ended.append((episode.total, episode.length, 0.0))
        if taken < steps:
            requests.append((i, learner.task(i, steps - taken)))
    agent.episodes.append(np.array(ended).reshape(-1, 3))
    return agent


def slow_agent(pause=PAUSE, seed=0):
    return FittedQAgent(gym.make("Slow-v0", pause=pause), seed=seed)


def test_processes_learn_the_same_as_in_turns_though_one_is_killed(cluster, victim):
    killed = []

    def kill(agent):
        if agent.num_timesteps > 200 and not killed:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    agent = slow_agent()
    agent.learn(600, callback=kill, actors=Actors(2, cluster.scheduler_address))
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)
    assert agent.num_timesteps == 600
    same(agent, in_turns(slow_agent(0.0), 600, 2))


@pytest.mark.slow
def test_an_environment_that_kills_every_actor_is_reported(cluster):
    agent = FittedQAgent(gym.make("Slow-v0", deadly=True), seed=0)
    with pytest.raises(ChildProcessError, match="workers: an episode killed 2 actors"):
        agent.learn(100, actors=Actors(1, cluster.scheduler_address))


def test_steps_are_those_of_the_environment(threads):
    agent = FittedQAgent("Slow-v0", seed=1).learn(1000, actors=threads)
    observations, steps = test_fitted.rows(agent)
    taken = np.flatnonzero(steps[:, MARK] == GOES_ON)
    assert len(taken) == agent.num_timesteps == 1000
    env = Slow()
    for i in taken:
        env.reset()
        env.state = tuple(observations[i].astype(float))
        after, reward, terminated, _, _ = env.step(int(steps[i, ACTION]))
        np.testing.assert_allclose(observations[i + 1], after, atol=1e-6)
        assert reward == steps[i, REWARD]
        assert terminated == (steps[i + 1, MARK] == TERMINAL)
    starts = np.flatnonzero(np.append(True, steps[:-1, MARK] != GOES_ON))
    assert (np.abs(observations[starts]) <= 0.05).all()  # a reset's
    lengths = np.diff(np.append(starts, len(steps))) - 1
    ended = agent.episodes.rows
    np.testing.assert_array_equal(lengths[: len(ended)], ended[:, 1])
    np.testing.assert_array_equal(ended[:, 0], ended[:, 1])  # a point a step
    assert (lengths[len(ended) :].sum(), len(lengths) - len(ended)) == (1000 - ended[:, 1].sum(), 1)
    assert steps[-1, MARK] == CUT


@pytest.mark.parametrize(("steps", "count"), [(1, 3), (30, 1), (57, 3), (300, 1)])
def test_the_number_of_steps_is_exact(threads, steps, count):
    actors = Actors(count, threads.address)
    agent = FittedQAgent("Varied-v0", seed=2).learn(steps, actors=actors)
    assert agent.num_timesteps == steps
    for more in (1, 200):
        agent.learn(more, actors=actors)
    assert agent.num_timesteps == steps + 201
    agent.learn(300)  # itself
    assert agent.num_timesteps == steps + 501
    marks = test_fitted.rows(agent)[1][:, MARK]
    assert (marks == GOES_ON).sum() == agent.num_timesteps


def test_the_same_seed_and_number_of_actors_give_the_same_bits(threads):
    first, second = (FittedQAgent("Varied-v0", seed=5).learn(500, actors=threads) for _ in range(2))
    same(first, second)
    same(first, in_turns(FittedQAgent("Varied-v0", seed=5), 500, 2))
    other = FittedQAgent("Varied-v0", seed=6).learn(500, actors=threads)
    assert not np.array_equal(test_fitted.rows(other)[0], test_fitted.rows(first)[0])


@pytest.mark.parametrize(
    ("kind", "env_id"),
    [(FittedQAgent, "FrozenLake-v1"), (FittedQAgent, "Pendulum-v1"),
     (CodevectorAgent, "Pendulum-v1")],
)  # fmt: skip
def test_other_spaces(threads, kind, env_id):
    agent = kind(env_id, seed=0).learn(800, actors=threads)
    same(agent, in_turns(kind(env_id, seed=0), 800, 2))
    assert agent.evaluate(2, seed=0).shape == (2,)
    assert agent.visits.sum() == 800
    if kind is CodevectorAgent:
        assert np.ptp(test_fitted.rows(agent)[1][:, 3:]) > 1.0  # of the actions performed


def test_episodes_that_never_end_are_cut(threads):
    agent = FittedQAgent("Endless-v0", seed=0).learn(5000, actors=threads)
    assert (agent.num_timesteps, len(agent.episodes.rows)) == (5000, 0)
    assert len(agent.history) > 0


def test_training_is_resumed_from_a_checkpoint(threads, tmp_path):
    file, seen = tmp_path / "checkpoint.zip", []

    def stop(agent):
        seen.append(agent.num_timesteps)
        if agent.num_timesteps > 600:
            raise ZeroDivisionError("the process is killed")

    agent = FittedQAgent("Slow-v0", seed=4)
    kept = {"checkpoint": file, "checkpoint_every": 200, "actors": threads}
    with pytest.raises(ZeroDivisionError):
        agent.learn(1500, callback=stop, **kept)
    assert seen == sorted(set(seen))
    left = load_agent(file)
    assert left.num_timesteps >= 200
    assert left.num_timesteps in seen
    first, second, alone = (load_agent(file).resume(actors=one) for one in (threads, threads, None))
    same(first, second)
    for again in (first, alone):
        assert again.num_timesteps == 1500
        assert (test_fitted.rows(again)[1][:, MARK] == GOES_ON).sum() == 1500
    alone = FittedQAgent("Slow-v0", seed=4)
    with pytest.raises(ZeroDivisionError):
        alone.learn(1500, callback=stop, checkpoint=file, checkpoint_every=200)
    assert load_agent(file).resume(actors=threads).num_timesteps == 1500


def test_ctrl_c_does_not_wait_for_episodes(threads, tmp_path):
    agent = slow_agent(pause=0.2)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        agent.learn(1000, actors=threads)
    assert agent.num_timesteps == 0


def test_bad_values_of_an_environment_are_reported(threads):
    gym.register("SaysNonsense-v0", lambda: Nonsense(Slow()), max_episode_steps=500)
    agent = FittedQAgent("SaysNonsense-v0", seed=0)
    with pytest.raises(ValueError, match="step [0-9]+ of an episode .*not finite"):
        agent.learn(1000, actors=threads)
    assert np.isfinite(agent.q_values).all()


def test_a_module_that_actors_cannot_import_is_reported(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        "from environments import Slow\n\n\nclass Robot(Slow):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)  # which processes that run already do not see
    robot = importlib.import_module("only_here").Robot
    gym.register("Robot-v0", robot, max_episode_steps=500)
    agent = FittedQAgent("Robot-v0", seed=0)
    with pytest.raises(ImportError, match="workers: an actor cannot import 'only_here'"):
        agent.learn(100, actors=Actors(2, cluster.scheduler_address))
    assert slow_agent().learn(50, actors=Actors(2, cluster.scheduler_address)).num_timesteps == 50


def test_a_climb_resumes_with_the_same_bits_also_by_actors(threads, tmp_path, monkeypatch):
    monkeypatch.setattr(fallback, "_MIN_LEFT", 2000)
    file = tmp_path / "checkpoint.zip"
    whole = ModelAgent("Follow-v0", seed=3).learn(3000)

    def interrupted(agent):
        if agent.num_timesteps > 1200:
            raise InterruptedError

    agent = ModelAgent("Follow-v0", seed=3)
    with pytest.raises(InterruptedError):
        agent.learn(3000, interrupted, checkpoint=file, checkpoint_every=500)
    for actors in (None, threads):
        resumed = ModelAgent.load(file)
        assert 500 <= resumed.num_timesteps <= 1400
        resumed.resume(actors=actors)
        assert 2850 < resumed.num_timesteps == whole.num_timesteps <= 3000
        np.testing.assert_array_equal(*(one.episodes.groups[:, :4] for one in (whole, resumed)))
        found = resumed._real.climb.to_arrays()
        for name, array in whole._real.climb.to_arrays().items():
            np.testing.assert_array_equal(array, found[name], err_msg=name)


@pytest.mark.parametrize("kind", [TwoTimescaleAgent, quick_rule])
def test_agents_without_actors(kind):
    with pytest.raises(ValueError, match="workers is 2: .*has no actors; FittedQAgent"):
        kind("CartPole-v1", seed=0).learn(100, actors=Actors(2))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: gym.make_vec("CartPole-v1", 2), "must be a single one"),
        (Toy, "Toy, which is not registered with Gymnasium"),
        (
            lambda: gym.wrappers.NormalizeObservation(gym.make("CartPole-v1")),
            "NormalizeObservation, whose running statistics would differ",
        ),
    ],
    ids=["vector", "nameless", "statistics"],
)
def test_environments_that_cannot_be_copied(env, message):
    with pytest.raises(ValueError, match=f"workers is 2, and each needs a copy.*{message}"):
        FittedQAgent(env(), seed=0).learn(100, actors=Actors(2))


def test_bad_arguments():
    for workers in (0, -1, 2.0, True, "2"):
        with pytest.raises(ValueError, match="workers is .*it must be an integer of at least 1"):
            Actors(workers)
    with pytest.raises(TypeError, match="address is 8786: it must be that of a scheduler"):
        Actors(2, 8786)
    with pytest.raises(TypeError, match="actors is 2: it must be Actors, or None"):
        FittedQAgent("CartPole-v1", seed=0).learn(100, actors=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--workers", "0"], "workers is 0: it must be an integer of at least 1"),
     (["--address", "tcp://here:8786"], "address is 'tcp://here:8786': it needs --workers"),
     (["--workers", "2", "--algo", "two-timescale"], "'two-timescale', which has no actors")],
    ids=lambda one: one[-1] if isinstance(one, list) else "",
)  # fmt: skip
def test_options_that_are_refused(words, message, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--total-timesteps", "100", "--out", str(folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_the_command_trains_with_a_process_of_its_own(tmp_path):
    folder = tmp_path / "run"
    words = ["--env-id", "environments:Slow-v0", "--env-kwargs", '{"pause": 0.0}']
    more = ["--total-timesteps", "400", "--n-eval-episodes", "1", "--out", str(folder)]
    kept = ["--workers", "1", "--checkpoint-every", "300"]
    assert main(["train", *words, *more, *kept]) == 0
    assert load_agent(folder).num_timesteps == 400


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_the_training_alone(tmp_path):
    folder, said = tmp_path / "run", tmp_path / "said"
    words = ["--total-timesteps", "1000000", "--checkpoint-every", "100", "--out", str(folder)]
    words += ["--n-eval-episodes", "1", "--workers", "1"]
    command = [sys.executable, "-m", "oda_rl.command.cli", "train", *words]
    usual = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with open(said, "w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, start_new_session=True, preexec_fn=usual
        )
        checkpoint = folder / "checkpoint.zip"
        try:
            while process.poll() is None and not (
                checkpoint.exists() and steps_in(checkpoint) > 100
            ):
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the actors, too
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert load_agent(folder).num_timesteps == steps_in(checkpoint)
    text = said.read_text()
    assert "Interrupted after" in text
    assert "Traceback" not in text
    assert "distributed" not in text


def test_a_lost_scheduler_is_reported():
    with LocalCluster(processes=False, **TWO) as own:

        def lose(agent):
            if agent.num_timesteps > 100:
                own.close()

        agent = slow_agent()
        with pytest.raises(ConnectionError, match="address: the scheduler has been lost"):
            agent.learn(5000, callback=lose, actors=Actors(2, own.scheduler_address))
    steps = agent.num_timesteps
    assert 100 < steps < 5000
    assert agent.learn(200).num_timesteps == steps + 200
