from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.distilling import distil, imitation
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.distil import Distilled, Size, distill, smallest
from oda_rl.agents.distilling.playing import BudgetedEnv, Steps, evaluated
from oda_rl.agents.distilling.search import better_by, race
from oda_rl.agents.policies.rules import RulePolicy

pytestmark = pytest.mark.filterwarnings("ignore:.*more steps, may do better", "ignore:.*too few")

UPRIGHT = RulePolicy(
    np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]]), np.eye(2)[:, :, None], np.zeros((2, 4))
)
ALWAYS_LEFT = RulePolicy(np.zeros((1, 5)), np.array([[[1.0], [0.0]]]), np.zeros((1, 4)))


def upright(observation):
    return int(6.0 * observation[2] + observation[3] > 0.0)


class Counting(gym.Wrapper):
    """Counts steps; no compiled dynamics are known of it."""

    steps = 0

    def step(self, action):
        self.steps += 1
        return super().step(action)


@pytest.fixture(scope="module")
def teacher():
    return FittedQAgent("CartPole-v1", seed=2).learn(20_000)


@pytest.fixture(scope="module")
def learned_world():
    agent = ModelAgent("CartPole-v1", seed=0).learn(500)
    interface = BudgetedEnv("CartPole-v1", 2, 100).interface
    return agent, Coding.of(agent.world.seen.before, interface, 2)


# ---------------------------------------------------------------- cells that cost little
@pytest.mark.parametrize("seed", range(3))
def test_two_cells_on_a_line_cost_what_the_best_threshold_costs(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1.0, 1.0, 200))
    lost = np.where(rng.random((200, 3)) < 0.1, rng.random((200, 3)), 0.0)
    lost[:, 0] += np.clip(x - 0.3, 0.0, None)
    lost[:, 1] += np.clip(0.3 - x, 0.0, None)
    lost[:, 2] += 0.4
    lost /= lost.mean()
    sums = np.concatenate([np.zeros((1, 3)), np.cumsum(lost, axis=0)])
    least = (sums.min(axis=1) + (sums[-1] - sums).min(axis=1)).min() / 200
    found = imitation.fit(x[:, None], imitation.ChoiceCosts(lost), 2, np.random.default_rng(seed))
    assert least - 1e-12 <= found.cost <= 1.1 * least


def test_an_affine_action_is_found_in_each_cell():
    x = np.linspace(-1.0, 1.0, 400)[:, None]
    targets = np.where(x > 0.1, 0.5 - 0.4 * x, -0.6 + 0.2 * x)
    costs = imitation.SquareCosts(x, targets, np.ones(400), affine=True)
    found = imitation.fit(x, costs, 2, np.random.default_rng(0))
    assert found.cost < 0.003
    left, right = (found.scores @ np.array([[1.0, 1.0], [-0.9, 0.9]])).argmax(axis=0)
    np.testing.assert_allclose(found.outputs[left, 0], [-0.6, 0.2], atol=0.15)  # less: a ridge
    np.testing.assert_allclose(found.outputs[right, 0], [0.5, -0.4], atol=0.15)


