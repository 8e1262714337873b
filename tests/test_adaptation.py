"""Agents in environments whose spaces are not Box and Discrete."""

import json

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO, Counted, live, quick_rule, steps_for
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.environments.adaptation import NumberedObservation, adapted
from oda_rl.agents.environments.spaces import Native, action_choices, grid_of

KINDS = [TwoTimescaleAgent, FittedQAgent, quick_rule]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


NEAR_SIGHTED = {"gamma": 0.1, "trace_decay": 0.0}  # for tasks of one step


def near_sighted(kind):
    """Settings for tasks of one step; a model agent has none."""
    return {} if kind in (quick_rule, ModelAgent) else NEAR_SIGHTED


class Combined(Counted):
    """Returns more for one of the actions, and whatever the observation space samples."""

    def __init__(self, observations, actions, best=None):
        self.observation_space, self.action_space, self.best = observations, actions, best
        self.taken = []

    def step(self, action):
        assert self.action_space.contains(action)
        self.taken.append(action)
        self.t += 1
        reward = 0.0 if self.best is None else float(np.array_equal(action, self.best))
        return self.observation_space.sample(), reward, self.t == 10, False, {}


BOX = spaces.Box(-1.0, 1.0, (2,))
MIXED = spaces.Dict(
    {
        "place": BOX,
        "lamp": spaces.Discrete(3),
        "rest": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4])]),
    }
)


@kinds
@pytest.mark.parametrize(
    ("space", "n_features"),
    [(MIXED, 2 + 3 + 2 + 6), (spaces.MultiDiscrete([3, 2]), 5), (spaces.MultiBinary(4), 4)],
)
def test_composite_observations_are_flattened(kind, space, n_features):
    env = Combined(space, spaces.Discrete(2), best=1)
    steps = steps_for(kind, 1500) if space is MIXED else 1500  # of numbered states: a table
    agent = kind(env, seed=0, **near_sighted(kind)).learn(steps)
    assert agent.interface.n_features == n_features
    observation = agent.env.reset(seed=3)[0]
    space.seed(0)
    seen = [agent.predict(space.sample())[0] for _ in range(50)]
    # A table looks far ahead, and a tenth of all steps end episodes with returns of about 10. In
    # each of 16 states, an action is tried about 50 times: the standard error of the share of
    # terminations is 0.04, and that of a difference of two values, which is 1, is 0.6. So one
    # state of 20 may be wrong, and three of 16 rarely are.
    errs = kind is quick_rule and isinstance(space, spaces.MultiBinary)
    assert np.mean(seen) > (0.8 if errs else 0.99)
    assert space.contains(observation)
    several = [space.sample() for _ in range(3)]
    batch = concatenate(space, several, create_empty_array(space, 3))
    actions = [agent.predict(one)[0] for one in several]
    np.testing.assert_array_equal(agent.predict(batch)[0], actions)
    vectors = np.array([spaces.flatten(space, one) for one in several])
    np.testing.assert_array_equal(agent.cell(vectors), [agent.cell(one) for one in several])
    before = agent.num_timesteps
    agent.update(several[0], agent.act(several[0]), 1.0, several[1], False, False)
    assert agent.num_timesteps == before + 1


@kinds
@pytest.mark.parametrize(
    ("space", "best", "n_actions"),
    [(spaces.MultiDiscrete([2, 3], start=[5, 0]), (6, 2), 6),
     (spaces.MultiDiscrete([[2, 2], [1, 2]]), ((1, 0), (0, 1)), 8),
     (spaces.MultiBinary(3), (1, 0, 1), 8),
     (spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64), (1.0, 2.0), 9)],
)  # fmt: skip
def test_combinations_of_actions_are_offered(kind, space, best, n_actions):
    env = Combined(BOX, space, np.array(best))
    agent = kind(env, seed=0, action_bins=3, **near_sighted(kind))
    agent.learn(steps_for(kind, 1500, 250))
    assert agent.interface.n_actions == n_actions
    assert {np.asarray(action).tobytes() for action in env.taken} == {
        np.asarray(choice).tobytes() for choice in action_choices(space, 3)
    }
    chosen = agent.predict(np.zeros(2, np.float32))[0]
    assert chosen.dtype == space.dtype
    assert space.contains(chosen)
    batch = agent.predict(np.zeros((4, 2), np.float32))[0]
    assert batch.shape == (4, *space.shape)
    if kind is not quick_rule:  # whose search is too quick to find what is best
        np.testing.assert_array_equal(chosen, best)
        assert agent.evaluate(3, env=Combined(BOX, space, np.array(best)), seed=1).mean() > 9
    observation = np.zeros(2, np.float32)
    agent.update(observation, agent.act(observation), 1.0, observation, False, False)
    agent.act(observation)
    with pytest.raises(ValueError, match=f"one of the {n_actions} actions"):
        agent.update(observation, np.full(space.shape, 77), 1.0, observation, False, False)


