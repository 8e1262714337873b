"""Grid, map, mixture and exemplars that place the online agent's cells."""

import gymnasium as gym
import numpy as np
import oracles
import pytest
from environments import BARTO, Plain, all_but_one, live, same
from scipy.special import softmax
from scipy.stats import multivariate_normal

from oda_rl import agents
from oda_rl.agents.partitions.infex import match

ORIGIN, DEVIATIONS = np.array([1.0, -2.0, 0.0]), np.array([2.0, 0.5, 1.0])
SMALL_MAP = {"map_shape": (3, 4), "map_samples_per_cell": 20}


def play(rng, n=500):
    """Observations whose components have mean ORIGIN and standard deviation DEVIATIONS."""
    points = rng.normal(size=(n, 3))
    return ORIGIN + DEVIATIONS * (points - points.mean(axis=0)) / points.std(axis=0)


def made(kind, seed=0, **config):
    partition = kind(**config).prepare(3, np.random.default_rng(seed))
    partition.start(play(np.random.default_rng(7)))
    return partition


def cells_of(partition, points):
    """Nearest codevectors, in standard deviations."""
    gaps = (points[:, None] - partition.codevectors) / DEVIATIONS
    return (gaps**2).sum(axis=2).argmin(axis=1)


def test_a_grid_has_the_centres_of_its_boxes():
    ranges = ((-1.0, 5.0), (-4.0, 0.0), (10.0, 11.0))
    grid = made(agents.GridPartition, bins=(3, 4, 2), ranges=ranges)
    assert grid.n_cells == grid.capacity == 24
    rng = np.random.default_rng(1)
    observations = rng.uniform((-3, -6, 9.5), (7, 2, 11.5), size=(5000, 3))
    expected = [oracles.box(x, ranges, (3, 4, 2)) for x in observations]
    np.testing.assert_array_equal(cells_of(grid, observations), expected)
    assert len(set(expected)) == 24
    np.testing.assert_allclose(grid.codevectors[0], (0.0, -3.5, 10.25), atol=1e-12)
    np.testing.assert_allclose(grid.codevectors[-1], (4.0, -0.5, 10.75))
    assert grid.observe(observations) is None


def test_without_ranges_a_grid_spans_the_random_play():
    grid = made(agents.GridPartition, bins=2, spread=3.0)
    np.testing.assert_allclose(grid.codevectors.max(axis=0), ORIGIN + 1.5 * DEVIATIONS)
    np.testing.assert_allclose(grid.codevectors.min(axis=0), ORIGIN - 1.5 * DEVIATIONS)


def test_a_component_that_never_varied_has_the_unit_1():
    grid = agents.GridPartition(bins=2).prepare(2, np.random.default_rng(0))
    grid.start(np.array([[-1.0, 5.0], [1.0, 5.0]]))
    expected = [[-1.0, 4.0], [-1.0, 6.0], [1.0, 4.0], [1.0, 6.0]]
    np.testing.assert_allclose(grid.codevectors, expected)


def test_a_map_learns_from_its_schedule():
    partition = made(agents.SOMPartition, **SMALL_MAP)
    metric = np.diag(DEVIATIONS**-2.0)
    codevectors = partition.codevectors
    n = 20 * 12
    points = play(np.random.default_rng(5), n)
    for i, point in enumerate(points):
        rate = 0.3 * (0.01 / 0.3) ** (i / n)
        width = 2.0 * (0.5 / 2.0) ** (i / n)
        codevectors = oracles.som_observe(codevectors, metric, (3, 4), False, point, rate, width)
    for begin in range(0, n, 100):  # 100, 100 and 40
        np.testing.assert_array_equal(partition.observe(points[begin : begin + 100]), np.eye(12))
    np.testing.assert_allclose(partition.codevectors, codevectors, rtol=1e-7, atol=1e-7)
    assert partition.observe(points) is None
    partition.start(points)
    assert partition.observe(points) is not None


@pytest.mark.parametrize(
    ("partition", "config"),
    [("grid", {"bins": 3}),
     ("grid", {"ranges": ((-1, 1), (-4, 4), (-1, 1), (-4, 4)), "bins": (2, 3, 2, 3)}),
     ("som", SMALL_MAP), ("som", {"map_shape": (9,), "metric": "std"}),
     ("gmm", {"mixture_components": 6}), ("infex", {}),
     ("infex", {"infex_max_cells": 5, "infex_bandwidth": 0.4, "warmup_steps": 100})],
)  # fmt: skip
def test_both_loops_and_files_give_the_same_bits(partition, config, tmp_path):
    fused = agents.TwoTimescaleAgent(BARTO, partition=partition, seed=3, **config).learn(1500)
    assert partition != "grid" or len(fused.history) == 1  # whose cells stay as they are
    stepwise = agents.TwoTimescaleAgent(
        Plain(gym.make(BARTO)), partition=partition, seed=3, **config
    )
    same(fused, stepwise.learn(1500))
    fused.save(tmp_path / "a.zip")
    loaded = agents.load_agent(tmp_path / "a.zip")
    same(fused, loaded)
    for agent in (fused, loaded):
        live(agent, gym.make(BARTO), 400)
    same(fused, loaded)


