"""Cells of states and continuous actions: the search among them, and the agent that learns them."""

import gymnasium as gym
import numpy as np
import oracles
import pytest
from gymnasium import spaces
from test_codevectors import Aim
from test_export import components_in_c, document_of, predictions, run_in_onnx

from oda_rl.agents import TwoTimescaleAgent, export_policy
from oda_rl.agents.policies.joint import JointPolicy, levels_of
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.envs.dynamics import compiled_dynamics

QUICK = {"warmup_steps": 200, "exploration": 0.5, "gamma": 0.01}


def random_joint(n_cells, d, p, seed=0):
    rng = np.random.default_rng(seed)
    places, slopes = rng.normal(size=(2, n_cells, d + p))
    transform = np.eye(d + p) + 0.2 * rng.normal(size=(d + p, d + p))
    return JointPolicy(
        rng.normal(size=d), levels_of(p), transform, places, slopes, rng.normal(size=n_cells),
        0.5, 10,
    )  # fmt: skip


@pytest.mark.parametrize(("n_cells", "d", "p"), [(1, 2, 1), (7, 3, 1), (60, 3, 2), (100, 2, 4)])
def test_the_greedy_action_is_found_as_the_formulas_say(n_cells, d, p):
    policy = random_joint(n_cells, d, p)
    points = policy.origin + np.random.default_rng(1).normal(size=(30, d))
    acts, values, choices = policy.act(points), policy.values(points), policy.choices(points)
    assert np.abs(acts).max() <= 1.0
    for i, point in enumerate(points):
        action, value, of_levels = oracles.joint_decision(policy.arrays, point)
        np.testing.assert_allclose(acts[i], action, atol=1e-7)
        assert choices[i] == ((policy.levels - action) ** 2).sum(axis=1).argmin()
        of_levels[choices[i]] = value
        np.testing.assert_allclose(values[i], of_levels, atol=1e-9)
        assert values[i].argmax() == choices[i]


@pytest.fixture(scope="module")
def swinging():
    return TwoTimescaleAgent("Pendulum-v1", seed=3).learn(6_000)


def test_it_explains_itself(swinging):
    state = swinging.visited_states(50, seed=1)[20]
    explanation = swinging.explain(state)
    policy = swinging.policy
    assert explanation.action == pytest.approx(2.0 * policy.act(state[None])[0])
    assert explanation.choice == explanation.q_values.argmax()
    assert explanation.at_least == 0.0
    there = explanation.nearest_other
    assert policy.choices(there[None])[0] == explanation.other_choice != explanation.choice
    distance = np.linalg.norm((there - state) * swinging.scale_)
    assert distance == pytest.approx(explanation.distance, rel=1e-4)
    assert str(explanation).startswith(f"level {explanation.choice} (torque ")
    visits = f"{swinging.visits[explanation.cell].sum():,.0f}"
    assert f"times learned from: {visits}\n" in str(explanation)
    assert "levels" in str(swinging)
    assert swinging.action_codevectors.shape == (swinging.n_cells, 1)
    assert np.abs(swinging.action_codevectors).max() <= 2.0
    assert len({round(float(u), 6) for u in swinging._engine.recent[:, -2]}) > 500
    assert swinging.visits.sum() == pytest.approx(
        swinging._engine.visits[ql.BEST, : swinging.n_cells].sum()
    )


def two_by_two():
    return Aim([[0.5, 0.2], [-0.5, 0.9]], np.float32([-0.4, -9.0]), 1.5)


@pytest.mark.parametrize("make", [two_by_two, lambda: gym.make("Pendulum-v1")])
def test_exported_policies_decide_alike(make, swinging, tmp_path):
    agent = swinging
    if make is two_by_two:
        agent = TwoTimescaleAgent(make(), seed=0, max_cells=60, **QUICK).learn(1_500)
    observations = agent.visited_states(300, env=make(), seed=1).astype(np.float32)
    expected, box = predictions(agent, observations), agent.interface.box
    width = np.ptp([box.low, box.high], axis=0)
    in_c = components_in_c(agent, tmp_path, observations)
    # Where two actions are worth the same up to rounding the other one may be taken.
    assert (np.abs(in_c - expected) <= 1e-3 * width).all(axis=1).mean() >= 0.99
    document = document_of(agent, tmp_path)
    given = document["shortlist"], document["n_parts"], document["step"]
    units = [oracles.joint_decision(document, x, *given)[0] for x in observations[:30]]
    np.testing.assert_allclose(box.actions(np.array(units)), expected[:30], atol=1e-6)
    in_onnx = run_in_onnx(agent, tmp_path, observations, np.float32)
    np.testing.assert_allclose(in_onnx, expected, atol=1e-5 * width.max())
    nonsense = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [3e38, -3e38, np.nan]])
    inside = components_in_c(agent, tmp_path, nonsense[:, : observations.shape[1]])
    low, high = box.bounds.astype(np.float32)  # the precision of C
    assert ((inside >= low) & (inside <= high)).all()


