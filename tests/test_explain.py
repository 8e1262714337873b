"""Explanations: what they say is what the agent does, and how far away it does otherwise."""

import dataclasses
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from environments import Grid, Toy
from test_cell_policy import random_policy

from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.model import fallback
from oda_rl.agents.policies.alternatives import alternative_of_cells
from oda_rl.agents.policies.explaining import explain, overview
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.command.cli import main
from oda_rl.command.reporting import policy_table
from oda_rl.reporting.page import policy_remarks

KINDS = {
    "online": TwoTimescaleAgent,
    "fitted": FittedQAgent,
    "rule": partial(ModelAgent, generations=2),
}
STEPS = {"online": 5_000, "fitted": 5_000, "rule": 500}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def agent(kind):
    return KINDS[kind]("CartPole-v1", seed=0).learn(STEPS[kind])


@pytest.fixture(scope="module")
def visited(agent):
    return agent.visited_states(1000, seed=1)


def random_cells(n_cells, d, n_actions, seed):
    """Cells with actions of a diagram that need not be one of distances, a point, and scales."""
    rng = np.random.default_rng(seed)
    diagram = random_policy(n_cells, d, 1, seed)[0].diagram.copy()
    diagram[:, 0] += rng.normal(scale=0.3, size=n_cells)
    scale = np.exp(rng.normal(size=d))
    return diagram, rng.integers(n_actions, size=n_cells), rng.normal(size=d), scale, rng


def action_at(diagram, actions, point):
    return actions[(diagram[:, 0] + diagram[:, 1:] @ point).argmin()]


def ball(rng, d, radius, n):
    """Points spread evenly over a ball."""
    points = rng.normal(size=(n, d))
    lengths = radius * rng.random((n, 1)) ** (1.0 / d)
    return points * lengths / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("n_cells", "d", "n_actions"), [(2, 2, 2), (5, 3, 3), (5, 4, 2), (12, 2, 3), (12, 4, 3)]
)
def test_the_distance_is_that_of_a_general_solver(n_cells, d, n_actions):
    for seed in range(2):
        diagram, actions, point, scale, rng = random_cells(n_cells, d, n_actions, seed)
        action = action_at(diagram, actions, point)
        found = alternative_of_cells(diagram, actions, point, action, scale)
        expected = oracles.distance_to_another_action(diagram, actions, point, scale, rng)
        assert found.distance == found.at_least == pytest.approx(expected, rel=1e-6)
        assert (found.point is None) == (found.distance == np.inf)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8])
def test_the_action_changes_at_that_distance_and_not_before(d):
    changed = 0
    for seed in range(10):
        diagram, actions, point, scale, rng = random_cells(15, d, 3, seed)
        action = action_at(diagram, actions, point)
        found = alternative_of_cells(diagram, actions, point, action, scale)
        if found.point is None:
            continue
        changed += 1
        assert action_at(diagram, actions, found.point) != action
        step = found.point - point
        length = np.linalg.norm(step * scale)
        assert found.distance < length < 1.01 * found.distance
        assert action_at(diagram, actions, point + 0.999 * found.distance / length * step) == action
        for other in point + ball(rng, d, 0.999 * found.distance, 300) / scale:
            assert action_at(diagram, actions, other) == action
    assert changed > 5


def test_a_component_that_never_varied_is_not_moved():
    diagram = np.array([[0.0, 0.0, 0.0], [3.0, -1.0, -100.0]])
    found = alternative_of_cells(
        diagram, np.array([0, 1]), np.zeros(2), 0, scale=np.array([2.0, 0.0])
    )
    assert found.distance == pytest.approx(6.0)
    np.testing.assert_allclose(found.point, [3.0, 0.0], rtol=1e-5)
    still = alternative_of_cells(diagram, np.array([0, 1]), np.zeros(2), 0, scale=np.zeros(2))
    assert (still.distance, still.point) == (np.inf, None)


@pytest.mark.parametrize(("d", "n_cells", "n_actions"), [(1, 4, 2), (2, 12, 2), (3, 20, 3)])
@pytest.mark.parametrize("n_nearest", [3, 6])
def test_bounds_of_a_blended_policy(n_nearest, d, n_cells, n_actions):
    tight, finite = [], 0
    for seed in range(10):
        policy, rng = random_policy(n_cells, d, n_actions, seed, n_nearest)
        scale = np.exp(rng.normal(size=d))
        point = policy.origin + rng.normal(size=d)
        action = policy.evaluate(point[None])[1][0]
        found = policy.alternative(point, action, scale)
        assert 0.0 <= found.at_least <= found.distance
        reach = 5.0 if found.point is None else found.distance
        steps = ball(rng, d, reach, 10_000)
        otherwise = policy.evaluate(point + steps / scale)[1] != action
        seen = np.linalg.norm(steps[otherwise], axis=1).min(initial=np.inf)
        assert seen >= found.at_least
        if found.point is None:
            assert not otherwise.any()
            continue
        finite += 1
        assert policy.evaluate(found.point[None])[1][0] != action
        assert np.linalg.norm((found.point - point) * scale) == pytest.approx(found.distance)
        tight.append(min(seen / found.distance, 1.0))
    assert finite > 4
    assert np.mean(np.array(tight) > 0.97) > 0.8


