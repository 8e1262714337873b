"""Edited rules: they do what is said, explain, are exported and saved, and are learned within."""

import json
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK
from oracles import decide
from test_export import agent_of, by_rule, components_in_c, run_in_c, run_in_onnx
from test_rules import continuous, discrete, points_of

from oda_rl.agents import ModelAgent, export_policy
from oda_rl.agents.environments.spaces import ActionBox
from oda_rl.agents.policies.rules import RulePolicy, decide_by_clauses
from oda_rl.agents.rules.editing import Clauses, condition_rows, within

NAMES = ["cart position (m)", "cart velocity (m/s)", "pole angle (rad)", "angular velocity (rad/s)"]
ACTIONS = ["push left", "push right"]
UPRIGHT = RulePolicy(
    np.array([[0.0] * 5, [0.0, 0.5, 1.0, 20.0, 3.0]]), np.eye(2)[:, :, None], np.zeros((2, 4))
)


def edited(policy, seed=0):
    """A rule with random clauses."""
    rng = np.random.default_rng(seed)
    d, outputs = policy.scores.shape[1] - 1, policy.outputs
    some = [rng.normal(size=(m, 1 + d)) for m in (1, 2, 1, 3)]
    many = outputs.shape[2] == 1 and outputs.shape[1] > 1
    forbids = [(rows, int(a)) for rows, a in zip(some[:2], rng.permutation(2), strict=True)]
    if outputs.shape[1] == 2:  # not both in one place
        forbids = [(some[0], 0), (-some[0], 1)]
    own = [rng.permuted(outputs[0], axis=0) for _ in range(2)]
    says = [
        (rows, output, k == 1) for k, (rows, output) in enumerate(zip(some[2:], own, strict=True))
    ]
    return within(policy, Clauses.of(forbids if many else [], says, outputs))


def oracle(policy, point):
    """The action or units that a rule within clauses says, one by one."""
    edits = policy.clauses

    def holds(rows):
        return all(row[0] + row[1:] @ point > 0.0 for row in rows)

    def done(output):
        if not policy.continuous:
            return int(output[:, 0].argmax())
        return np.clip(output[:, 0] + output[:, 1:] @ point, -1.0, 1.0)

    barred = {action for rows, action in edits.forbids if holds(rows)}
    for rows, output, _ in edits.says:
        if holds(rows) and (policy.continuous or done(output) not in barred):
            return done(output)
    scores = policy.scores[:, 0] + policy.scores[:, 1:] @ point
    left = [k for k in range(len(scores)) if policy.continuous or policy.actions[k] not in barred]
    return done(policy.outputs[max(left, key=lambda k: (scores[k], -k))])


POLICIES = [
    *(
        edited(discrete(*sizes), seed)
        for seed, sizes in enumerate([(2, 4, 2), (3, 2, 3), (9, 3, 4)])
    ),
    *(edited(continuous(*sizes), seed) for seed, sizes in enumerate([(1, 3, 1), (5, 2, 2)])),
]
policies = pytest.mark.parametrize("policy", POLICIES)


@policies
def test_it_does_what_is_said(policy):
    points = points_of(policy, 500)
    told = np.array([oracle(policy, point) for point in points])
    np.testing.assert_array_equal([policy.act_in(point) for point in points], told)
    np.testing.assert_allclose(policy.act(points), told, rtol=1e-12, atol=1e-12)
    values = policy.values(points)
    np.testing.assert_array_equal(policy.choices(points), values.argmax(axis=1))
    assert len(np.unique(policy.cells(points))) > 2  # the clauses matter
    if policy.in_loops is not None:
        one_by_one = [decide_by_clauses(policy.in_loops.arrays, point) for point in points]
        np.testing.assert_array_equal(one_by_one, told)
    again = RulePolicy.from_arrays(policy.arrays)
    np.testing.assert_array_equal(again.act(points), policy.act(points))
    assert again.rules() == policy.rules()


