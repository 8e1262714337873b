"""Whoever steps an environment for an agent gives it actions of its space, and says which."""

from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from distributed import LocalCluster
from environments import QUICK, Counted, play, quick_rule
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from oda_rl import agents
from oda_rl.agents.base.memory import ACTION, COMPONENTS, REWARD
from oda_rl.agents.sb3.algorithms import FittedQ, Model, TwoTimescale
from oda_rl.command import training

STEPS = 624  # whole episodes of one, two or three environments
SPACES = {
    "discrete from 5": spaces.Discrete(3, start=5),
    "multi-discrete from elsewhere": spaces.MultiDiscrete([2, 2], start=[1, -4]),
    "multi-binary, two-dimensional": spaces.MultiBinary([2, 1]),
    "box": spaces.Box(np.float32([[-3.0, 2.0]]), np.float32([[1.0, 12.0]])),
    "box of integers": spaces.Box(2, 6, (1,), np.int64),
}
KINDS = {
    agents.TwoTimescaleAgent: agents.TwoTimescaleAgent,
    agents.FittedQAgent: agents.FittedQAgent,
    agents.CodevectorAgent: agents.CodevectorAgent,
    agents.ModelAgent: quick_rule,
}
NOTES = []  # of all spies


class Spy(Counted):
    """Notes the actions that it is given; the reward is the number of the note."""

    def __init__(self, action_space):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = action_space

    def step(self, action):
        self.t += 1
        NOTES.append(np.array(action))
        return self._observe(), float(len(NOTES) - 1), self.t == 8, False, {}

    def _observe(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)


for name, space in SPACES.items():
    env_id = f"Spy-{name.replace(' ', '_').replace(',', '')}-v0"
    gym.register(env_id, Spy, kwargs={"action_space": space}, disable_env_checker=True)


@pytest.fixture(params=SPACES)
def spied(request):
    """The id of a spy, and its action space."""
    NOTES.clear()
    return f"Spy-{request.param.replace(' ', '_').replace(',', '')}-v0", SPACES[request.param]


def made(make, kind, space, n_envs=1):
    """Make an agent, or check that it is refused with a sentence that says why; None then."""
    continuous = isinstance(space, spaces.Box)
    whole = continuous and space.dtype == np.int64
    why = None
    if kind in (agents.CodevectorAgent, agents.ModelAgent) and (
        continuous or kind is agents.CodevectorAgent
    ):
        whys = []
        if n_envs > 1:
            whys.append(rf"env has {n_envs} environments: .*(be one environment|needs one); ")
        if whole or not continuous:
            whys.append(r"action_space is .*: it must be a bounded Box of float32")
        why = "|".join(whys) or None
    if why is None:
        return make()
    with pytest.raises((TypeError, ValueError), match=why):
        make()
    return None


def check(agent, space):
    """Compare what an agent remembers with what its environments were given."""
    given = np.array(NOTES)
    for action in given:
        assert space.contains(int(action) if isinstance(space, spaces.Discrete) else action)
    if isinstance(space, spaces.Box):
        near = 0.1 * (space.high - space.low)
        assert (given.min(axis=0) <= space.low + near).all()
        assert (given.max(axis=0) >= space.high - near).all()
    else:
        offered = {tuple(np.ravel(space.sample())) for _ in range(200)}
        assert {tuple(np.ravel(action)) for action in given} == offered
    if isinstance(agent, agents.TwoTimescaleAgent):  # it remembers no actions
        return
    acts, rows = remembered(agent)
    assert sorted(rows) == list(range(len(given)))
    np.testing.assert_allclose(agent.interface.performed(acts), given[rows], rtol=1e-6)


def remembered(agent):
    """Actions that an agent remembers, as policies have them, and their notes' numbers."""
    if isinstance(agent, agents.ModelAgent):
        seen = agent._engine.memory.transitions
        boxed = agent.interface.box is not None
        return seen.codes[:, 1:] if boxed else seen.codes.argmax(axis=1), seen.rewards.astype(int)
    _, steps = agent._remembered()
    boxed = isinstance(agent, agents.CodevectorAgent)
    acts = steps[:, COMPONENTS:] if boxed else steps[:, ACTION].astype(int)
    return acts, steps[:, REWARD].astype(int)


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


ALGORITHMS = {
    "TwoTimescale": (TwoTimescale, agents.TwoTimescaleAgent),
    "FittedQ": (FittedQ, agents.FittedQAgent),
    "Model": (partial(Model, **QUICK), agents.ModelAgent),
}


