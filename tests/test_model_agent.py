"""The agent that learns the world: search, selection, playing, files."""

import ast
import os
import subprocess
import sys
import warnings
from functools import partial
from hashlib import sha256
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from environments import OFTEN, QUICK, Line, same
from gymnasium.wrappers import TransformReward

import oda_rl.envs  # noqa: F401
from oda_rl.agents import FittedQAgent, ModelAgent, RulePolicy
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.search import Climber, Effort, Imagination, search
from oda_rl.agents.fitted.changes import Record
from oda_rl.agents.model import fallback, planner
from oda_rl.agents.model.experience import Candidate, values
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.worlds.learning import CodedSteps, learn_world
from oda_rl.agents.worlds.quality import Trust
from oda_rl.agents.worlds.world import World


@pytest.mark.parametrize(("n", "fixed"), [(3, 0), (10, 2)])
def test_a_climber_climbs_ill_conditioned_slopes_to_the_top(n, fixed):
    scales = 10.0 ** np.linspace(0.0, 4.0, n)
    climber = Climber(np.ones(n + fixed), 0.5, 12, np.random.default_rng(0), n)
    for _ in range(60 * n):
        asked = climber.ask()
        climber.tell(-(asked[:, :n] ** 2 @ scales))
        assert (asked[:, n:] == 1.0).all()
    assert climber.mean[:n] ** 2 @ scales < 1e-8
    assert climber.mean[n:].tolist() == [1.0] * fixed


def slider(n=400, seed=0):
    """A point on a line that actions push: reward is lost by distance from 0."""
    rng = np.random.default_rng(seed)
    before = rng.uniform(-1.0, 1.0, size=(n, 1))
    actions = rng.integers(2, size=n)
    after = before + np.where(actions == 1, 0.1, -0.1)[:, None]
    return CodedSteps(before, np.eye(2)[actions], -(after[:, 0] ** 2), after, np.zeros(n, bool))


def imagination(learned, starts, horizon=30, boxed=False):
    at = learned.at
    coding = Coding(at.mean, at.scale, 2 if boxed else 4, 2, boxed, boxed, np.arange(1))
    return Imagination(learned.arrays, coding, horizon, lambda n: starts[:n])


def test_a_search_finds_the_rule_that_a_line_asks_for():
    rng = np.random.default_rng(0)
    learned = learn_world(slider(), -np.inf, False, 2, None, rng)
    starts = rng.uniform(-0.8, 0.8, size=(100, 1))
    scores, outputs, promised = search(
        imagination(learned, starts), [], False, False, Effort(generations=15), rng
    )
    rule = RulePolicy(scores, outputs, np.zeros((len(scores), 1)))
    assert rule.act(np.array([[-0.5], [-0.2], [0.2], [0.5]])).tolist() == [1, 1, 0, 0]
    places, best = starts[:36, 0].copy(), 0.0
    for _ in range(30):
        places -= np.where(places > 0.0, 0.1, -0.1)
        best -= (places**2).mean()
    assert promised == pytest.approx(best, abs=0.05)


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("n", [1, 5])
def test_vectors_of_rules_decide_as_the_rules_do(boxed, n):
    rng = np.random.default_rng(2)
    used = np.array([0, 1, 3])
    coding = Coding(rng.normal(size=4), rng.uniform(0.1, 3.0, 4), 4, 2, boxed, boxed, used)
    vectors = np.array([coding.random(rng) for _ in range(n)])
    points = rng.normal(size=(200, 4))
    decoded = coding.decoded(vectors)
    for array in decoded:
        assert array.flags.c_contiguous  # numba compiles others anew: seconds
        assert array.flags.writeable
    for scores, outputs in zip(*decoded, strict=True):
        before = RulePolicy(scores, outputs, np.zeros((4, 4)))
        after = coding.rule(coding.encoded(scores, outputs))
        np.testing.assert_allclose(before.act(points), after.act(points), atol=1e-9)


def test_a_cell_that_no_episode_visits_is_dropped():
    rules = ModelAgent("Pendulum-v1", seed=91_008, **QUICK).learn(400)._engine.rules
    scores = np.array([[0.0, 0.0, 0.0, 0.0], [-9.0, 1.0, 0.0, 0.0]])  # |cos θ| <= 1
    outputs = np.random.default_rng(0).normal(size=(2, 1, 4))
    assert len(rules._simplified(rules._imagination(), (scores, outputs))[0]) == 1


