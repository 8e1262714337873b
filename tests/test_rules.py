"""Rules: what they do, how far they are from doing otherwise, and how they are said."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import oracles
import pytest

from oda_rl.agents import ModelAgent, RulePolicy
from oda_rl.agents.distilling.simplifying import grounded, simplified
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies import rules
from oda_rl.agents.policies.explaining import overview
from oda_rl.reporting.page import policy_remarks

ONE_HOT = np.eye(3)[:, :, None]


def discrete(n_cells, d, n_actions, seed=0):
    """A rule of random numbers, without a cell for the last action where there are more than 2."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_cells, 1 + d))
    actions = rng.integers(max(n_actions - 1, 2) if n_actions > 1 else 1, size=n_cells)
    outputs = np.eye(n_actions)[actions][:, :, None]
    return RulePolicy(scores, outputs, rng.normal(size=(n_cells, d)))


def continuous(n_cells, d, p, seed=0):
    """A rule of random numbers with affine actions."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(n_cells, p, 1 + d))
    return RulePolicy(rng.normal(size=(n_cells, 1 + d)), outputs, rng.normal(size=(n_cells, d)))


def in_units(policy, mean, scale):
    """The same rule, of components in other units and from another zero: mean + scale * x."""

    def changed(rows):
        rows = rows / np.append(1.0, scale)
        rows[..., 0] -= rows[..., 1:] @ mean
        return rows

    own, clauses = changed if policy.continuous else np.copy, policy.clauses
    if clauses is not None:
        rows, said = changed(clauses.conditions), own(clauses.outputs)
        clauses = replace(clauses, conditions=rows, outputs=said)
    codevectors = mean + scale * policy.codevectors
    return RulePolicy(changed(policy.scores), own(policy.outputs), codevectors, clauses)


POLICIES = [
    *(discrete(*sizes) for sizes in [(1, 2, 2), (2, 4, 2), (3, 2, 3), (9, 3, 4), (2, 1, 1)]),
    *(continuous(*sizes) for sizes in [(1, 3, 1), (2, 3, 1), (5, 2, 2)]),
]
policies = pytest.mark.parametrize("policy", POLICIES)


def points_of(policy, n=300):
    return np.random.default_rng(1).normal(size=(n, policy.codevectors.shape[1]))


@policies
def test_it_does_what_the_oracle_does(policy):
    points = points_of(policy)
    told = [oracles.rule(policy.scores, policy.outputs, point) for point in points]
    cells, acts = (np.array(part) for part in zip(*told, strict=True))
    np.testing.assert_array_equal(policy.cells(points), cells)
    np.testing.assert_allclose(policy.act(points), acts, rtol=1e-12, atol=1e-12)
    values = policy.values(points)
    np.testing.assert_array_equal(policy.choices(points), values.argmax(axis=1))
    if policy.in_loops is not None:
        one_by_one = [rules.decide_by_rule(policy.in_loops.arrays, point) for point in points]
        np.testing.assert_array_equal(one_by_one, acts)


def test_loops_do_what_it_does_in_a_box():
    policy = continuous(5, 2, 2)
    points, low, high = points_of(policy), np.array([-2.0, 0.0]), np.array([2.0, 3.0])
    room = np.zeros((1, 2))
    for point, units in zip(points, policy.act(points), strict=True):
        arrays = (policy.scores, policy.outputs, low, high, room)
        assert rules.decide_in_box(arrays, point) == 0
        np.testing.assert_allclose(room[0], [2.0 * units[0], 1.5 + 1.5 * units[1]], atol=1e-12)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.codevectors.shape[1] == 2])
def test_the_alternative_is_the_nearest_of_a_grid(policy):
    rng, scale = np.random.default_rng(2), np.array([0.5, 2.0])
    axis = np.linspace(-4.0, 4.0, 401)
    steps = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    order = np.argsort(np.linalg.norm(steps, axis=1), kind="stable")
    for point in rng.normal(size=(10, 2)):
        (choice,) = policy.choices(point[None])
        found = policy.alternative(point, choice, scale)
        assert found.at_least == found.distance
        otherwise = policy.choices(point + steps[order] / scale) != choice
        nearest = np.linalg.norm(steps[order][otherwise], axis=1).min(initial=np.inf)
        assert nearest >= found.distance - 1e-9
        if found.distance < 3.0:
            assert nearest < found.distance + 0.1
            assert policy.choices(found.point[None])[0] != choice
            length = np.linalg.norm((found.point - point) * scale)
            assert length == pytest.approx(found.distance, rel=1e-4)


# In words.


def rule(scores, outputs):
    scores = np.array(scores, dtype=np.float64)
    return RulePolicy(scores, np.array(outputs), np.zeros((len(scores), scores.shape[1] - 1)))


NAMES = ["angle (rad)", "angular velocity (rad/s)"]
PUSH = ["left", "right"]


@pytest.mark.parametrize(
    ("scores", "outputs", "words"),
    [
        ([[1, 2, 3]], ONE_HOT[:1, :2], "always left"),
        ([[0, 2, 3], [0, 1, 1]], ONE_HOT[[1, 1], :2], "always right"),
        ([[0, 2, 3], [1, 2, 3]], ONE_HOT[:2, :2], "always right"),
        ([[0, 2, 3], [0, 2, 3]], ONE_HOT[:2, :2], "always left"),
        ([[0, 0, 0], [0, 6, 1]], ONE_HOT[:2, :2],
         "right if 6·angle + angular velocity > 0, else left"),
        ([[0, 0.003, 0], [0.25, 0, -0.5]], ONE_HOT[:2, :2],
         "right if 3·angle + 500·angular velocity < 250, else left"),
        ([[0, 0, 7], [3.5, 0, 0]], ONE_HOT[:2, :2], "right if angular velocity < 0.5, else left"),
        (
            [[0, 0, 0], [-1, 2, 0], [1, -2, 30]],
            ONE_HOT[[1, 0, 1], :2],
            "the highest score decides (ties: the first):\n"
            "  0, otherwise                         : right\n"
            "  2·angle - 1                          : left\n"
            "  -2·angle + 30·angular velocity + 1   : right",
        ),
    ],
)  # fmt: skip
def test_words(scores, outputs, words):
    said = rule(scores, outputs).named(NAMES, PUSH).rules()
    assert re.sub(" +:", " :", said) == re.sub(" +:", " :", words)
    widths = [line.index(" : ") for line in said.splitlines()[1:]]
    assert len(set(widths)) <= 1


def test_words_of_continuous_actions():
    torque, bounds = ["torque (N m)"], np.array([[-2.0], [2.0]])
    with pytest.raises(ValueError, match="action_names is .*: it must be a sequence of 2"):
        discrete(2, 2, 2).named(NAMES, torque)
    one = rule([[0, 0, 0]], [[[0.25, 1.0, -3.0]]])
    assert one.named(NAMES, torque, bounds).rules() == (
        "always torque = 2·angle - 6·angular velocity + 0.5; torque (N m) at least -2 and at most 2"
    )
    assert one.named(NAMES).rules().endswith("+ 0.25; action[0] at least -1 and at most 1")
    two = rule([[0, 0, 0], [0, 1, 2]], [[[7.0, 0, 0]], [[0, 0, 0.5]]])
    assert two.named(NAMES, torque, bounds).rules() == (
        "torque = angular velocity if angle + 2·angular velocity > 0,\nelse torque = 2\n"
        "torque (N m) at least -2 and at most 2"
    )
    several = continuous(3, 2, 2).named(NAMES, ["main", "side"]).rules()
    assert several.splitlines()[-1] == "each at least -1 and at most 1"
    residue = rule([[0, 0, 0]], [[[-0.2 - 1e-16, 1.0, 0.0]]]).named(
        NAMES, torque, [[-4e-8], [6e-8]]
    )
    assert residue.rules().startswith("always torque = 5e-08·angle; ")
    lines = several.splitlines()[4:]  # after the scores
    assert [line.split(" = ")[0] for line in lines[:3]] == ["cell 0:", "  main", "  side"]
    assert several.count("\n  main = ") == several.count("\n  side = ") == 3
    bounds = np.array([[0, -1], [1, 1]])
    uneven = continuous(1, 2, 2).named(NAMES, ["main", "side"], bounds)
    main, side = uneven.rules().splitlines()
    assert main.endswith("; at least 0 and at most 1")
    assert side.endswith("; at least -1 and at most 1")
    short, _ = rules.shortest(np.array([[0.0, 0.0], [23910.0, 1576.0]]), np.zeros((1, 1)))
    np.testing.assert_allclose(short[1], [23.91, 1.576])  # all large: divided


@pytest.mark.parametrize("mean", [(0.0, 0.0), (293.15, -2e6)])
def test_words_are_true(mean):
    """What a rule of one or two cells says, read again, does what the rule does."""
    policies = [part for k in range(20) for part in (discrete(2, 2, 2, k), continuous(2, 2, 1, k))]
    for policy in (*policies, continuous(1, 2, 1)):
        policy = in_units(policy, np.array(mean), np.array([0.1, 1.0]))
        points = mean + np.array([0.1, 1.0]) * points_of(policy)
        policy = rules.placed(policy, points).named(
            ["x", "y"], ["u"] if policy.continuous else ["0", "1"]
        )
        code = re.sub(r"u = |always |,(?=\s+else)", "", policy.rules()).replace("·", "*")
        code = code.replace("\nelse", " else")
        code = compile(code.split(";")[0].split("\n")[0], "", "eval")
        read = np.clip([eval(code, {"x": x, "y": y}) for x, y in points], -1.0, 1.0)
        assert (np.abs(np.ravel(policy.act(points)) - read) < 0.01).mean() > 0.98


# Made smaller.


@policies
def test_simplified_it_does_the_same_where_that_is_asked(policy):
    points = points_of(policy)
    before = policy.act(points)

    def made(rule):
        return RulePolicy(*rule, np.zeros((len(rule[0]), points.shape[1])))

    def as_good(rule):
        return np.abs(made(rule).act(points) - before).max() <= (policy.continuous * 0.02)

    scores, outputs = simplified((policy.scores, policy.outputs), points, as_good)
    assert as_good((scores, outputs))
    assert np.count_nonzero(scores) <= np.count_nonzero(grounded(policy.scores))
    if policy.n_cells == 2 and policy.n_actions == 2 and not policy.continuous:
        np.testing.assert_array_equal(scores[0], 0.0)
    shorter = simplified((policy.scores, policy.outputs), points, lambda rule: True, most=1)
    assert len(shorter[0]) == min(policy.n_cells, 2)  # of many numbers only cells are dropped


# Of an agent.


@pytest.fixture(scope="module", params=["CartPole-v1", "Pendulum-v1"])
def agent(request):
    return ModelAgent(request.param, seed=0, generations=2).learn(500)


def test_an_agent_knows_names_and_bounds_and_from_a_file_says_the_same(agent, reloaded):
    said = agent.rules()
    assert "(rad/s)" not in said
    parts = ["push left"]
    if agent.interface.box is not None:
        parts = ["torque = ", "torque (N m) at least -2 and at most 2"]
    assert all(part in said for part in parts)
    again = reloaded(agent)
    assert again.rules() == said
    seen = agent.visited_states(100, seed=1)
    np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    np.testing.assert_array_equal(again.visits, agent.visits)


def cornered(d, clauses):
    """A rule of six cells, perhaps within clauses, and states that few of its cells have."""
    rule = discrete(6, d, 3, seed=d)
    if clauses:
        edit = rule.edit().where("x[1] - x[0] > 2", 1)
        edit = edit.where("x[0] > 1e3", 1).where("x[0] > 2e3", 0)  # where no state is
        rule = edit.forbid(0, where="x[0] > 1").done()  # of the last clause all is forbidden
    return rule, 0.3 * np.random.default_rng(2).normal(size=(40, d))


def cells_of(rule, pieces):
    """The cells of pieces that are more than a boundary."""
    return {one.cell for one in pieces if rule.cells(one.inside[None])[0] == one.cell}


@pytest.mark.parametrize("clauses", [False, True])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_every_cell_that_decides_somewhere_is_described_by_a_point_of_its_own(d, clauses):
    rule, states = cornered(d, clauses)
    where, cells = rules.placed(rule, states).codevectors, rule.cells(states)
    assert len(set(cells)) < rule.n_cells  # some have no state
    somewhere = cells_of(rule, rule.pieces)
    box = states.min(axis=0), states.max(axis=0)
    near = cells_of(rule, rule.pieces_within(*box))
    for k in range(rule.n_cells):
        own = states[cells == k]
        if k in somewhere:
            assert rule.cells(where[k : k + 1])[0] == k
        if k in near:
            assert ((where[k] >= box[0] - 1e-9) & (where[k] <= box[1] + 1e-9)).all()
        if len(own):
            mean = own.mean(axis=0)
            exact = rule.cells(mean[None])[0] == k
            assert np.array_equal(where[k], mean) if exact else (own == where[k]).all(axis=1).any()
        if k not in somewhere:
            np.testing.assert_array_equal(where[k], states.mean(axis=0))


@pytest.mark.parametrize("clauses", [False, True])
def test_the_overview_names_the_actions_of_idle_cells_and_leaves_out_cells_without_a_state(clauses):
    rule, states = cornered(2, clauses)
    rule = rules.placed(rule, states)
    interface, visits = Interface((2,), 3, 0), np.zeros((rule.n_cells, 3))
    visits[rule.cells(states), 0] += 1.0
    agent = SimpleNamespace(policy=rule, interface=interface, scale_=np.ones(2), visits=visits)
    for table, cells in (
        (overview(agent), cells_of(rule, rule.pieces)),
        (overview(agent, states), set(rule.cells(states))),
    ):
        assert set(table.cells) == cells
        np.testing.assert_array_equal(table.actions, rule.actions[table.cells])
        assert table.nowhere == rule.n_cells - len(table.cells)
        assert ("cells without" in "\n".join(policy_remarks(table))) == (table.nowhere > 0)
    assert table.nowhere > 0


def test_numbers_are_short_and_cells_that_print_alike_are_one():
    texts = [rules.number(value) for value in (1234567.0, 0.05, -2.0, 1e9)]
    assert texts == ["1235000", "0.05", "-2", "1e+09"]
    rows, _ = rules.shortest(np.array([[0.0, 0.006, 0.0], [0.0, -0.1, 0.3]]), np.zeros((1, 2)))
    np.testing.assert_allclose(rows, [[0.0, 0.06, 0.0], [0.0, -1.0, 3.0]], atol=1e-12)
    scores = np.array([[1.0, 1.0], [1.00001, 0.99999], [-9.0, 0.0]])
    rule = RulePolicy(scores, np.eye(2)[[1, 1, 0]][:, :, None], np.zeros((3, 1)))
    states = np.array([[0.5], [2.0], [-20.0]])
    np.testing.assert_array_equal(rules.reduced(rule, states).scores, scores[[0, 2]])