# ---------------------------------------------------------------- where episodes are played
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_compiled_and_stepped_episodes_are_the_same(env_id):
    rng, pendulum = np.random.default_rng(0), env_id == "Pendulum-v1"
    rule = RulePolicy(rng.normal(size=(4, 4)), rng.normal(size=(4, 1, 4)), np.zeros((4, 3)))
    rule = rule if pendulum else ALWAYS_LEFT
    compiled, stepped = (
        BudgetedEnv(env, 4, 10_000) for env in (env_id, Counting(gym.make(env_id)))
    )
    seen, also = np.zeros((2, 600, 3 if pendulum else 4))
    returns = compiled.play(rule, [3, 5, 7], seen)
    # products of matrices round differently
    rtol, atol = (1e-3, 1e-3) if pendulum else (0.0, 0.0)
    np.testing.assert_allclose(returns, stepped.play(rule, [3, 5, 7], also), rtol=rtol)
    np.testing.assert_allclose(seen, also, rtol=0.0, atol=atol)
    assert compiled.steps == stepped.steps == (600 if pendulum else returns.sum())
    assert compiled._in_loops(rule) is not None
    assert stepped._compiled is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_episode_is_cut_where_steps_end(wrapped):
    env = gym.make("CartPole-v1")
    budgeted = BudgetedEnv(Counting(env) if wrapped else env, 2, 1200)
    budgeted.allow(700)
    assert budgeted.play(UPRIGHT, [1, 2]).tolist() == [500.0]
    assert budgeted.steps == 700
    budgeted.allow(10_000)
    assert budgeted.play(UPRIGHT, [1, 2]).tolist() == [500.0]
    assert budgeted.steps == 1200


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_episode_is_given_up_when_it_cannot_be_good_any_more(wrapped):
    env = gym.make("MountainCar-v0")
    budgeted = BudgetedEnv(Counting(env) if wrapped else env, 3, 10_000)
    coast = RulePolicy(np.zeros((1, 3)), np.eye(3)[None, :, 1:2], np.zeros((1, 2)))
    assert budgeted.play(coast, [0], floor=-30.0).tolist() == [-200.0]  # rewards may be positive
    assert budgeted.play(coast, [0, 1], floor=-30.0).tolist() == [-np.inf, -np.inf]
    assert budgeted.steps == 200 + 2 * 31


def test_an_incumbent_has_to_be_beaten():
    budgeted, rng = BudgetedEnv("CartPole-v1", 2, 20_000), np.random.default_rng(0)
    budgeted.allow(8000)
    assert race(budgeted, [ALWAYS_LEFT, UPRIGHT, ALWAYS_LEFT], rng).best == 1
    budgeted.allow(4000)
    assert race(budgeted, [UPRIGHT, UPRIGHT], rng, incumbent=1).best == 1
    budgeted.allow(4000)
    raced = race(budgeted, [ALWAYS_LEFT, UPRIGHT], rng, incumbent=0)
    assert raced.order == [1, 0]
    assert set(raced.last[1]) == {500.0}
    budgeted.allow(700)  # the third has no steps left
    raced = race(budgeted, [ALWAYS_LEFT, UPRIGHT, UPRIGHT], rng)
    assert [len(one) for one in raced.returns] == [1, 1, 0]
    assert raced.order == [1, 0, 2]
    assert better_by([1.0], [0.0]) == 0.0
    assert better_by([2.0, 2.0], [1.0, 1.0]) == np.inf


def test_a_learned_world_is_climbed_in(learned_world):
    agent, coding = learned_world
    world, rng = imitation.world_of(agent), np.random.default_rng(0)
    budgeted = BudgetedEnv("CartPole-v1", 2, 100_000)
    (found,) = imitation.climb_in_world(world, budgeted, coding, [], rng)
    assert budgeted.steps == 0
    assert budgeted.play(coding.rule(found), range(20)).mean() > 450.0
    assert imitation.climb_in_world(None, budgeted, coding, [], rng) == []
    elsewhere = BudgetedEnv("Pendulum-v1", 2, 100).interface
    other = Coding.of(rng.normal(size=(50, 3)), elsewhere, 2)
    assert imitation.climb_in_world(world, budgeted, other, [], rng) == []


def test_only_trusted_worlds_are_climbed_in(learned_world):
    assert imitation.world_of(UPRIGHT) is None
    assert imitation.world_of(upright) is None
    assert imitation.world_of(ModelAgent("CartPole-v1", seed=0)) is None
    distrusting = SimpleNamespace(models_laws=True, distrust="ends", world=learned_world[0].world)
    assert imitation.world_of(distrusting) is None


def test_what_a_model_agent_knows_costs_no_step(learned_world):
    agent, _ = learned_world
    env = Counting(gym.make("CartPole-v1"))
    found = distill(agent, env, 2, steps=12_000, seed=0)
    assert env.steps == found.steps <= 12_000
    assert found.worse is False
    assert found.returns.mean() > 495.0