def candidate(promised, returns, imagined):
    one = Candidate(np.zeros((1, 2)), np.ones((1, 1, 1)), promised=promised)
    one.imagined = list(imagined)
    for episode_return in returns:
        one.note(np.zeros(1), (episode_return, 5, True), 5 * len(one.returns))
    return one


def test_real_returns_decide_between_candidates():
    kept = candidate(80.0, [80.0, 82.0, 78.0], [80.0, 80.0, 80.0])
    broken = candidate(120.0, [30.0, 40.0, 20.0], [120.0, 120.0, 120.0])
    assert values([kept, broken]).argmax() == 0
    returns = [95.0, 105.0, 100.0, 90.0, 110.0]
    once = candidate(100.0, returns[2:3], [100.0])
    often = candidate(100.0, returns, [100.0] * 5)
    assert values([once, often]).argmax() == 1


def test_episodes_of_an_earlier_world_are_forgotten():
    one = candidate(1.0, [2.0, 3.0, 4.0], [2.5, 3.5, 4.5])
    one.keep_since(0)
    assert (one.returns, one.imagined, one.moments) == ([3.0, 4.0], [3.5, 4.5], [5, 10])


@pytest.fixture(scope="module")
def car():
    return ModelAgent("MountainCar-v0", seed=3, **OFTEN).learn(1000)


@pytest.fixture(scope="module")
def driven():
    """The same, driven for less long."""
    return ModelAgent("MountainCar-v0", seed=3, **OFTEN).learn(400)


def test_cartpole_needs_250_steps_and_four_cells():
    means = []
    for seed in range(3):
        agent = ModelAgent("CartPole-v1", seed=400 + seed).learn(250)
        assert agent.num_timesteps == 250
        assert agent.n_cells <= 4
        means.append(agent.evaluate(20, seed=1).mean())
    assert np.median(means) > 490.0  # which seed is unlucky differs from processor to processor


def test_the_car_that_never_saw_the_goal_looks_for_what_is_new(car):
    returns = car.episodes.rows[:, 0]
    assert returns.max() > -200.0
    assert car.evaluate(20, seed=1).mean() > -160.0


def test_with_the_same_seed_asking_for_the_policy_changes_nothing(driven):
    curious = ModelAgent("MountainCar-v0", seed=3, **OFTEN)
    curious.learn(400, callback=lambda agent: bool(agent.policy.n_cells + agent.n_cells))
    same(driven, curious)
    other = ModelAgent("MountainCar-v0", seed=4, **OFTEN).learn(200)
    assert not np.array_equal(*(one._engine.memory.before[:200] for one in (driven, other)))


def test_several_environments_teach_one_agent():
    agent = ModelAgent(gym.make_vec("MountainCar-v0", 4), seed=0, **QUICK).learn(1200)
    assert agent.num_timesteps == agent._engine.memory.n
    assert 1200 <= agent.num_timesteps < 1204
    seen = agent._engine.memory.transitions
    moved = seen.after[:, 0] - seen.before[:, 0]
    free = seen.after[:, 0] > -1.2  # not stopped by the wall
    np.testing.assert_allclose(moved[free], seen.after[free, 1], atol=1e-6)
    assert agent.evaluate(10, seed=0).mean() > -200.0


def test_an_action_of_ones_own_is_learned_from_and_gives_the_rule_no_credit():
    agent = ModelAgent("CartPole-v1", seed=0, **QUICK).learn(250)
    agent.begin_episode()
    rule = agent._engine.single.played
    before = list(rule.returns)
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        agent.act(observation)
        after, reward, over, _, _ = env.step(1)
        agent.update(observation, 1, reward, after, over, False)
        observation = after
    assert rule.returns == before
    last = agent._engine.memory.transitions
    assert last.codes[-1].tolist() == [0.0, 1.0]
    assert last.ended[-1]