@pytest.mark.parametrize("partition", ["gmm", "grid", "infex", "som"])
def test_cells_are_where_components_at_the_codevectors_have_the_greatest_responsibility(partition):
    agent = agents.TwoTimescaleAgent(BARTO, partition=partition, seed=0).learn(6000)
    policy, rng = agent.learning_policy, np.random.default_rng(0)
    np.testing.assert_allclose(policy.codevectors, agent.partition.codevectors, atol=1e-9)
    if partition == "gmm":
        covariances = [np.diag(1.0 / own) for own in policy.precisions]
        spread = np.std(np.log(policy.precisions), axis=0)
        raw = np.std(np.log(agent.partition.precisions), axis=0)
        np.testing.assert_allclose(spread, 0.15 * raw)
        assert spread.min() > 0.02
    else:
        learned = agent._engine.metric  # all the same
        assert abs(learned / np.trace(learned) - np.eye(4) / 4.0).max() > 0.1
        transform = agent._engine.transforms[0] * agent._engine.units[1]
        covariance = 0.5 * policy.width * np.linalg.inv(transform.T @ transform)
        covariances = [covariance] * policy.n_cells
    points = agent.recent[rng.integers(1000, size=5000)]
    points += 0.5 * points.std(axis=0) * rng.normal(size=points.shape)
    components = map(multivariate_normal, policy.codevectors, covariances)
    likelihoods = np.stack([component.logpdf(points) for component in components], axis=1)
    logs = likelihoods + np.log(getattr(agent.partition, "weights", 1.0))
    np.testing.assert_array_equal(policy.cells(points), logs.argmax(axis=1))
    voronoi = np.mean(logs.argmax(axis=1) == likelihoods.argmax(axis=1))
    assert (voronoi < 0.98) == (partition in ("gmm", "infex"))
    far = logs < np.sort(logs, axis=1)[:, -policy.n_nearest, None]
    shares = softmax(np.where(far, -np.inf, logs), axis=1)
    planes = policy.models[:, :1] + policy.models[:, 1:5] @ (points - policy.origin).T
    values = shares @ policy.models[:, -2:] + (shares * planes.T).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(policy.values(points), values, rtol=1e-6, atol=1e-6)


def test_components_of_a_mixture_keep_their_numbers_but_for_the_one_that_moves():
    partition = made(agents.GMMPartition, mixture_components=12, mixture_samples_per_cell=700)
    rng = np.random.default_rng(0)
    n_moved = 0
    for t in range(8000):
        before = partition.codevectors
        point = ORIGIN + rng.normal(size=3) * DEVIATIONS + (t > 6000) * 8.0
        lineage = partition.observe(point[None])
        if np.array_equal(lineage, np.eye(12)):
            continue
        n_moved += 1
        (freed,) = np.flatnonzero(np.diag(lineage) == 0.0)
        distances = (((before - point) / DEVIATIONS) ** 2).sum(axis=1)
        assert lineage[freed].argmax() == distances.argmin()
        np.testing.assert_allclose(partition.codevectors[freed], point)
        others = np.delete(np.arange(12), freed)
        np.testing.assert_allclose(partition.codevectors[others], before[others])
    assert n_moved > 3
    points = ORIGIN + rng.normal(size=(2, 2000, 3)) * DEVIATIONS
    points[1] += 8.0  # where the states have been for a while: most cells have followed
    assert len(np.unique(cells_of(partition, points.reshape(-1, 3)))) >= 10
    assert len(np.unique(cells_of(partition, points[1]))) >= 4
    assert partition.observe(points[1]) is not None  # 400 samples are left
    assert partition.observe(points[1]) is None


@pytest.mark.parametrize(
    ("partition", "config"),
    [("gmm", {}), ("som", {"map_shape": (4, 4)}), ("infex", {}), ("grid", {"bins": 4})],
)
def test_it_learns_to_balance(partition, config):
    def balances(seed):
        agent = agents.TwoTimescaleAgent("CartPole-v1", partition=partition, seed=seed, **config)
        return agent.learn(30_000).evaluate(20, seed=seed).mean() > 100.0  # random play: 20 to 25

    assert all_but_one(balances, range(3))


