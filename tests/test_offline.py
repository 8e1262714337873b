"""Logged transitions: forms, checks, trajectories, and agents fitted to them."""

from types import SimpleNamespace

import gymnasium as gym
import minari
import numpy as np
import pandas as pd
import pytest
import torch
from gymnasium import spaces

from oda_rl.agents import CodevectorAgent, FittedQAgent, Transitions
from oda_rl.agents.environments.adaptation import adapted
from oda_rl.agents.environments.spaces import Described, Interface
from oda_rl.agents.offline import FIELDS, read_steps, trajectories

LINE = spaces.Box(-10.0, 10.0, (2,)), spaces.Discrete(3, start=1)


def logged(n=6):
    """Two episodes of a walk, of which the first terminates and the second is truncated."""
    place = np.column_stack([np.arange(n), np.zeros(n)]).astype(float)
    place[n // 2 :, 0] += 2.0
    after = place + np.array([1.0, 0.0])
    over = np.zeros((2, n), dtype=bool)
    over[0, n // 2 - 1] = over[1, -1] = True
    return [place, 1 + np.arange(n) % 3, np.arange(n) / 2.0, after, *over]


def changed(name, value):
    return {**dict(zip(FIELDS, logged(), strict=True)), name: value}


def cartpole_log(n_steps, act):
    """Steps in CartPole; ``act`` maps observations to actions."""
    env, rows = gym.make("CartPole-v1"), []
    observation, _ = env.reset(seed=0)
    for _ in range(n_steps):
        action = int(act(observation))
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, after, terminated, truncated))
        observation = env.reset()[0] if terminated or truncated else after
    return [np.array(column) for column in zip(*rows, strict=True)]


def interface(observations, actions, bins=5):
    env = Described(observations, actions)
    return Interface.of(adapted(env, bins)).of_user(env, bins)


def test_arrays_dictionaries_frames_and_transitions_are_equivalent():
    arrays = logged()
    frame = pd.DataFrame({
        "x": arrays[0][:, 0], "y": arrays[0][:, 1], "action": arrays[1], "reward": arrays[2],
        "next_y": arrays[3][:, 1], "next_x": arrays[3][:, 0],
        "terminated": arrays[4], "truncated": arrays[5], "remark": "none",
    })  # fmt: skip
    wanted = Transitions(*arrays)
    named = Transitions.from_frame(frame.convert_dtypes(), observations=["x", "y"])
    more = frame.assign(next_action=3, next_reward=0.0, next_truncated=False)
    tensors = [torch.as_tensor(array) for array in arrays]
    parts = dict(zip(FIELDS, arrays, strict=True))
    for given in (tuple(arrays), parts, frame, more, wanted, named, tensors):
        found = Transitions.of(given)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_tables_of_arrow_are_read_and_columns_are_named():
    pyarrow = pytest.importorskip("pyarrow")
    numbers = ("x", "next_x", "action", "reward", "terminated")
    table = pyarrow.table({name: [0.0, 1.0] for name in numbers})
    with pytest.raises(ValueError, match=r"observations \(columns x\) has shape \(2, 1\)"):
        read_steps(Transitions.of(table), interface(*LINE))


def test_columns_of_a_frame_are_in_the_given_order():
    frame = pd.DataFrame({"x": [1.0], "y": [2.0], "next_x": [3.0], "next_y": [4.0],
                          "torque": [0.5], "reward": [1.0], "terminated": [True]})  # fmt: skip
    found = Transitions.from_frame(frame, ["y", "x"], "torque")
    assert found.observations.tolist() == [[2.0, 1.0]]
    assert found.next_observations.tolist() == [[4.0, 3.0]]
    assert (found.terminated.tolist(), found.truncated.tolist()) == ([True], [False])
    one = Transitions.from_frame(frame, "y", ["torque", "reward"])
    assert one.observations.tolist() == [2.0]
    assert one.actions.tolist() == [[0.5, 1.0]]