def test_the_lower_bound_is_the_distance_where_one_cell_decides():
    for seed in range(10):
        policy, rng = random_policy(10, 3, 2, seed)
        hard = dataclasses.replace(policy, width=1e-9)
        point, scale = policy.origin + rng.normal(size=3), np.ones(3)
        action = hard.evaluate(point[None])[1][0]
        found = hard.alternative(point, action, scale)
        assert found.at_least == pytest.approx(found.distance, rel=1e-3)
        best = policy.models[:, 4:].argmax(axis=1)
        exact = alternative_of_cells(policy.diagram, best, point - policy.origin, action, scale)
        assert found.at_least == pytest.approx(exact.distance, rel=1e-5)


def test_an_explanation_is_what_the_agent_does(agent, visited, kind):
    for observation in visited[::40]:
        told = agent.explain(observation)
        action, cell = agent.predict(observation)[0], agent.cell(observation)
        assert (told.action, told.cell, told.n_cells) == (action, cell, agent.n_cells)
        np.testing.assert_array_equal(told.observation, observation)
        np.testing.assert_array_equal(told.codevector, agent.codevectors[cell])
        np.testing.assert_array_equal(told.visits, agent.visits[cell])
        assert told.q_values.argmax() == action
        assert told.runner_up == 1 - action
        assert told.margin == told.q_values[action] - told.q_values[told.runner_up]
        assert told.exact == (kind == "rule")
        if told.exact:
            assert told.at_least == told.distance


def test_the_agent_acts_otherwise_beyond_and_not_before(agent, visited):
    rng = np.random.default_rng(0)
    for observation in visited[::40]:
        told = agent.explain(observation)
        for there in (told.nearest_other, told.nearest_other.astype(np.float32)):
            assert agent.predict(there)[0] == told.other_action != told.action
        step = told.nearest_other - observation
        assert np.linalg.norm(step * agent.scale_) == pytest.approx(told.distance, rel=1e-3)
        assert agent.predict(observation + 0.999 * step)[0] == told.action
        near = observation + ball(rng, 4, 0.9999 * told.at_least, 2000) / agent.scale_
        assert (agent.predict(near)[0] == told.action).all()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0"])
def test_the_lower_bound_of_blended_cells_is_near_the_distance(env_id):
    agent, rng = TwoTimescaleAgent(env_id, seed=1).learn(5000), np.random.default_rng(0)
    visited, ratios = agent.visited_states(1000, seed=1), []
    d = visited.shape[1]
    for observation in visited[::50]:
        told = agent.explain(observation)
        steps = ball(rng, d, 1.0, 4000)
        steps[::2] /= np.linalg.norm(steps[::2], axis=1, keepdims=True)
        near = observation + 0.9999 * told.at_least * steps / agent.scale_
        assert (agent.predict(near)[0] == told.action).all()
        ratios.append(told.at_least / told.distance)
    assert min(ratios) > 0.0
    assert np.median(ratios) > 0.5


def test_visits_of_a_fitted_agent_are_what_it_remembers(tmp_path):
    agent = FittedQAgent("CartPole-v1", seed=0).learn(3000)
    assert agent.visits.shape == agent.q_values.shape
    assert agent.visits.sum() == 3000
    memory, n = agent._engine.memory, agent._engine.memory.rows(agent._engine.env_state)
    steps, cells = memory.steps[:n], agent.cell(memory.observations[:n])
    expected = np.zeros_like(agent.q_values)
    for cell, (action, _, mark) in zip(cells, steps, strict=True):
        if mark == 1.0:
            expected[cell, int(action)] += 1
    np.testing.assert_array_equal(agent.visits, expected)
    agent.save(tmp_path / "run")
    np.testing.assert_array_equal(load_agent(tmp_path / "run").visits, expected)


@pytest.mark.parametrize(
    ("kind", "config"), [("online", {"partition": "grid", "bins": 1}), ("fitted", {"max_cells": 1})]
)
def test_one_cell_acts_in_one_way(kind, config):
    agent = KINDS[kind](Toy(), seed=0, **config).learn(1000)
    told = agent.explain([0.3, -0.2])
    assert (told.distance, told.at_least, told.nearest_other) == (np.inf, np.inf, None)
    assert "no state has another action" in str(told)