def test_continuous_actions_of_several_environments_need_a_grid():
    with pytest.raises(TypeError, match="action_bins"):
        ModelAgent(gym.make_vec("Pendulum-v1", 2))
    agent = ModelAgent(gym.make_vec("Pendulum-v1", 2), seed=0, action_bins=3, **QUICK)
    assert agent.learn(300).num_timesteps >= 300


class Hovering(Line):
    """A height that thrust has to hold; to leave it soon ends the costs."""

    def __init__(self):
        super().__init__(power=1, lengths=(200, 200), wanted=10.0)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def reset(self, **options):
        self.speed = 0.0
        return np.append(super().reset(**options)[0], 0.0), {}

    def step(self, action):
        self.speed += 0.5 * (action - 1) + 0.1 * self.np_random.normal()
        height, reward, _, over, _ = super().step(1.0 + 0.5 * self.speed)
        left = bool(abs(height[0] - self.wanted) > 6.0)
        return np.append(height, self.speed), reward, left, over, {}


@pytest.mark.parametrize("wanted", [0.0, 20.0, 293.0])
def test_a_set_point_may_lie_anywhere(wanted):
    space, line = (
        gym.spaces.Box(-np.inf, np.inf, (2,)),
        Line(power=1, lengths=(30, 30), wanted=wanted),
    )
    env = gym.wrappers.TransformObservation(line, lambda o: np.append(o, 0.1), space)
    agent = ModelAgent(env, seed=0, **QUICK).learn(400)
    assert agent.evaluate(50, env=env, seed=1).mean() > -3.5  # at best -2
    assert agent.policy.scores[:, 1:].any(axis=0).tolist() == [True, False]  # one is constant


@pytest.mark.parametrize("seed", [0, 7])  # that left at once, at -52
def test_to_end_an_episode_early_is_not_mistaken_for_the_best(seed):
    agent = ModelAgent(Hovering(), seed=seed, **QUICK).learn(1000)
    assert agent.evaluate(30, env=Hovering(), seed=1).mean() > -12.0  # at best -4


@pytest.mark.parametrize("unit", [2.0**20, 2.0**-20])
def test_units_change_no_episode(unit):
    def make(unit):
        space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        env = Line(power=1, lengths=(30, 30), wanted=20.0)
        return gym.wrappers.TransformObservation(env, lambda o: o * unit, space)

    # Powers of two change no rounding; digits of a simplified rule are decimal.
    usual, other = (
        ModelAgent(make(one), seed=0, simplify=False, **QUICK).learn(500) for one in (1.0, unit)
    )
    np.testing.assert_array_equal(other.episodes.rows[:, 0], usual.episodes.rows[:, 0])


def test_it_learns_where_no_episode_ends():
    rng, endless = np.random.default_rng(0), Line(power=1, wanted=20.0)
    blurred = gym.wrappers.TransformObservation(
        endless, lambda o: o + 0.01 * rng.normal(), endless.observation_space
    )
    agent = ModelAgent(blurred, seed=1, **QUICK).learn(600)
    assert agent.horizon == 200
    places = agent.recent[:, 0]
    assert np.abs(places - 20.0).max() > 5.0  # random play drifts away
    assert np.abs(places[-100:] - 20.0).mean() < 0.5


@pytest.fixture
def distrustful(monkeypatch):
    steps = {"_JUDGED_FIRST": 300, "_MIN_LEFT": 1000, "_EARLY": 0}
    for name, count in steps.items():
        monkeypatch.setattr(fallback, name, count)
    monkeypatch.setattr(World, "trust", property(lambda self: Trust(False, "it is a test")))


@pytest.mark.parametrize("task", [("CartPole-v1",), ("CartPole-v1", 3), ("Pendulum-v1",)])
def test_with_few_steps_left_values_are_learned_too(distrustful, monkeypatch, task, reloaded):
    short = partial(gym.make, max_episode_steps=60)
    make = partial(gym.make_vec if len(task) > 1 else short, *task)
    monkeypatch.setattr(fallback, "_MIN_LEFT", 10_000)  # no rule is distilled
    agent = ModelAgent(make(), seed=91_003, **QUICK)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        agent.learn(3000)
    assert sum("not trusted" in str(one.message) for one in warned) == 1
    assert 3000 <= agent._real.fitted.num_timesteps == agent.num_timesteps < 3003  # of three
    assert agent._real.rule is None
    config = agent._real.fitted.config
    assert (config.longest_hold == 3) == (agent.interface.box is None)
    assert (config.exploration or 0.0) <= (6.0 if len(task) > 1 else 0.06 * 60)
    assert agent.visits.shape == agent.q_values.shape
    observation = agent.recent[0].astype(np.float32)
    assert str(agent.explain(observation))
    loaded = reloaded(agent, env=make())
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])