@pytest.mark.filterwarnings("ignore:`[a-z_]+` is set to None:UserWarning")
def test_minari_datasets_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rng = np.random.default_rng(0)
    log = cartpole_log(150, lambda observation: rng.integers(2))
    ends = np.flatnonzero(log[4]) + 1
    assert len(ends) >= 2
    buffers, log = [], [column[: ends[-1]] for column in log]
    for begin, end in zip([0, *ends], ends, strict=False):
        before, actions, rewards, after, *flags = (column[begin:end] for column in log)
        buffers.append(minari.data_collector.EpisodeBuffer(
            id=len(buffers), observations=np.vstack([before[:1], after]), actions=actions,
            rewards=list(rewards), terminations=list(flags[0]),
            truncations=list(flags[1])))  # fmt: skip
    minari.create_dataset_from_buffers("cartpole/test-v0", buffers, env=gym.make("CartPole-v1"))
    found = Transitions.of(minari.load_dataset("cartpole/test-v0"))
    for name, column in zip(FIELDS, log, strict=True):
        np.testing.assert_array_equal(getattr(found, name), column)


def dataset():
    """The part of a Minari dataset that is read: two episodes with Dict observations."""
    episodes = []
    for n in (2, 1):
        places = {"at": np.arange(n + 1), "door": np.ones((n + 1, 2), dtype=np.int8)}
        no = np.zeros(n, dtype=bool)
        steps = {"actions": np.ones(n, dtype=int), "rewards": np.ones(n)}
        flags = {"terminations": no, "truncations": no}
        episodes.append(SimpleNamespace(observations=places, **steps, **flags))
    return SimpleNamespace(iterate_episodes=lambda: iter(episodes))


def test_episodes_of_a_dataset_that_were_not_finished_count_as_cut_off():
    found = Transitions.of(dataset())
    assert found.truncated.tolist() == [False, True, True]
    assert found.next_observations["at"].tolist() == [1, 2, 1]
    assert found.observations["door"].shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("observations", 3.0, r"observations has shape \(\): it must have 6 rows"),
        ("next_observations", np.zeros((5, 2)),
         r"next_observations has shape \(5, 2\): it must have 6 rows, as rewards have"),
        ("rewards", [], "rewards is empty: there must be at least one step"),
        ("rewards", np.zeros((6, 1)), r"rewards has shape \(6, 1\): it must be \(6,\)"),
        ("rewards", np.full(6, np.nan), r"rewards\[0\] is nan: a reward must be a number"),
        ("rewards", ["a"] * 6, "rewards has dtype <U1: it must hold numbers"),
        ("terminated", np.full(6, 2), r"terminated\[0\] is 2.0: it must be True or False"),
        ("truncated", np.zeros(7), r"truncated has shape \(7,\): it must be \(6,\)"),
    ],
)  # fmt: skip
def test_bad_arrays_are_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        Transitions.of(changed(name, value))


def test_forms_that_are_unknown_are_refused():
    with pytest.raises(TypeError, match="transitions is of type int: it must be Transitions"):
        Transitions.of(3)
    with pytest.raises(ValueError, match="transitions has 3 arrays: they must be observations"):
        Transitions.of(logged()[:3])
    with pytest.raises(ValueError, match="there must be terminated, too"):
        Transitions.of({k: v for k, v in changed("actions", [0] * 6).items() if k != "terminated"})
    with pytest.raises(ValueError, match=r"transitions has \['dones'\]: it may have"):
        Transitions.of({**changed("actions", [0] * 6), "dones": np.zeros(6)})


def test_missing_columns_are_named():
    frame = pd.DataFrame({"x": [0.0], "next_x": [1.0], "action": [0], "reward": [1.0]})
    with pytest.raises(ValueError, match="there must be terminated, too"):
        Transitions.of(frame)
    with pytest.raises(ValueError, match="there must be y, next_y, too"):
        Transitions.from_frame(frame.assign(terminated=True), ["x", "y"])
    with pytest.raises(ValueError, match="such as x and next_x"):
        Transitions.of(frame[["x", "action"]])


def test_trajectories_that_do_not_join_are_warned_of():
    log = cartpole_log(200, lambda observation: observation[2] > 0)
    log[3] = log[3].astype(np.float16)
    with pytest.warns(UserWarning, match="so 1.. steps are taken for episodes of their own"):
        read_steps(Transitions(*log), interface(spaces.Box(-9, 9, (4,)), spaces.Discrete(2)))