@pytest.mark.parametrize(
    ("name", "spied", "n_envs"),
    [(name, space, 3 if (i + j) % 2 else 1)
     for i, name in enumerate(ALGORITHMS) for j, space in enumerate(SPACES)],
    indirect=["spied"],
)  # fmt: skip
def test_stable_baselines3(name, spied, n_envs, tmp_path):
    (algorithm, kind), (env_id, space) = ALGORITHMS[name], spied
    env = DummyVecEnv([partial(gym.make, env_id)] * n_envs)
    model = made(lambda: algorithm(env, seed=0), kind, space, n_envs)
    if model is not None:
        check(model.learn(STEPS).agent, space)
    if n_envs == 1 or space.dtype == np.int64:
        return
    single = algorithm(gym.make(env_id), seed=0)
    single.save(tmp_path / "model")
    load = partial(getattr(algorithm, "func", algorithm).load, tmp_path / "model", env=env)
    made(load, kind, space, n_envs)


@every_kind
def test_vector_environments(kind, spied):
    env_id, space = spied
    envs = [partial(gym.make, env_id)] * 2
    env = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.SAME_STEP)
    agent = made(lambda: KINDS[kind](env, seed=0), kind, space, 2)
    if agent is not None:
        check(agent.learn(STEPS), space)


@every_kind
def test_a_loop_of_ones_own(kind, spied):
    env_id, space = spied
    agent = made(lambda: KINDS[kind](env_id, seed=0), kind, space)
    if agent is not None:
        check(play(agent, agent.env, STEPS), space)


@pytest.mark.parametrize("kind", [agents.CodevectorAgent, agents.ModelAgent])
def test_continuous_actions_are_chosen_in_one_environment(kind):
    agent = kind("Spy-box-v0", seed=0)
    with pytest.raises(TypeError, match="with continuous actions"):
        agent.begin_in_all(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (training.TrainTwoTimescale(), agents.TwoTimescaleAgent),
        (training.TrainFitted(), agents.FittedQAgent),
        (training.TrainCodevector(), agents.CodevectorAgent),
        (training.TrainModel(), agents.ModelAgent),
        # As any that is offered a grid.
        (training.TrainModel(config=agents.ModelConfig(action_bins=5)), agents.FittedQAgent),
    ],
    ids=["two-timescale", "fitted", "codevector", "model", "model, grid"],
)
def test_the_command(options, kind, spied):
    env_id, space = spied
    agent = made(replace(options, env_id=env_id).agent, kind, space)
    if agent is not None:
        check(agent.learn(150), space)


@pytest.fixture(scope="module")
def actors():
    """An actor in a thread of this process."""
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(processes=False, **one) as own:
        yield agents.Actors(1, own.scheduler_address)


@pytest.mark.parametrize(
    ("kind", "spied"),
    [(agents.FittedQAgent, "multi-discrete from elsewhere"),
     (agents.FittedQAgent, "box of integers"), (agents.CodevectorAgent, "box")],
    indirect=["spied"],
)  # fmt: skip
def test_actors(kind, spied, actors):
    env_id, space = spied
    agent = made(lambda: kind(env_id, seed=0), kind, space)
    if agent is not None:
        check(agent.learn(STEPS, actors=actors), space)


@pytest.mark.parametrize("kind", [agents.FittedQAgent, agents.CodevectorAgent])
def test_logged_steps(kind, spied):
    env_id, space = spied
    agent = made(lambda: kind(env_id, seed=0), kind, space)
    if agent is None:
        return
    env = gym.make(env_id)
    before, _ = env.reset(seed=0)
    rows, other = [], agents.FittedQAgent(env_id, seed=1) if kind is agents.FittedQAgent else None
    for _ in range(200):
        action = env.action_space.sample() if other is None else other.act(before)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((before, action, reward, after, terminated, truncated))
        before = env.reset()[0] if terminated else after
    check(agent.fit(tuple(map(np.array, zip(*rows, strict=True)))), space)


@pytest.mark.filterwarnings("ignore:the rule returns")  # by the number of the note
def test_a_teacher(spied):
    env_id, space = spied
    action = space.low if isinstance(space, spaces.Box) else space.sample()
    teach = partial(agents.distill, lambda observation: action, env_id, 2, steps=400, seed=0)
    if made(teach, agents.ModelAgent, space) is not None:
        assert all(space.contains(a if a.ndim else int(a)) for a in NOTES)
        assert all(np.array_equal(given, action) for given in NOTES[:8])