def test_few_steps_are_too_few_to_judge_a_world_twice(distrustful, monkeypatch, tmp_path):
    monkeypatch.setattr(fallback, "_JUDGED_FIRST", 3000)
    agent = ModelAgent("CartPole-v1", seed=0, **QUICK)
    with pytest.warns(UserWarning, match="it is a test.: real returns chose the rule"):
        agent.learn(900)
    assert (agent._real.reason, agent.distrust) == (None, "it is a test")
    agent.save(tmp_path / "a.zip")
    assert ModelAgent.load(tmp_path / "a.zip").distrust == "it is a test"


def test_no_rule_is_distilled_for_a_grid_of_torques(distrustful, monkeypatch):
    monkeypatch.setattr(fallback, "_MIN_LEFT", 500)
    agent = ModelAgent("Pendulum-v1", seed=0, action_bins=3, **QUICK)
    with pytest.warns(UserWarning, match="it is a test"):
        agent.learn(1200)
    assert agent._real.rule is None
    torques = {agent.predict(one)[0][0] for one in agent.recent[::50]}
    assert {-2.0, 2.0} <= torques <= {-2.0, 0.0, 2.0}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Box2D
def test_values_of_many_steps_towards_a_goal_choose_from_a_grid(distrustful, monkeypatch, reloaded):
    monkeypatch.setattr(fallback, "_MIN_LEFT", 500)
    agent = ModelAgent("LunarLanderContinuous-v3", seed=1, **QUICK)
    with pytest.warns(UserWarning, match="it is a test"):
        agent.learn(1200)
    seen = agent.recent[::50].astype(np.float32)
    actions = [agent.predict(one)[0] for one in seen]
    assert set(np.unique(actions)) <= {-1.0, 0.0, 1.0}
    teacher = agent._real.fitted
    np.testing.assert_array_equal(actions, [teacher.predict(one)[0] for one in seen])
    again = reloaded(agent, "LunarLanderContinuous-v3")
    for one in (agent, again):
        one.learn(250)
    np.testing.assert_array_equal(*([one.predict(x)[0] for x in seen] for one in (agent, again)))


def test_without_trust_real_returns_decide_between_values_and_rules():
    agent = ModelAgent("CartPole-v1", seed=91_005, **QUICK).learn(250)
    fitted = agent._real.fitted = FittedQAgent("CartPole-v1", seed=0)
    rule = Candidate(np.zeros((1, 5)), np.eye(2)[:1, :, None])
    for total in (90.0, 100.0, 110.0):
        rule.note(np.zeros(4), (total, 100, True), 100)
    boaster = candidate(1000.0, [-9000.0, -7000.0], [1000.0, 1000.0])
    agent._engine.rules.candidates = [rule, boaster]
    agent._engine.outcomes.append(-1e6, 200, terminated=True)
    for total, kind in ((80.0, RulePolicy), (150.0, CellPolicy)):
        record = Record(fitted.policy)
        for noise in (-10.0, 0.0, 10.0) * 4:
            record.add(total + noise)
        fitted._engine.records = [record]
        assert type(agent.policy) is kind
        assert agent.delivered_return == (total if kind is CellPolicy else 100.0)
        assert ("values in" in agent.rules()) == (kind is CellPolicy)
    agent._real.fitted, agent._real._distrusted = None, 1
    assert agent.delivered_return == 100.0


@pytest.mark.parametrize("short", [0.0, 200.0])
def test_a_world_in_which_rules_return_more_than_in_reality_is_not_trusted(short):
    agent = ModelAgent("CartPole-v1", seed=91_004, **QUICK).learn(250)
    returns = [90.0, 100.0, 110.0] * 2
    imagined = [total + short for total in returns]
    agent._engine.rules.candidates = [candidate(100.0, returns, imagined)]
    assert bool(fallback._fulfilled(agent._engine)) == (short == 0.0)


