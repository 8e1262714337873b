"""Compiled dynamics: those of Gymnasium, and those that an environment of one's own offers."""

import gymnasium as gym
import numba
import numpy as np
import pytest
from environments import BARTO, Plain, same

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.agents.environments.adaptation import adapted
from oda_rl.envs import Dynamics
from oda_rl.envs.dynamics import ActionChoices, Resets, compiled_dynamics

TASKS = [BARTO, "Acrobot-v1", "CartPole-v1", "MountainCar-v0", "Pendulum-v1"]


@numba.njit
def push(parameters, state, action):
    """Three pucks on ice, of which an action pushes one."""
    puck = action // 2
    state[3 + puck] += parameters[0] * (2 * (action % 2) - 1)
    for j in range(3):
        state[j] += state[3 + j]
    return -np.abs(state[:3]).sum(), np.abs(state[:3]).max() > 2.0


@numba.njit
def shove(parameters, state, action):
    """A puck that is pushed as hard as one likes."""
    state[1] += parameters[0] * action[0]
    state[0] += state[1]
    return -abs(state[0]), abs(state[0]) > 2.0


@numba.njit
def look(parameters, state, observation):
    for j in range(state.shape[0]):
        observation[j] = state[j]


class Pucks(gym.Env):
    """Offers its dynamics; ``error`` makes these differ from its own step."""

    n = 3

    def __init__(self, error=0.0):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2 * self.n,), np.float64)
        self.action_space = gym.spaces.Discrete(2 * self.n)
        self.force, self.error = np.array([0.05]), error

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(scale=0.1, size=2 * self.n)
        return self.state.copy(), {}

    def step(self, action):
        reward, terminated = self.move(self.force, self.state, action)
        return self.state.copy(), reward, terminated, False, {}

    def dynamics(self):
        size = 2 * self.n
        resets = lambda rng, n: rng.normal(scale=0.1, size=(n, size))  # noqa: E731
        return Dynamics(self.move, look, resets, self.force + self.error)

    move = staticmethod(push)


class Puck(Pucks):
    n, move = 1, staticmethod(shove)

    def __init__(self):
        super().__init__()
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


def limited(env):
    return gym.wrappers.TimeLimit(env, 50)


@pytest.mark.parametrize(("kind", "make"), [(TwoTimescaleAgent, Pucks), (FittedQAgent, Puck)])
def test_an_environment_from_outside_trains_in_the_compiled_loop(kind, make):
    env = limited(make())
    assert compiled_dynamics(adapted(env, 5)) is not None
    fused, stepwise = kind(env, seed=0), kind(Plain(limited(make())), seed=0)
    for steps in (900, 700):
        same(fused.learn(steps), stepwise.learn(steps))
    assert len(fused.episodes.rows) >= 10
    places = limited(make()), Plain(limited(make()))
    np.testing.assert_array_equal(*(fused.evaluate(4, seed=1, env=place) for place in places))