def test_trajectories_may_be_interleaved_and_end_with_the_episode():
    before = np.array([[0.0], [5.0], [1.0], [6.0], [2.0]])
    after = np.array([[1.0], [6.0], [2.0], [7.0], [3.0]])
    over = np.array([False, False, True, False, False])
    found = trajectories(before, after, over)
    assert [rows.tolist() for rows in found] == [[0, 2], [1, 3], [4]]


def test_continuous_actions_become_the_nearest_of_the_grid():
    box = spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))
    known = interface(LINE[0], box, bins=3)
    given = [[-1.1, 0.2], [0.9, 0.3], [2.0, 1.0], [-2.9, 0.0], [0.0, 0.5], [1.01, 0.76]]
    found = read_steps(Transitions.of(changed("actions", given)), known)
    assert found.actions[:, 0].tolist() == [0, 4, 8, 0, 4, 8]
    with pytest.raises(ValueError, match=r"actions\[1\] is \[3.5, 0.0\]: .* within 1 of one of"):
        read_steps(Transitions.of(changed("actions", [[0, 0], [3.5, 0]] * 3)), known)
    with pytest.raises(ValueError, match=r"actions\[0\] is \[nan, 0.0\]"):
        read_steps(Transitions.of(changed("actions", [[np.nan, 0.0]] * 6)), known)
    with pytest.raises(ValueError, match=r"actions has shape \(6,\) .* 2 numbers for each step"):
        read_steps(Transitions.of(changed("actions", [0.0] * 6)), known)


def test_observations_of_any_space_become_vectors():
    room = spaces.Dict({"at": spaces.Discrete(5), "door": spaces.MultiBinary(2)})
    steps = read_steps(Transitions.of(dataset()), interface(room, spaces.Discrete(2)))
    assert steps.before.tolist() == [[1, 0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 1, 1],
                                     [1, 0, 0, 0, 0, 1, 1]]  # fmt: skip
    one_by_one = np.array([{"at": 4, "door": np.array([1, 0])}] * 3)
    given = Transitions(one_by_one, [0, 1, 1], np.ones(3), one_by_one, [0, 0, 0])
    steps = read_steps(given, interface(room, spaces.Discrete(2)))
    assert steps.after[2].tolist() == [0, 0, 0, 0, 1, 1, 0]
    pair = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,))))
    both = np.array([0, 1]), np.array([[0.5], [-0.5]])
    steps = read_steps(Transitions(both, [0, 1], [1, 1], both, [0, 1]),
                       interface(pair, spaces.Discrete(2)))  # fmt: skip
    assert steps.before.tolist() == [[1.0, 0.0, 0.5], [0.0, 1.0, -0.5]]
    lake = interface(spaces.Discrete(16), spaces.Discrete(4))
    steps = read_steps(Transitions([0, 4], [1, 1], [0, 0], [4, 8], [False, False]), lake)
    assert steps.before.tolist() == [[0.0], [4.0]]
    with pytest.raises(ValueError, match="observations is"):
        read_steps(Transitions([0, 16], [1, 1], [0, 0], [4, 8], [False, False]), lake)


def test_combined_actions_are_numbered():
    known = interface(LINE[0], spaces.MultiDiscrete([2, 3]))
    given = [[0, 0], [0, 2], [1, 0], [1, 2], [0, 1], [1, 1]]
    steps = read_steps(Transitions.of(changed("actions", given)), known)
    assert steps.actions[:, 0].tolist() == [0, 2, 3, 5, 1, 4]
    with pytest.raises(ValueError, match=r"actions\[0\]: action is array"):
        read_steps(Transitions.of(changed("actions", [[2, 0]] * 6)), known)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("actions", [1, 2, 3, 0, 1, 2], r"actions\[3\] is 0: it must be an integer from 1 to 3"),
     ("actions", [1, 1.5] * 3, r"actions\[1\] is 1.5: it must be an integer from 1 to 3"),
     ("actions", [np.nan] * 6, r"actions\[0\] is nan"),
     ("actions", ["left"] * 6, "dtype <U4: it must have shape"),
     ("observations", np.zeros((6, 3)), r"observations has shape \(6, 3\): it must be \(2,\)"),
     ("next_observations", np.full((6, 2), np.inf), r"next_observations\[0\] is .*not finite"),
     ("observations", np.full((6, 2), "x"), "observation is of <U1: it must hold real numbers")],
)  # fmt: skip
def test_what_does_not_fit_the_spaces_is_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        read_steps(Transitions.of(changed(name, value)), interface(*LINE))