@pytest.mark.parametrize("kind", KINDS)
def test_one_action_has_no_alternative(kind):
    agent = KINDS[kind](Toy(n_actions=1), seed=0).learn(1000)
    told = agent.explain(np.zeros(2))
    assert (told.margin, told.runner_up, told.distance) == (np.inf, None, np.inf)
    assert str(told).startswith("action 0\n")
    assert "inf" not in str(told)
    assert (overview(agent).margins == np.inf).all()


@pytest.mark.parametrize("kind", KINDS)
def test_observations_of_two_dimensions_and_actions_that_begin_elsewhere(kind):
    agent = KINDS[kind](Grid(), seed=0).learn(300 if kind == "rule" else 2000)
    observation = np.arange(6, dtype=np.uint8).reshape(2, 3)
    told = agent.explain(observation)
    assert told.action == agent.predict(observation)[0]
    assert told.codevector.shape == told.observation.shape == (2, 3)
    assert told.action_names == ("action -1", "action 0", "action 1")
    if told.nearest_other is not None:
        assert told.nearest_other.shape == (2, 3)
        assert agent.predict(told.nearest_other)[0] == told.other_action
    assert re.match(
        f"action {told.action}(, (worth|scored) .* more than action|$)", str(told), re.M
    )
    table = overview(agent, agent.visited_states(50, env=Grid(), seed=0))
    assert table.shares.sum() == pytest.approx(1.0)


def test_printed_it_names_components_and_actions(agent, visited):
    told = agent.explain(visited[100])
    lines = str(told).splitlines()
    names = ["push left", "push right"]
    verb = "scored" if agent.policy.value_name == "score" else "worth"
    assert lines[0].startswith(f"{names[told.action]}, {verb} {told.margin:.3g} more than")
    rows = [line for line in lines if line.startswith("pole angle (rad)")]
    assert f"{told.nearest_other[2] - visited[100][2]:+.4g}" in rows[0]
    assert f"{told.distance:.3g} standard deviations away" in lines[-1]
    assert ("the nearest state" in lines[-1]) == told.exact


def test_what_a_rule_never_does_is_called_so():
    agent = KINDS["rule"]("MountainCar-v0", seed=0).learn(500)
    outputs = np.eye(3)[[0, 2]][:, :, None]  # no cell coasts
    scores = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    rule = RulePolicy(scores, outputs, np.array([[-0.5, -0.01], [-0.5, 0.01]]))
    agent = SimpleNamespace(
        policy=rule, interface=agent.interface, scale_=agent.scale_, visits=np.ones((2, 3))
    )
    told = explain(agent, [-0.5, 0.02])
    assert "scores: push left 0, coast never, push right 0.02" in str(told)
    assert str(told).startswith("push right, scored 0.02 more than push left\n")
    assert told.runner_up == 0
    assert told.distance == pytest.approx(0.02 * agent.scale_[1], rel=1e-4)
    table = overview(agent)
    assert list(next(c for c in policy_table(table).columns if "coast" in c.header).cells) == [
        "never",
        "never",
    ]


def test_a_rule_with_continuous_actions_is_explained_by_its_cells(tmp_path):
    agent = KINDS["rule"]("Pendulum-v1", seed=0, simplify=False).learn(500)
    seen = agent.visited_states(100, seed=1)
    for observation in seen[::20]:
        told = agent.explain(observation)
        assert told.cell == told.choice == agent.cell(observation)
        np.testing.assert_array_equal(told.action, agent.predict(observation)[0])
        assert told.action_names[0] == "cell 0"
        assert len(told.action_names) == len(told.q_values) == agent.n_cells
        assert str(told).startswith(f"cell {told.cell} (")
        (terms,) = told.terms.values()
        assert np.clip(terms.sum(), -2.0, 2.0) == pytest.approx(told.action[0], rel=1e-6)
        assert f"torque (N m) = {terms.sum():.4g}" in str(told)
        if told.nearest_other is not None:
            assert agent.cell(told.nearest_other) == told.other_choice != told.cell
    table = overview(agent, seen)
    assert table.shares.sum() == pytest.approx(1.0)
    assert table.agreement == 1.0
    agent.save(tmp_path / "run")
    assert main(["explain", str(tmp_path / "run"), "--steps", "100"]) == 0


def test_many_components_are_not_all_printed():
    agent = FittedQAgent(Toy(n_features=20), seed=0).learn(1000)
    text = str(agent.explain(np.zeros(20)))
    assert "and 8 more components" in text
    assert text.count("observation[") == 12


