"""What every agent keeps to: the same bits in all loops and files, and what it refuses."""

from dataclasses import replace
from itertools import cycle

import gymnasium as gym
import numpy as np
import pytest
import test_two_timescale
from environments import BARTO, ODD_ENVS, OFTEN, Grid, Plain, Reused, Toy, play, same

from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.base import loops
from oda_rl.agents.fitted.codevectors import CodevectorAgent
from oda_rl.agents.two_timescale.engine import OnlineEngine
from oda_rl.envs.dynamics import compiled_dynamics

KINDS = (TwoTimescaleAgent, FittedQAgent)
MATRIX = test_two_timescale.MATRIX
CARTPOLE = "CartPole-v1"

kinds = pytest.mark.parametrize("kind", KINDS)
all_kinds = pytest.mark.parametrize("kind", [*KINDS, ModelAgent])


@pytest.mark.parametrize(
    ("kind", "env_id", "config"),
    [(TwoTimescaleAgent, CARTPOLE, {}),
     (TwoTimescaleAgent, BARTO, {"trace_decay": 0.0, "max_cells": 20}),
     (TwoTimescaleAgent, BARTO, {"metric": "std"}), (TwoTimescaleAgent, BARTO, {"metric": MATRIX}),
     (TwoTimescaleAgent, BARTO, {"observe_every": 1, "warmup_steps": 2000, "hold": 1}),
     (FittedQAgent, CARTPOLE, {}),
     (FittedQAgent, BARTO, {"metric": "std", "trace_decay": 0.0, "longest_hold": 1}),
     (FittedQAgent, CARTPOLE, {"max_transitions": 700, "kept_policies": 3, "exploration": 2.0})],
)  # fmt: skip
def test_fused_and_python_loop_give_the_same_bits(kind, env_id, config, monkeypatch):
    monkeypatch.setattr(OnlineEngine, "steps_before_loop", 777)  # then the compiled loop goes on
    monkeypatch.setattr(loops, "is_compiled", lambda loop: False)
    env = gym.make(env_id)
    assert compiled_dynamics(env) is not None
    assert compiled_dynamics(Plain(env)) is None
    fused = kind(env, seed=3, **config)
    stepwise = kind(Plain(gym.make(env_id)), seed=3, **config)
    for steps in (2000, 1, 41, 1500):
        same(fused.learn(steps), stepwise.learn(steps))
    assert len(fused.episodes.rows) > 20
    assert len(fused.history) >= 3
    if kind is TwoTimescaleAgent:
        assert fused._engine.steps_before_loop == 0


@pytest.mark.parametrize(
    ("kind", "env_id", "steps", "settings"),
    [(TwoTimescaleAgent, BARTO, 2000, {}),
     (TwoTimescaleAgent, "Pendulum-v1", 2500, {"max_cells": 40}), (FittedQAgent, BARTO, 2000, {}),
     (CodevectorAgent, "Pendulum-v1", 1500, {}), (ModelAgent, "MountainCar-v0", 400, OFTEN)],
)  # fmt: skip
def test_a_loop_of_ones_own_gives_the_same_bits(kind, env_id, steps, settings):
    learned, agent = (kind(env_id, seed=5, **settings) for _ in range(2))
    play(agent, Reused(gym.make(env_id)), steps, seed=agent.draw_env_seed())
    same(learned.learn(steps), agent)
    if isinstance(agent, FittedQAgent):
        same(agent, kind(Reused(gym.make(env_id)), seed=5).learn(steps))
        views = [agent.visited_states(50, wrap(gym.make(env_id)), 1) for wrap in (Plain, Reused)]
        np.testing.assert_array_equal(*views)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(TwoTimescaleAgent, {"exploration_decay": 1e9, "exploration": 0.5}),
     (FittedQAgent, {"exploration": 10.0, "confirm_episodes": 0})],
)  # fmt: skip
def test_predict_explores_as_training_would(kind, settings):
    agent = kind(BARTO, seed=0, **settings).learn(600 if kind is FittedQAgent else 2000)
    epsilon = agent._engine.epsilon
    assert 0.1 < epsilon < 0.8
    draws = np.array([agent.predict(np.zeros(4), deterministic=False)[0] for _ in range(4000)])
    # Half of the random actions are not greedy; the standard error is below 0.008.
    greedy = agent.predict(np.zeros(4))[0]
    assert np.mean(draws != greedy) == pytest.approx(epsilon / 2, abs=0.03)