@policies
def test_the_distance_to_acting_otherwise_is_exact(policy):
    rng = np.random.default_rng(2)
    d = policy.codevectors.shape[1]
    scale = rng.uniform(0.5, 2.0, size=d)
    for point in points_of(policy, 5):
        choice = policy.choices(point[None])[0]
        found = policy.alternative(point, choice, scale)
        assert policy.choices(found.point[None])[0] != choice
        assert found.distance <= np.linalg.norm((found.point - point) * scale) * (1 + 1e-9)
        ways = rng.normal(size=(5_000, d))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        near = point + ways * rng.uniform(0.0, found.distance, size=(5_000, 1)) / scale
        assert (policy.choices(near) == choice).all()
        beyond = point + ways * 1.5 * found.distance / scale
        assert d > 3 or (policy.choices(beyond) != choice).any()


@policies
def test_it_is_exported(policy, tmp_path):
    points, p = points_of(policy, 5_000).astype(np.float32), policy.outputs.shape[1]
    expected, box = policy.act(points.astype(np.float64)), None
    runs = run_in_c, run_in_onnx
    if policy.continuous:
        box = ActionBox((-2.0, -1.0)[:p], (2.0, 5.0)[:p], (p,), "float64")
        runs, expected = (
            (components_in_c, partial(run_in_onnx, dtype=np.float32)),
            box.actions(expected),
        )
    agent = agent_of(policy, box)
    for run in runs:
        found = run(agent, tmp_path, points)
        same = np.isclose(found, expected, rtol=1e-5, atol=1e-5).reshape(len(points), -1)
        assert same.all(axis=1).mean() >= 0.9998  # but at boundaries, in single precision
    document = json.loads(export_policy(agent, tmp_path / "policy.json", "json").read_text())
    told = [decide(document, point) for point in points[:300]]
    np.testing.assert_allclose(told, expected[:300], rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="fixed_point is True: it must be False for"):
        export_policy(agent, tmp_path / "policy.h", fixed_point=True)


@pytest.mark.parametrize("limit", [0.3, 30.1])  # rounded up in single precision
def test_exports_never_take_a_forbidden_action(limit, tmp_path):
    agent, rule = by_rule([[0.0, 0.0], [99.0, 1.0]], np.eye(2)[:, :, None])
    agent.policy = rule.edit().forbid(1, where=f"x[0] > {limit}").done()
    agent.extent = agent.extent._replace(centre=np.array([limit]))
    for run in (run_in_c, run_in_onnx):
        found = run(agent, tmp_path, np.float32([[limit], [limit - 0.1], [limit + 0.1]]))
        assert found.tolist() == [0, 1, 0]
    assert "cell decides, after 1 clause\n" in (tmp_path / "policy.h").read_text()


def test_each_edit_does_what_it_says():
    points = np.random.default_rng(0).normal(size=(2_000, 4)) * 0.3
    before, high = UPRIGHT.act(points), points[:, 2] > 0.1
    named = UPRIGHT.named(NAMES, ACTIONS)
    after = named.edit().forbid("push left", where="pole angle > .1").done()
    np.testing.assert_array_equal(after.act(points), np.where(high, 1, before))
    after = UPRIGHT.edit().where("x[2] > .1", do=0).where("x[2] > .1 and x[0] > 0", do=1).done()
    told = np.where(high, np.where(points[:, 0] > 0, 1, 0), before)
    np.testing.assert_array_equal(after.act(points), told)
    np.testing.assert_array_equal(UPRIGHT.act(points), before)


def test_what_is_locked_stays():
    points = np.random.default_rng(0).normal(size=(2_000, 4)) * 0.3
    before = UPRIGHT.act(points)
    locked = UPRIGHT.edit().lock(1).done()
    lower = np.array([[5.0, 0.0, 0.0, 0.0, 0.0], UPRIGHT.scores[1]])
    assert (replace(locked, scores=lower).act(points)[before == 1] == 1).all()
    said_later = UPRIGHT.edit().lock(1).where("x[0] > -9", do=0).done()
    np.testing.assert_array_equal(said_later.act(points), before)
    assert (UPRIGHT.edit().lock(1).forbid(1).done().act(points) == 0).all()
    assert "locked: action 1 where" in said_later.rules()
    twice = replace(UPRIGHT, scores=UPRIGHT.scores[[0, 0]])
    assert (twice.edit().lock(0).done().act(points) == 0).all()
    for never in (twice, replace(UPRIGHT, scores=[[5.0], [0.0]] * np.eye(1, 5))):
        with pytest.raises(ValueError, match="cell is 1, which decides nowhere: it must decide"):
            never.edit().lock(1)


