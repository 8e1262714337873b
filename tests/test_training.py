"""Progress, interrupts, episode logs."""

import os
import re
import signal
import threading
from contextlib import contextmanager
from itertools import count

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO, quick_rule, steps_for

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.agents.base import progress
from oda_rl.agents.base.compiled_loop import is_compiled, train_loop
from oda_rl.agents.base.history import EpisodeLog
from oda_rl.agents.base.loops import train_compiled
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.distilling import search
from oda_rl.envs.dynamics import compiled_dynamics

kinds = pytest.mark.parametrize("kind", [FittedQAgent, TwoTimescaleAgent, quick_rule])


def interrupting(at):
    """Press Ctrl-C at a step."""
    steps = count(1)

    def told(reward):
        if next(steps) == at:
            os.kill(os.getpid(), signal.SIGINT)
        return reward

    return gym.wrappers.TransformReward(gym.make(BARTO), told)


@kinds
def test_ctrl_c_leaves_the_agent_between_two_steps(kind):
    agent = kind(interrupting(500), seed=0)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(2000)
    assert agent.num_timesteps == 500
    same = kind(BARTO, seed=0).learn(500)
    np.testing.assert_array_equal(agent.q_values, same.q_values)
    agent.learn(300)
    assert agent.num_timesteps == 800


@kinds
def test_training_outside_of_the_main_thread(kind):
    agent = kind(BARTO, seed=0)
    thread = threading.Thread(target=agent.learn, args=(600,))
    thread.start()
    thread.join()
    assert agent.num_timesteps == 600


@pytest.mark.parametrize(
    ("kind", "steps"), [(TwoTimescaleAgent, 20_000), (FittedQAgent, 3000), (quick_rule, 500)]
)
def test_progress_line_shows_what_is_asked(kind, steps, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    agent = kind(BARTO, seed=0).learn(steps, progress_bar=True)
    out = capsys.readouterr().out
    assert re.search(rf"{steps:,}/{steps:,} steps [\d,]+/s delivers -?\d+\.\d ", out)
    hot = kind is TwoTimescaleAgent
    assert f"{agent.n_cells} cells{f' T {agent.temperature:.3g}' if hot else ''}" in out
    assert "nan" not in out
    assert hot or " T " not in out


def test_each_part_of_a_plan_is_shown(monkeypatch):
    asked, shown = [], []

    @contextmanager
    def line(*args):
        yield lambda done, status: shown.append(status)

    ask = search.Climber.ask
    monkeypatch.setattr(progress, "live_line", line)
    monkeypatch.setattr(search.Climber, "ask", lambda one: (asked.append(one), ask(one))[1])
    agent = quick_rule(BARTO, seed=0).learn(500, progress_bar=True)
    assert sum(status.startswith("searching") for status in shown) == len(asked) > 10
    # An ensemble of four in each plan, and the forms among which the first one chooses.
    learning = sum(status.startswith("learning a world") for status in shown)
    assert learning > 4 * len(agent.history)
    assert not any("compil" in status for status in shown)


def test_episode_log():
    log = EpisodeLog()
    assert log.rows.shape == (0, 3)
    assert np.isnan(log.recent_return())
    log.append(np.array([[1.0, 2.0, 0.1]]))
    log.append(np.array([[3.0, 4.0, 0.2], [5.0, 6.0, 0.3]]))
    np.testing.assert_array_equal(log.rows[:, 0], [1, 3, 5])
    assert log.recent_return() == 3
    text = log.to_monitor_csv("Env-v0", 12.5).splitlines()
    assert text[0] == '#{"t_start": 12.5, "env_id": "Env-v0"}'
    assert text[1:3] == ["r,l,t", "1.000000,2,0.100000"]


@kinds
def test_times_of_episodes_increase(kind):
    steps = steps_for(kind, 3000)
    agent = kind(BARTO, seed=0).learn(steps).learn(steps)
    times = agent.episodes.rows[:, 2]
    assert (np.diff(times) >= 0).all()
    assert 0 < times[0] < times[-1] <= agent.training_seconds


@pytest.mark.parametrize("kind", [FittedQAgent, TwoTimescaleAgent])
def test_compiled_loops_say_after_which_step_an_episode_ended(kind):
    agent = kind(BARTO, seed=0)
    run = TrainingRun(4000)
    run.observation = agent.env.reset(seed=0)[0]
    begun, lengths, moments = 0, [], []
    for steps, rows in train_compiled(agent._engine, compiled_dynamics(agent.env), run):
        lengths += rows[:, 1].tolist()
        moments += (begun + rows[:, 2]).tolist()
        begun = steps
    assert len(moments) > 10  # and random numbers are drawn eight times meanwhile
    np.testing.assert_array_equal(moments, np.cumsum(lengths))
    rule, compiled = agent._engine.rule, compiled_dynamics(agent.env)
    assert is_compiled(train_loop(rule, compiled))
    assert not is_compiled(train_loop(rule._replace(name="another"), compiled))
