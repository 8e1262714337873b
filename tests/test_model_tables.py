"""Worlds of numbered states: counted, explored by optimism, planned by value iteration."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from oda_rl.agents.model import tables
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.model.engine import seen_again
from oda_rl.agents.model.experience import Memory, Outcomes
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.cells import TablePolicy
from oda_rl.agents.worlds.learning import CodedSteps
from oda_rl.envs.sparse import DeepSea, DoorKey, TwoRooms
from oda_rl.files.schema import InvalidFileError


def random_world(seed: int, n: int = 7, n_actions: int = 3, steps: int = 400) -> Any:
    """Counts of a random world, and the same as dense arrays."""
    rng = np.random.default_rng(seed)
    edges = tables.empty(n, n_actions, 4)
    moves, rewards = np.zeros((n, n_actions, n)), np.zeros((n, n_actions))
    for _ in range(steps):
        s, a, after = rng.integers(n - 1), rng.integers(n_actions), rng.integers(-1, n)
        reward = float(rng.normal())
        if int(edges.size[0]) == len(edges.weights):
            edges = tables.grown(edges, 0, 2 * len(edges.weights))
        tables.count(edges, s, a, reward, after)
        rewards[s, a] += reward
        if after != tables.NO:
            moves[s, a, after] += 1.0
    visits = np.maximum(edges.counts, 1.0)
    return edges, moves / visits[..., None], rewards / visits


def certain(gamma: float, unknown: float = 0.0) -> tables.View:
    return tables.View(np.r_[1.0, np.zeros(tables.MAX_VISITS)], unknown, 0.0, gamma)


class Chain(gym.Env[Any, int]):
    """Five states; right, right, ... pays 1 at the end, left .1 at once and ends."""

    observation_space = gym.spaces.Discrete(5, start=3)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 3
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == 0:
            return self.at, 0.1, True, False, {}
        self.at = min(self.at + 1, 7)
        return self.at, float(self.at == 7), self.at == 7, False, {}


@pytest.mark.parametrize("seed", range(3))
def test_sweeps_find_the_values_that_plain_iteration_finds(seed: int) -> None:
    edges, moves, rewards = random_world(seed)
    unknown, values = -2.0, np.zeros(7)
    sweeps = tables.sweep(edges, certain(0.9, unknown), values, 7, False, 1e-12, 10_000)
    slow = np.zeros(7)
    for _ in range(2_000):
        q = np.where(edges.counts > 0, rewards + 0.9 * moves @ slow, -np.inf)
        slow = np.where(edges.counts.any(axis=1), q.max(axis=1), unknown)
    np.testing.assert_allclose(values, slow, atol=1e-9)
    assert sweeps < 400


@pytest.mark.parametrize("most", [3, 1_000])
def test_changes_are_passed_on_to_all_states_or_to_as_many_as_are_allowed(most: int) -> None:
    edges, values = tables.empty(20, 1, 20), np.zeros(20)
    for s in range(19):
        tables.count(edges, s, 0, 0.0, s + 1)
    view = certain(0.9)
    tables.sweep(edges, view, values, 20, True, 1e-12, 100)
    assert not values.any()
    tables.count(edges, 19, 0, 1.0, tables.NO)
    tables.spread(edges, view, values, 19, 1e-12, most)
    wanted = 0.9 ** np.arange(19, -1, -1)
    wanted[: max(20 - most, 0)] = 0.0
    np.testing.assert_allclose(values, wanted)


def test_standard_errors_and_doubt_enter_values() -> None:
    edges = tables.empty(1, 1, 2)
    for reward in (0.0, 2.0, 0.0, 2.0):
        tables.count(edges, 0, 0, reward, tables.NO)
    values, doubt = np.zeros(1), np.full(tables.MAX_VISITS + 1, 0.25)
    tables.sweep(edges, tables.View(doubt, 10.0, 2.0, 0.9), values, 1, True, 1e-12, 10)
    np.testing.assert_allclose(values, 0.75 * (1.0 + 2.0 * 1.0 / 2.0) + 0.25 * 10.0)
    tables.sweep(edges, tables.View(doubt, 10.0, 100.0, 0.9), values, 1, True, 1e-12, 10)
    np.testing.assert_allclose(values, 10.0)  # nothing is better than the unknown


@pytest.mark.parametrize("steps", [1, 7, 60])
def test_a_policy_is_played_as_long_as_episodes_are(steps: int) -> None:
    edges, moves, rewards = random_world(5)
    actions = np.array([0, 1, 2, 0, 1, 2, 0])
    slow, rows = np.zeros(7), np.arange(7)
    for t in range(steps):
        slow = rewards[rows, actions] + moves[rows, actions] @ slow
        slow[6] = -3.0 * (t + 1)  # nobody has acted there
    np.testing.assert_allclose(tables.play(edges, actions, -3.0, steps), slow, atol=1e-9)


def seen(rows: list[tuple[float, int, float, float, bool]], n_actions: int = 2) -> Memory:
    memory = Memory(1, n_actions)
    for k, (before, action, reward, after, ended) in enumerate(rows):
        memory.append(before, np.eye(n_actions)[action], reward, after, ended, k == 0)
    return memory


def test_optimism_makes_untried_actions_attractive() -> None:
    memory = seen([(0, 0, 1.0, 1, False), (1, 0, 1.0, 0, False)] * 3)
    planner = tables.TablePlanner(memory, 2, Outcomes(10), ModelConfig())
    assert planner.plan([]).decide(np.zeros(1))[0] == 1
    memory.append(0, [0.0, 1.0], 0.0, 0, False, False)
    assert planner.decide(np.zeros(1))[0] == 0  # towards what is untried in the other
    assert planner.decide(np.ones(1))[0] == 1


def test_what_is_delivered_does_only_what_was_tried() -> None:
    memory = seen([(0, 0, -1.0, 1, False), (1, 1, -1.0, 0, False)] * 3)
    planner = tables.TablePlanner(memory, 2, Outcomes(10), ModelConfig())
    planner.plan([])
    np.testing.assert_array_equal(planner.policy(None).act(np.array([[0.0], [1.0]])), [0, 1])
    # Unseen states fall to the nearest.
    policy = tables.greedy(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(policy.act(np.array([[1.0, 1.0], [2.0, 4.0]])), [0, 1])


def test_a_chain_is_solved_and_its_values_are_exact() -> None:
    agent = ModelAgent(Chain(), seed=0).learn(300)
    policy = agent.policy
    assert isinstance(policy, TablePolicy)
    np.testing.assert_array_equal(policy.act(np.arange(3.0, 7.0)[:, None]), np.ones(4))
    assert policy.n_cells == 4
    assert agent.evaluate(1, seed=1)[0] == 1.0
    assert agent.visits.sum() == 300
    with pytest.raises(ValueError, match="agent.world is None: the world is a table of 4 states"):
        _ = agent.world
    assert "cell" in str(agent.explain([3.0])).lower()


@pytest.mark.parametrize(
    ("make", "steps", "wanted"),
    [(lambda: gym.make("FrozenLake-v1", is_slippery=False), 2_000, 1.0),
     (lambda: gym.make("CliffWalking-v1"), 2_000, -13.0), (partial(DeepSea, 10), 1_500, 0.99),
     *((partial(TwoRooms, numbers), 3_000, 1.0) for numbers in (1, 2))],
)  # fmt: skip
def test_numbered_worlds_are_solved(make: Any, steps: int, wanted: float) -> None:
    agent = ModelAgent(make(), seed=63_000_001).learn(steps)
    assert agent.evaluate(1, seed=1)[0] == pytest.approx(wanted)


def test_several_environments_are_one_table() -> None:
    envs = gym.make_vec("FrozenLake-v1", num_envs=3, is_slippery=False)
    agent = ModelAgent(envs, seed=63_000_005).learn(3_000)
    assert agent.evaluate(1, env=gym.make("FrozenLake-v1", is_slippery=False), seed=1)[0] == 1.0


def test_few_distinct_observations_are_a_table_and_continuous_ones_are_not() -> None:
    assert isinstance(ModelAgent(TwoRooms(2), seed=0).learn(400).policy, TablePolicy)
    rng, memory = np.random.default_rng(0), Memory(2, 2)
    for k in range(50):
        memory.append(rng.random(2), [1, 0], 0.0, rng.random(2), False, k == 0)
    for _ in range(200):  # standing still
        memory.append(np.zeros(2), [1, 0], 0.0, np.zeros(2), False, False)
    assert seen_again(memory) == 0.0
    engine = ModelAgent("CartPole-v1", seed=0)._engine
    assert engine.planner is engine.rules


def log_of(step: Any, n: int = 1000) -> CodedSteps:
    """Return steps of two random actions, each as ``step(rng, state, action)`` says."""
    rng = np.random.default_rng(0)
    states, acts, rewards = [np.array([5.0, 0.0])], rng.integers(2, size=n), np.zeros(n)
    for k in range(n):
        after, rewards[k] = step(rng, states[-1], acts[k])
        states.append(np.asarray(after, dtype=float))
    rows = np.array(states)
    return CodedSteps(rows[:-1], np.eye(2)[acts], rewards, rows[1:], np.zeros(n, dtype=bool))


def on_a_ring(rng: np.random.Generator, at: Any, action: int) -> Any:
    return [(at[0] + 2 * action - 1) % 7, 0.0], float(at[0] == 3)


def in_a_queue(rng: np.random.Generator, at: Any, action: int) -> Any:
    length = min(at[0] + action, 10) if rng.random() < 0.5 else max(at[0] - 1, 0)
    return [length, rng.integers(2)], at[1] * action - 0.1 * at[0]


def in_a_store(rng: np.random.Generator, at: Any, action: int) -> Any:
    left = max(at[0] - rng.poisson(10), 0)
    return [left + at[1], 18 * action + rng.integers(5)], left - at[0]


@pytest.mark.parametrize(
    ("step", "counted"), [(on_a_ring, True), (in_a_queue, True), (in_a_store, False)]
)
def test_numbers_that_are_quantities_are_no_table(step: Any, counted: bool) -> None:
    assert tables.predicts(log_of(step), np.arange(1000) == 0, np.random.default_rng(0)) == counted


def test_places_that_recur_in_their_own_episode_alone_are_no_table() -> None:
    def on_a_line(rng: np.random.Generator, at: Any, action: int) -> Any:
        return [at[0] + 0.25 * action - 0.125, 0.0], -abs(at[0])

    log, rng = log_of(on_a_line), np.random.default_rng(0)
    for length, too_few_to_leave_a_table in ((25, False), (100, True)):
        first = np.arange(1000) % length == 0
        offsets = np.zeros((1000, 2))
        offsets[:, 0] = rng.random(40)[np.cumsum(first) - 1]
        moved = log._replace(before=log.before + offsets, after=log.after + offsets)
        assert tables.predicts(log, first, rng)
        assert not tables.predicts(moved, first, rng)
        assert tables.predicts(moved, first, rng, counted=True) == too_few_to_leave_a_table


def test_a_table_stays_where_none_is_better_and_real_returns_are_noted() -> None:
    memory = seen([(0, 0, 0.0, 1, True), (0, 0, 1.0, 1, True)] * 4 + [(0, 1, 0.0, 1, True)])
    planner = tables.TablePlanner(memory, 2, Outcomes(10), ModelConfig())
    planner.plan([])
    first = planner.best()
    planner.note(first, np.zeros(1), (1.0, 1, True))
    planner.plan([])
    assert planner.best() is first
    assert first.returns == [1.0]
    for _ in range(20):
        memory.append(0, [0.0, 1.0], 1.0, 1, True, True)
    planner.plan([])
    assert first.policy.act(np.zeros((1, 1))) == [0]
    assert planner.policy(None).act(np.zeros((1, 1))) == [1]


@pytest.mark.parametrize(
    ("visits", "random", "pays", "reliable"),
    [(2, 0, 1, True), (8, 1, 1, False), (8, 1, 0, True), (10, 1, 1, True)],
)
def test_random_outcomes_need_many_visits(visits: int, random: int, pays: int, reliable: bool):
    rows = [(0, k % 2, pays * float(k), k // 2 % 2 * random, False) for k in range(2 * visits)]
    planner = tables.TablePlanner(seen(rows), 2, Outcomes(10), ModelConfig())
    assert planner.plan([]).is_reliable == reliable


@pytest.mark.parametrize("planned", [False, True])
def test_a_planner_goes_through_arrays(planned: bool) -> None:
    memory = seen([(0, 0, 0.0, 1, False), (1, 1, 1.0, 1, True)] * 4)
    one, other = (tables.TablePlanner(memory, 2, Outcomes(10), ModelConfig()) for _ in range(2))
    if planned:
        one.plan([])
        one.note(one.best(), np.zeros(1), (1.0, 2, True))
    arrays = one.to_arrays([])
    assert other.restore(arrays, int(planned)) == [*other.candidates, other]
    for name, array in arrays.items():
        np.testing.assert_array_equal(other.to_arrays([])[name], array)
    with pytest.raises(InvalidFileError, match="delivered is missing"):
        other.restore(arrays, int(not planned))


def test_the_door_opens_to_who_has_the_key():
    world = DoorKey()
    for seed in range(20):
        first, _ = world.reset(seed=seed)
        x, y, direction, key_x, key_y, carried, door_x, door_y, is_open = first
        assert (x, key_x, door_x, carried, is_open) == (1, 1, 2, 0, 0)
        assert y != key_y
        assert door_y in (1, 2)
        for _ in range(int(-direction) % 4):
            world.step(1)
        assert world.step(2)[0][0] == 1  # a wall, or a door that is locked
        assert world.step(5)[0][8] == 0


def test_door_and_key():
    agent = ModelAgent("oda_rl/DoorKey-v0", seed=63_000_004).learn(5_000)
    assert agent.evaluate(20, seed=1).mean() > 0.9


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [(partial(DeepSea, 3, swap=None), "A  \n   \n  G"),
     (TwoRooms, "     #    G\n     #     \n           \n     #     \nA    #     "),
     (DoorKey, "#####\n#K# #\n# D #\n#v#G#\n#####")],
)  # fmt: skip
def test_worlds_on_a_grid_are_drawn(kind, drawn):
    text, image = kind(render_mode="ansi"), kind(render_mode="rgb_array")
    for env in (text, image):
        env.reset(seed=0)
    assert text.render() == drawn
    rows = drawn.split("\n")
    assert image.render().shape == (32 * len(rows), 32 * len(rows[0]), 3)
    assert len(np.unique(image.render().reshape(-1, 3), axis=0)) == len(set(drawn) - {"\n"})
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        kind(render_mode="human")