@kinds
@pytest.mark.parametrize("wrap", [lambda env: env, Plain], ids=["fused", "stepwise"])
def test_a_callback_sees_each_episode_can_stop_and_changes_nothing(kind, wrap):
    seen = []

    def callback(agent):
        seen.append(len(agent.episodes.rows))
        return len(seen) < 7

    stopped, usual, watched = (kind(wrap(gym.make(BARTO)), seed=1) for _ in range(3))
    stopped.learn(10**9, callback=callback)
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert stopped.num_timesteps == stopped.episodes.rows[:, 1].sum()
    watched.learn(2000, callback=lambda agent: None, progress_bar=True)
    same(usual.learn(2000), watched)


@kinds
def test_evaluation_is_the_same_in_both_loops_and_changes_nothing(kind):
    first, second = (kind(BARTO, seed=0).learn(1500) for _ in range(2))
    fused = second.evaluate(6, seed=5)
    np.testing.assert_array_equal(fused, second.evaluate(6, env=Plain(gym.make(BARTO)), seed=5))
    np.testing.assert_array_equal(fused, second.evaluate(6, env=BARTO, seed=np.int64(5)))
    assert len(set(fused)) > 1
    second.visited_states(50, seed=0)
    second.predict(np.zeros(4), deterministic=False)
    second.cell(np.zeros((3, 4)))
    same(first.learn(1500), second.learn(1500))


@kinds
def test_observations_of_any_shape_and_actions_from_any_start(kind):
    env = Grid()
    agent = kind(env, seed=0).learn(1500)
    assert env.seen == {-1, 0, 1}
    assert agent.codevectors.shape == (agent.n_cells, 6)
    assert agent.q_values.shape == (agent.n_cells, 3)
    assert agent.predict(np.zeros((2, 3), dtype=np.uint8))[0] in (-1, 0, 1)
    assert agent.predict(np.zeros((5, 2, 3)))[0].shape == (5,)
    assert agent.act(np.zeros((2, 3))) in (-1, 0, 1)
    assert agent.evaluate(3, env=env).tolist() == [10, 10, 10]
    assert agent.evaluate(3).tolist() == [10, 10, 10]  # in a copy


@kinds
def test_a_loaded_agent_is_the_same(kind, tmp_path):
    agent = kind(CARTPOLE, seed=3).learn(4000)
    points = np.random.default_rng(0).normal(size=(100, 4))
    for name in ("agent.zip", "run"):
        agent.save(tmp_path / name)
        loaded = load_agent(tmp_path / name)
        assert type(loaded) is kind
        same(loaded, agent)
        for attribute in ("config", "n_cells", "env_id", "solved_return", "training_seconds"):
            assert getattr(loaded, attribute) == getattr(agent, attribute)
        np.testing.assert_array_equal(loaded.episodes.rows, agent.episodes.rows)
        np.testing.assert_array_equal(loaded.predict(points)[0], agent.predict(points)[0])
        np.testing.assert_array_equal(loaded.evaluate(5, seed=1), agent.evaluate(5, seed=1))


@kinds
def test_an_untrained_agent_plays_and_can_be_saved(kind, tmp_path):
    agent = kind(BARTO, seed=0)
    assert (agent.n_cells, agent.num_timesteps, agent.predict(np.zeros(4))[0]) == (1, 0, 0)
    agent.save(tmp_path / "new")
    assert load_agent(tmp_path / "new").num_timesteps == 0
    same(kind(BARTO, seed=0).learn(500), agent.learn(500))


WIDE = pytest.param(Toy(n_features=100), id="wide")


