import warnings

import gymnasium as gym
import numpy as np
import pytest

from oda_rl.agents import CodevectorAgent, FittedQAgent
from oda_rl.agents.distilling import distil
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.distil import distill
from oda_rl.agents.distilling.fit import ChoiceCosts, Fitted, SquareCosts, fit, loss, with_ones
from oda_rl.agents.distilling.imitation import constant, imitate
from oda_rl.agents.distilling.playing import Ground
from oda_rl.agents.distilling.races import better_by, compare, race
from oda_rl.agents.distilling.teachers import teacher_of
from oda_rl.agents.policies.rules import RulePolicy

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
    return FittedQAgent("CartPole-v1", seed=0).learn(20_000)


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
    found = fit(x[:, None], ChoiceCosts(lost), 2, np.random.default_rng(seed))
    assert least - 1e-12 <= found.cost <= 1.1 * least


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    features, costs = with_ones(rng.normal(size=(30, 2))), rng.random((30, 3))
    numbers = rng.normal(size=9)
    steps = 1e-6 * np.eye(9)
    slopes = [
        (loss(numbers + h, features, costs)[0] - loss(numbers - h, features, costs)[0]) / 2e-6
        for h in steps
    ]
    np.testing.assert_allclose(loss(numbers, features, costs)[1], slopes, atol=1e-8)


def test_an_affine_action_is_found_in_each_cell():
    x = np.linspace(-1.0, 1.0, 400)[:, None]
    targets = np.where(x > 0.1, 0.5 - 0.4 * x, -0.6 + 0.2 * x)
    costs = SquareCosts(x, targets, np.ones(400), affine=True)
    found = fit(x, costs, 2, np.random.default_rng(0))
    assert found.cost < 0.003
    left, right = (found.scores @ np.array([[1.0, 1.0], [-0.9, 0.9]])).argmax(axis=0)
    np.testing.assert_allclose(found.outputs[left, 0], [-0.6, 0.2], atol=0.15)  # less: a ridge
    np.testing.assert_allclose(found.outputs[right, 0], [0.5, -0.4], atol=0.15)


# ---------------------------------------------------------------- where episodes are played
def test_compiled_and_stepped_episodes_are_the_same():
    compiled, stepped = (
        Ground(env, 2, 10_000) for env in ("CartPole-v1", Counting(gym.make("CartPole-v1")))
    )
    seen, also = np.zeros((300, 4)), np.zeros((300, 4))
    first = compiled.play(ALWAYS_LEFT, [3, 5, 7], seen)
    np.testing.assert_array_equal(first, stepped.play(ALWAYS_LEFT, [3, 5, 7], also))
    np.testing.assert_array_equal(seen, also)
    assert compiled.steps == stepped.steps == first.sum()


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_episode_is_cut_where_steps_end(wrapped):
    env = gym.make("CartPole-v1")
    ground = Ground(Counting(env) if wrapped else env, 2, 1200)
    ground.allow(700)
    assert ground.play(UPRIGHT, [1, 2]).tolist() == [500.0]
    assert ground.steps == 700
    ground.allow(10_000)
    assert ground.play(UPRIGHT, [1, 2]).tolist() == [500.0]
    assert ground.steps == 1200


def test_the_better_half_goes_on():
    ground = Ground("CartPole-v1", 2, 10_000)
    worth = compare(ground, [ALWAYS_LEFT, UPRIGHT, ALWAYS_LEFT, UPRIGHT], [1, 2])
    assert worth.tolist() == [-np.inf, 1000.0, -np.inf, 1000.0]
    assert ground.steps < 2100  # the second start was not for all
    ground.allow(600)
    assert compare(ground, [UPRIGHT, UPRIGHT], [1, 2]) is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_episode_is_given_up_when_it_cannot_be_good_any_more(wrapped):
    env = gym.make("MountainCar-v0")
    ground = Ground(Counting(env) if wrapped else env, 3, 10_000)
    coast = RulePolicy(np.zeros((1, 3)), np.eye(3)[None, :, 1:2], np.zeros((1, 2)))
    assert ground.play(coast, [0], floor=-30.0).tolist() == [-200.0]  # rewards may be positive
    assert ground.play(coast, [0, 1], floor=-30.0).tolist() == [-np.inf, -np.inf]
    assert ground.steps == 200 + 2 * 31


def test_an_incumbent_has_to_be_beaten():
    ground, rng = Ground("CartPole-v1", 2, 20_000), np.random.default_rng(0)
    ground.allow(8000)
    assert race(ground, [ALWAYS_LEFT, UPRIGHT, ALWAYS_LEFT], rng)[0] == 1
    ground.allow(4000)
    assert race(ground, [UPRIGHT, UPRIGHT], rng, incumbent=1)[0] == 1
    ground.allow(4000)
    assert race(ground, [ALWAYS_LEFT, UPRIGHT], rng, incumbent=0)[0] == 1
    assert better_by([1.0], [0.0]) == 0.0
    assert better_by([2.0, 2.0], [1.0, 1.0]) == np.inf


def test_a_vector_stands_for_a_rule():
    rng = np.random.default_rng(0)
    states = rng.normal(2.0, 3.0, (50, 4))
    ground = Ground("CartPole-v1", 3, 100)
    coding = Coding.of(states, ground.interface, 3)
    scores, actions = rng.normal(size=(3, 5)), np.array([1, 0, 1])
    cells = (with_ones(coding.points(states)) @ scores.T).argmax(axis=1)
    rule = coding.rule(coding.vector(scores, actions))
    np.testing.assert_array_equal(rule.act(states), actions[cells])