def test_what_can_not_be_exported_says_so(swinging, tmp_path):
    for how, message in (
        ({"fixed_point": True}, "fixed_point is True: it must be False for cells of states and"),
        ({"learn": True}, "for cells of states and actions; train with action_bins=5"),
    ):
        with pytest.raises(ValueError, match=message):
            export_policy(swinging, tmp_path / "policy", **how)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("several", [False, True])
def test_it_finds_the_best_of_two_components(several):
    make = lambda: Aim([[0.8, 0.0], [0.0, -0.5]], length=20)  # noqa: E731
    env = gym.vector.SyncVectorEnv([make] * 3) if several else make()
    # With more exploration, episodes of learning cost more than the first snapshot's, and no other
    # is tried.
    settings = {**QUICK, "exploration": 0.1}
    agent = TwoTimescaleAgent(env, seed=0, max_cells=100, **settings).learn(3_000)
    # Doing nothing costs 20 (0.64 + 0.25) / 3 = 5.9 an episode, random actions 19. The worst of
    # five seeds, with one environment or three, costs 1.25.
    assert agent.evaluate(20, env=make(), seed=1).mean() > -2.0


def test_an_action_of_ones_own_is_what_is_learned_from():
    env = Aim([[0.5]], -2.0, 2.0)
    agent = TwoTimescaleAgent(env, seed=0, **QUICK).learn(400)
    observation, _ = env.reset(seed=0)
    agent.act(observation)
    with pytest.raises(ValueError, match="must have shape .1,. and lie between"):
        agent.update(observation, np.array([3.0]), 0.0, observation, False, False)
    before = agent._engine.visits[ql.LIVE].copy()
    agent.update(observation, np.array([1.5]), 0.0, observation, False, False)
    engine = agent._engine
    cell = (engine.visits[ql.LIVE] - before)[:, 0].argmax()
    assert engine.in_units(ql.LIVE)[cell, 1] == pytest.approx(0.75, abs=0.3)


def test_a_grid_is_offered_where_one_is_asked_for():
    assert TwoTimescaleAgent("Pendulum-v1", action_bins=3).interface.n_actions == 3
    assert TwoTimescaleAgent("Pendulum-v1", partition="som").interface.n_actions == 5
    whole = Aim([[0.5]])
    whole.action_space = spaces.Box(0, 3, (1,), np.int64)
    assert TwoTimescaleAgent(whole).interface.n_actions == 4
    assert TwoTimescaleAgent("Pendulum-v1").interface.box is not None
    assert compiled_dynamics(gym.make("Pendulum-v1")) is None  # without actions in a room
    with pytest.raises(ValueError, match="it must have 4 rows.*and of the action"):
        TwoTimescaleAgent("Pendulum-v1", metric=np.eye(3))


class Costly(Aim):
    """Whatever is done costs something, and states are noise."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        cost = np.abs(action).sum() + 5.0 * self.np_random.random()
        return observation, -float(cost), *rest


def test_doing_nothing_is_tried_and_delivered_where_it_is_best():
    agent = TwoTimescaleAgent(Costly([[0.5]], -50.0, 80.0), seed=0, warmup_steps=200).learn(2_000)
    acts = [agent.predict(state)[0] for state in np.linspace(-1.0, 1.0, 20)[:, None]]
    np.testing.assert_allclose(acts, 0.0, atol=1e-5)


@pytest.mark.slow
def test_it_learns_to_swing_up():
    # 18 of 20 seeds reach -200 in 100,000 steps.
    agents = (TwoTimescaleAgent("Pendulum-v1", seed=seed).learn(60_000) for seed in range(2))
    assert any(agent.evaluate(20, seed=0).mean() > -250.0 for agent in agents)