@pytest.mark.parametrize(  # of an odd number of kinds, each as a toy and with varied returns
    ("kind", "env"),
    [
        pytest.param(kind, *env.values, id=f"{kind.__name__}-{env.id}")
        for kind, env in zip(cycle(KINDS), [*ODD_ENVS, WIDE], strict=False)
    ],
)
def test_odd_environments_train(kind, env):
    agent = kind(env, seed=0).learn(1200)
    assert agent.num_timesteps == 1200
    assert len(agent.history) > 0
    most = 256 if kind is TwoTimescaleAgent else 0.8 * np.sqrt(2 * 1200)  # rows are steps and ends
    for policy in (agent.policy, getattr(agent, "newest", agent.policy)):
        assert 1 <= policy.n_cells <= most
        for name, array in policy.arrays.items():
            assert np.isfinite(array).all(), name
        assert np.isfinite(policy.q_values).all()
    assert np.isfinite(agent.metric_).all()
    assert np.isfinite(agent.scale_).all()
    agent.evaluate(1, env=env) if env.length else agent.visited_states(20, env=env)


@kinds
@pytest.mark.parametrize(("unit", "reward"), [(2.0**30, 2.0**-20), (2.0**-30, 2.0**20)])
def test_units_change_no_action(kind, unit, reward):
    def make(unit=1.0, reward=1.0):
        env = gym.make(CARTPOLE)
        space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        env = gym.wrappers.TransformObservation(env, lambda o: np.float32(o * unit), space)
        return gym.wrappers.TransformReward(env, lambda r: r * reward)

    usual, other = (kind(made, seed=0).learn(1500) for made in (make(), make(unit, reward)))
    # Powers of two change no rounding, so the agents see the same episodes to the end.
    np.testing.assert_array_equal(other.episodes.rows[:, 1], usual.episodes.rows[:, 1])
    np.testing.assert_array_equal(other.episodes.rows[:, 0], usual.episodes.rows[:, 0] * reward)
    np.testing.assert_array_equal(other.codevectors, usual.codevectors * np.float32(unit))
    np.testing.assert_array_equal(other.q_values, usual.q_values * reward)


@all_kinds
@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((4, 4, 4)), 0.0])
def test_observations_of_the_wrong_shape(kind, bad):
    agent = kind(BARTO)
    for method in (agent.act, agent.predict, agent.cell):
        with pytest.raises(ValueError, match=r"shape .*must be \(4,\)"):
            method(bad)
    agent.act(np.zeros(4))
    for pair in ((bad, np.zeros(4)), (np.zeros(4), bad)):
        with pytest.raises(ValueError, match=r"shape .*must be \(4,\)"):
            agent.update(pair[0], 0, 1.0, pair[1], False, False)
    assert agent.num_timesteps == 0


@all_kinds
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e200])
def test_values_that_are_not_finite(kind, bad):
    agent = kind(BARTO, seed=0)
    observation, good = np.array([0.0, 0.0, bad, 0.0]), np.zeros(4)
    for method in (agent.act, agent.predict, agent.cell):
        with pytest.raises(ValueError, match="observation is not finite"):
            method(observation)
    for arguments in (
        (good, 0, 1.0, observation, False, False),
        (observation, 0, 1.0, good, False, False),
        (good, 0, bad, good, False, False),
    ):
        agent.act(good)
        with pytest.raises(ValueError, match="(observation|reward) is not finite"):
            agent.update(*arguments)
        assert agent.num_timesteps == 0
        assert not np.any(agent.visits)
    agent.update(good, 0, 1.0, good, False, False)
    assert agent.num_timesteps == 1


@all_kinds
def test_update_needs_act(kind):
    agent = kind(BARTO, seed=0)
    transition = (np.zeros(4), 0, 1.0, np.zeros(4), False, False)
    for before in (lambda: None, lambda: agent.update(*transition), lambda: agent.learn(50)):
        before()
        with pytest.raises(RuntimeError, match="before act"):
            agent.update(*transition)
        agent.act(np.zeros(4))
    for action in (2, -1, 0.5):
        agent.act(np.zeros(4))
        with pytest.raises(ValueError, match="action is .*from 0 to 1"):
            agent.update(np.zeros(4), action, 1.0, np.zeros(4), False, False)
    for reward in (None, np.ones(2), "much"):
        agent.act(np.zeros(4))
        with pytest.raises(ValueError, match="reward is .*one number"):
            agent.update(np.zeros(4), 0, reward, np.zeros(4), False, False)


