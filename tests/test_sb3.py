"""The algorithms for Stable-Baselines3 learn what the agents learn, and work with its tools."""

import io
import runpy
import signal
import sys
import zipfile
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import test_partitions
import torch
from environments import (
    NONSENSE,
    Broken,
    Counted,
    Grid,
    Toy,
    quick,
    quick_rule,
    same,
    short,
    steps_for,
)
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import IdentityEnvMultiDiscrete
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

from oda_rl.agents import CodevectorAgent, FittedQAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.sb3.algorithms import Codevector, FittedQ, Model, TwoTimescale

QuickSearch = quick(Model)
PAIRS = {TwoTimescale: TwoTimescaleAgent, FittedQ: FittedQAgent, QuickSearch: quick_rule}

forked = partial(SubprocVecEnv, start_method="fork")  # the default imports torch in each process


def of(*kinds):
    """Try algorithms: two of three, in turn, where what they share is tried."""
    return pytest.mark.parametrize("algorithm", kinds, ids=lambda kind: kind.__name__)


algorithms = of(*PAIRS)


def monitored():
    return Monitor(gym.make("CartPole-v1"))


WRAPPED = {
    "plain": lambda make: make(),
    "Monitor": lambda make: Monitor(make()),
    "DummyVecEnv": lambda make: DummyVecEnv([make]),
    "SubprocVecEnv": lambda make: forked([make]),
    "VecMonitor": lambda make: VecMonitor(DummyVecEnv([make])),
}


