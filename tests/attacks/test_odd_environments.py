"""Environments that change type midway: one sentence names environment, step and component."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Toy, quick_rule

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.agents.base.loops import play
from oda_rl.agents.environments.adaptation import observed

VECTOR = np.array([0.1, 0.2])
LEFT_OUT = object()


class Odd(Toy):
    """Returns something odd at the seventh step."""

    def __init__(self, **odd):
        super().__init__()
        self.odd, self.steps = odd, 0

    def step(self, action):
        self.steps += 1
        outcome = dict(
            zip(
                ("observation", "reward", "terminated", "truncated", "info"),
                super().step(action),
                strict=True,
            )
        )
        if self.steps == 7:
            outcome |= self.odd
        return tuple(value for value in outcome.values() if value is not LEFT_OUT)


KINDS = pytest.mark.parametrize("kind", [TwoTimescaleAgent, FittedQAgent, quick_rule])


@KINDS
@pytest.mark.parametrize(
    ("odd", "message"),
    [({"observation": [0.1, np.nan]}, r"observation\[1\] is nan, not finite: it must hold"),
     ({"observation": np.array([0.1, -np.inf])}, r"observation\[1\] is -inf"),
     ({"observation": VECTOR + 1j}, "observation is of complex128: it must hold real numbers"),
     ({"observation": VECTOR.astype(object)}, "observation is of object"),
     ({"observation": np.array(["0.1", "0.2"])}, "observation is of <U3"),
     ({"observation": VECTOR[None]}, r"observation has shape \(1, 2\): it must be \(2,\)"),
     ({"observation": np.ones(3)}, r"observation has shape \(3,\)"),
     ({"observation": [[1.0], 2.0]}, ".*inhomogeneous"),
     ({"terminated": np.array([True])}, r"terminated is array\(\[ True\]\): it must be True or"),
     ({"terminated": "False"}, "terminated is 'False'"),
     ({"truncated": np.nan}, "truncated is nan"), ({"truncated": None}, "truncated is None"),
     ({"reward": "1.0"}, "reward is '1.0': it must be one number"),
     ({"reward": None}, "reward is None: it must be one number"),
     ({"reward": np.ones(2)}, r"reward is array\(\[1., 1.\]\): it must be one number"),
     ({"reward": np.nan}, "reward is nan, not finite: a reward"),
     ({"reward": np.complex128(1 + 2j)}, "reward is .*1.2j"),
     ({"reward": 10**400}, "reward is 1000.*: it must be one number"),
     ({"reward": 10**5000}, "reward is of type int"),
     ({"info": LEFT_OUT}, "step returned 4 values: it must be")],
)  # fmt: skip
def test_odd_values_are_named(kind, odd, message):
    with pytest.raises(ValueError, match=f"^Odd at step 7: {message}") as caught:
        kind(Odd(**odd), seed=0).learn(20)
    assert "\n" not in str(caught.value)


@KINDS
def test_other_types_of_the_same_numbers_are_the_same(kind):
    def learned(convert):
        env = Odd(observation=convert(VECTOR), terminated=np.True_, truncated=0)
        return kind(env, seed=0).learn(20).q_values

    right = learned(lambda vector: vector)
    for convert in (list, lambda vector: vector.astype(">f8"), lambda vector: vector[::1].copy()):
        np.testing.assert_array_equal(learned(convert), right)
    learned(lambda vector: vector.astype(np.float16))


class Fixed(gym.Env):
    """Returns the same at each reset or step."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space, first, observation=None):
        self.observation_space, self.first, self.observation = space, first, observation

    def reset(self, *, seed=None, options=None):
        return self.first

    def step(self, action):
        return self.observation, 0.0, False, False, {}


PART = gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1.0, 1.0, (1,)))
RIGHT = {"a": 1, "b": np.zeros(1)}
SEVERAL = gym.spaces.MultiDiscrete([3, 4])


@pytest.mark.parametrize(
    ("space", "right", "odd"),
    [*((gym.spaces.Discrete(5), 3, odd) for odd in (5, -1, 2.5, "2", 2j, None, [1], 10**400)),
     *((PART, RIGHT, odd) for odd in ({"a": 1}, [1, 0.0], None, np.zeros(4))),
     *((PART, RIGHT, {**RIGHT, "a": odd}) for odd in (3, 1.5, "1", None)),
     *((PART, RIGHT, {**RIGHT, "b": odd}) for odd in (np.ones(1) + 1j, ["x"], np.zeros(2))),
     *((SEVERAL, [1, 2], odd) for odd in ([3, 0], [-1, 0], [1j, 0.0], ["1", "2"]))],
)  # fmt: skip
def test_odd_observations_of_other_spaces_are_named(space, right, odd):
    message = "^Fixed at step [01]: observation is .*: it must be one of "
    with pytest.raises(ValueError, match=message):
        next(play(observed(Fixed(space, (odd, {}))), lambda observation: 0, 0))
    steps = play(observed(Fixed(space, (right, {}), odd)), lambda observation: 0, 0)
    with pytest.raises(ValueError, match=message):
        next(steps)


@pytest.mark.parametrize("first", [np.zeros(4), (np.zeros(4), {}, 0), None])
def test_a_reset_that_returns_something_else_is_named(first):
    box = gym.spaces.Box(-1.0, 1.0, (4,))
    with pytest.raises(ValueError, match="^Fixed at step 0: reset returned .* it must be"):
        TwoTimescaleAgent(Fixed(box, first), seed=0).learn(10)


def test_several_environments_are_named_by_step():
    class Vector(gym.vector.SyncVectorEnv):
        odd = None, None

        def step(self, actions):
            outcome = list(super().step(actions))
            index, value = self.odd
            if index is not None:
                outcome[index] = value
            return tuple(outcome)

    box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    env = Vector([lambda: gym.wrappers.TransformObservation(Toy(), np.float32, box)] * 2)
    for odd, message in (
        ((0, np.array([VECTOR, [0.0, np.nan]])), r"at step 0: observation\[1\] is nan"),
        ((0, np.ones((2, 2)) + 1j), "at step 0: observation is of complex"),
        ((1, np.array([1j, 0.0])), "at step 0: rewards are"),
        ((2, np.array(["False", "False"])), "at step 0: terminated is"),
    ):
        env.odd = odd
        with pytest.raises(ValueError, match=message):
            TwoTimescaleAgent(env, seed=0).learn(20)


@pytest.mark.parametrize("flag", ["False", np.nan, "1.0", np.array([True]), None, 2])
def test_update_refuses_flags_that_are_none(flag):
    agent = TwoTimescaleAgent(Toy(), seed=0)
    agent.act(VECTOR)
    with pytest.raises(ValueError, match="terminated is .* it must be True or False"):
        agent.update(VECTOR, 0, 0.0, VECTOR, flag, False)
    agent.update(VECTOR, 0, 0.0, VECTOR, np.False_, 0)
