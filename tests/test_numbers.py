"""Large numbers, many features, long runs: results stay finite, memory and work stay bounded."""

import inspect
import tracemalloc
import warnings
from functools import partial

import gymnasium as gym
import numba
import numpy as np
import oracles
import pytest
from environments import BARTO, QUICK, Toy

import oda_rl
from oda_rl import SGDGaussianMixture, StochasticVQ
from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.base import engine as engines
from oda_rl.agents.base import history
from oda_rl.agents.base.history import Level
from oda_rl.annealing import regressor
from oda_rl.divergences import Mahalanobis
from oda_rl.envs import Dynamics
from oda_rl.quantization import vq as quantizers

AGENTS = {
    "online": TwoTimescaleAgent,
    "fitted": FittedQAgent,
    "codevectors": CodevectorAgent,
    "model": partial(ModelAgent, **QUICK),
}
PLACES = {"codevectors": "Pendulum-v1"}
ESTIMATORS = [name for name in oda_rl.__all__ if name != "InvalidFileError"]
LARGEST = 1e100  # of rewards


class Paid(gym.Wrapper):
    """Pays a multiple of a sum that changes from step to step."""

    def __init__(self, env, unit):
        super().__init__(env)
        self.unit, self.steps = unit, 0

    def step(self, action):
        observation, _, *rest = self.env.step(action)
        self.steps += 1
        return observation, self.unit * (0.7 + 0.3 * np.sin(self.steps)), *rest


def place(kind, unit):
    return Paid(gym.make(PLACES.get(kind, "CartPole-v1"), max_episode_steps=50), unit)


def check_finite(agent):
    for name in ("q_values", "codevectors", "visits", "scale_", "metric_"):
        found = getattr(agent, name)
        assert found is None or np.isfinite(found).all(), name


# Rewards.