@pytest.mark.parametrize(
    ("algorithm", "wrap"),
    [
        (algorithm, wrap)
        for algorithm in PAIRS
        for wrap in WRAPPED
        if algorithm is TwoTimescale or wrap in ("plain", "VecMonitor")
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_it_learns_what_the_agent_learns(algorithm, wrap):
    agent = PAIRS[algorithm](short(), seed=3)
    model = algorithm(WRAPPED[wrap](short), seed=3)
    assert isinstance(model, BaseAlgorithm)
    assert model.agent.solved_return == agent.solved_return == 475
    first = steps_for(algorithm, 800, 200)
    for steps in (first, 1, 200):
        same(model.learn(steps).agent, agent.learn(steps))
    lengths = agent.episodes.rows[:, 1]
    assert lengths.min() < 30 == lengths.max()
    assert (model.num_timesteps, model.agent.num_timesteps) == (200, first + 201)
    model.get_env().close()


def test_each_state_of_a_few_is_learned_by_itself():
    env, returns = IdentityEnvMultiDiscrete(4), []  # pays for the action that equals what is seen
    for seed in range(3):  # 21 of 25 other seeds have 90 or more of 100
        env.action_space.seed(seed)
        model = FittedQ(env, seed=seed).learn(1200)
        returns.append(evaluate_policy(model, model.get_env(), 5)[0])
    assert np.median(returns) >= 90


@pytest.mark.slow
def test_the_threshold_is_known_of_environments_in_other_processes():
    scaled = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 0.5 * reward)
    for made, expected in ((scaled, 475), (Toy(), None)):  # the first cannot be pickled
        env = forked([lambda made=made: made])
        model = TwoTimescale(env, seed=0).learn(20)
        assert model.agent.solved_return == expected
        assert model.agent.env is None
        env.close()


@of(TwoTimescale, QuickSearch)
def test_learning_goes_on_where_it_stopped(algorithm):
    whole = algorithm("CartPole-v1", seed=1).learn(600)
    parts = algorithm("CartPole-v1", seed=1).learn(233)
    for steps in (1, 366):
        parts.learn(steps, reset_num_timesteps=False)
    same(parts.agent, whole.agent)
    assert parts.num_timesteps == whole.num_timesteps == 600
    assert parts.agent.training_seconds > 0


@of(FittedQ, QuickSearch)
def test_evaluation_stops_training_and_keeps_the_best_model(algorithm, tmp_path):
    stop = StopTrainingOnRewardThreshold(reward_threshold=100, verbose=0)
    evaluation = EvalCallback(
        monitored(), callback_on_new_best=stop, n_eval_episodes=3, eval_freq=500,
        log_path=str(tmp_path), best_model_save_path=str(tmp_path), verbose=0,
    )  # fmt: skip
    model = algorithm("CartPole-v1", seed=0).learn(20_000, callback=evaluation)
    assert model.num_timesteps < 20_000
    assert model.num_timesteps % 500 == 0
    assert evaluation.best_mean_reward >= 100
    with np.load(tmp_path / "evaluations.npz") as found:
        assert found["timesteps"][-1] == model.num_timesteps
        assert found["results"][-1].mean() == evaluation.best_mean_reward
    best = algorithm.load(tmp_path / "best_model")
    assert best.num_timesteps == model.num_timesteps
    same(best.agent, model.agent)
    unseen = algorithm("CartPole-v1", seed=0).learn(model.num_timesteps)
    same(unseen.agent, model.agent)  # evaluating has changed nothing


@of(TwoTimescale, FittedQ)
def test_checkpoints_are_learned_on_from(algorithm, tmp_path):
    model = algorithm("CartPole-v1", seed=0)
    model.learn(800, callback=CheckpointCallback(300, str(tmp_path), name_prefix="cells"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["cells_300_steps.zip", "cells_600_steps.zip"]
    loaded = algorithm.load(tmp_path / names[1], env=gym.make("CartPole-v1"))
    assert (loaded.num_timesteps, loaded.agent.num_timesteps) == (600, 600)
    loaded.learn(100, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded.agent.num_timesteps) == (700, 700)
    same(loaded.agent, load_agent(tmp_path / names[1], "CartPole-v1").learn(100))


@pytest.mark.filterwarnings("ignore:rich is experimental")
@pytest.mark.parametrize("bar", [{"progress_bar": True}, {"callback": ProgressBarCallback}])
def test_progress_bar(bar, capsys):
    options = {name: value() if callable(value) else value for name, value in bar.items()}
    TwoTimescale("CartPole-v1", seed=0).learn(300, **options)
    assert "300/300" in "".join(capsys.readouterr())


def telling(word):
    return lambda self: self.told.append(word)


class Watching(BaseCallback):
    """Counts what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    _on_training_start, _on_rollout_start = telling("start"), telling("rollout")
    _on_rollout_end, _on_training_end = telling("rolled"), telling("finish")

    def _on_step(self):
        assert self.num_timesteps == self.model.num_timesteps == self.model.agent.num_timesteps
        assert self.locals["new_obs"].shape == (1, 4)
        assert self.training_env is self.model.get_env()
        self.told.append("end" if self.locals["dones"][0] else "step")
        return True


def test_lists_of_callbacks():
    watching, three = Watching(), StopTrainingOnMaxEpisodes(3)
    model = FittedQ("CartPole-v1", seed=0).learn(10_000, callback=[watching, three])
    assert len(model.agent.episodes.rows) == 3
    lengths = model.agent.episodes.rows[:, 1].astype(int)
    expected = ["start"]
    for length in lengths:
        expected += ["rollout", *["step"] * (length - 1), "end", "rolled"]
    assert watching.told == [*expected, "finish"]
    nested = CallbackList([CallbackList([StopTrainingOnMaxEpisodes(2)])])
    model.learn(10_000, callback=nested, reset_num_timesteps=False)
    assert len(model.agent.episodes.rows) == 5


def test_a_function_that_returns_false_stops_between_two_steps():
    model = TwoTimescale("CartPole-v1", seed=0)
    model.learn(10_000, callback=lambda here, _: here["self"].num_timesteps < 123)
    assert model.num_timesteps == model.agent.num_timesteps == 123
    assert model._current_progress_remaining == pytest.approx(1.0 - 123 / 10_000)
    model.learn(77, reset_num_timesteps=False)
    same(model.agent, TwoTimescale("CartPole-v1", seed=0).learn(200).agent)


def test_ctrl_c_leaves_a_whole_model(tmp_path):
    def press(here, _):
        if here["self"].num_timesteps == 250:
            signal.raise_signal(signal.SIGINT)
        return True

    model = FittedQ("CartPole-v1", seed=0)
    with pytest.raises(KeyboardInterrupt):
        model.learn(1000, callback=press)
    assert model.num_timesteps == 250
    model.learn(150, reset_num_timesteps=False)
    same(model.agent, FittedQ("CartPole-v1", seed=0).learn(400).agent)


@of(TwoTimescale, FittedQ)
def test_log_as_csv_and_on_the_screen(algorithm, tmp_path, capsys):
    model = algorithm("CartPole-v1", seed=0, stats_window_size=3)
    model.set_logger(configure(str(tmp_path), ["csv", "stdout"]))
    model.learn(1500, log_interval=3)
    model.logger.close()
    rows = np.genfromtxt(tmp_path / "progress.csv", delimiter=",", names=True, deletechars="")
    episodes = model.agent.episodes.rows
    assert len(rows) == len(episodes) // 3 > 2
    for row, n in zip(rows, range(3, 1500, 3), strict=False):
        assert row["time/episodes"] == n
        assert row["time/total_timesteps"] == episodes[:n, 1].sum()
        assert row["rollout/ep_rew_mean"] == pytest.approx(episodes[n - 3 : n, 0].mean())
        assert row["rollout/ep_len_mean"] == pytest.approx(episodes[n - 3 : n, 1].mean())
    assert (rows["time/fps"] > 0).all()
    assert (rows["train/cells"] >= 1).all()
    assert (np.diff(rows["rollout/exploration_rate"]) <= 0).any()
    assert ("train/temperature" in rows.dtype.names) == (algorithm is TwoTimescale)
    assert "exploration_rate" in capsys.readouterr().out


def test_nothing_is_logged_unless_asked(capsys):
    TwoTimescale("CartPole-v1", seed=0).learn(300)
    TwoTimescale("CartPole-v1", seed=0, verbose=1).learn(300, log_interval=None)
    assert "ep_rew_mean" not in capsys.readouterr().out
    TwoTimescale("CartPole-v1", seed=0, verbose=1).learn(300)
    assert "ep_rew_mean" in capsys.readouterr().out


def test_log_for_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = TwoTimescale("CartPole-v1", seed=0, tensorboard_log=tmp_path)
    for steps, options in (
        (800, {}), (200, {"reset_num_timesteps": False}), (100, {"tb_log_name": "other"})
    ):  # fmt: skip
        model.learn(steps, **options)
        model.logger.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["TwoTimescale_1", "other_1"]
    events = EventAccumulator(str(tmp_path / "TwoTimescale_1")).Reload()
    assert {"rollout/ep_rew_mean", "train/cells"} <= set(events.Tags()["scalars"])
    steps = [event.step for event in events.Scalars("time/fps")]
    assert 800 < steps[-1] <= 1000


@pytest.mark.parametrize(
    ("algorithm", "norm_reward"), [(TwoTimescale, True), (FittedQ, False), (QuickSearch, True)]
)
def test_vec_normalize(algorithm, norm_reward):
    def make(**options):
        return VecNormalize(DummyVecEnv([monitored]), norm_reward=norm_reward, **options)

    env, evaluated = make(), make(training=False)
    evaluated.norm_reward = False
    model = algorithm(env, seed=1)
    assert model.get_vec_normalize_env() is env
    evaluation = EvalCallback(evaluated, n_eval_episodes=2, eval_freq=500, verbose=0)
    model.learn(steps_for(algorithm, 1500, 500), callback=evaluation)
    np.testing.assert_array_equal(evaluated.obs_rms.mean, env.obs_rms.mean)
    assert np.abs(model.agent.codevectors).max() <= 10.5
    np.testing.assert_allclose(model.agent.episodes.rows[:, 0], model.agent.episodes.rows[:, 1])
    assert model.agent.env is None  # it would be another without the normalization
    evaluated.seed(1)
    mean, _ = evaluate_policy(model, evaluated, n_eval_episodes=8)
    assert mean > 20.0  # random play has 20


@of(TwoTimescale, QuickSearch)
def test_predict_takes_one_observation_or_a_batch(algorithm):
    model = algorithm("CartPole-v1", seed=0).learn(steps_for(algorithm, 1500))
    points = np.random.default_rng(0).normal(size=(50, 4), scale=0.2).astype(np.float32)
    actions, state = model.predict(points, deterministic=True)
    assert state is None
    assert actions.shape == (50,)
    np.testing.assert_array_equal(actions, model.agent.predict(points)[0])
    assert set(actions) == {0, 1}
    for point, action in zip(points, actions, strict=True):
        single, state = model.predict(point, state=(7,), episode_start=[True], deterministic=True)
        assert single.shape == ()
        assert single == action
        assert state == (7,)
    np.testing.assert_array_equal(model.policy.predict(points, deterministic=True)[0], actions)
    with pytest.raises(ValueError, match="mixing Gym API"):
        model.predict(gym.make("CartPole-v1").reset())
    with pytest.raises(ValueError, match="not finite"):
        model.predict(points * np.nan)
    explores = TwoTimescale("CartPole-v1", seed=0).learn(10)  # plays at random
    assert {int(explores.predict(np.zeros(4))[0]) for _ in range(50)} == {0, 1}


@of(FittedQ, QuickSearch)
def test_evaluate_policy_in_several_environments(algorithm):
    model = algorithm("CartPole-v1", seed=0).learn(steps_for(algorithm, 1000))
    several = make_vec_env("CartPole-v1", n_envs=3, seed=5)
    returns, _ = evaluate_policy(model, several, n_eval_episodes=6, return_episode_rewards=True)
    several.seed(5)
    agents, _ = evaluate_policy(
        model.agent, several, n_eval_episodes=6, return_episode_rewards=True
    )
    assert returns == agents


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [*((algorithm, DummyVecEnv) for algorithm in PAIRS),
     pytest.param(TwoTimescale, forked, id="TwoTimescale-SubprocVecEnv")],
    ids=lambda kind: getattr(kind, "__name__", "SubprocVecEnv"),
)  # fmt: skip
def test_several_environments_teach_what_gymnasiums_do(algorithm, kind):
    env = kind([short] * 4)
    steps = steps_for(algorithm, 1600, 600)
    model = algorithm(env, seed=6).learn(steps)
    env.close()
    assert model.num_timesteps == steps
    mode = gym.vector.AutoresetMode.SAME_STEP
    vector = gym.vector.SyncVectorEnv([short] * 4, autoreset_mode=mode)
    other = PAIRS[algorithm](vector, seed=6).learn(steps)
    if algorithm is QuickSearch:  # which has already chosen the next action
        one, other = (agent._engine.state_arrays() for agent in (model.agent, other))
        for name in one.keys() - {"env_state", "code"}:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    else:
        same(model.agent, other)
    assert len(model.agent.episodes.rows) == model._episode_num


@of(TwoTimescale, FittedQ)
def test_several_environments_with_what_goes_around_them(algorithm, tmp_path):
    env = make_vec_env(short, n_envs=3, seed=1, monitor_dir=str(tmp_path))
    best = EvalCallback(make_vec_env(short, n_envs=2), n_eval_episodes=2, eval_freq=300, verbose=0)
    model = algorithm(env, seed=1).learn(900, callback=best, log_interval=1)
    env.close()
    assert best.best_mean_reward > 5
    assert len(load_results(str(tmp_path))) == len(model.agent.episodes.rows) > 20
    stopped = StopTrainingOnMaxEpisodes(10, verbose=0)
    halves = algorithm(make_vec_env(short, n_envs=3, seed=1), seed=1).learn(3000, stopped)
    assert halves.num_timesteps < 3000
    halves.learn(300, reset_num_timesteps=False)
    steps = halves.num_timesteps
    whole = algorithm(make_vec_env(short, n_envs=3, seed=1), seed=1).learn(steps)
    same(halves.agent, whole.agent)
    halves.save(tmp_path / "m")
    with pytest.raises(ValueError, match="env has 2 environments: .* as many as the model, 3"):
        halves.set_env(make_vec_env(short, n_envs=2))
    loaded = algorithm.load(tmp_path / "m", env=make_vec_env(short, n_envs=2))
    assert loaded.learn(100).agent.num_timesteps == steps + 100
    normalized = VecNormalize(make_vec_env("CartPole-v1", n_envs=3, seed=1))
    model = algorithm(normalized, seed=0).learn(600)
    returns = model.agent.episodes.rows[:, 0]
    np.testing.assert_allclose(returns, model.agent.episodes.rows[:, 1], rtol=1e-5)


@of(FittedQ, QuickSearch)
def test_a_saved_model_learns_on_as_the_agent_does(algorithm, tmp_path):
    model = algorithm(short(), seed=2, verbose=0, tensorboard_log=None).learn(300)
    agent = PAIRS[algorithm](short(), seed=2).learn(300)
    model.save(tmp_path / "deep" / "model", exclude=["verbose"], include=["policy"])
    agent.save(tmp_path / "agent.zip")
    loaded = algorithm.load(str(tmp_path / "deep" / "model"), env=short(), verbose=1)
    assert (loaded.verbose, loaded.num_timesteps, loaded.seed) == (1, 300, 2)
    loaded.learn(200, log_interval=None)
    again = PAIRS[algorithm].load(tmp_path / "agent.zip", env=short())
    again._env_rng = None  # a model seeds its environment anew
    same(loaded.agent, again.learn(200))


@of(TwoTimescale, QuickSearch)
def test_files_hold_arrays_and_json_and_are_those_of_the_agent(algorithm, tmp_path):
    model = algorithm("CartPole-v1", seed=2).learn(600)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert all(name.endswith((".npy", ".json")) for name in archive.namelist())
    for agent in (
        load_agent(tmp_path / "model.zip"),
        PAIRS[algorithm].load(tmp_path / "model.zip"),
    ):
        same(agent, model.agent)
        assert agent.env_id == "CartPole-v1"
    model.agent.save(tmp_path / "run")
    from_agent = algorithm.load(tmp_path / "run")
    same(from_agent.agent, model.agent)
    assert from_agent.num_timesteps == 600


@of(TwoTimescale, FittedQ)
def test_a_model_without_an_environment_predicts(algorithm, tmp_path):
    model = algorithm("CartPole-v1", seed=2).learn(1000)
    model.save(tmp_path / "m.v1")  # a suffix stays
    loaded = algorithm.load(tmp_path / "m.v1")
    assert loaded.get_env() is None
    points = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_array_equal(
        loaded.predict(points, deterministic=True)[0], model.predict(points, deterministic=True)[0]
    )
    assert loaded.agent.evaluate(2, seed=1).tolist() == model.agent.evaluate(2, seed=1).tolist()
    with pytest.raises(ValueError, match="env is None: call set_env"):
        loaded.learn(10)
    loaded.set_env(gym.make("CartPole-v1"))
    assert loaded.learn(10, reset_num_timesteps=False).num_timesteps == 1010


def test_set_env():
    model = TwoTimescale("CartPole-v1", seed=0).learn(205)
    other = DummyVecEnv([monitored])
    model.set_env(other)
    assert model.get_env() is other
    assert model.agent.env is other.envs[0].env
    model.learn(95, reset_num_timesteps=False)
    assert (other.envs[0].get_total_steps(), model.num_timesteps) == (95, 300)
    normalized = VecNormalize(other)
    model.set_env(normalized)
    assert model.get_vec_normalize_env() is normalized
    assert model.agent.env is None
    # Without a seed the environment keeps its own.
    first = [TwoTimescale(make_vec_env("CartPole-v1", seed=9)) for _ in range(2)]
    np.testing.assert_array_equal(*(model.get_env().reset() for model in first))


@of(FittedQ, QuickSearch)
def test_environments_that_do_not_fit(algorithm, tmp_path):
    model = algorithm("CartPole-v1", seed=0).learn(300)
    model.save(tmp_path / "m")
    for give in (algorithm, model.set_env, lambda env: algorithm.load(tmp_path / "m", env=env)):
        with pytest.raises(ValueError, match="vector environment of Gymnasium"):
            give(gym.make_vec("CartPole-v1", num_envs=1))
    for env in ("Acrobot-v1", "MountainCar-v0"):
        with pytest.raises(ValueError, match="trained with"):
            algorithm.load(tmp_path / "m", env=env)
        with pytest.raises(ValueError, match="spaces do not match"):
            model.set_env(gym.make(env))
    for wrong, message in ((None, "env is None"), ("Nowhere-v0", "env_id is 'Nowhere-v0'")):
        with pytest.raises(ValueError, match=message):
            algorithm(wrong)
    with pytest.raises(TypeError, match="learning_rate"):
        algorithm("CartPole-v1", learning_rate=1.0)
    with pytest.raises(ValueError, match="total_timesteps is 0"):
        model.learn(0)
    assert model.learn(10, reset_num_timesteps=False).num_timesteps == 310


def test_files_of_others(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        TwoTimescale.load(tmp_path / "nowhere")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(ValueError, match="damaged"):
        TwoTimescale.load(tmp_path / "text")
    theirs = DQN("MlpPolicy", "CartPole-v1", buffer_size=10)
    theirs.save(tmp_path / "dqn")
    theirs.policy.save(tmp_path / "policy.pth")
    for load in (TwoTimescale.load, FittedQ.load, FittedQAgent.load, load_agent):
        for name in ("dqn.zip", "policy.pth"):
            with pytest.raises(ValueError, match=f"{name}' is damaged, or was not written by"):
                load(tmp_path / name)
    ours = FittedQ("CartPole-v1", seed=0)
    with pytest.raises(NotImplementedError, match=r"save the model: model.save"):
        ours.policy.save(tmp_path / "policy.pth")
    assert ours.policy(torch.zeros(1, 4)).shape == (1,)
    with pytest.raises(ValueError, match="the environment comes first; there is no network"):
        FittedQ("MlpPolicy", ours.env, seed=0)
    ours.save(tmp_path / "ours")
    with pytest.raises(ValueError, match="ours.zip' holds 'FittedQAgent'"):
        TwoTimescale.load(tmp_path / "ours")
    with pytest.raises(TypeError, match="unknown arguments gamma, seed: it takes env, verbose"):
        FittedQ.load(tmp_path / "ours", gamma=0.9, seed=1)


def test_partitions_of_ones_own_are_saved(tmp_path):
    first, second = test_partitions.Halves(4), test_partitions.Halves(4)
    model = TwoTimescale("CartPole-v1", seed=0, partition=first).learn(800)
    model.save(tmp_path / "own")
    loaded = TwoTimescale.load(tmp_path / "own", partition=second)
    assert loaded.agent.partition is second
    np.testing.assert_array_equal(loaded.agent.q_values, model.agent.q_values)


@of(TwoTimescale, QuickSearch)
def test_observations_of_two_dimensions_and_actions_that_do_not_begin_at_0(algorithm):
    env = Grid()
    model = algorithm(env, seed=0).learn(700)
    assert env.seen == {-1, 0, 1}
    observations = np.zeros((5, 2, 3), dtype=np.uint8)
    assert model.predict(observations, deterministic=True)[0].shape == (5,)
    assert evaluate_policy(model, Monitor(Grid()), 2) == (10, 0)


def test_images_are_taken_as_they_come(tmp_path):
    class Image(Toy):
        def __init__(self):
            super().__init__(lambda rng: rng.integers(256, size=(4, 5, 3), dtype=np.uint8))
            self.observation_space = gym.spaces.Box(0, 255, (4, 5, 3), np.uint8)

    model = FittedQ(Image(), seed=0).learn(150)  # its channels come first, then
    model.save(tmp_path / "m")
    image = Image().reset(seed=0)[0]
    assert model.predict(image, deterministic=True)[0].shape == ()
    assert FittedQ.load(tmp_path / "m", env=Image()).learn(20).num_timesteps == 20


@algorithms
@pytest.mark.parametrize(("change", "message"), NONSENSE[:2])
def test_nonsense_is_refused(algorithm, change, message):
    env = Broken(gym.make("CartPole-v1"), change)
    model = algorithm(env, seed=0)
    with pytest.raises(ValueError, match=message):
        model.learn(100)
    assert model.num_timesteps == model.agent.num_timesteps == 49
    env.change = lambda *result: result
    model.learn(50, reset_num_timesteps=False)  # begins with a reset
    assert model.agent.num_timesteps == 99
    np.testing.assert_array_equal(
        model.agent.episodes.rows[:, 1], model.get_env().envs[0].get_episode_lengths()
    )


def test_without_stable_baselines3_the_extra_is_named(root, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("stable_baselines3")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs Stable-Baselines3: pip install 'oda-rl\[sb3\]'"):
        runpy.run_path(str(root / "agents" / "sb3" / "base.py"))


class Rooms(Counted):
    """Which of three rooms, and where in it: the reward is for the action that is the room's."""

    observation_space = gym.spaces.Dict(  # whose keys stay unsorted
        [("room", gym.spaces.Discrete(3)), ("place", gym.spaces.Box(-1.0, 1.0, (2,)))]
    )
    action_space = gym.spaces.MultiDiscrete([3, 2])

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        reward = float(action[0] == self.room)
        return self._observe(), reward, self.t == 10, False, {}

    def _observe(self):
        self.room = int(self.np_random.integers(3))
        return {"room": self.room, "place": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


lake, pendulum = (partial(gym.make, name) for name in ("FrozenLake-v1", "Pendulum-v1"))


@pytest.mark.parametrize(
    ("algorithm", "make", "n_envs"),
    [
        (TwoTimescale, Rooms, 3), (TwoTimescale, pendulum, 1), (FittedQ, Rooms, 3),
        (FittedQ, lake, 1), (QuickSearch, lake, 1), (QuickSearch, pendulum, 1),
    ],
)  # fmt: skip
def test_every_space_that_the_agents_take(algorithm, make, n_envs, tmp_path):
    env = DummyVecEnv([make] * n_envs)
    model = algorithm(env, seed=0).learn(400 if n_envs == 1 else 602)
    returns, _ = evaluate_policy(model, Monitor(make()), 2, return_episode_rewards=True)
    assert len(returns) == 2
    observation = env.reset()
    actions, _ = model.predict(observation, deterministic=True)
    assert actions.shape == (n_envs, *env.action_space.shape)
    model.save(tmp_path / "model")
    for loaded in (algorithm.load(tmp_path / "model"), algorithm.load(tmp_path / "model", env=env)):
        assert loaded.action_space == env.action_space
        np.testing.assert_array_equal(loaded.predict(observation, deterministic=True)[0], actions)
    loaded.learn(300)


class Bare(DummyVecEnv):
    """Tells nothing that a VecEnv need not tell."""

    unwrapped = None  # so that it is no DummyVecEnv to look into

    def env_method(self, *arguments, **options):
        raise NotImplementedError

    def step_wait(self):
        *result, infos = super().step_wait()
        return *result, [{"TimeLimit.truncated": True} if "terminal_observation" in info else {}
                         for info in infos]  # fmt: skip


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("algorithm", [TwoTimescale, FittedQ])
def test_a_vec_env_need_not_tell_last_observations_or_call_methods(algorithm, n_envs):
    model = algorithm(Bare([short] * n_envs), seed=0).learn(300)
    assert (model.agent.num_timesteps, model.gamma) == (300, model.agent.config.gamma)


def test_a_file_that_was_just_written_is_read_from_its_beginning():
    file = io.BytesIO()
    model = Codevector("Pendulum-v1", seed=0).learn(300)
    model.save(file)
    observation = model.get_env().reset()
    loaded = Codevector.load(file)
    np.testing.assert_array_equal(loaded.predict(observation)[0], model.predict(observation)[0])
    assert isinstance(loaded.agent, CodevectorAgent)


def test_a_saved_model_says_where_it_was_trained(tmp_path):
    cart = gym.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=30)
    model = TwoTimescale(gym.wrappers.RecordEpisodeStatistics(cart), seed=0).learn(300)
    model.save(tmp_path / "cart")
    env = load_agent(tmp_path / "cart.zip")._require_env()
    assert env.spec.max_episode_steps == 30
    assert env.spec.kwargs["sutton_barto_reward"] is True
    normalized = VecNormalize(DummyVecEnv([monitored]))
    TwoTimescale(normalized, seed=0).learn(300).save(tmp_path / "normalized")
    with pytest.raises(ValueError, match=r"trained in VecNormalize, .*give env="):
        load_agent(tmp_path / "normalized.zip").evaluate(1)