# ---------------------------------------------------------------- distilling
def test_two_cells_are_enough_for_the_cart_pole(teacher):
    found = distill(teacher, "CartPole-v1", 2, steps=30_000, seed=91_000)
    assert isinstance(found.policy, RulePolicy)
    assert found.policy.n_cells == 2
    assert found.worse is False
    assert found.steps <= 30_000
    assert "push right if" in str(found) or "push left if" in str(found)
    assert BudgetedEnv("CartPole-v1", 2, 10**6).play(found.policy, range(100, 150)).mean() > 480.0


def test_no_step_is_taken_beyond_the_cap():
    for steps in (100, 1500, 6000):
        env = Counting(gym.make("CartPole-v1"))
        found = distill(upright, env, 2, steps=steps, seed=1)
        assert 0.3 * steps < env.steps <= steps
        assert found.steps == env.steps


def test_it_is_said_that_a_rule_is_worse_than_its_teacher(monkeypatch):
    monkeypatch.setattr(distil, "smaller_rules", lambda *arguments: [ALWAYS_LEFT])
    with pytest.warns(UserWarning, match="where its teacher returns 500"):
        found = distill(UPRIGHT, "CartPole-v1", 2, steps=30_000, seed=0)
    assert found.worse


def test_a_rule_is_worse_by_more_than_a_standard_error():
    taught = np.arange(16.0)
    noise = np.tile([-1.0, 1.0], 8)
    interface = BudgetedEnv("CartPole-v1", 2, 100).interface
    error = noise.std(ddof=1) / 4.0
    for lost, worse in ((0.9, False), (1.1, True)):
        returns = taught + noise - lost * error
        assert Distilled(UPRIGHT, interface, "CartPole-v1", returns, taught, 1).worse is worse


def test_it_is_said_that_steps_were_too_few():
    with pytest.warns(UserWarning, match="steps were too few to compare"):
        found = distill(UPRIGHT, "CartPole-v1", 2, steps=100, seed=0)
    assert found.worse is None


def test_the_smallest_within_a_standard_error_of_the_best_is_taken():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=50)
    returns = {
        2: noise - 3.0,
        3: noise + 0.9 + 0.5 * rng.normal(size=50),
        4: noise + 0.95,
        6: noise,
    }
    assert smallest([Size(k, UPRIGHT, own) for k, own in returns.items()]).n_cells == 3


def test_a_curve_over_the_number_of_cells(monkeypatch):
    monkeypatch.setattr(distil, "SIZES", (2, 3))
    env = Counting(gym.make("CartPole-v1"))
    found = distill(upright, env, steps=8_000, seed=0)
    assert [one.n_cells for one in found.curve] == [2, 3]
    assert found.policy is found.curve[0].policy
    assert env.steps == found.steps <= 8_000
    assert len(found.taught) >= max(len(one.returns) for one in found.curve) - 1


def test_agents_simplify_what_they_have_learned(teacher):
    rule = teacher.simplify(n_cells=2, steps=6000, seed=3).policy
    found = distill(teacher, "CartPole-v1", 2, steps=6000, seed=3)
    for name, array in rule.arrays.items():  # the same seed gives the same bits
        np.testing.assert_array_equal(array, found.policy.arrays[name])


def test_a_grid_of_continuous_actions_becomes_these():
    agent = FittedQAgent("MountainCarContinuous-v0", seed=0).learn(1000)
    found = agent.simplify(n_cells=2, steps=3000, seed=0)
    assert found.policy.continuous
    assert "force" in found.rules()


# ---------------------------------------------------------------- values that are not known
def test_values_of_a_policy_are_those_of_dynamic_programming():
    n, gamma = 11, 0.99  # a line: to the right is right; steps cost 1 until the end
    policy = np.ones(n, dtype=int)
    after = np.array([[max(i - 1, 0), i + 1] for i in range(n)])
    exact = np.zeros((n + 1, 2))
    for _ in range(2000):
        exact[:n] = -1.0 + gamma * exact[after, 1] * (after < n)
    rng = np.random.default_rng(0)
    states, actions = rng.integers(n, size=4000), rng.integers(2, size=4000)
    reached = after[states, actions]
    seen = Steps(
        states[:, None].astype(float), actions, -np.ones(4000), reached[:, None].astype(float),
        reached == n,
    )  # fmt: skip
    values = evaluated(seen, lambda x: policy[np.minimum(x[:, 0].astype(int), n - 1)], 2, rng)
    found = values(np.arange(n)[:, None].astype(float))
    np.testing.assert_allclose(found, exact[:n], atol=0.5)
    assert (found.argmax(axis=1) == 1).all()