@pytest.mark.parametrize("better", [0.0, 900.0])
def test_a_world_in_which_no_rule_beats_random_actions_is_not_trusted(better):
    agent = ModelAgent("Pendulum-v1", seed=91_007, **QUICK).learn(400)
    returns = [agent._engine.outcomes.returns[0] + better] * 6
    agent._engine.rules.candidates = [candidate(100.0, returns, returns)]
    agent._engine.outcomes.append(-1e6, 200, terminated=True)  # a bad rule's
    assert bool(fallback._fulfilled(agent._engine)) == (better > 0.0)


@pytest.mark.parametrize(("noise", "trusted"), [(0.0, True), (1.0, False)])
def test_discrete_actions_need_rewards_that_are_predicted(monkeypatch, noise, trusted):
    monkeypatch.setattr(fallback, "_COMPLETE_FROM", 250)
    rng = np.random.default_rng(0)
    env = TransformReward(gym.make("CartPole-v1"), lambda reward: reward + noise * rng.normal())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        agent = ModelAgent(env, seed=91_006, **QUICK).learn(800)
    said = [str(one.message) for one in warned]
    assert (agent.distrust is None) == (not any("(R² of rewards within" in one for one in said))
    assert (agent.distrust is None) == (agent._real.fitted is None) == trusted
    assert trusted or agent._real._judged_at == 250  # half of the steps before trust is judged


@pytest.mark.slow
def test_without_trust_it_goes_on_in_the_real_environment(distrustful, reloaded):
    agent = ModelAgent("CartPole-v1", seed=91_000)
    told = []
    with pytest.warns(UserWarning, match="it is a test.: learning goes on in the real"):
        agent.learn(8000, callback=lambda one: told.append(one.num_timesteps))
    assert agent.distrust == "it is a test"
    taken = agent.num_timesteps
    assert 7000 < taken <= 8000  # a race that is decided leaves the rest of its steps
    assert told == sorted(told)
    assert isinstance(agent.policy, RulePolicy)
    assert agent.n_cells <= 16
    fitted = agent._real.fitted
    assert 4800 <= fitted.num_timesteps < taken  # those of the model, and further ones
    again = reloaded(agent, "CartPole-v1")
    np.testing.assert_array_equal(again.policy.scores, agent.policy.scores)
    assert again.distrust == agent.distrust
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in (agent, again):
            one.learn(300)  # values alone
    assert agent.num_timesteps == again.num_timesteps == taken + 300
    assert fitted.num_timesteps == again._real.fitted.num_timesteps


def bits(env_id, seed):
    """All numbers of an agent after 180 steps."""
    _, arrays = ModelAgent(env_id, seed=seed, **QUICK).learn(180)._to_file()
    return sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def test_what_ran_before_in_the_process_changes_nothing():
    tasks = [("CartPole-v1", 0), ("Pendulum-v1", 1), ("FrozenLake-v1", 3)]
    here = [bits(*task) for task in (*tasks, tasks[0])]
    code = f"from test_model_agent import bits; print([bits(*x) for x in {tasks[::-1]}])"
    garbage = {**os.environ, "MALLOC_PERTURB_": "85"}  # in memory that nobody has written yet
    there = subprocess.run(
        [sys.executable, "-c", code], env=garbage, cwd=Path(__file__).parent, check=True,
        capture_output=True,
    )  # fmt: skip
    assert here[:3] == ast.literal_eval(there.stdout.decode())[::-1]
    assert here[3] == here[0]


def test_a_car_that_needs_novelty_plans_after_each_of_its_five_episodes(monkeypatch):
    for name in ("_FREE", "_PER_STEP"):  # as if the quick searches took as long as usual ones
        share = OFTEN["generations"] * OFTEN["population"] * OFTEN["starts"] / (25 * 24 * 12)
        monkeypatch.setattr(planner, name, getattr(planner, name) * share)
    agent = ModelAgent("MountainCarContinuous-v0", seed=130_800_001, **OFTEN).learn(5_000)
    assert agent.evaluate(20, seed=0).mean() > 90.0
