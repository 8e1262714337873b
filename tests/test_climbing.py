"""One affine rule climbed in real episodes, where no world is learned."""

import math
import re

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK, Counted, Plain
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from oda_rl.agents import ModelAgent, load_agent
from oda_rl.agents.distilling.playing import BudgetedEnv
from oda_rl.agents.model import climbing, fallback
from oda_rl.agents.model.climbing import Climb, Episodes, survival_bonus
from oda_rl.agents.model.experience import Candidate
from oda_rl.agents.model.fallback import _has_goal, _known, _modelled
from oda_rl.agents.model.linear_quadratic import linear_quadratic_rules
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.coordinates import read
from oda_rl.agents.worlds.learning import CodedSteps
from oda_rl.command.cli import main
from oda_rl.command.training import command_of, options_of_run

MEAN, SCALE = np.array([100.0, -5.0, 0.0]), np.array([10.0, 0.1, 1.0])
SLOPES = np.array([[0.4, 0.0, 0.0], [0.0, -0.4, 0.0], [0.3, 0.3, 0.0], [0.0, 0.0, 0.0]])
BEST = np.concatenate([[0.2 - SLOPES[:1] / SCALE @ MEAN], (SLOPES[:1] / SCALE).T]).T
"""Output of the best rule for one component of Follow."""


class Follow(Counted):
    """Pays for actions that are affine functions of the observation; its last component is idle."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self, slopes=SLOPES, noise=0.0):
        self.slopes, self.noise = slopes, noise
        self.action_space = gym.spaces.Box(-2.0, 2.0, (len(slopes),), np.float64)

    def step(self, action):
        missed = action / 2.0 - self.slopes @ self.point - 0.2
        self.t += 1
        noise = self.noise * self.np_random.normal() if self.noise else 0.0
        return self._observe(), noise - float(missed @ missed), False, self.t == 10, {}

    def _observe(self):
        self.point = self.np_random.normal(size=3)
        return MEAN + SCALE * self.point


class Aim(Follow):
    """Its last component is the goal of an episode, of which the size matters."""

    def _observe(self):
        self.goal = self.goal if self.t else self.np_random.normal()
        self.point = np.array([0.0, 0.0, abs(self.goal)])
        return np.array([*self.np_random.normal(size=2), self.goal])


class Balance(Counted):
    """Each step pays 1 and the speed, which is the action's; too fast, and it ends."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float64)

    def step(self, action):
        speed = float(action.mean())
        self.t += 1
        return self._observe(), 1.0 + speed, speed > 0.5, self.t == 50, {}

    def _observe(self):
        return self.np_random.normal(size=2)


