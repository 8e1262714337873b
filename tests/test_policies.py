"""Every kind of policy keeps the contract."""

from functools import partial

import numpy as np
import pytest
from environments import quick_rule, steps_for
from test_cell_policy import random_policy
from test_rules import continuous, discrete

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.policies import CodevectorPolicy, TablePolicy
from oda_rl.agents.policies.joint import JointPolicy


def table(n_cells, d, n_actions):
    cells, rng = random_policy(n_cells, d, n_actions)
    values = rng.normal(size=(n_cells, n_actions))
    return TablePolicy(cells.origin, cells.diagram, values, cells.codevectors)


def blend(n_cells, d, n_actions, **options):
    return random_policy(n_cells, d, n_actions, **options)[0]


def codevectors(n_cells, d, n_actions):
    cells, rng = random_policy(n_cells, d, n_actions)
    return CodevectorPolicy(**vars(cells), parts=rng.normal(size=(n_cells, n_actions, 2)))


def joint(n_cells, d, n_actions):
    rng = np.random.default_rng(0)
    places, slopes = rng.normal(size=(2, n_cells, d + 2))
    levels, worth = rng.uniform(-1.0, 1.0, size=(n_actions, 2)), rng.normal(size=n_cells)
    transform = np.eye(d + 2) + 0.2 * rng.normal(size=(d + 2, d + 2))
    return JointPolicy(rng.normal(size=d), levels, transform, places, slopes, worth, 0.7, 4)


def rule_in_box(n_cells, d, n_actions):
    return continuous(n_cells, d, 2)


KINDS = (table, blend, partial(blend, n_nearest=6), codevectors, joint, discrete, rule_in_box)
SIZES = [(1, 1, 2), (2, 3, 4), (12, 2, 3)]


@pytest.fixture(params=[(kind, size) for kind in KINDS for size in SIZES])
def policy(request):
    kind, size = request.param
    return kind(*size)


@pytest.fixture
def points(policy):
    d = policy.codevectors.shape[1]
    return policy.codevectors.mean(axis=0) + np.random.default_rng(1).normal(size=(200, d))


def by_its_tables(tables, point):
    """Cell, values and action that the tables say."""
    x = point - tables.origin
    scores = tables.diagram[:, 0] + tables.diagram[:, 1:] @ x
    near = np.argsort(scores, kind="stable")[: tables.n_nearest]
    weights = np.exp((scores.min() - scores[near]) / tables.width)
    weights /= weights.sum()
    common = 0.0
    if tables.common is not None:
        common = weights @ (tables.common[near, 0] + tables.common[near, 1:] @ x)
    values = common + weights @ tables.values[near]
    best = values.argmax()
    if tables.affine is not None:
        rows = tables.affine[near[0]]
        return near[0], values, np.clip(rows[:, 0] + rows[:, 1:] @ x, -1.0, 1.0)
    return near[0], values, best if tables.parts is None else weights @ tables.parts[near, best]


def test_it_does_what_its_tables_say(policy, points):
    if isinstance(policy, JointPolicy):
        pytest.skip("its actions are looked for: test_joint_cells")
    told = [by_its_tables(policy.tables, point) for point in points]
    cells, values, acts = (np.array(part) for part in zip(*told, strict=True))
    np.testing.assert_array_equal(policy.cells(points), cells)
    if policy.value_name == "value":
        np.testing.assert_allclose(policy.values(points), values, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(policy.choices(points), values.argmax(axis=1))
    np.testing.assert_allclose(policy.act(points), acts, rtol=1e-9, atol=1e-12)


def test_sizes(policy, points):
    k, n_actions = policy.n_cells, policy.n_actions
    assert policy.codevectors.shape == (k, points.shape[1])
    assert policy.q_values.shape == (k, n_actions)
    assert policy.values(points).shape == (len(points), n_actions)
    assert sum(array.size for array in policy.parameters) >= k * (1 + points.shape[1])
    assert policy.choice_name in ("action", "codevector", "level", "cell")
    for empty in (policy.cells, policy.choices, policy.values, policy.act):
        assert len(empty(points[:0])) == 0


def test_the_alternative_is_another_choice(policy, points):
    scale = np.full(points.shape[1], 0.7)
    for point, choice in zip(points[:10], policy.choices(points[:10]), strict=True):
        found = policy.alternative(point, choice, scale)
        assert found.at_least <= found.distance
        assert found.at_least == found.distance or not policy.exact
        if found.point is None:
            continue
        assert policy.choices(found.point[None])[0] != choice
        length = np.linalg.norm((found.point - point) * scale)
        assert length == pytest.approx(found.distance, rel=1e-4)


def test_it_comes_back_from_its_arrays(policy, points, tmp_path):
    np.savez(tmp_path / "policy.npz", **policy.arrays)
    with np.load(tmp_path / "policy.npz") as arrays:
        again = type(policy).from_arrays(dict(arrays))
    assert vars(again).keys() == vars(policy).keys()
    for question in ("cells", "choices", "values", "act"):
        expected = getattr(policy, question)(points)
        np.testing.assert_array_equal(getattr(again, question)(points), expected)
    np.testing.assert_array_equal(again.q_values, policy.q_values)


@pytest.mark.parametrize(
    ("kind", "env_id"),
    [(TwoTimescaleAgent, "MountainCar-v0"), (FittedQAgent, "MountainCar-v0"),
     (TwoTimescaleAgent, "Pendulum-v1"), (CodevectorAgent, "MountainCarContinuous-v0"),
     (quick_rule, "CartPole-v1"), (quick_rule, "Pendulum-v1"), (ModelAgent, "FrozenLake-v1")],
)  # fmt: skip
def test_an_agent_answers_as_its_policy_does(kind, env_id):
    agent = kind(env_id, seed=0).learn(steps_for(kind, 1500))
    seen, policy = agent.visited_states(100, seed=1), agent.policy
    actions = agent.interface.actions(policy.act(seen))
    predicted, state = agent.predict(seen, state="kept")
    assert state == "kept"
    space = agent.env.action_space
    assert (predicted.shape, predicted.dtype) == ((100, *space.shape), space.dtype)
    np.testing.assert_array_equal(predicted, actions)
    np.testing.assert_array_equal(agent.cell(seen), policy.cells(seen))
    for one in (seen[3], seen[3].astype(np.float32), seen[3].tolist()):
        np.testing.assert_array_equal(agent.predict(one)[0], actions[3])
        assert agent.cell(one) == policy.cells(seen)[3]
        if len(one) > 1:  # else it is a batch of one number
            assert space.contains(agent.predict(one)[0])
            assert isinstance(agent.cell(one), int)
    assert agent.n_cells == policy.n_cells == len(agent.codevectors) == len(agent.visits)
    for name in ("q_values", "codevectors"):
        np.testing.assert_array_equal(getattr(agent, name), getattr(policy, name))
    diagram = policy.tables.diagram
    scores = diagram[:, 0] + (seen - policy.tables.origin) @ diagram[:, 1:].T
    np.testing.assert_array_equal(agent.cell(seen), scores.argmin(axis=1))


def test_an_evaluation_ends_where_episodes_do_not():
    agent = TwoTimescaleAgent("CliffWalking-v1", seed=0, max_cells=2)  # has learned nothing
    with pytest.warns(UserWarning, match="cut off after 300 steps"):
        returns = agent.evaluate(2, seed=0, max_episode_steps=300)
    assert returns.tolist() == [-300.0, -300.0]
    with pytest.raises(ValueError, match="max_episode_steps is 0"):
        agent.evaluate(1, max_episode_steps=0)