@kinds
def test_only_rules_can_be_edited_and_proved(kind):
    agent = kind("CartPole-v1")
    for name in ("edit", "prove", "rules"):
        assert not hasattr(agent, name)
        with pytest.raises(AttributeError, match=rf"has no {name}\(\): only a rule has it"):
            getattr(agent, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = agent.nothing


@pytest.mark.parametrize("kind", [*KINDS, CodevectorAgent])
def test_returns_of_other_actions_are_those_of_no_policy(kind):
    env = gym.make("Pendulum-v1")
    agent = kind(env, seed=0)
    observation, _ = env.reset(seed=0)
    for t in range(2_000):
        agent.act(observation)
        action = np.array([-2.0 if t % 2 else 2.0], np.float32)
        after, reward, terminated, truncated, _ = env.step(action)
        agent.update(observation, action, reward, after, terminated, truncated)
        observation = env.reset()[0] if truncated else after
    assert agent.episodes.count == 10
    assert np.isnan(agent.delivered_return)


NAN, INF = float("nan"), float("inf")
BAD_SETTINGS = {
    TwoTimescaleAgent: {
        "gamma": (0.0, 1.01, NAN), "trace_decay": (-0.1,), "exploration": (2.0,),
        "exploration_decay": (0.0,), "step_exponent": (1.5,), "cooling": (1.0,), "max_cells": (0,),
        "hold": (0,), "min_slow_step": (-0.1,), "step_size": (0.0,), "observe_every": (0,),
        "warmup_steps": (1,),
        "metric": (
            "euclidean", None, 1.0, (1.0,) * 4, ((1.0, "x"), (0.0, 1.0)), (), ((1.0, 0.0), (0.0,)),
            np.eye(3), np.ones((4, 3)), np.zeros((4, 4)), -np.eye(4), np.eye(4) + np.eye(4, k=1),
            np.diag([1.0, 1.0, 1.0, -0.1]), np.diag([1.0, 1.0, 1.0, NAN]),
        ),
    },
    FittedQAgent: {
        "gamma": (0.0, 1.0, NAN), "trace_decay": (-0.1, 1.1), "max_cells": (0, 65_536, 20.5),
        "metric": ("euclidean", None, np.eye(4)), "cells_per_root": (0.0, INF), "n_fits": (0, True),
        "optimism": (0.0, NAN), "refit_every": (0.0,), "exploration": (-0.1, INF),
        "min_refit": (0,), "longest_hold": (0,), "kept_policies": (0,), "confirm_episodes": (-1,),
        "confirm_share": (-0.1, 1.1), "max_transitions": (0,),
    },
    ModelAgent: {
        "population": (3, 1001), "generations": (10_001,), "random_steps": (0,),
        "confirm_share": (1.5,), "action_bins": (1,), "plan_every": (0.0,), "simplify": (1,),
    },
}  # fmt: skip


@all_kinds
def test_bad_settings(kind):
    config = kind(BARTO).config
    for name, value in ((name, one) for name, bad in BAD_SETTINGS[kind].items() for one in bad):
        with pytest.raises(ValueError, match=f"(?s){name} is .*must"):
            kind(BARTO, **{name: value})
        if name not in ("metric", "action_bins"):  # whose size and use the environment decides
            with pytest.raises(ValueError, match=f"(?s){name} is .*must"):
                replace(config, **{name: value})


@all_kinds
def test_unknown_settings_are_answered(kind):
    for name, answer in (
        ("discount", "it is called gamma"), ("action_bin", "did you mean action_bins"),
        ("learning_rate", "TwoTimescaleAgent has step_size"),
        ("verbose", "learn.progress_bar=True."), ("nonsense", "it has .*action_bins")
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"{name} is no setting of {kind.__name__}: {answer}"):
            kind(CARTPOLE, **{name: 0.5})


@pytest.mark.parametrize("env_id", ["NoSuchEnv-v0", "CartPole-v99", "no_such_module:Env-v0", ""])
def test_unknown_environment(env_id):
    with pytest.raises(ValueError, match=f"env_id is {env_id!r}.*pprint_registry"):
        TwoTimescaleAgent(env_id)


@all_kinds
def test_bad_arguments(kind):
    one = kind(BARTO)
    calls = {"total_timesteps": one.learn, "n_eval_episodes": one.evaluate, "seed": one.episode}
    for name, call in calls.items():
        for value in (-5, 1.5):
            with pytest.raises(ValueError, match=f"{name} is {value}"):
                call(value)
    with pytest.raises(ValueError, match="seed is -1"):
        kind(BARTO, seed=-1)
