"""Training in several environments at once."""

from contextlib import closing

import gymnasium as gym
import numpy as np
import oracles
import pytest
from environments import (
    BARTO,
    NONSENSE,
    Broken,
    Plain,
    Toy,
    Varied,
    quick_rule,
    same,
    short,
    steps_for,
)
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from test_adaptation import BOX, MIXED, Combined, near_sighted

from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import GOES_ON, MARK, TERMINAL
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.partitions.grid import GridPartition
from oda_rl.agents.two_timescale.engine import OnlineEngine
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig

KINDS = [TwoTimescaleAgent, FittedQAgent, quick_rule]
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)


def several(make, count, mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


def remembered_by(agent):
    """Rows of what an agent remembers: before, action, reward, after, whether it ended."""
    engine = agent._engine
    if isinstance(agent, ModelAgent):
        seen = engine.memory.transitions
        parts = seen.before, seen.codes.argmax(axis=1), seen.rewards, seen.after, seen.ended
        return np.column_stack(parts)
    engine.leave_envs()  # the running trajectories are taken over
    n = engine.memory.rows(engine.env_state)
    observations, rows = engine.memory.observations[:n], engine.memory.steps[:n]
    taken = np.flatnonzero(rows[:, MARK] == GOES_ON)
    ended = rows[taken + 1, MARK] == TERMINAL
    return np.column_stack([observations[taken], rows[taken, :2], observations[taken + 1], ended])


def cartpoles(count):
    """Gymnasium's own."""
    return gym.make_vec("CartPole-v1", count, vectorization_mode="vector_entry_point")


class Journal(gym.Wrapper):
    """Writes down every step, and how its episodes ended."""

    def __init__(self, env):
        super().__init__(env)
        self.steps, self.episodes = [], []

    def reset(self, **options):
        self.last, info = self.env.reset(**options)
        self.total = self.length = 0
        return self.last, info

    def step(self, action):
        after, reward, terminated, truncated, info = self.env.step(action)
        self.steps.append((*self.last, action, reward, *after, terminated))
        self.last = after
        self.total += reward
        self.length += 1
        if terminated or truncated:
            self.episodes.append((self.total, self.length))
        return after, reward, terminated, truncated, info


@modes
def test_one_copy_teaches_what_the_environment_itself_does(mode):
    alone = TwoTimescaleAgent(short(), seed=4)
    vector = TwoTimescaleAgent(several(short, 1, mode), seed=4)
    for steps in (1500, 1, 1000):
        same(alone.learn(steps), vector.learn(steps))


@kinds
@modes
def test_every_step_is_learned_from_once(kind, mode):
    journals = [Journal(Varied()) for _ in range(5)]
    env = SyncVectorEnv([lambda one=one: one for one in journals], autoreset_mode=mode)
    agent = kind(env, seed=3).learn(1000)
    steps = [step for journal in journals for step in journal.steps]
    assert agent.num_timesteps == len(steps)
    assert 1000 <= len(steps) < 1005
    episodes = sorted(row for journal in journals for row in journal.episodes)
    assert sorted(map(tuple, agent.episodes.rows[:, :2].tolist())) == episodes
    assert len(episodes) > 50
    known = np.array(steps, dtype=np.float64)
    if kind is TwoTimescaleAgent:  # it keeps the latest 1000 observations
        observations = np.concatenate([known[:, :2], known[:, 4:6]])
        gaps = np.abs(agent.recent[:, None] - observations).max(axis=2)
        assert gaps.min(axis=1).max() < 1e-12
    else:
        remembered = remembered_by(agent)
        order, found = np.lexsort(known.T), np.lexsort(remembered.T)
        np.testing.assert_array_equal(remembered[found], known[order])


def test_values_are_those_of_true_online_sarsa_with_traces_for_each():
    n, n_actions, n_cells, warmup, decay = 3, 3, 5, 9, 0.9 * 32**-0.1
    config = TwoTimescaleConfig(
        gamma=0.9, trace_decay=0.9, step_size=0.2, step_exponent=0.0, exploration=0.3,
        exploration_decay=1e9, warmup_steps=warmup,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    grid = GridPartition(bins=n_cells, ranges=((-0.5, n_cells - 0.5),)).prepare(1, rng)
    core = OnlineEngine(Interface((1,), n_actions, 0, n_values=n_cells), config, grid, rng)
    core.state.numbered = False  # step sizes are the same for all pairs
    core.set_n_envs(n)
    no, cells = np.zeros(n, dtype=np.bool_), rng.integers(n_cells, size=n)
    points = cells[:, None].astype(float)
    actions, _ = core.advance(VectorStep(points, points, np.zeros(n), no, no, no, ~no, ~no))
    learners = []
    for _ in range(2000):
        after, rewards = rng.integers(n_cells, size=n), rng.normal(size=n)
        ends = rng.random(n) < 0.1
        begins = np.where(ends, rng.integers(n_cells, size=n), after)
        seen = after[:, None].astype(float), begins[:, None].astype(float)
        core.contest.last_trial = core.state.steps + 10**6  # no trials, in which others decide
        chosen, _ = core.advance(VectorStep(*seen, rewards, ends, no, ~no, ~no, ends))
        for env, own in enumerate(learners):
            own.update(cells[env], actions[env], rewards[env], after[env], chosen[env], ends[env])
        if core.state.steps == warmup:
            shared = oracles.TrueOnlineSarsa(core.values[0, :n_cells].copy(), 0.9, decay, 0.2)
            learners = [shared.share() for _ in range(n)]
        actions, cells = chosen, begins
    np.testing.assert_allclose(core.values[0, :n_cells], shared.values, atol=1e-5)  # old ones end
    assert np.ptp(shared.values) > 1.0
    assert not np.array_equal(core.traces[0], core.traces[1])


@kinds
def test_many_copies_are_learned_from(kind):
    # The fitted agent had more than 400 on 20 of 20 seeds, the online agent on 10 of 10. A model
    # agent has to see whole episodes. With full traces values exceed 1e15 where all begin anew.
    copies, steps = {quick_rule: (8, 5000), FittedQAgent: (64, 100_000)}.get(kind, (64, 60_000))
    agent = kind(cartpoles(copies), seed=0).learn(steps)
    assert steps <= agent.num_timesteps < steps + copies
    assert agent.evaluate(20, seed=0).mean() > (200 if kind is TwoTimescaleAgent else 400)
    if kind is TwoTimescaleAgent:  # 100 is the sum of all rewards to come
        again = kind(cartpoles(64), seed=2).learn(10_000).learn(10_000)
        assert np.abs(again.learning_policy.q_values).max() < 300.0


@pytest.mark.parametrize(("kind", "mode"), [*zip(KINDS, [*MODES, MODES[1]], strict=True)])
def test_the_same_seed_gives_the_same_bits(kind, mode):
    first = kind(several(short, 6, mode), seed=8)
    second = kind(SyncVectorEnv([short] * 6, copy=False, autoreset_mode=mode), seed=8)
    for steps in (steps_for(kind, 2500), 200):
        same(first.learn(steps), second.learn(steps, callback=lambda agent: None))
    other = kind(several(short, 6, mode), seed=9).learn(first.num_timesteps)
    assert not np.array_equal(other.q_values, first.q_values)


@kinds
def test_processes_and_loose_environments(kind):
    with closing(AsyncVectorEnv([short] * 2)) as env:
        first = kind(env, seed=1).learn(600)
    same(first, kind(several(short, 2), seed=1).learn(600))
    images = several(lambda: Combined(spaces.Box(0, 255, (2, 3), np.uint8), spaces.Discrete(2)), 3)
    assert kind(images, seed=0).learn(300).interface.n_features == 6


@kinds
@pytest.mark.parametrize(
    ("observations", "actions", "best"),
    [(MIXED, spaces.MultiDiscrete([2, 3]), (1, 2)),
     (spaces.Discrete(12, start=-2), spaces.Box(-1.0, 1.0, (1,)), (-1.0,)),
     (BOX, spaces.Discrete(3, start=4), 5)],
    ids=["mixed", "numbered", "plain"],
)  # fmt: skip
def test_other_spaces(kind, observations, actions, best):
    def make():
        return Combined(observations, actions, np.array(best, dtype=actions.dtype))

    search = {"generations": 10} if kind is quick_rule else {}
    kind = ModelAgent if kind is quick_rule else kind
    agent = kind(several(make, 4), seed=1, action_bins=3, **near_sighted(kind), **search)
    agent.learn(500 if kind is ModelAgent else 3000)
    least = 4 if kind is ModelAgent else 9  # a search may find what is best in most states only
    assert agent.evaluate(3, env=make(), seed=1).mean() > least
    if isinstance(observations, spaces.Discrete):
        assert getattr(agent, "newest", agent).n_cells == 12 or kind is ModelAgent
    loaded_into = kind(make(), seed=0, action_bins=3)
    assert loaded_into.interface == agent.interface


@kinds
def test_files_and_other_ways_to_learn_on(kind, tmp_path):
    saved = []

    def save(agent):
        if not saved and agent.num_timesteps > enough // 2:
            agent.save(tmp_path / "within.zip")
            saved.append((agent.num_timesteps, agent.q_values.copy()))

    enough = steps_for(kind, 3000)
    agent = kind(several(short, 6), seed=2).learn(enough, callback=save)
    within = load_agent(tmp_path / "within.zip")
    assert within.num_timesteps == saved[0][0]
    np.testing.assert_array_equal(within.q_values, saved[0][1])
    agent.save(tmp_path / "a.zip")
    first, second = (kind.load(tmp_path / "a.zip", env=several(short, 6)) for _ in range(2))
    same(first.learn(300), second.learn(300))
    for env in (short(), several(short, 9)):
        other = kind.load(tmp_path / "a.zip", env=env).learn(200)
        assert other.num_timesteps >= agent.num_timesteps + 200
    observation, _ = short().reset(seed=0)
    before = agent.num_timesteps
    agent.update(observation, agent.act(observation), 1.0, observation, False, False)
    assert agent.num_timesteps == before + 1
    agent.learn(200)
    agent.env = short()
    assert agent.learn(200).n_cells >= 1


@kinds
def test_a_callback_ends_it_and_sees_whole_episodes(kind):
    seen = []

    def stop(agent):
        seen.append(len(agent.episodes.rows))
        return agent.num_timesteps < 1000

    agent = kind(several(short, 6), seed=0).learn(100_000, callback=stop)
    assert 1000 <= agent.num_timesteps < 1200
    assert seen == sorted(set(seen))
    seconds = agent.episodes.rows[:, 2]
    assert (np.diff(seconds) >= 0).all()
    assert seconds[-1] <= agent.training_seconds


@kinds
def test_where_an_agent_is_evaluated(kind):
    agent = kind(cartpoles(4), seed=0).learn(500)
    plain = kind("CartPole-v1", seed=0)
    alone = agent.evaluate(5, seed=3)
    np.testing.assert_array_equal(alone, agent.evaluate(5, env=plain.env, seed=3))
    assert (agent.env_id, agent.solved_return) == ("CartPole-v1", 475.0)
    brief = gym.make_vec("CartPole-v1", 2, "sync", max_episode_steps=3, wrappers=[Plain])
    assert kind(brief, seed=0).evaluate(1, seed=0).tolist() == [3.0]
    with pytest.raises(TypeError, match="env is .*it must be one environment"):
        agent.evaluate(1, env=cartpoles(2))
    scaled = kind(gym.wrappers.vector.TransformReward(cartpoles(2), abs), seed=0).learn(100)
    with pytest.raises(ValueError, match="wrapped by TransformReward, which .*so no other like it"):
        scaled.evaluate(1)
    for make in (SyncVectorEnv, AsyncVectorEnv):  # a copy of the first, or one made by its function
        counted = gym.wrappers.vector.RecordEpisodeStatistics(make([Toy] * 2))
        assert kind(counted, seed=0).evaluate(1).tolist() == [10.0]
        counted.close()


class Untold(VectorWrapper):
    """Does not tell how episodes ended."""

    def step(self, actions):
        return *super().step(actions)[:4], {}


def test_last_observations_are_found_in_lists_and_missed_with_a_sentence():
    envs = [several(Toy, 2, AutoresetMode.SAME_STEP), several(Toy, 2, AutoresetMode.SAME_STEP)]
    first, second = (
        TwoTimescaleAgent(env, seed=0).learn(200)
        for env in (envs[0], gym.wrappers.vector.DictInfoToList(envs[1]))
    )
    np.testing.assert_array_equal(first.q_values, second.q_values)
    untold = Untold(several(Toy, 2, AutoresetMode.SAME_STEP))
    with pytest.raises(ValueError, match="infos of environment 0 has no 'final_obs'"):
        TwoTimescaleAgent(untold, seed=0).learn(200)


@kinds
@pytest.mark.parametrize(
    ("mode", "change", "message"),
    [(mode, *nonsense.values) for mode, nonsense in zip(MODES, NONSENSE, strict=False)],
)
def test_nonsense_is_refused(kind, mode, change, message):
    def make(i):
        env = gym.make(BARTO)
        return Broken(env, change) if i == 1 else env

    env = SyncVectorEnv([lambda i=i: make(i) for i in range(3)], autoreset_mode=mode)
    agent = kind(env, seed=0)
    with pytest.raises(ValueError, match=message):
        agent.learn(1000)
    known = agent.q_values[agent.q_values > -np.inf]  # that of what a rule never does
    assert np.isfinite(known).all()
    agent.env = gym.make(BARTO)
    assert agent.learn(500).num_timesteps >= 500


def test_many_environments_find_a_goal_that_is_far_away():
    # If all play by the first fit, 60 random steps each after they began, hardly one does.
    envs = gym.make_vec("MountainCarContinuous-v0", 16, vectorization_mode="sync")
    agent = FittedQAgent(envs, seed=0).learn(20_000)
    # Not of each episode: by other bits, of other versions of numpy, one may fail.
    assert np.median(agent.evaluate(10, seed=0)) > 80.0


def test_other_modes_are_refused():
    env = several(short, 2, AutoresetMode.DISABLED)
    for kind in KINDS:
        with pytest.raises(ValueError, match="DISABLED: it must be .*NEXT_STEP or SAME_STEP"):
            kind(env, seed=0).learn(10)


@kinds
def test_episodes_that_never_end(kind):
    endless = several(lambda: Toy(length=None), 3)
    settings = {"horizon": 20} if kind is quick_rule else {"gamma": 0.9}
    steps = steps_for(kind, 3000, 1002)
    agent = kind(endless, seed=0, **settings).learn(steps)
    assert (agent.num_timesteps, len(agent.episodes.rows)) == (steps, 0)
    assert len(agent.history) > 0
    assert agent.n_cells > 1 or kind is quick_rule  # of which one is as good as any