@pytest.mark.parametrize("unit", [1.0, -1.0])
@pytest.mark.parametrize("kind", AGENTS)
def test_the_largest_rewards_leave_everything_finite(kind, unit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the learned world is not trusted")
        agent = AGENTS[kind](place(kind, unit * LARGEST), seed=0)
        agent.learn(300 if kind == "model" else 1500)
    check_finite(agent)


@pytest.mark.parametrize("reward", [1e308, -1e308, 1.1 * LARGEST])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", AGENTS)
def test_larger_rewards_are_refused(kind, several, reward):
    env = place(kind, reward)
    if several and kind != "codevectors":  # which learns in one environment
        env = gym.vector.SyncVectorEnv([lambda: place(kind, reward)] * 2)
    agent = AGENTS[kind](env, seed=0)
    with pytest.raises(ValueError, match=r"a reward must be a number from -1e\+100 to 1e\+100"):
        agent.learn(100)
    assert agent.num_timesteps == 0


@numba.njit
def pay(parameters, state, action):
    return parameters[0], False


@numba.njit
def look(parameters, state, observation):
    observation[:] = state[0]


class Rich(Toy):
    """Has compiled dynamics that pay too much."""

    state = np.zeros(1)

    def dynamics(self):
        return Dynamics(pay, look, lambda rng, n: np.zeros((n, 1)), np.array([1e308]))


def test_larger_rewards_are_refused_in_compiled_loops():
    env = Rich(lambda rng: np.zeros(2), length=None, reward=1e308)
    agent = FittedQAgent(gym.wrappers.TimeLimit(env, 10), seed=0)
    with pytest.raises(ValueError, match="the environment's state or reward is not finite"):
        agent.learn(100)
    assert agent.num_timesteps == 0


# Samples.


def estimator(name, **settings):
    """An estimator, and more arguments of fit."""
    known = inspect.signature(getattr(oda_rl, name)).parameters
    usual = {"random_state": 0, "n_components": 3, "max_iter": 5}
    if "n_clusters" in known and known["n_clusters"].default == "auto":
        usual["n_clusters"] = 4
    settings |= {key: value for key, value in usual.items() if key in known}
    if name == "KernelVectorQuantization":
        settings |= {"max_distortion": 2.0}
    return getattr(oda_rl, name)(**settings)


def samples(name, unit=1.0):
    """Arguments of fit: two clouds, and what an estimator is to learn of them."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(-3.0, 1.0, (30, 3)), rng.normal(3.0, 1.0, (30, 3))])
    if "Class" in name or name == "LVQ":
        return unit * points, np.repeat([0, 1], 30)
    return (unit * points, unit * points[:, 0]) if name.endswith("Regressor") else (unit * points,)


@pytest.fixture
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("name", ESTIMATORS)
def test_samples_that_sums_could_not_hold_are_refused(name, strict):
    far = samples(name, 1e300)
    with pytest.raises(
        ValueError, match=r"[Xy] holds -?\d.*e\+300: its values must be from -1e\+140"
    ):
        estimator(name).fit(*far)
    model = estimator(name)
    if hasattr(model, "partial_fit"):
        with pytest.raises(ValueError, match=r"[Xy] holds .*e\+300: its values must be"):
            model.partial_fit(*far)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_said_of_large_and_small_samples_is_finite_or_refused(name, strict):
    usual = estimator(name).fit(*samples(name))
    for unit in (1e300, 1e139, 1e-139, 1e-300):
        far, models = samples(name, unit), [usual]
        if unit < 1e300:
            models.append(estimator(name).fit(*far))
        for model in models:
            check_said(model, far, refused=unit == 1e300 and not name.endswith("Mixture"))


def check_said(model, far, refused):
    for asked in ("predict", "transform", "predict_proba", "score"):
        if not hasattr(model, asked):
            continue
        arguments = far if asked == "score" else far[:1]
        if refused:
            with pytest.raises(ValueError, match="its values must be from"):
                getattr(model, asked)(*arguments)
            continue
        nowhere = type(model).__name__ == "KernelVectorQuantization" and asked == "score"
        found = getattr(model, asked)(*arguments)
        assert np.isfinite(found).all() or nowhere  # where the density is 0: -inf


def test_one_weight_or_target_is_refused_likewise():
    points = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match=r"sample_weight holds 1e\+200: weights must be at most"):
        oda_rl.ODAClusterer().fit(points, sample_weight=np.full(50, 1e200))
    with pytest.raises(ValueError, match=r"y holds 1e\+200: its values"):
        oda_rl.ODARegressor().fit(points, np.full(50, 1e200))
    for kind in (oda_rl.SOM, oda_rl.ODAClusterer):
        with pytest.raises(ValueError, match=r"init holds 1e\+200"):
            kind(1, init=[[1e200, 0.0]]).fit(points)


def test_divergences_take_no_samples_to_infinity():
    points = np.abs(np.random.default_rng(0).normal(size=(50, 2))) + 0.1
    with pytest.raises(ValueError, match="takes X >= 1e-140"):
        oda_rl.ODAClusterer(divergence="itakura_saito").fit(1e-150 * points)
    with pytest.raises(ValueError, match="the root of the matrix takes X to"):
        oda_rl.ODAClusterer(divergence=Mahalanobis(1e100 * np.eye(2))).fit(1e100 * points)
    with pytest.raises(ValueError, match=r"X holds 1.7e\+308"):  # the largest of all
        oda_rl.BatchDeterministicAnnealing(2).fit([[0.0], [1.7e308]])


# Many features.


@pytest.fixture
def decomposed(monkeypatch):
    """Sizes of the matrices that are decomposed from now on."""
    sizes = []

    def noted(decompose):
        def decomposing(matrix, *arguments, **options):
            sizes.append(min(np.shape(matrix)[-2:]))
            return decompose(matrix, *arguments, **options)

        return decomposing

    for name in ("eigh", "pinv", "svd", "inv", "solve", "cholesky"):
        monkeypatch.setattr(np.linalg, name, noted(getattr(np.linalg, name)))
    return sizes


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_samples_of_many_features_decompose_nothing_large(name, decomposed):
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(30, 200)), np.arange(30) % 3
    targets = {"ODARegressor": [points[:, 0]], "ODATreeRegressor": [points[:, 0]], "LVQ": [labels]}
    if "Classifier" in name:
        targets[name] = [labels]
    settings = {"bandwidth": 25.0} if name in ("INFEX", "ConvexClustering") else {}
    model = estimator(name, **settings)
    if name == "KernelVectorQuantization":
        model.set_params(max_distortion=45.0)
    model.fit(points, *targets.get(name, []))
    assert max(decomposed, default=0) <= 64
    assert np.isfinite(model.predict(points)).all()


@pytest.mark.parametrize(("n", "d"), [(300, 120), (60, 120), (30, 500)])
def test_slopes_of_cells_are_those_of_least_squares(n, d):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d)) * rng.uniform(0.1, 5.0, d)
    points[:, 3] = 0.0  # a constant feature
    weights, cells = rng.uniform(size=n), rng.integers(5, size=n)
    weights[:3] = 0.0
    targets = points[:, 0] * cells + rng.normal(size=n)
    both, rest = np.column_stack([targets, -3.0 * targets]), (weights, cells)
    found = regressor.fit_local_models(points, both, *rest, np.zeros((6, 2)), linear=True).slopes
    expected = oracles.ridge_slopes(points, targets, *rest, 6)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found[:, 1], -3.0 * expected, rtol=1e-7, atol=1e-9)


# Memory.


def traced(action):
    """Most megabytes that an action takes beside what there is."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_mixtures_score_in_blocks():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40_000, 16))
    model = SGDGaussianMixture(64, max_iter=1, random_state=0).partial_fit(points[:500])
    model.score(points[:10])
    assert traced(lambda: model.score(points)) < points.nbytes / 1e6  # logs alone: 4 times
    np.testing.assert_allclose(
        model.score_samples(points[5000:5010]), model.score_samples(points)[5000:5010], rtol=1e-12
    )


def test_the_log_of_episodes_is_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(history, "MAX_GROUPS", 4001)
    rng = np.random.default_rng(0)
    returns, lengths = rng.normal(size=123_457), rng.integers(1, 100, size=123_457).astype(float)
    rows = np.column_stack([returns, lengths, np.arange(123_457.0)])
    agent = TwoTimescaleAgent("CartPole-v1", seed=0)
    log = agent.episodes
    for begin in range(0, len(rows), 1000):
        log.append(rows[begin : begin + 1000])
    assert log.count == len(rows)
    assert 1000 < len(log.rows) < len(log.groups) <= 4001
    np.testing.assert_array_equal(log.rows, rows[-len(log.rows) :])
    np.testing.assert_array_equal(log.since(len(rows) - 7), rows[-7:])
    np.testing.assert_array_equal(log.since(0), log.rows)
    assert log.best_return == returns.max()
    assert log.curve[:, 1].sum() == lengths.sum()
    counts, means = log.groups[:, 0], log.groups[:, 1]
    ends = np.cumsum(counts).astype(int)
    for begin, end, mean in zip([0, *ends], ends, means, strict=False):
        assert mean == pytest.approx(returns[begin:end].mean(), abs=1e-12)
    np.testing.assert_array_equal(log.groups[:, 4], ends - 1.0)  # seconds
    assert len(log.to_monitor_csv("Env-v0", 0.0).splitlines()) == 2 + len(log.curve)
    agent.save(tmp_path / "agent.zip")
    np.testing.assert_array_equal(load_agent(tmp_path / "agent.zip").episodes.groups, log.groups)


def test_the_history_is_bounded(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_LEVELS", 10)
    engine = FittedQAgent(BARTO, seed=0)._engine
    for step in range(27):
        engine.note_level(Level(step, np.nan, np.zeros((2, 4)), np.arange(2)))
    assert [level.step for level in engine.history] == list(range(20, 27))
    assert engine.history[0].parents is None
    assert engine.history[1].parents is not None


def test_a_stream_of_single_samples_does_not_lengthen_histories(monkeypatch):
    monkeypatch.setattr(quantizers, "_MAX_PASSES", 10)
    points = np.random.default_rng(0).normal(size=(100, 2))
    model = StochasticVQ(2, random_state=0).partial_fit(points[:4])
    for point in points[4:]:
        model.partial_fit(point[None])
    assert len(model.history_) <= 10
    assert model.history_[-1][0] == 100
    assert model.n_iter_ == 97


def test_a_fitted_agent_remembers_a_million_transitions_and_learns_as_if_all(tmp_path):
    assert FittedQAgent(BARTO).config.max_transitions == 1_000_000
    bounded, free = (FittedQAgent(BARTO, seed=0, **settings).learn(3000)
                     for settings in ({}, {"max_transitions": None}))  # fmt: skip
    np.testing.assert_array_equal(bounded.q_values, free.q_values)
    np.testing.assert_array_equal(bounded.episodes.rows[:, :2], free.episodes.rows[:, :2])