class Drift(Counted):
    """Each step pays 1, less the distance from 0, at which it cannot stay; at 1 it ends."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def step(self, action):
        noise, luck = self.np_random.normal(0.0, (0.05, 0.3))
        reward = 1.0 - 2.0 * min(abs(self.at), 1.0) + luck * (self.t > 0)
        self.at = 1.05 * self.at + 0.3 * float(action.mean()) + noise
        self.t += 1
        return np.array([self.at]), reward, abs(self.at) > 1.0, self.t == 100, {}

    def _observe(self):
        self.at = 0.0
        return np.zeros(1)


class Loan(Balance):
    """Pays for an action early in an episode, and costs three times as much later."""

    def step(self, action):
        self.t += 1
        owed = float(action.mean()) * (1.0 if self.t <= 25 else -3.0)
        return self._observe(), owed, False, self.t == 200, {}


class Wage(Balance):
    """Pays for an action; with a ``fall``, a ``share`` of episodes ends after that many steps."""

    fall, share = 0, 1.0

    def step(self, action):
        self.t += 1
        falls = self.t == self.fall and self.np_random.random() < self.share
        return self._observe(), 1.0 + action.mean() / 20.0, falls, self.t == 200, {}


class Pole(gym.ActionWrapper):
    """Cart-pole, which is pushed with any force."""

    def __init__(self):
        super().__init__(CartPoleEnv())
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def action(self, action):
        self.unwrapped.force_mag = 10.0 * float(action[0])
        return 1


@pytest.mark.parametrize("most", [1.0, 2.0])
def test_a_climb_begins_with_a_linear_quadratic_rule_where_survival_is_all(most):
    rules = ModelAgent(Pole(), seed=0, **QUICK).learn(300)._engine.rules
    idle = Candidate(np.zeros((1, 5)), np.zeros((1, 1, 5)))
    rules.candidates, place = [idle], Episodes(Pole())
    rules.memory.transitions.rewards[5] = most
    env = BudgetedEnv(place, 1, 20_000)
    output = _known(rules, env, place, 100, np.random.default_rng(0))
    assert output.any() == (env.steps > 0) == (most == 1.0)
    env.allow(20 * 100)
    lengths = env.play(rules.delivered(Candidate(idle.scores, output)), range(20))
    assert (lengths.min() >= 100.0) == output.any()


def test_a_linear_quadratic_rule_balances_an_inverted_pendulum_after_random_steps():
    rng = np.random.default_rng(0)

    def step(angle, speed, torque):
        speed = speed + 0.1 * (5.0 * np.sin(angle) + 8.0 * torque)
        return angle + 0.1 * speed, speed

    def observed(angle, speed):
        return np.column_stack([np.cos(angle + 0.5), np.sin(angle + 0.5), speed])

    angle, speed, torque = rng.normal(size=(3, 300)) * np.array([[0.5], [1.0], [0.5]])
    before, after = observed(angle, speed), observed(*step(angle, speed, torque))
    codes = np.column_stack([np.ones(300), torque])
    seen = CodedSteps(before, codes, -(angle**2) - speed**2, after, np.zeros(300, np.bool_))
    rules = linear_quadratic_rules(seen, read(before, after)[0])
    assert len(rules) == 6
    offsets, slopes = np.split([outputs[0, 0] for _, outputs in rules], [1], axis=1)
    angle, speed = np.full(6, 0.3), np.zeros(6)
    for _ in range(100):
        torques = offsets[:, 0] + (observed(angle, speed) * slopes).sum(axis=1)
        angle, speed = step(angle, speed, np.clip(torques, -1.0, 1.0))
    assert np.abs([angle, speed]).max() < 0.1


def test_a_linear_quadratic_rule_of_the_rewards_follows_a_goal_in_the_observation():
    rng = np.random.default_rng(0)
    before, torque = rng.uniform(-1.0, 1.0, (300, 2)), rng.uniform(-1.0, 1.0, 300)
    after = before + 0.5 * torque[:, None] * [1.0, 0.0]  # the second component is the goal
    rewards = -((after[:, 0] - after[:, 1]) ** 2)
    seen = CodedSteps(before, np.column_stack([np.ones(300), torque]), rewards, after, rewards > 1)
    output = linear_quadratic_rules(seen, read(before, after)[0], rewarded=True)[-1][1]
    np.testing.assert_allclose(output[0, 0], [0.0, -2.0, 2.0], atol=0.01)


def begun(env, steps, longest=10, rival=None, seed=0, known=()):
    place, rng = Episodes(env), np.random.default_rng(seed)
    p, d = env.action_space.shape[0], env.observation_space.shape[0]
    climb = Climb(np.reshape(known, (-1, p, 1 + d)), np.empty((0, d)))
    budgeted = BudgetedEnv(place, 1, steps)
    return climb, budgeted, climb.run(budgeted, place, longest, 0, rng, rival)


def climbed(*args, **settings):
    climb, budgeted, running = begun(*args, **settings)
    return climb, budgeted, np.concatenate(list(running))


def test_it_climbs_to_the_affine_rule_of_raw_observations_and_drops_what_is_idle():
    climb, budgeted, episodes = climbed(Follow(), 8000, longest=40)
    points = np.random.default_rng(1).normal(size=(500, 3))
    assert np.abs(climb.rule.act(MEAN + SCALE * points) - points @ SLOPES.T - 0.2).mean() < 0.12
    assert np.abs((climb.moments[0] - MEAN) / SCALE).max() < 0.05
    np.testing.assert_allclose(1.0 / climb.scale, SCALE, rtol=0.05)
    assert np.count_nonzero(climb.output) < climb.output.size
    assert 7500 < budgeted.steps <= 8000
    assert episodes[:, 1].sum() == budgeted.steps


def test_each_side_of_a_goal_has_an_affine_rule_of_its_own():
    climb, _, _ = climbed(Aim(np.array([[0.0, 0.0, 0.3]])), 12_000)
    rule, points = climb.rule, np.linspace(-2.0, 2.0, 41)[:, None] * np.eye(3)[2]
    missed = rule.act(points)[:, 0] - 0.2 - 0.3 * np.abs(points[:, 2])
    assert np.abs(missed).mean() < 0.05  # 0.15 for the best affine rule
    assert rule.cells(rule.codevectors).tolist() == [0, 1]
    assert np.array_equal(Climb.from_arrays(climb.to_arrays(), 3, 1).output, climb.output)


def test_a_constant_reward_is_a_bonus_if_there_is_more_to_get():
    idle = np.array([0.98, 1.02])
    assert survival_bonus(idle, np.array([0.5, 0.9, 1.05])) == 0.0  # survival is the task
    assert survival_bonus(idle - 1.0, np.array([0.5, 1.0, 1.5])) == 0.0
    assert survival_bonus(idle + np.array([-1.0, 1.0]), np.array([1.0, 9.0])) == 0.0
    assert survival_bonus(np.empty(0), np.empty(0)) == 0.0


def test_the_bonus_is_left_out_of_the_climb_but_not_of_its_scores():
    climb, _, _ = climbed(Balance(), 6000, longest=50)
    assert climb.bonus == 1.0
    assert 0.1 < climb.rule.act(np.zeros((1, 2))).mean() < 0.5
    assert climb.scores[0][1] > 50.0 * 0.8


def test_the_bonus_is_put_back_where_without_it_the_climb_learns_to_end_early():
    climb, _, _ = climbed(Drift(), 20_000, longest=100)
    assert climb.bonus == 0.0
    returns = BudgetedEnv(Drift(), 1, 2000).play(climb.rule, range(20))
    assert returns.mean() > 60.0  # 2 without survival


def test_where_short_episodes_mislead_it_begins_anew_in_long_ones():
    climb, _, running = begun(Loan(), 60_000, longest=200)
    while len(climb.scores) == 0:
        next(running)
    assert climb.horizon == climb.n_observed == 200  # of random actions
    assert not climb.output.any()
    assert climb.noise == 0.2
    list(running)
    assert climb.rule.act(np.zeros((1, 2))).mean() < -0.5


def test_a_climb_begins_anew_in_the_first_half_of_its_steps_where_all_fall_as_early_as_before():
    wage = Wage()
    wage.fall = 5
    climb, _, running = begun(wage, 20_000, longest=200)
    for _ in range(51):  # five stages of 800 steps
        next(running)
    climb.bonus, climb.scores[:, 1] = 1.0, 20.0  # of the first climb: the second is not misled
    horizons = [climb.horizon for _ in running if len(climb.returns) == 0 and not climb.decides]
    assert np.flatnonzero(np.diff(horizons) < 0).tolist() == [3]  # the third has too few steps left
    assert climb.bonus == 1.0


@pytest.mark.parametrize(("fall", "horizon"), [(0, 75), (40, 113)])
def test_the_best_of_three_climbs_goes_on_where_many_episodes_are_whole(fall, horizon, monkeypatch):
    monkeypatch.setattr(climbing, "_MIN_COMPARED", 60)
    wage = Wage()
    wage.fall, wage.share = fall, 0.1
    climb, _, running = begun(wage, 125_000, longest=200, seed=3)
    while len(climb.scores) < 6:
        next(running)
    assert climb.scores[:, 0].tolist() == 3 * [50, 75]
    best = climb.scores[1::2, 1].argmax()
    assert best < 2  # not the latest
    assert np.array_equal(climb.output, climb.stages[1::2][best])
    assert climb.horizon == 75
    while len(climb.scores) < 7:
        next(running)
    assert climb.horizon == horizon  # as they were compared, unless some end early


def test_with_many_episodes_a_climb_competes_with_a_trusted_world(monkeypatch):
    agent = ModelAgent(gym.wrappers.TimeLimit(Follow(SLOPES[:1]), 10), seed=0, **QUICK).learn(300)
    modelled = [_modelled(agent, left) for left in (19_000, 29_700, 499_700)]
    assert modelled == [math.inf, 3000, 0.02 * 500_000]
    for name, steps in (("_MIN_LEFT", 1000), ("_JUDGED_FIRST", 300)):
        monkeypatch.setattr(fallback, name, steps)
    agent.learn(1500, lambda one: one._real.climb is None)
    assert "a rule climbed in real episodes may return more" in agent.distrust
    assert np.array_equal(agent.policy.outputs, agent._engine.policy.outputs)  # it has not won
    assert agent.delivered_return == agent._engine.delivered_return


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_climb_loses_if_its_rival_is_better(share):
    rival = RulePolicy(np.zeros((1, 4)), share * BEST[None], np.zeros((1, 3)))
    assert climbed(Follow(SLOPES[:1]), 3000, rival=rival)[0].loses == (share == 1.0)


@pytest.mark.parametrize("share", [-1.0, 1.0])
def test_a_climb_of_60_episodes_begins_and_ends_with_a_known_rule_only_if_that_is_better(share):
    known = share * BEST[None]
    climb, _, running = begun(Follow(SLOPES[:1]), 600, known=known)
    for advance in (next, list):
        advance(running)
        assert np.array_equal(climb.output, known) == (share == 1.0)


@pytest.mark.parametrize("pays", [0.0, 1.0])
def test_a_climb_of_few_episodes_ends_with_zeros_unless_it_is_better(pays):
    env = gym.wrappers.TransformReward(Follow(), lambda reward: pays * reward)
    assert climbed(env, 800)[0].output.any() == (pays == 1.0)
    if pays == 0.0:
        agent = ModelAgent(Plain(env), seed=0, **QUICK)
        agent._real.reason = "it is a test"
        with pytest.warns(UserWarning, match="no rule better than zeros found in"):
            agent.learn(800)


@pytest.mark.parametrize("pays", [0.0, 1.0])
def test_values_are_learned_where_episodes_end_though_survival_does_not_pay(pays):
    env = gym.wrappers.TransformReward(Pole(), lambda reward: pays * reward)
    assert _has_goal(ModelAgent(env, seed=0, **QUICK).learn(300)._engine) == (pays == 0.0)


def test_many_steps_of_more_components_are_climbed_from_the_first_unless_a_world_is_trusted():
    few = ModelAgent(Plain(Follow()), seed=0, **QUICK).learn(20_000, lambda one: one.scale_ is None)
    assert few.distrust is None
    few.learn(20_000, lambda one: one.num_timesteps < 2500)
    assert few.evaluate(50, seed=0).mean() > -1.0  # -6.2 for doing nothing
    few._engine.planner._work = 21e9  # multiplications: a long search
    assert few._engine.planner.wait(2500) == 1250
    agent = ModelAgent(Plain(Follow(noise=9.0)), seed=0).learn(20_000)
    assert agent.distrust.startswith("a climb needs no model")
    curve = agent.episodes.curve
    assert 19_500 < agent.num_timesteps == curve[:, 1].sum() <= 20_000
    assert agent.episodes.best_return == curve[curve[:, 3] == 1.0, 0].max()
    assert agent.rules().splitlines()[-1] == "each at least -2 and at most 2"
    assert f" 1 cell, {agent.policy.outputs.size} numbers" in str(agent)
    returns = agent.evaluate(100, seed=1)
    assert abs(agent.delivered_return - returns.mean()) < returns.std()  # the mean of a few
    assert str(agent.explain(MEAN)).endswith("one cell decides in every state")
    assert agent.visits.sum() == len(agent.recent) > 0


def test_a_callback_ends_a_climb_after_any_iteration_of_episodes_that_are_cut():
    agent, told = ModelAgent(gym.wrappers.TimeLimit(Loan(), 200), seed=0, **QUICK), []
    agent.learn(20_000, lambda one: (
        one._real.climb is None or told.append(one.num_timesteps) or len(told) < 4
    ))  # fmt: skip
    assert np.diff(told).tolist() == 3 * [16 * 50]
    assert agent.num_timesteps == told[-1] == agent.episodes.curve[:, 1].sum()
    assert not agent.episodes.curve[-3:, 3].any()
    assert agent.policy.outputs.any()
    assert re.search(r"in training .* lately .* \(some were cut short\)", str(agent))


@pytest.mark.usefixtures("without_figures")
def test_a_run_keeps_the_steps_that_were_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fallback, "_MIN_LEFT", 2000)
    gym.register("Climbed-v0", Follow, kwargs={"noise": 9.0})
    run = ["train", "--trust-env", "--n-eval-episodes", "1", "--out", str(tmp_path)]
    climb = ["--algo", "model", "--env-id", "Climbed-v0", "--total-timesteps", "3e3"]
    assert main([*run, *climb]) == 0
    assert "--total-timesteps 3000" in command_of(options_of_run(tmp_path))
    load_agent(tmp_path).save(tmp_path)
    assert main([*run, "--resume"]) == 0
    assert re.search(r"has ended after 2,[89]\d\d steps", capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Box2D
@pytest.mark.parametrize(
    "name", ["Ant-v5", "Pusher-v5", "Reacher-v5", "LunarLanderContinuous-v3", "BipedalWalker-v3"]
)
def test_bodies_have_names(name):
    interface = ModelAgent(name).interface
    assert len(set(interface.names)) == interface.n_features
    assert not any("[" in one for one in (*interface.names, *interface.action_names))