WALK = spaces.Box(-1.0, 2.0, (1,)), spaces.Discrete(2)


def walks(n, seed, actions=(0, 1)):
    """Walks on a line with reward 1 at its right end."""
    rng, rows, place = np.random.default_rng(seed), [], 0.5
    for _ in range(n):
        action = int(rng.choice(actions))
        after = place + 0.1 * (2 * action - 1) + rng.uniform(-0.02, 0.02)
        over = not 0.0 < after < 1.0
        rows.append(([place], action, float(after >= 1.0), [after], over, False))
        place = rng.uniform(0.3, 0.7) if over else after
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def walker():
    return FittedQAgent(WALK, seed=0).fit(walks(600, 0))


def test_a_log_is_enough_without_an_environment(walker):
    assert walker.env is None
    assert walker.num_timesteps == 600
    assert (walker.predict(np.linspace(0.1, 0.9, 9)[:, None])[0] == 1).all()
    with pytest.raises(ValueError, match="env is None: set agent.env"):
        walker.learn(10)


def test_the_same_seed_fits_the_same_policy(walker, reloaded):
    again = FittedQAgent(WALK, seed=0).fit(tuple(walks(600, 0)))
    np.testing.assert_array_equal(again.policy.models, walker.policy.models)
    loaded = reloaded(walker)
    np.testing.assert_array_equal(loaded.policy.models, walker.policy.models)
    assert loaded.estimate_return() == walker.estimate_return()


def test_actions_that_are_not_in_the_log_are_not_taken():
    log = walks(1000, 1, actions=(0, 0, 0, 1))
    left = log[1] == 0
    only_left = FittedQAgent(WALK, seed=0).fit([column[left] for column in log])
    assert (only_left.predict(np.linspace(0.1, 0.9, 9)[:, None])[0] == 0).all()
    low, high = only_left.estimate_return()[1:3]
    assert low == pytest.approx(0.0, abs=0.05)
    assert high < 0.5


def test_the_interval_contains_the_true_return(walker):
    found = walker.estimate_return()
    assert str(found).startswith(f"{found.mean:.4g} ({found.low:.4g} to {found.high:.4g})")
    steps = (1.0 - 0.5) / 0.1  # to the right end from the middle, and the first reward at the last
    assert found.low <= 0.99 ** (steps - 1) <= found.high
    assert found.high <= 1.0  # which is paid once
    assert found.low < found.mean < found.high


def test_learning_goes_on_from_a_log():
    rng = np.random.default_rng(0)
    log = cartpole_log(600, lambda observation: rng.integers(2))
    agent = FittedQAgent("CartPole-v1", seed=0).fit([column[:400] for column in log])
    agent.fit([column[400:] for column in log])
    assert agent.visits.sum() == 600
    agent.learn(600)
    assert agent.num_timesteps == 1200
    assert len(agent.history) > 2


def test_codevectors_of_actions_are_fitted_to_logs():
    rng = np.random.default_rng(0)
    place, push = rng.uniform(-1.0, 1.0, size=(2, 1500, 1))
    after = np.clip(place + 0.3 * push, -1.0, 1.0)
    box = spaces.Box(-1.0, 1.0, (1,), np.float64), spaces.Box(-1.0, 1.0, (1,), np.float64)
    none = np.zeros(1500, dtype=bool)
    log = (place, push, -(after[:, 0] ** 2), after, none, ~none)
    agent = CodevectorAgent(box, seed=0).fit(log)
    left, right = agent.predict(np.array([[-0.9], [0.9]]))[0][:, 0]
    assert left > 0.3 > -0.3 > right
    with pytest.raises(ValueError, match=r"actions\[0\]: action is .* must have shape"):
        agent.fit((place, push + 3.0, log[2], after, none))