# ---------------------------------------------------------------- distilling
def test_two_cells_are_enough_for_the_cart_pole(teacher):
    rule = distill(teacher, "CartPole-v1", 2, 20_000, seed=64_100_000)
    assert isinstance(rule, RulePolicy)
    assert rule.n_cells == 2
    assert Ground("CartPole-v1", 2, 10**6).play(rule, range(100, 150)).mean() > 480.0


def test_no_step_is_taken_beyond_the_cap():
    for steps in (100, 1500, 6000):
        env = Counting(gym.make("CartPole-v1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            distill(upright, env, 2, steps, seed=1)
        assert 0.5 * steps < env.steps <= steps


def test_the_same_seed_gives_the_same_bits(teacher):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules = [distill(teacher, "CartPole-v1", 2, 6000, seed=3) for _ in range(2)]
    for name, array in rules[0].arrays.items():
        np.testing.assert_array_equal(array, rules[1].arrays[name])


def test_fits_that_always_do_the_same_are_refused(monkeypatch):
    honest = distil.imitate.__globals__["fit"]
    calls = []

    def lazy(points, costs, n_cells, rng):
        found = honest(points, costs, n_cells, rng)
        calls.append(found)
        return found if len(calls) % 4 == 0 else Fitted(found.scores, np.array([1, 1]), 0.0)

    monkeypatch.setitem(distil.imitate.__globals__, "fit", lazy)
    ground = Ground("CartPole-v1", 2, 4000)
    master = teacher_of(upright, ground.interface)
    found = imitate(ground, master, 2, 4000, np.random.default_rng(0))
    assert len(calls) == 12
    assert not constant(found.coding.rule(found.vector), found.states)


def test_it_is_said_that_a_rule_is_worse_than_its_teacher(monkeypatch):
    monkeypatch.setattr(
        distil, "climb", lambda ground, coding, vector, *rest: np.zeros_like(vector)
    )
    monkeypatch.setattr(
        distil, "imitate",
        lambda *arguments: _with(imitate(*arguments), at_top=False),
    )  # fmt: skip
    with pytest.warns(UserWarning, match="where its teacher returns 500"):
        distill(UPRIGHT, "CartPole-v1", 2, 8000, seed=0)


def _with(found, **changes):
    vars(found).update(changes)
    return found


def test_it_is_said_that_steps_were_too_few():
    with pytest.warns(UserWarning, match="steps is 100: too few to compare"):
        distill(UPRIGHT, "CartPole-v1", 2, 100, seed=0)


def test_continuous_actions():
    def pushes(observation):
        return np.array([np.sign(observation[1])], dtype=np.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule = distill(pushes, "MountainCarContinuous-v0", 2, 3000, seed=0)
    assert rule.continuous
    ground = Ground("MountainCarContinuous-v0", 2, 10_000)
    assert ground.play(rule, range(5)).mean() > 80.0


@pytest.mark.parametrize("kind", [FittedQAgent, CodevectorAgent])
def test_teachers_of_continuous_actions_know_what_mistakes_cost(kind):
    agent = kind("Pendulum-v1", seed=0).learn(1000)
    ground = Ground("Pendulum-v1", 3, 2000)
    master = teacher_of(agent, ground.interface)
    states = agent.visited_states(100, seed=0)
    coding = Coding.of(states, ground.interface, 3)
    costs = master.costs(states, coding)
    found = fit(coding.points(states), costs, 3, np.random.default_rng(0))
    rule = coding.rule(coding.vector(found.scores, master.outputs(found.outputs)))
    assert rule.act(states).shape == master.act(states).shape == (100, 1)
    first = float(np.ravel(agent.predict(states[0])[0])[0])
    if kind is FittedQAgent:
        first = np.linspace(-2.0, 2.0, 5)[int(first)]
    assert 2.0 * master.act(states[:1])[0, 0] == pytest.approx(first, abs=1e-6)


def test_models_of_stable_baselines_are_asked(monkeypatch):
    class Model:
        def predict(self, batch, deterministic):
            assert deterministic
            assert batch.dtype == np.float32
            return (6.0 * batch[:, 2] + batch[:, 3] > 0.0).astype(int), None

    ground = Ground("CartPole-v1", 2, 100)
    states = np.random.default_rng(0).normal(size=(20, 4))
    wanted = [upright(state) for state in states]
    assert teacher_of(Model(), ground.interface).act(states).tolist() == wanted


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_cells": 1}, ValueError, "n_cells is 1: it must be at least 2"),
        ({"n_cells": 2.5}, ValueError, "n_cells is 2.5"),
        ({"steps": 99}, ValueError, "steps is 99: it must be at least 100"),
        ({"teacher": 3}, TypeError, "teacher is 3: it must be an agent"),
        ({"teacher": lambda x: 7}, ValueError, "action is"),
        ({"env": 3}, TypeError, "env is 3"),
        ({"env": "Nowhere-v0"}, ValueError, "Nowhere"),
        ({"env": "MountainCar-v0", "teacher": UPRIGHT}, ValueError, "observations of 4 components"),
        ({"env": "Acrobot-v1", "teacher": UPRIGHT}, ValueError, "observations of 4 components"),
    ],
)
def test_bad_input(changes, error, message):
    given = {"teacher": upright, "env": "CartPole-v1", "n_cells": 2, "steps": 1000, **changes}
    with pytest.raises(error, match=message):
        distill(**given)
