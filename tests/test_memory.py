"""The memory against lists of transitions, and returns against their definitions."""

import numba
import numpy as np
import oracles
import pytest

from oda_rl._state import reader
from oda_rl.agents.base import memory
from oda_rl.agents.base.memory import CUT, GOES_ON, MARK, TERMINAL, Memory, Trajectory
from oda_rl.agents.base.state import EnvState, new_env_states

env_state_of = reader(EnvState)


def new_env_state():
    return new_env_states(np.zeros(EnvState.size, dtype=np.uint8))[0]


@numba.njit
def begin(observations, steps, raw, vector):
    memory.begin(Trajectory(observations, steps, env_state_of(raw, 0)), vector)


@numba.njit
def remember(observations, steps, raw, step):
    action, reward, vector, terminated = step
    env_state = env_state_of(raw, 0)
    env_state.action = action
    memory.remember(Trajectory(observations, steps, env_state), reward, vector, terminated)


def wander(write, oracle, n_steps, rng, n_values=3):
    """Random steps between few places, with ends, new starts and missing calls of ``begin``."""
    place = (0.0, 0.0)
    for _ in range(n_steps):
        if rng.random() < 0.3:
            place = tuple(rng.integers(n_values, size=2).astype(float))
        ended = not oracle.done or oracle.done[-1]["end"] == "terminal"
        for _ in range(rng.integers(ended, 3)):  # what goes on need not be begun
            write.begin(place)
            oracle.begin(place)
        action, reward = int(rng.integers(3)), float(rng.normal())
        place = tuple(rng.integers(n_values, size=2).astype(float))
        terminated = bool(rng.random() < 0.2)
        write.remember(action, reward, place, terminated)
        oracle.remember(action, reward, place, terminated)
        yield


class Writer:
    """Calls the compiled functions on the arrays of rows or a memory."""

    def __init__(self, owner, env_state=None):
        self.owner, self.env_state = owner, new_env_state() if env_state is None else env_state

    def begin(self, place):
        begin(*self.arrays, np.array(place))

    def remember(self, action, reward, place, terminated):
        remember(*self.arrays, (action, reward, np.array(place), terminated))

    @property
    def arrays(self):
        return self.owner.observations, self.owner.steps, self.env_state.record.view(np.uint8)


class Rows:
    def __init__(self, capacity, d=2, dtype=np.float64):
        self.observations, self.steps = np.zeros((capacity, d), dtype), np.zeros((capacity, 3))


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_all_trajectories(seed):
    rows, oracle = Rows(4000), oracles.Trajectories()
    writer = Writer(rows)
    for _ in wander(writer, oracle, 1000, np.random.default_rng(seed)):
        pass
    n = writer.env_state.last_row + 1
    observations, steps = oracle.rows()
    np.testing.assert_array_equal(rows.steps[:n], steps)
    np.testing.assert_array_equal(rows.observations[:n], observations)
    kinds = [trajectory["end"] for trajectory in oracle.done]
    assert min(kinds.count("cut"), kinds.count("terminal")) > 50
    assert max(len(trajectory["steps"]) for trajectory in oracle.done) > 3


def test_rounded_observations_are_recognised():
    # Environments may declare float32 and return float64.
    rows = Rows(10, d=1, dtype=np.float32)
    writer = Writer(rows)
    for place, after in ((0.1, 0.2), (0.2, 0.3), (0.3, 0.4)):
        writer.begin((place,))
        writer.remember(0, 1.0, (after,), False)
    assert rows.steps[:4, MARK].tolist() == [GOES_ON, GOES_ON, GOES_ON, CUT]


def random_steps(rng, n=400):
    """Trajectories of random length; marks of steps and ends as a memory writes them."""
    steps = np.column_stack([rng.integers(3, size=n), rng.normal(size=n), np.full(n, GOES_ON)])
    ends = rng.random(n) < 0.15
    ends[-1] = True
    steps[ends] = (-1.0, 0.0, 0.0)
    steps[ends, MARK] = rng.choice([TERMINAL, CUT], size=ends.sum())
    return steps.astype(np.float64)


@pytest.mark.parametrize("gamma", [0.5, 0.99])
@pytest.mark.parametrize("shift", [-2.0, 0.0, 2.0])
def test_discounted_returns_are_the_extremes_over_all_rows(gamma, shift):
    steps = random_steps(np.random.default_rng(1))
    steps[steps[:, MARK] == GOES_ON, 1] += shift
    returns = [oracles.discounted_return(steps, gamma, i, 3.0) for i in range(len(steps))]
    bounds = []  # a value that is followed by itself
    for i in np.flatnonzero(steps[:, MARK] == GOES_ON):
        start = oracles.discounted_return(steps, gamma, i)
        bounds.append(start / (1.0 - oracles.discounted_return(steps, gamma, i, 1.0) + start))
    going = steps[:, MARK] == GOES_ON
    found = memory.discounted_returns(steps, gamma, 3.0)
    assert found == pytest.approx(
        (max(0, *np.array(returns)[going]), max(0, *bounds), min(0, *bounds))
    )