def test_a_teacher_who_knows_no_values_is_evaluated():
    budgeted = BudgetedEnv("CartPole-v1", 2, 20_000)
    seen = budgeted.record(UPRIGHT, np.random.default_rng(0), 0.1)
    assert budgeted.steps == len(seen.points) == 20_000
    values = evaluated(seen, UPRIGHT.act, 2, np.random.default_rng(0))
    leaning = np.array([[0.0, 0.0, 0.12, 0.5], [0.0, 0.0, -0.12, -0.5]])
    assert values(leaning).argmax(axis=1).tolist() == [1, 0]


def test_continuous_actions():
    def pushes(observation):
        return np.array([np.sign(observation[1])], dtype=np.float32)

    rule = distill(pushes, "MountainCarContinuous-v0", 2, steps=3000, seed=0).policy
    assert rule.continuous
    assert BudgetedEnv("MountainCarContinuous-v0", 2, 10_000).play(rule, range(5)).mean() > 80.0


@pytest.mark.parametrize("kind", [FittedQAgent, CodevectorAgent, TwoTimescaleAgent])
def test_teachers_of_continuous_actions_know_what_mistakes_cost(kind):
    agent = kind("Pendulum-v1", seed=0).learn(1000)
    budgeted = BudgetedEnv("Pendulum-v1", 3, 2000)
    master = imitation.teacher_of(agent, budgeted.interface)
    states = agent.visited_states(100, seed=0)
    coding = Coding.of(states, budgeted.interface, 3)
    found = imitation.fit(
        coding.points(states), master.costs(states, coding), 3, np.random.default_rng(0)
    )
    rule = coding.rule(coding.vector(found.scores, master.outputs(found.outputs)))
    assert rule.act(states).shape == master.act(states).shape == (100, 1)
    first = float(np.ravel(agent.predict(states[0])[0])[0])
    assert 2.0 * master.act(states[:1])[0, 0] == pytest.approx(first, abs=1e-6)


def test_a_model_of_stable_baselines_is_a_teacher():
    model = stable_baselines3.A2C("MlpPolicy", "CartPole-v1", seed=0, device="cpu").learn(500)
    found = distill(model, "CartPole-v1", 2, steps=3000, seed=0)
    assert found.steps <= 3000
    states = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    master = imitation.teacher_of(model, BudgetedEnv("CartPole-v1", 2, 100).interface)
    np.testing.assert_array_equal(master.act(states), model.predict(states, deterministic=True)[0])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [({"n_cells": 1}, ValueError, "n_cells is 1: it must be at least 2"),
     ({"n_cells": 2.5}, ValueError, "n_cells is 2.5"),
     ({"steps": 99}, ValueError, "steps is 99: it must be at least 100"),
     ({"policy": 3}, TypeError, "policy is 3: it must be an agent"),
     ({"policy": lambda x: 7}, ValueError, "action is"), ({"env": 3}, TypeError, "env is 3"),
     ({"env": "Nowhere-v0"}, ValueError, "Nowhere"),
     ({"env": "MountainCar-v0", "policy": UPRIGHT}, ValueError, "observations of 4 components"),
     ({"env": "Acrobot-v1", "policy": UPRIGHT}, ValueError, "observations of 4 components")],
)  # fmt: skip
def test_bad_input(changes, error, message):
    given = {"policy": upright, "env": "CartPole-v1", "n_cells": 2, "steps": 1000, **changes}
    with pytest.raises(error, match=message):
        distill(**given)


def test_each_mistake_costs_a_little():
    costs = imitation.with_mistakes(np.array([[0.0, 0.0, 3.0]]), np.array([1]))
    np.testing.assert_allclose(costs, [[0.1, 0.0, 3.1]])
