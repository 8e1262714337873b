"""Same seed, same bits: whatever the number of threads, in threads, and in forks."""

import multiprocessing
import os
import re
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import gymnasium as gym
import numpy as np
import pytest
import scipy.linalg  # which brings linear algebra of its own
from environments import BARTO, Plain
from threadpoolctl import threadpool_info, threadpool_limits

import oda_rl
from oda_rl._threads import one_thread
from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

assert scipy.linalg


def blas_threads():
    """Numbers of threads of what NumPy and SciPy work with: other tests have loaded other ones."""
    loaded = [one for one in threadpool_info() if one["user_api"] == "blas"]
    own = [one for one in loaded if "numpy" in one["filepath"] or "scipy" in one["filepath"]]
    return {one["num_threads"] for one in own or loaded}


def digest_of(*arrays):
    return sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()


RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(1500, 12)) + np.repeat([[0.0], [3.0], [6.0]], 500, axis=0)
WIDE = RNG.normal(size=(250, 130))
# What differed between one, two and four threads before linear algebra was limited to one.
FITTED = {
    "batch annealing": (oda_rl.BatchDeterministicAnnealing(6), POINTS),
    "regressor": (oda_rl.ODARegressor(6), WIDE, WIDE[:, 0]),
    "map": (oda_rl.SOM(4, max_iter=1), WIDE),
    "mixture": (oda_rl.StochasticEMGaussianMixture(4, max_iter=3), POINTS),
    "full": (oda_rl.StochasticEMGaussianMixture(4, covariance_type="full", max_iter=3), POINTS),
    "in batches": (oda_rl.StochasticEMGaussianMixture(4, batch_size=5, max_iter=3), POINTS),
    "margin": (oda_rl.INFEX("margin", bandwidth=3.0, tol=0.01, max_rounds=20), POINTS[::20, :3]),
}


def of_estimator(name):
    """What an estimator has learned, as a digest."""
    model, *data = FITTED[name]
    model.set_params(random_state=0).fit(*data)
    names = ("codevectors_", "slopes_", "means_", "covariances_", "exemplars_", "weights_")
    learned = [getattr(model, name) for name in names if hasattr(model, name)]
    return digest_of(*learned, model.predict(data[0]))


def of_agent(kind, seed=0):
    """What an agent has learned, as a digest."""
    agent = kind(Plain(gym.make(BARTO)), seed=seed).learn(1500)
    return digest_of(agent.q_values, agent.codevectors, agent.metric_, agent.episodes.rows[:, :2])


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_learn_the_same_in_any_number_of_threads(name):
    found = set()
    for threads in (1, 4, 2):
        with threadpool_limits(threads):
            found.add(of_estimator(name))
    assert len(found) == 1


def test_agents_learn_the_same_in_any_number_of_threads():
    found = set()
    for threads in (1, 4):
        with threadpool_limits(threads):
            found.add((of_agent(FittedQAgent), of_agent(TwoTimescaleAgent)))
    assert len(found) == 1


@pytest.mark.parametrize("kind", [FittedQAgent, TwoTimescaleAgent])
def test_agents_learn_the_same_side_by_side(kind):
    alone = [of_agent(kind, seed) for seed in (0, 1, 0)]
    with threadpool_limits(4), ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda seed: of_agent(kind, seed), (0, 1, 0))) == alone
    assert alone[0] == alone[2] != alone[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_agents_and_estimators_learn_the_same_in_forks():
    alone = [of_agent(FittedQAgent), of_estimator("batch annealing")]
    context = multiprocessing.get_context("fork")
    with threadpool_limits(4), context.Pool(2) as pool:
        forked = [pool.apply_async(of_agent, [FittedQAgent]),
                  pool.apply_async(of_estimator, ["batch annealing"])]  # fmt: skip
        assert [one.get(300) for one in forked] == alone


def test_sections_limit_threads_and_give_them_back():
    with threadpool_limits(4):
        with one_thread():
            assert blas_threads() == {1}
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {4}
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert blas_threads() == {4}


def test_a_saved_agent_says_with_which_versions(reloaded):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(700)
    assert agent.versions["numpy"] == np.__version__
    assert agent.versions["oda_rl"] == oda_rl.__version__
    loaded = reloaded(agent)
    assert loaded.versions == agent.versions
    assert "saved with" not in str(loaded)
    loaded._versions = {**agent.versions, "numpy": "1.2.3"}
    assert re.search(r"saved with +numpy 1\.2\.3\n", str(loaded))
