"""Figures of agents."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK
from test_codevectors import Aim

from oda_rl import plotting
from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.base.history import Level
from oda_rl.agents.policies import TablePolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.command.reporting import write_figures
from oda_rl.envs.sparse import TwoRooms
from oda_rl.metric import directions
from oda_rl.plotting.agents import telling_plane
from oda_rl.plotting.axes import tint


@pytest.fixture(scope="module")
def agent():
    return TwoTimescaleAgent("oda_rl/BartoCartPole-v0", seed=0).learn(10_000)


@pytest.fixture(scope="module")
def fitted():
    return FittedQAgent("CartPole-v1", seed=0).learn(4000)


@pytest.fixture(params=["agent", "fitted"])
def either(request):
    return request.getfixturevalue(request.param)


def test_learning_curve():
    episodes = np.array([[10.0, 10, 0], [30.0, 30, 0], [20.0, 20, 0]])
    ax = plotting.plot_learning_curve(np.repeat(episodes, 2, axis=0), solved_return=25.0)
    points, mean, solved = ax.get_lines()
    np.testing.assert_array_equal(points.get_xdata(), [10, 20, 50, 80, 100, 120])
    np.testing.assert_array_equal(points.get_ydata(), [10, 10, 30, 30, 20, 20])
    means = [[20, 10], [50, 20], [80, 30], [100, 25], [120, 20]]
    np.testing.assert_allclose(mean.get_xydata(), means)
    assert set(solved.get_ydata()) == {25.0}
    assert "unfinished episode" not in {text.get_text() for text in ax.get_legend().get_texts()}
    (points,) = plotting.plot_learning_curve(episodes).get_lines()  # too few for a mean
    assert len(points.get_xdata()) == 3
    ax = plotting.plot_learning_curve(np.column_stack([episodes, [0, 1, 0]]))
    assert [line.get_xdata().tolist() for line in ax.get_lines()] == [[40], [10, 60]]  # cut short
    ax = plotting.plot_learning_curve(episodes, num_timesteps=90)
    assert (ax.patches[0].get_x(), ax.patches[0].get_width()) == (60, 30)
    returns = np.array([80.0, 100.0])
    ax = plotting.plot_learning_curve(episodes, num_timesteps=61, delivered=returns)
    (mark,) = (line for line in ax.get_lines() if line.get_marker() == "*")
    np.testing.assert_array_equal(mark.get_xydata(), [[61.0, 90.0]])
    assert mark.get_label() == "delivered policy, 2 episodes: 90"


def test_partition_shows_greedy_actions(either):
    agent = either
    visited = agent.visited_states(200, seed=0)
    ax = plotting.plot_partition(agent, (2, 3), visited=visited)
    image = ax.get_images()[0]
    shown = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    colors = [tint(plotting.COLORS[action]) for action in range(2)]
    point, lines, (n, m) = np.median(visited, axis=0), 0, shown.shape[:2]
    for i, j in np.random.default_rng(0).integers((n, m), size=(300, 2)):
        point[2:] = left + (right - left) * j / (m - 1), bottom + (top - bottom) * i / (n - 1)
        if (shown[i, j] == 255).all():
            lines += 1
        else:
            np.testing.assert_array_equal(shown[i, j], colors[agent.predict(point)[0]])
    assert lines < 60 if agent.n_cells > 15 else lines < 20
    labels = {text.get_text() for text in ax.texts}
    caption = next(text for text in labels if "centres of the cells" in text)
    assert "black: states visited" in caption
    assert "all other components are at their median" in caption
    if agent.n_cells <= 24:
        assert labels - {caption} == {str(k) for k in range(agent.n_cells)}
    else:
        (dots,) = [line.get_xydata() for line in ax.get_lines() if line.get_marker() == "o"]
        np.testing.assert_array_equal(dots, agent.codevectors[:, 2:])


def test_an_outlier_does_not_stretch_the_axes(agent):
    visited = agent.visited_states(1000, seed=0)
    visited[0] = 1000.0
    left, right = plotting.plot_partition(agent, (2, 3), visited=visited).get_xlim()
    assert right - left < 10.0


def test_the_plane_drawn_is_that_in_which_actions_differ():
    agent = FittedQAgent("CartPole-v1", seed=0).learn(200)
    rule = RulePolicy(np.array([[0.0] * 5, [0, 0, 1, 0, 2]]), np.eye(2)[:, :, None], np.eye(2, 4))
    agent = SimpleNamespace(interface=agent.interface, policy=rule)
    points = np.random.default_rng(0).normal(size=(2000, 4)) * [1, 9, 1, 1]
    assert telling_plane(agent, points) == (1, 3)


def test_metric_shows_the_directions_and_their_shares(either):
    ax = plotting.plot_metric(either)
    shares, vectors = directions(either.metric_, either.scale_)
    np.testing.assert_allclose(ax.get_images()[0].get_array(), vectors.T)
    assert [text.get_text() for text in ax.get_yticklabels()] == list(either.names)
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks == [f"{100 * share:.1f} %" for share in shares]
    assert f"{vectors[0, 3]:.2f}" in {text.get_text() for text in ax.texts}


def test_what_cannot_be_drawn(agent):
    for kind in (FittedQAgent, TwoTimescaleAgent, ModelAgent):
        with pytest.raises(ValueError, match="metric_ is None.*or is of a kind that learns no"):
            plotting.plot_metric(kind("CartPole-v1"))
    for k, wrong in (((0, 9), None), ((1, 1), None), ((0, 1), np.full((3, 4), np.nan))):
        with pytest.raises(ValueError, match="two different ones below 4|visited has NaN"):
            plotting.plot_partition(agent, k, visited=wrong)
    env = gym.wrappers.TransformObservation(
        gym.make("CartPole-v1"), lambda o: o[:1], gym.spaces.Box(-5, 5, (1,))
    )
    with pytest.raises(ValueError, match="at least 2"):
        plotting.plot_partition(TwoTimescaleAgent(env, seed=0))


def test_bifurcation_draws_a_line_for_each_child():
    history = [
        Level(0, 9.0, np.array([[5.0, 5.0]]), None),  # an earlier start: not shown
        Level(100, 4.0, np.array([[0.0, 0.0]]), None),
        Level(200, 0.8, np.array([[-1.0, 0.0], [1.0, 0.1], [1.0, 0.3]]), np.zeros(3, int)),
        # As warm or heated again: not shown, but the cells after these have their ancestors there.
        Level(220, 0.8, np.array([[1.0, 0.3], [-1.0, 0.0], [1.0, 0.1]]), np.array([2, 0, 1])),
        Level(250, 0.9, np.array([[1.0, 0.3], [-1.0, 0.0]]), np.array([0, 1])),
        Level(300, 0.2, np.array([[0.0, 0.0], [1.0, 0.2]]), np.array([1, 0])),
        Level(400, 0.3, np.array([[0.0, 0.0]]), np.array([0])),  # heated again: not shown
    ]
    ax = plotting.plot_bifurcation(history)
    branches = [ends for lines in ax.collections for ends in lines.get_segments()]
    ends = sorted(tuple(ends[:, 0]) for ends in branches)
    assert ends == [(0.8, 0.2), (0.8, 0.2), (4.0, 0.8), (4.0, 0.8), (4.0, 0.8)]
    middle, last = (line.get_ydata() for line in ax.get_lines()[1:3])
    assert [tuple(ends[:, 1]) for ends in branches[3:]] == [*zip(middle[[0, 2]], last, strict=True)]
    assert ax.get_xscale() == "log"
    warm, cold = np.log(ax.get_xlim())  # it cools to the right
    assert 0.8 * (warm - cold) < np.log(4.0 / 0.2) < warm - cold
    assert [text.get_text()[:6] for text in ax.texts] == ["1 cell", "3 cell", "2 cell"]
    assert "until step 300, when it was lowest\n(at step 400: 0.3, with 1 cells" in ax.get_xlabel()


def test_bifurcation_without_temperatures(agent, fitted, tmp_path):
    fixed = TwoTimescaleAgent("CartPole-v1", partition="grid", bins=2, seed=0).learn(600)
    for history in (fitted.history, fixed.history):
        ax = plotting.plot_bifurcation(history)
        assert (ax.texts[0].get_text(), *ax.lines) == ("these cells have no temperature",)
    assert "bifurcation" not in {path.stem for path in write_figures(fixed, tmp_path)}
    assert plotting.plot_bifurcation(agent.history).lines


def test_figures_before_anything_was_learned(tmp_path):
    for kind in (FittedQAgent, TwoTimescaleAgent, ModelAgent):
        paths = write_figures(kind("CartPole-v1", seed=0), tmp_path)
        assert {path.stem for path in paths} == {"learning_curve", "partition"}
        for path in paths:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_rule(tmp_path):
    agent = ModelAgent("Pendulum-v1", seed=0, **QUICK).learn(400)
    paths = write_figures(agent, tmp_path)
    assert {path.stem for path in paths} == {"learning_curve", "partition"}
    visited = agent.visited_states(100, seed=0)
    ax = plotting.plot_partition(agent, (1, 2), visited=visited)
    image = ax.get_images()[0]
    shown = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    point = np.median(visited, axis=0)
    for i, j in np.random.default_rng(0).integers(500, size=(200, 2)):
        point[-2:] = left + (right - left) * j / 499, bottom + (top - bottom) * i / 499
        action = agent.predict(point)[0]
        if not (shown[i, j] == 255).all() and abs(action[0]) > 0.1:
            assert (shown[i, j, 0] > shown[i, j, 2]) == (action[0] > 0.0)  # red, or blue
    bar = next(axes for axes in ax.figure.axes if axes is not ax)
    assert (bar.get_ylabel(), bar.get_ylim()) == ("torque (N m)", (-2.0, 2.0))


def test_each_range_of_actions_has_a_panel_of_an_episode():
    low, high = np.array([0.0, 0.0, 101_325.0]), np.array([1.0, 1.0, 101_425.0])
    agent = ModelAgent(Aim(np.eye(3), low, high, np.float64), seed=0, **QUICK).learn(400)
    axes = plotting.plot_episode(agent, seed=0)
    assert [len(panel.get_lines()) for panel in axes] == [1, 1, 1, 2, 1]
    assert axes[-1].get_ylim() == (101_315.0, 101_435.0)


@pytest.mark.parametrize(
    ("env_id", "names"), [("FrozenLake-v1", []), ("TwoRooms-v0", ["partition"])]
)
def test_figures_of_a_table_of_states(env_id, names, tmp_path, monkeypatch):
    two_rooms = gym.envs.registration.EnvSpec("TwoRooms-v0", TwoRooms, kwargs={"numbers": 2})
    monkeypatch.setitem(gym.registry, "TwoRooms-v0", two_rooms)
    agent = ModelAgent(env_id, seed=0).learn(500)
    written = write_figures(agent, tmp_path)
    assert [path.stem for path in written] == ["learning_curve", *names]
    assert isinstance(agent.policy, TablePolicy)


def test_figures_of_each_agent(either, tmp_path):
    names = {path.stem for path in write_figures(either, tmp_path)}
    usual = {"learning_curve", "partition", "metric"}
    online = isinstance(either, TwoTimescaleAgent)
    assert names == (usual | {"bifurcation"} if online else usual)
