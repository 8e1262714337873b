"""Figures show what they say."""

import numpy as np
import pytest

from oda_rl import plotting
from oda_rl.agents import TwoTimescaleAgent
from oda_rl.agents.history import Level
from oda_rl.report import write_figures


@pytest.fixture(scope="module")
def agent():
    return TwoTimescaleAgent("oda_rl/BartoCartPole-v0", seed=0).learn(30_000)


def test_learning_curve_is_over_steps():
    episodes = np.array([[10.0, 10, 0], [30.0, 30, 0], [20.0, 20, 0]])
    ax = plotting.plot_learning_curve(episodes, solved_return=25.0)
    points, mean, solved = ax.get_lines()
    np.testing.assert_array_equal(points.get_xdata(), [10, 40, 60])
    np.testing.assert_array_equal(points.get_ydata(), [10, 30, 20])
    np.testing.assert_allclose(mean.get_xydata(), [[60, 20]])
    assert set(solved.get_ydata()) == {25.0}


def test_partition_shows_the_greedy_action_of_each_place(agent):
    visited = agent.visited_states(200, seed=0)
    ax = plotting.plot_partition(agent, (2, 3), visited=visited)
    image = ax.get_images()[0]
    shown = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    middle = np.median(visited, axis=0)
    colors = [plotting._tint(plotting.COLORS[action]) for action in range(2)]
    rng = np.random.default_rng(0)
    lines = 0
    for _ in range(300):
        i, j = rng.integers(shown.shape[0]), rng.integers(shown.shape[1])
        point = middle.copy()
        point[2] = left + (right - left) * j / (shown.shape[1] - 1)
        point[3] = bottom + (top - bottom) * i / (shown.shape[0] - 1)
        if (shown[i, j] == 255).all():
            lines += 1
        else:
            np.testing.assert_array_equal(shown[i, j], colors[agent.predict(point)[0]])
    assert lines < 20
    labels = {text.get_text() for text in ax.texts}
    assert labels == {str(k) for k in range(agent.n_cells)}


def test_partition_needs_two_components():
    import gymnasium as gym

    env = gym.wrappers.TransformObservation(
        gym.make("CartPole-v1"), lambda o: o[:1], gym.spaces.Box(-5, 5, (1,))
    )
    with pytest.raises(ValueError, match="at least 2"):
        plotting.plot_partition(TwoTimescaleAgent(env, seed=0, state_scale=(1.0,)))


def test_bifurcation_draws_a_line_for_each_child():
    history = [
        Level(0, 9.0, np.array([[5.0, 5.0]]), None),  # an earlier start: not shown
        Level(100, 4.0, np.array([[0.0, 0.0]]), None),
        Level(200, 0.8, np.array([[-1.0, 0.0], [1.0, 0.1]]), np.array([[1.0], [1.0]])),
        Level(300, 0.2, np.array([[0.0, 0.0]]), np.array([[0.5, 0.5]])),
    ]
    ax = plotting.plot_bifurcation(history)
    branches = [line for line in ax.get_lines() if line.get_linestyle() == "-"]
    assert sorted(tuple(line.get_xdata()) for line in branches) == [
        (0.8, 0.2),
        (0.8, 0.2),
        (4.0, 0.8),
        (4.0, 0.8),
    ]
    assert ax.get_xscale() == "log"
    assert ax.get_xlim()[0] > ax.get_xlim()[1]  # it cools to the right


def test_cells_over_time(agent):
    ax = plotting.plot_cells_over_time(agent.history, agent.num_timesteps)
    line = ax.get_lines()[0]
    assert line.get_xdata()[-1] == 30_000
    assert line.get_ydata()[-1] == agent.n_cells


def test_figures_before_anything_was_learned(tmp_path):
    for config in ({}, {"state_scale": None}):
        agent = TwoTimescaleAgent("CartPole-v1", seed=0, **config)
        for path in write_figures(agent, tmp_path):
            assert path.read_bytes().startswith(b"\x89PNG")


def test_figures_of_one_cell(tmp_path):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, max_cells=1).learn(3000)
    assert agent.n_cells <= 2
    assert len(write_figures(agent, tmp_path)) == 3