def test_where_all_of_its_cells_are_forbidden_a_rule_does_something_else():
    two = RulePolicy(np.array([[0.0, 0.0], [0.0, 1.0]]), np.eye(3)[:2, :, None], np.zeros((2, 1)))
    after = two.edit().forbid(0).forbid(1, "x[0] > 1").done()
    assert after.act(np.array([[-1.0], [0.5], [2.0]])).tolist() == [1, 1, 2]
    assert after.rules().splitlines() == [
        "never action 0",
        "never action 1 where observation[0] > 1",
        "action 2 where observation[0] > 1",
        "otherwise action 1 if observation[0] > 0, else action 0",
    ]
    with pytest.raises(ValueError, match="every action is forbidden at .*one must be left"):
        two.edit().forbid(0).forbid(1, "x[0] > 1").forbid(2, "x[0] > 5").done()


@pytest.mark.parametrize(
    ("text", "row"),
    [("pole angle > .1", [[-0.1, 0, 0, 1, 0]]), ("pole angle (rad) < 0.1", [[0.1, 0, 0, -1, 0]]),
     ("6*x[2] + 2·angular velocity - 1e-3 > x[0]", [[-1e-3, -1, 0, 6, 2]]),
     ("-x[2] > -1 and x[0] < 2", [[1, 0, 0, -1, 0], [2, -1, 0, 0, 0]])],
)  # fmt: skip
def test_conditions_are_read(text, row):
    calls = [NAMES, ["cart position", "cart velocity", "pole angle", "angular velocity"]]
    np.testing.assert_allclose(condition_rows(text, calls), row)


@pytest.mark.parametrize(
    ("edit", "message"),
    [(lambda e: e.lock(2), "cell is 2: it must be an integer from 0 to 1"),
     (lambda e: e.forbid("push up"), "action is 'push up': it must be one of"),
     (lambda e: e.forbid(0, "angle > 1"), "'angle > 1', with 'angle': it must name one of"),
     (lambda e: e.forbid(0, "x[0] ~ 1"), "it must be comparisons"),
     (lambda e: e.forbid(0, "x[0] >= 4"), "by > or <, .* 'x.2. > 3.5' means at least 4"),
     (lambda e: e.forbid(0, "1 > 0"), "it must depend on the observation"),
     (lambda e: e.forbid(0, "x[0] > 1e400"), "it must name one of"),
     (lambda e: e.where("x[0] > 1 and x[0] < 0", 1), "which holds nowhere"),
     (lambda e: e.forbid(1, "x[2] > 1").where("x[2] > 2", 1), "no earlier edit locks"),
     (lambda e: e.lock(1).where("x[0] + 2*x[1] + 40*x[2] + 6*x[3] > 9", 0), "no earlier edit")],
)  # fmt: skip
def test_errors_say_what_would_be_right(edit, message):
    with pytest.raises(ValueError, match=message):
        edit(UPRIGHT.named(NAMES, ACTIONS).edit())


def test_continuous_actions_are_said_in_their_own_units():
    rule = continuous(2, 2, 2).named(bounds=np.array([[0.0, 2.0], [4.0, 2.0]]))  # one is locked
    after = rule.edit().where("x[0] > 0", do=[1.0, 2.0]).done()
    points = points_of(rule, 500)
    here = points[:, 0] > 0
    np.testing.assert_allclose(after.act(points)[here], [[-0.5, 0.0]] * here.sum())
    np.testing.assert_array_equal(after.act(points)[~here], rule.act(points)[~here])
    assert "\ncell 2:\n  action[0] = 1; at least 0 and at most 4\n  action[1] = 2" in after.rules()
    with pytest.raises(ValueError, match="actions are continuous"):
        rule.edit().forbid(0)
    with pytest.raises(ValueError, match="do is 5.0: it must be 2 numbers, from"):
        rule.edit().where("x[0] > 0", do=5.0)