def test_fitting_nothing_is_refused():
    with pytest.raises(ValueError, match="transitions is None, and the memory is empty"):
        FittedQAgent(WALK).fit()
    with pytest.raises(ValueError, match="the memory is empty"):
        FittedQAgent(WALK).estimate_return()
    agent = FittedQAgent(WALK, seed=0)
    with pytest.raises(ValueError, match=r"actions\[0\] is 2"):
        agent.fit(([[0.5]], [2], [0.0], [[0.6]], [False]))
    assert agent.num_timesteps == 0


PLANE = spaces.Box(-2.0, 2.0, (3,), np.float64), spaces.Discrete(2)


def ruled(n, seed):
    """Steps of a rule in three dimensions: action 1 where the first two sum to above 0."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1.0, 1.0, size=(n, 3))
    actions = (place[:, 0] + place[:, 1] > 0.0).astype(int)
    after = np.clip(place + 0.1 * rng.normal(size=(n, 3)), -1.0, 1.0)
    no = np.zeros(n, dtype=bool)
    return place, actions, rng.normal(size=n), after, no, ~no


def test_with_equal_rewards_the_policy_is_the_behaviour():
    place, actions, rewards, *rest = ruled(1500, 3)
    agent = FittedQAgent(PLANE, seed=0).fit((place, actions, 0.0 * rewards, *rest))
    others, wanted, *_ = ruled(500, 4)
    assert (agent.predict(others)[0] == wanted).mean() > 0.95


def pushed(n, seed, rule):
    """A walk on a line: pushes to either side, and a reward with its maximum at 0."""
    rng, rows, place = np.random.default_rng(seed), [], 0.0
    for k in range(n):
        action = rule(place, rng)
        after = np.clip(place + 0.2 * action - 0.2 + rng.normal(scale=0.01), -1.0, 1.0)
        over = k % 50 == 49
        rows.append(([place], action, -abs(after), [after], False, over))
        place = rng.uniform(-1.0, 1.0) if over else after
    return [np.array(column) for column in zip(*rows, strict=True)]


ROAD = spaces.Box(-1.0, 1.0, (1,), np.float64), spaces.Discrete(3)


def test_a_world_of_the_log_improves_on_the_behaviour():
    log = pushed(1000, 0, lambda place, rng: int(rng.integers(3)))
    agent = FittedQAgent(ROAD, seed=0).fit(log)
    assert agent.predict(np.array([[-0.7], [0.0], [0.7]]))[0].tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("kind", "actions"),
    [(FittedQAgent, spaces.Discrete(3)), (FittedQAgent, spaces.Box(-1.0, 1.0, (1,))),
     (CodevectorAgent, spaces.Box(-1.0, 1.0, (1,)))],
)  # fmt: skip
def test_a_log_in_which_every_step_terminates(kind, actions):
    # A contextual bandit: on the right large actions pay, on the left small ones.
    rng, n = np.random.default_rng(0), 1000
    place = rng.uniform(-1.0, 1.0, size=(n, 2))
    grid = isinstance(actions, spaces.Discrete)
    taken = rng.integers(3, size=n) if grid else rng.uniform(-1.0, 1.0, size=(n, 1))
    rewards = (taken - 1.0 if grid else taken[:, 0]) * np.sign(place[:, 0])
    bandit = spaces.Box(-1.0, 1.0, (2,), np.float64), actions
    over = np.ones(n, dtype=bool)
    agent = kind(bandit, seed=0, action_bins=3).fit((place, taken, rewards, place, over))
    left, right = (np.ravel(agent.predict(np.array([x, 0.0]))[0])[0] for x in (-0.6, 0.6))
    assert right - left > 0.5
    estimate = agent.estimate_return()
    assert 0.0 < estimate.low <= estimate.mean <= estimate.high <= 1.0


@pytest.mark.slow
def test_a_policy_fitted_to_an_experts_log_is_about_as_good():
    agent = FittedQAgent("CartPole-v1", seed=0)
    agent.fit(cartpole_log(1200, lambda x: x @ [0.1, 0.3, 5.0, 1.0] > 0.0))
    assert agent.evaluate(20, seed=1).mean() > 475.0