@pytest.mark.parametrize(
    ("space", "wrong", "why"),
    [(MIXED, {"place": [0.0, 0.0]}, "dictionary with the keys"),
     (MIXED, {"place": [0.0], "lamp": 1, "rest": ([0, 0], [0, 0])}, r"shape \(1,\)"),
     (MIXED, {"place": [[0.0, 0.0]], "lamp": [1, 2], "rest": ([[0, 0]], [[0, 0]])}, "different"),
     (spaces.Tuple([BOX, BOX]), [[0.0, 0.0], [0.0, 0.0]], "tuple of 2"),
     (spaces.Discrete(3), 1.5, "must be one of Discrete"),
     (spaces.Discrete(3), "b", "must hold real numbers"),
     (spaces.MultiDiscrete([3, 2]), [3, 1], "must be one of MultiDiscrete")],
)  # fmt: skip
def test_observations_of_other_spaces_are_refused(space, wrong, why):
    agent = TwoTimescaleAgent(Combined(space, spaces.Discrete(2)), seed=0)
    with pytest.raises(ValueError, match=f"(?s)it must be one of .*{why}"):
        agent.predict(wrong)


@pytest.mark.parametrize(
    "space",
    [MIXED, spaces.Discrete(4, start=-2),
     spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[1, 0], [0, 2]]), spaces.MultiBinary([2, 2]),
     spaces.Box(np.float32([-1, -np.inf]), np.float32([0.1, 2.0]))],
)  # fmt: skip
def test_spaces_survive_json(space):
    native = Native(space, spaces.Box(-2.0, 2.0, (1,)), 3)
    assert Native.from_json(json.loads(json.dumps(native.to_json()))) == native


def test_a_grid_of_a_continuous_action_has_its_ends():
    env = adapted(gym.make("Pendulum-v1"), 5)
    torques = np.array([env.action(i) for i in range(5)])
    np.testing.assert_array_equal(torques, np.linspace(-2, 2, 5, dtype=np.float32)[:, None])
    assert adapted(env, 5) is env


class Parity(Combined):
    """Returns more for action 1 where the number observed is odd, else for action 0."""

    def reset(self, *, seed=None, options=None):
        self.last, info = super().reset(seed=seed)
        return self.last, info

    def step(self, action):
        observation, _, *rest = super().step(action)
        reward, self.last = float(action == self.last % 2), observation
        return observation, reward, *rest


@kinds
@pytest.mark.parametrize("start", [0, -3])
def test_each_value_of_a_discrete_observation_is_a_cell_of_its_own(kind, start):
    env = Parity(spaces.Discrete(40, start=start), spaces.Discrete(2))
    agent = kind(env, seed=0, **near_sighted(kind)).learn(3000)
    if kind is quick_rule:
        assert agent._engine.planner.n_states == 40
    else:
        assert getattr(agent, "newest", agent).n_cells == 40
    values = agent.codevectors.round()  # of the policy delivered, which may not know all of them
    np.testing.assert_allclose(agent.codevectors, values, atol=1e-9)
    assert set(values.ravel()) <= set(start + np.arange(40.0))
    assert agent.cell(values).tolist() == list(range(agent.n_cells))
    assert [agent.cell(int(value)) for (value,) in values] == list(range(agent.n_cells))
    with pytest.raises(ValueError, match="observation is 77: it must be one of Discrete"):
        agent.act(77)


def test_the_wrapper_is_remade_from_a_spec():
    env = NumberedObservation(gym.make("FrozenLake-v1"))
    again = gym.make(env.spec)
    assert isinstance(again, NumberedObservation)
    assert again.reset(seed=0)[0].tolist() == [0.0]


@pytest.mark.slow
def test_the_cliff_is_learned_as_a_table():
    # 13 of 20 seeds find the optimum, and the others -200; as a one-hot vector, none does.
    env = gym.make("CliffWalking-v1", max_episode_steps=200)
    agents = (FittedQAgent(env, seed=seed).learn(20_000) for seed in range(6))
    assert any(agent.evaluate(1, seed=0)[0] == -13.0 for agent in agents)