@pytest.mark.parametrize("do", [{"lift (N)": 1.0}, {"lift": 1.0}, {1: 1.0}])
def test_some_components_of_an_action_are_fixed_and_the_others_kept(do):
    names, bounds = ["thrust (N)", "lift (N)", "spin"], [[-2.0] * 3, [2.0] * 3]
    rule = continuous(5, 2, 3).named(None, names, np.array(bounds))
    first = rule.edit().lock(1).where("x[1] > 0.5", do=[0.0, 2.0, 1.0]).done()
    after, points = first.edit().where("x[0] > 0", do).done(), points_of(rule, 2_000)
    here = (points[:, 0] > 0) & (first.cells(points) != 5)  # which is locked
    told = np.where(here[:, None] & [False, True, False], 0.5, first.act(points))
    np.testing.assert_allclose(after.act(points), told)
    with pytest.raises(ValueError, match="or a dict with numbers of some components"):
        rule.edit().where("x[0] > 0", do={"lift": 3.0})


class Watched(gym.Wrapper):
    """Notes what is done where."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = []

    def reset(self, **settings):
        self.last, info = self.env.reset(**settings)
        return self.last, info

    def step(self, action):
        self.seen.append((np.array(self.last, dtype=float), action))
        self.last, *rest = self.env.step(action)
        return self.last, *rest


@pytest.mark.parametrize("before", [0, 300])
def test_learning_goes_on_within_edits(before, reloaded):
    env = Watched(gym.make("CartPole-v1"))
    agent = ModelAgent(env, seed=0, **QUICK)
    if before:
        agent.learn(before)
    first = agent.policy
    editor = agent.edit().where("cart position > 0 and cart velocity > 0", do="push left")
    editor.forbid("push left", where="pole angle > .02")
    edited = (editor.lock(0) if before else editor).done()
    env.seen.clear()
    agent.constrain(edited)
    points = np.random.default_rng(0).normal(size=(500, 4)) * 0.2
    np.testing.assert_array_equal(agent.policy.act(points), edited.act(points))
    agent.learn(300)
    states, actions = (np.array(part) for part in zip(*env.seen, strict=True))
    high = states[:, 2] > 0.02
    said = (states[:, :2] > 0).all(axis=1) & ~high
    assert (actions[high] == 1).all()
    assert (actions[said] == 0).all()
    assert min(high.sum(), said.sum()) > 0
    assert agent.policy.clauses is not None
    locked = ~((points[:, :2] > 0).all(axis=1)) & (points[:, 2] <= 0.02)
    locked &= (first.cells(points) == 0) & (before > 0)
    np.testing.assert_array_equal(agent.policy.act(points)[locked], first.act(points)[locked])
    again = reloaded(agent, env=gym.make("CartPole-v1"))
    assert again.rules() == agent.rules()
    assert again.learn(50).policy.clauses is not None
    assert "never push left where" in again.rules()
    agent.explain(points[0])


def test_what_cannot_be_constrained_says_so():
    agent = ModelAgent("CartPole-v1", seed=0)
    with pytest.raises(ValueError, match="it must be a RulePolicy with outputs of shape"):
        agent.constrain(continuous(2, 4, 1))
    with pytest.raises(ValueError, match="the agent has a table of states"):
        ModelAgent("CliffWalking-v1", seed=0).edit()


def test_continuous_actions_are_constrained_while_exploring():
    env = Watched(gym.make("Pendulum-v1"))
    agent = ModelAgent(env, seed=0, generations=2)
    agent.constrain(agent.edit().where("angular velocity > 0", do=1.5).done()).learn(250)
    states, torques = (np.array(part) for part in zip(*env.seen, strict=True))
    fast = states[:, 2] > 0
    np.testing.assert_allclose(torques[fast], 1.5, rtol=1e-6)
    assert np.unique(torques[~fast]).size > 3