def test_a_memory_grows_and_keeps_its_content():
    rng = np.random.default_rng(0)
    remembered, oracle = Memory(2, np.float32, None, rng), oracles.Trajectories()
    writer, first = Writer(remembered), len(remembered.observations)
    grown = 0
    for _ in wander(writer, oracle, 5 * first, rng):
        before = remembered.observations
        new = remembered.make_room(writer.env_state)
        assert new == (remembered.observations is not before)
        grown += new
        assert remembered.rows(writer.env_state) + 4 <= len(remembered.observations)
    assert grown >= 4
    n = remembered.rows(writer.env_state)
    assert remembered.observations.dtype == np.float32
    np.testing.assert_array_equal(remembered.observations[:n], oracle.rows()[0])
    np.testing.assert_array_equal(remembered.steps[:n], oracle.rows()[1])
    assert remembered.thin_out(writer.env_state) is None


def test_a_memory_comes_back_from_its_state():
    rng = np.random.default_rng(0)
    remembered = Memory(2, np.float64, 300, np.random.default_rng(5))
    writer = Writer(remembered)
    for _ in wander(writer, oracles.Trajectories(), 500, rng):
        pass
    remembered.thin_out(writer.env_state)
    writer.begin((0.25, 0.75))
    state = {name: array.copy() for name, array in remembered.state(writer.env_state).items()}
    other = Memory(2, np.float64, 300, np.random.default_rng(6))
    other.restore(state)
    copy = Writer(other)
    copy.env_state.restore(writer.env_state.record)
    other._rng.bit_generator.state = remembered._rng.bit_generator.state
    for one in (writer, copy):
        one.remember(2, 1.5, (1.0, 1.0), False)
        for _ in wander(one, oracles.Trajectories(), 600, np.random.default_rng(7)):
            one.owner.make_room(one.env_state)
        one.owner.thin_out(one.env_state)
    n = remembered.rows(writer.env_state)
    assert n == other.rows(copy.env_state)
    np.testing.assert_array_equal(other.observations[:n], remembered.observations[:n])
    np.testing.assert_array_equal(other.steps[:n], remembered.steps[:n])


def add(remembered, env_state, number, length, terminated=True):
    """Write a trajectory whose observations are its number."""
    writer = Writer(remembered, env_state)
    writer.begin((float(number),))
    for t in range(length):
        writer.remember(t, float(number), (float(number),), terminated and t == length - 1)
        remembered.make_room(env_state)


@pytest.mark.parametrize("seed", range(5))
def test_thinning_out_keeps_whole_trajectories_within_the_bound_and_the_latest(seed):
    rng = np.random.default_rng(seed)
    remembered, env_state = Memory(1, np.float64, 200, rng), new_env_state()
    lengths = rng.integers(1, 60, size=40)
    for number, length in enumerate(lengths):
        add(remembered, env_state, number, length, terminated=number % 3 != 0)
        if rng.random() < 0.3:
            continue
        before = remembered.rows(env_state)
        numbers = remembered.observations[:before, 0].copy()
        begun = rng.random() < 0.5
        if begun:
            Writer(remembered, env_state).begin((1000.0,))
        kept = remembered.thin_out(env_state)
        n = remembered.rows(env_state)
        marks = remembered.steps[:n, MARK]
        assert (marks == GOES_ON).sum() <= 200
        found = remembered.observations[:n, 0]
        assert found[-1] == number
        if kept is None:
            assert n == before
        else:
            assert kept.shape == (before,)
            np.testing.assert_array_equal(numbers[kept], found)
        present, counts = np.unique(found, return_counts=True)
        np.testing.assert_array_equal(counts - 1, lengths[present.astype(int)])
        np.testing.assert_array_equal(found, np.sort(found))
        np.testing.assert_array_equal(np.flatnonzero(marks != GOES_ON), np.cumsum(counts) - 1)
        if begun:
            assert remembered.observations[n, 0] == 1000.0


@pytest.mark.slow
def test_all_trajectories_are_equally_likely_to_be_kept():
    n, trials = 30, 1000
    counts = np.zeros(n)
    rng = np.random.default_rng(0)
    for _ in range(trials):
        remembered, env_state = Memory(1, np.float64, 22, rng), new_env_state()
        for number in range(n):
            add(remembered, env_state, number, 2)
            if number % 4 == 1:  # several times on the way
                remembered.thin_out(env_state)
        remembered.thin_out(env_state)
        kept = remembered.observations[: remembered.rows(env_state), 0]
        counts[np.unique(kept).astype(int)] += 1
    assert counts[-1] == trials
    share = 10 / 29  # besides the latest, ten of the others have room
    assert counts.sum() == 11 * trials
    deviations = (counts[:-1] - share * trials) / np.sqrt(trials * share * (1 - share))
    # Of 29 standard normal numbers one beyond 3.5 would be seen once in 75 times.
    assert np.abs(deviations).max() < 3.5
    assert abs(np.corrcoef(np.arange(29), counts[:-1])[0, 1]) < 0.6  # old or new: 3.2/√29