def test_bad_arguments(agent):
    for wrong in ([0.0] * 3, np.zeros((2, 4)), [0.0, np.nan, 0.0, 0.0], [0.0, np.inf, 0.0, 0.0]):
        with pytest.raises(ValueError, match=r"observation (has shape .* be \(4,\)|is not finite)"):
            agent.explain(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_has_to_learn_first(kind):
    for told in (lambda agent: agent.explain(np.zeros(4)), overview):
        with pytest.raises(ValueError, match="has learned nothing yet after 0 steps"):
            told(KINDS[kind]("CartPole-v1"))


def test_the_overview_is_about_every_cell_with_a_visited_state(agent, visited, kind):
    table = overview(agent, visited)
    cells = agent.cell(visited)
    assert sorted(table.cells) == sorted(set(cells))
    assert table.nowhere == agent.n_cells - len(table.cells)
    assert (np.diff(table.shares) <= 0.0).all()
    for i, k in enumerate(table.cells):
        np.testing.assert_array_equal(table.codevectors[i], agent.codevectors[k])
        assert table.shares[i] == (cells == k).mean()
        assert table.visits[i] == agent.visits[k].sum()
        assert table.margins[i] == abs(np.diff(table.q_values[i])[0])
    taken = agent.predict(table.codevectors)[0]
    np.testing.assert_array_equal(table.actions, taken)
    if kind == "rule":
        assert table.agreement == 1.0
    else:
        assert 0.5 < table.agreement < 1.0
    without = overview(agent)
    assert np.isnan(without.shares).all()
    assert (np.diff(without.visits) <= 0).all()


def test_the_table_has_a_row_for_each_cell_of_the_overview(agent, visited, kind):
    policy = overview(agent, visited)
    table = policy_table(policy)
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["cell"] == [str(k) for k in policy.cells[:40]]
    assert columns["visited, %"] == [f"{100 * share:.2f}" for share in policy.shares[:40]]
    assert columns["pole angle (rad)"] == [f"{x:.3g}" for x in policy.codevectors[:40, 2]]
    assert columns[f"{agent.policy.value_name} of push left"] == [
        f"{q:.4g}" for q in policy.q_values[:40, 0]
    ]
    assert columns["action"] == [("push left", "push right")[a] for a in policy.actions[:40]]
    remarks = policy_remarks(policy)
    assert any("blended" in remark for remark in remarks) == (kind != "rule")


@pytest.fixture(scope="module")
def many():
    """A policy of many cells, components and actions."""
    agent = FittedQAgent(Toy(n_features=15, n_actions=10), seed=0, cells_per_root=2.0).learn(2_000)
    assert agent.n_cells > 40
    return overview(agent, agent.visited_states(2_000, env=Toy(n_features=15, n_actions=10)))


def test_of_many_cells_those_visited_most_are_shown(many):
    table = policy_table(many)
    assert table.row_count == 40
    headers = [column.header for column in table.columns]
    assert len(headers) == 3 + 12 + 1 + 2
    assert list(table.columns[headers.index("value")].cells) == [
        f"{max(q):.4g}" for q in many.q_values[:40]
    ]
    remarks = policy_remarks(many)
    share = 100.0 * many.shares[40:].sum()
    assert remarks[0].startswith(f"cells left out: {len(many.cells) - 40}, with {share:.2f}")
    assert remarks[1] == f"cells without a known visited state: {many.nowhere}"
    assert remarks[2].startswith("components left out: 3, which")
    assert len(policy_table(many, 2).columns) == 3 + 2 + 1 + 2
    assert policy_remarks(many, 2)[2].startswith("components left out: 13, which")


@pytest.fixture(scope="module")
def run(agent, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "x"
    agent.save(folder)
    return folder


def test_the_command_prints_a_table(run, agent, kind, capsys):
    assert main(["explain", str(run), "--steps", "500"]) == 0
    out = capsys.readouterr().out
    for text in ("what the policy does", "push left", "push right", "velocity"):
        assert text in out
    rows = [line.split() for line in out.splitlines() if " push " in line]
    policy = overview(agent, agent.visited_states(500, seed=0))
    assert [row[0] for row in rows if row[0].isdigit()] == [str(k) for k in policy.cells[:40]]
    assert ("blended" in out) == (kind != "rule")
    assert "…" not in out


@pytest.mark.usefixtures("without_figures")
def test_a_body_is_explained_by_its_rule(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fallback, "_MIN_LEFT", 2000)
    short = ["--env-id", "HalfCheetah-v5", "--env-kwargs", '{"max_episode_steps": 100}']
    short += ["--total-timesteps", "3000", "--n-eval-episodes", "1", "--out", str(tmp_path)]
    assert main(["train", "--algo", "model", *short]) == 0
    printed = capsys.readouterr().out
    assert "learning continued without the model: a climb needs no model" in printed
    assert "--algo fitted" not in printed
    assert main(["explain", str(tmp_path), "--steps", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len([line for line in lines if " torque = " in line]) == 6
    assert lines[-1] == "each at least -1 and at most 1"