@pytest.mark.parametrize("kind", [TwoTimescaleAgent, FittedQAgent])
@pytest.mark.parametrize("env_id", ["Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_the_loop_of_a_task_gives_the_same_bits(kind, env_id):
    fused, stepwise = kind(env_id, seed=3), kind(Plain(gym.make(env_id)), seed=3)
    for steps in (800, 400):
        same(fused.learn(steps), stepwise.learn(steps))
    place = Plain(gym.make(env_id))
    np.testing.assert_array_equal(fused.evaluate(3, seed=1), fused.evaluate(3, seed=1, env=place))


@pytest.mark.parametrize("env_id", TASKS)
def test_dynamics_are_those_of_the_environment(env_id):
    # In all bits: of 10,000 steps of Acrobot, 15 would differ if squares were products. From states
    # far apart, too, which the first steps of an episode do not reach.
    env = adapted(gym.make(env_id), 5)
    found = compiled_dynamics(env)
    step, see = found.dynamics.step, found.dynamics.look
    own, rng = env.unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    n_state = len(found.read_state())
    for _ in range(5_000 if env_id == "Acrobot-v1" else 2_000):
        state = rng.uniform(-1.5, 1.5, size=n_state)
        if env_id == "MountainCar-v0":
            state[1] *= 0.07 / 1.5
        own.state, own.steps_beyond_terminated = state.copy(), None
        number = int(rng.integers(env.action_space.n))
        chosen = number if found.choices is None else found.choices[number]
        observation, reward, terminated, _, _ = own.step(chosen)
        gained, ends = step(found.dynamics.parameters, state, chosen)
        seen = np.zeros(len(observation))
        see(found.dynamics.parameters, state, seen)
        np.testing.assert_array_equal(seen, observation)
        assert (gained, ends) == (reward, terminated)


@pytest.mark.parametrize("env_id", TASKS)
def test_resets_are_those_of_the_environment(env_id):
    env, other = (adapted(gym.make(env_id), 5) for _ in range(2))
    for each in (env, other):
        each.reset(seed=3)
    resets = Resets(compiled_dynamics(env))
    for n in (3, 1, 250, 40):  # more than are drawn at a time
        while n > 0:
            starts = resets.starts(n)
            for start in starts:
                observation, _ = other.reset()
                state = np.asarray(other.unwrapped.state, dtype=np.float64)
                np.testing.assert_array_equal(start, [*state, *observation])
            resets.pass_by(len(starts))
            n -= len(starts)
    assert env.unwrapped.np_random.random() == other.unwrapped.np_random.random()


def test_dynamics_that_are_not_those_of_the_step_are_refused():
    with pytest.raises(ValueError, match="env offers dynamics that differ from its step: a step"):
        compiled_dynamics(Pucks(error=1e-9))
    with pytest.raises(ValueError, match="they must agree to the last bit"):
        FittedQAgent(Pucks(error=1e-9), seed=0).learn(100)


def heavier(env):
    env.gravity = 12.0


def harder(env):
    env.force = np.array([0.1])


def windy(env):
    env.torque_noise_max = 0.5  # which compiled dynamics do not know


def elsewhere(env):
    env.state = 0.5 * env.state


CHANGES = {
    "heavier": (lambda: gym.make("CartPole-v1"), heavier),
    "harder": (lambda: limited(Pucks()), harder),
    "no longer known": (lambda: gym.make("Acrobot-v1", max_episode_steps=50), windy),
    "elsewhere": (lambda: gym.make("MountainCar-v0", max_episode_steps=50), elsewhere),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((TwoTimescaleAgent, name) for name in CHANGES),
     *((FittedQAgent, name) for name in CHANGES if name != "harder")],  # another loop to compile
)  # fmt: skip
def test_what_a_callback_changes_of_the_environment_counts(kind, name):
    make, change = CHANGES[name]
    agents, steps = [], []
    for wrap in (lambda env: env, Plain):
        env = wrap(make())
        own = []

        def noted(agent, env=env, own=own):
            own.append(agent.num_timesteps)
            if 400 < agent.num_timesteps < 800:
                change(env.unwrapped)

        agents.append(kind(env, seed=0).learn(1200, callback=noted))
        steps.append(own)
    assert compiled_dynamics(make()) is not None
    same(*agents)
    assert steps[0] == steps[1]
    unchanged = kind(make(), seed=0).learn(1200)
    assert not np.array_equal(agents[0].recent, unchanged.recent)


@pytest.mark.parametrize(
    "change", [windy, lambda env: vars(env).update(AVAIL_TORQUE=[-1.0, 0.0, 2.0])]
)
def test_an_acrobot_of_another_kind_takes_its_steps_itself(change):
    env = gym.make("Acrobot-v1")
    assert compiled_dynamics(env) is not None  # and its constants are known from now on
    change(env.unwrapped)
    assert compiled_dynamics(env) is None


def test_a_method_that_is_called_dynamics_by_chance_is_left_alone():
    class Other(Pucks):
        def dynamics(self):
            return "lively"

    assert compiled_dynamics(Other()) is None


def test_choices_of_actions_can_be_made_again():
    choices = np.array([[-1.0], [1.0]], dtype=np.float32)
    env = ActionChoices(gym.make("Pendulum-v1"), choices)
    assert compiled_dynamics(env).choices is choices
    np.testing.assert_array_equal(gym.make(env.spec).action(1), choices[1])