def test_exemplars_are_refitted_eight_times():
    cells = made(agents.InfexPartition, infex_bandwidth=0.4)
    assert cells.n_cells == 1
    rng = np.random.default_rng(1)
    centres = ORIGIN + DEVIATIONS * ((-2.0, 0.0, 0.0), (2.0, 0.0, 0.0), (2.0, 2.0, 0.0))

    def draw():
        return centres[rng.integers(3, size=100)] + 0.1 * DEVIATIONS * rng.normal(size=(100, 3))

    np.testing.assert_allclose(cells.observe(draw()), 1.0)  # all come from the one there was
    gaps = (centres[:, None] - cells.codevectors) / DEVIATIONS
    assert np.linalg.norm(gaps, axis=2).min(axis=1).max() < 0.1
    assert cells.weights.sum() == pytest.approx(1.0)
    refits, old = 1, cells.n_cells
    for _ in range(80):  # 100 samples have grown by half seven times: to 2,700
        lineage = cells.observe(draw())
        if lineage is not None:
            refits += 1
            np.testing.assert_allclose(lineage.sum(axis=1), 1.0)
            assert lineage.shape == (cells.n_cells, old)
            old = cells.n_cells
    assert refits == 8


def test_refitted_exemplars_keep_their_numbers():
    rng = np.random.default_rng(0)
    before = 5.0 * rng.permutation(20)[:, None] + rng.uniform(-0.2, 0.2, size=(20, 1))
    shuffled = rng.permutation(20)
    after = before[shuffled] + rng.uniform(-0.3, 0.3, size=(20, 1))
    order, lineage = match(before, np.full(20, 0.05), after)
    np.testing.assert_array_equal(lineage, np.eye(20))
    assert abs(after[order] - before).max() <= 0.3
    # One is lost and goes into its neighbour, one is new and comes from its own.
    kept, new = after[order][1:], before[3] + 2.0
    order, lineage = match(before, np.full(20, 0.05), np.concatenate([kept, new[None]]))
    assert lineage.shape == (20, 20)
    np.testing.assert_array_equal(order, np.arange(20))
    neighbour = abs(before[1:, 0] - before[0, 0]).argmin() + 1
    assert lineage[neighbour - 1, 0] == lineage[neighbour - 1, neighbour] == 0.5
    assert lineage[19, 3] == 1.0


class Halves:
    """A partition of one's own: left and right of what has been seen on average."""

    capacity = 2

    def __init__(self, n_features):
        self.codevectors = np.zeros((2, n_features))
        self.seen = np.zeros(1)

    def start(self, observations):
        self.codevectors[:] = observations.mean(axis=0)
        self.codevectors[:, 0] += observations[:, 0].std() * np.array([-1.0, 1.0])

    def observe(self, observations):
        self.seen += len(observations)
        self.codevectors += observations.mean(axis=0) / self.seen
        return np.eye(2)

    def state(self):
        return {"codevectors": self.codevectors, "seen": self.seen}

    def restore(self, state):
        for name, array in self.state().items():
            array[:] = state[name]


def test_an_agent_with_a_partition_of_ones_own_is_saved_and_loaded(tmp_path):
    agent = agents.TwoTimescaleAgent("CartPole-v1", partition=Halves(4), seed=0).learn(3050)
    assert agent.partition.seen == 2500  # all but 500 random steps, by the hundred
    agent.save(tmp_path / "run")
    with pytest.raises(ValueError, match="'Halves'.*load.*partition=|partition.*Halves"):
        agents.TwoTimescaleAgent.load(tmp_path / "run")
    loaded = agents.TwoTimescaleAgent.load(tmp_path / "run", partition=Halves(4))
    same(agent, loaded)
    assert loaded.partition.seen == agent.partition.seen
    for one in (agent, loaded):
        live(one, gym.make("CartPole-v1"), 1000)
    same(agent, loaded)
    assert loaded.partition.seen == agent.partition.seen == 3500


@pytest.mark.parametrize(
    ("partition", "config", "message"),
    [
        ("grid", {"bins": 0}, "bins is 0: it must be an integer of at least 1"),
        ("grid", {"bins": (2, 2)}, "bins is (2, 2): it must have 4 entries"),
        ("grid", {"bins": 17}, "makes 83,521 cells of 4 components: it must make at most 65,536"),
        ("grid", {"ranges": ((1, 0),) * 4}, "pairs of finite numbers, the lower first"),
        ("grid", {"spread": 0.0}, "spread is 0.0: it must be positive"),
        ("som", {"map_shape": (2, 2, 2)}, "map_shape is (2, 2, 2): it must be one or two integers"),
        ("gmm", {"mixture_components": 5000}, "components is 5000: it must be at most 4096"),
        ("oda", {"hold": 10**15}, "0: it must be an integer below 1e+15, at least 1, or None"),
        ("oda", {"max_cells": 1e308}, "is 1e+308: it must be an integer below 1e+15, at least 1"),
        (3, {}, "partition is 3: it must be one of ['gmm', 'grid', 'infex', 'oda', 'som'], or an"),
        (
            agents.SOMPartition,
            {},
            "it must be one of ['gmm', 'grid', 'infex', 'oda', 'som'], or an object",
        ),
    ],
)
def test_bad_settings(partition, config, message):
    with pytest.raises(
        TypeError, match="GridPartition is given .4,.: its settings must be given by"
    ):
        agents.GridPartition(4)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        agents.TwoTimescaleAgent(BARTO, partition=partition, **config)
    assert message in str(caught.value)