@pytest.mark.parametrize(
    ("kind", "env_id"),
    [(TwoTimescaleAgent, "FrozenLake-v1"), (FittedQAgent, "Blackjack-v1"),
     (TwoTimescaleAgent, "Pendulum-v1"), (quick_rule, "Pendulum-v1")],
)  # fmt: skip
def test_files_and_users_loops(kind, env_id, tmp_path):
    env = gym.make(env_id)
    agent = kind(env, seed=0, action_bins=5).learn(steps_for(kind, 700, 250))
    steps = agent.num_timesteps
    assert agent.env is env
    agent.save(tmp_path / "a.zip")
    loaded = load_agent(tmp_path / "a.zip")
    np.testing.assert_array_equal(loaded.q_values, agent.q_values)
    assert loaded.interface == agent.interface
    np.testing.assert_array_equal(loaded.evaluate(3, seed=1), agent.evaluate(3, seed=1))
    raw = gym.make(env_id)
    other = kind.load(tmp_path / "a.zip", env=gym.make(env_id))
    for one in (agent, other):
        live(one, one.env, 100)
        observation, _ = one.env.reset(seed=5)
        assert raw.action_space.contains(one.act(observation))
        assert raw.action_space.contains(one.predict(observation)[0])
        one.explain(observation)
    assert other.num_timesteps == agent.num_timesteps == steps + 100
    with pytest.raises(ValueError, match="trained with"):
        kind.load(tmp_path / "a.zip", env="CartPole-v1")


@kinds
def test_gymnasiums_wrappers(kind):
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(BARTO), buffer_length=10_000)
    agent = kind(env, seed=0).learn(300)
    np.testing.assert_array_equal(list(env.return_queue), agent.episodes.rows[:, 0])


def test_a_training_is_filmed(tmp_path):
    place = gym.make("CartPole-v1", render_mode="rgb_array")
    film = gym.wrappers.RecordVideo(place, f"{tmp_path}/film", video_length=20, disable_logger=True)
    TwoTimescaleAgent(film, seed=0).learn(60)
    film.close()
    assert list(tmp_path.glob("film/*.mp4"))


def test_unsupported_spaces_are_refused():
    unbounded = spaces.Box(-np.inf, np.inf, (1,))
    for kind in KINDS:
        with pytest.raises(ValueError, match="action_space is Box.*bound.*; .*(Resc|Tran).*Action"):
            kind(Combined(BOX, unbounded))
        with pytest.raises(ValueError, match="100,000 comb.*1000.*CodevectorAgent.*action_bins"):
            kind(Combined(BOX, spaces.Box(-1, 1, (5,))), action_bins=10)
        with pytest.raises(TypeError, match="action_space is Text.*TransformAction"):
            kind(Combined(BOX, spaces.Text(5)))
        with pytest.raises(TypeError, match="observation_space is Text.*TransformObservation"):
            kind(Combined(spaces.Text(5), spaces.Discrete(2)))
        for part in (spaces.Text(5), spaces.Sequence(BOX)):
            several = spaces.Dict(see=BOX, say=spaces.Tuple([BOX, part]))
            with pytest.raises(TypeError, match=r"space\['say'\]\[1\] is .*FilterObservation can"):
                kind(Combined(several, spaces.Discrete(2)))
        with pytest.raises(ValueError, match="action_bins is 1: it must be in .2, 1000."):
            kind("Pendulum-v1", action_bins=1)
        with pytest.raises(ValueError, match="observation_space is Dict.*at least one component"):
            kind(Combined(spaces.Dict({}), spaces.Discrete(2)))
    with pytest.raises(ValueError, match="Discrete.500000.: .* at most 65,536; FittedQAgent"):
        TwoTimescaleAgent(Combined(spaces.Discrete(500_000), spaces.Discrete(2)))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_grids_reach_to_the_largest_bounds(kind):
    largest = np.finfo(kind).max
    (values,) = grid_of(spaces.Box(-largest, largest, (1,), kind), 3)
    assert values.tolist() == [-largest, 0.0, largest]


@pytest.mark.parametrize("kind", [TwoTimescaleAgent, FittedQAgent])
def test_too_many_components_are_refused(kind):
    image = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    message = f"21,168 components are too many for {kind.__name__}, at most 256; .*Transform"
    with pytest.raises(ValueError, match=f"observation_space is Box.*{message}"):
        kind(Combined(image, spaces.Discrete(2)))
    large = spaces.Box(-1.0, 1.0, (256,))
    assert kind(Combined(large, spaces.Discrete(2)), seed=0).interface.n_features == 256
