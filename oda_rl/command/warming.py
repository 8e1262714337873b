"""Small pieces of work that between them compile all that the package compiles.

numba keeps what it has compiled on disk, so that a machine pays once: :func:`warm` pays at once,
for images that are built ahead and classrooms that start together.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from oda_rl._types import FloatArray

_DIVERGENCES = "squared_euclidean", "i_divergence", "itakura_saito"
_COMPILED = "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"  # cart-poles share their dynamics
_MODELLED = "CartPole-v1", "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"  # of 4, 2, 3, 6 features
_STEPPED = "MountainCarContinuous-v0", "FrozenLake-v1"  # which have no compiled dynamics


def _samples(d: int = 3, n: int = 300) -> FloatArray:
    """Positive points, which every divergence takes."""
    return np.random.default_rng(0).gamma(4.0, size=(n, d))


def _used(agent: Any, steps: int) -> None:
    """Train, ask for decisions in episodes, one by one and for a batch, and step by hand."""
    agent.learn(steps).evaluate(2, seed=0)
    observation = agent.env.reset(seed=0)[0]
    action = agent.act(observation)
    following, reward, terminated, truncated, _ = agent.env.step(action)
    agent.update(observation, action, reward, following, terminated, truncated)
    agent.predict(observation)
    agent.predict(np.array([observation, observation]))


def _online() -> None:
    from oda_rl.agents import TwoTimescaleAgent

    agent = TwoTimescaleAgent("CartPole-v1", seed=0)
    _used(agent, 20_000)
    agent.explain(np.zeros(4))


def _fitted() -> None:
    from oda_rl.agents import FittedQAgent

    agent = FittedQAgent("CartPole-v1", seed=0)
    _used(agent, 5_000)
    agent.explain(np.zeros(4))


def _online_in_a_loop() -> None:
    from oda_rl.agents import TwoTimescaleAgent

    for env_id in _STEPPED:
        _used(TwoTimescaleAgent(env_id, seed=0), 2_000)


def _fitted_in_a_loop() -> None:
    from oda_rl.agents import FittedQAgent

    for env_id in _STEPPED:
        _used(FittedQAgent(env_id, seed=0, max_transitions=1_000), 1_500)


def _compiled_dynamics() -> None:
    from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

    for env_id in _COMPILED:
        for kind in (TwoTimescaleAgent, FittedQAgent):
            kind(env_id, seed=0).learn(1_500).evaluate(2, seed=0)


def _model() -> None:
    from oda_rl.agents import ModelAgent

    for env_id in _MODELLED:
        agent = ModelAgent(env_id, seed=0, generations=1)
        _used(agent, 550)  # an episode of Acrobot may take 500
        agent.explain(agent.visited_states(1, seed=0)[0])
        edited = agent.edit().where("x[0] > 1e6", 0).done()  # steps within clauses are others
        agent.constrain(edited).learn(550).evaluate(2, seed=0)


def _codevectors() -> None:
    from oda_rl.agents import CodevectorAgent

    _used(CodevectorAgent("Pendulum-v1", seed=0), 1_500)


def _copies() -> None:
    import gymnasium as gym

    from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

    for kind in (TwoTimescaleAgent, FittedQAgent):
        kind(gym.make_vec("CartPole-v1", 4), seed=0).learn(4_000)


def _partition(name: str) -> Callable[[], None]:
    def run() -> None:
        from oda_rl.agents import TwoTimescaleAgent

        for env_id in ("CartPole-v1", _STEPPED[0]):
            TwoTimescaleAgent(env_id, seed=0, partition=name).learn(5_000).evaluate(2, seed=0)

    return run


def _clusterers() -> None:
    from oda_rl.annealing import ODAClusterer
    from oda_rl.distributed import DistributedODAClusterer
    from oda_rl.divergences import Mahalanobis
    from oda_rl.trees import ODATreeClusterer

    points = _samples()
    for divergence in (
        "squared_euclidean",
        "i_divergence",
        "itakura_saito",
        Mahalanobis(np.eye(3)),
    ):
        model = ODAClusterer(6, divergence=divergence, random_state=0).fit(points)
        model.partial_fit(points).score_samples(points)
        DistributedODAClusterer(6, divergence=divergence, random_state=0).fit(points)
        ODATreeClusterer(2, divergence=divergence, random_state=0).fit(points).predict(points)
    ODAClusterer(6, random_state=0).fit(points.astype(np.float32))
    for kind in (ODAClusterer, DistributedODAClusterer):
        kind(200, random_state=0).fit(_samples(n=4_000))  # so many are kept in segments


def _classifiers() -> None:
    from oda_rl.annealing import ODAClassifier
    from oda_rl.trees import ODATreeClassifier

    points = _samples()
    y = (points[:, 0] > points[:, 1]).astype(np.int64)
    for fine_tuning in (None, "lvq1", "glvq", "rslvq", "mrslvq"):
        for data in (points, points.astype(np.float32)):
            model = ODAClassifier(6, fine_tuning=fine_tuning, random_state=0)
            model.fit(data, y).predict_proba(data)
    ODAClassifier(6, random_state=0).partial_fit(points, y, classes=[0, 1])
    ODATreeClassifier(2, random_state=0).fit(points, y).predict(points)


def _regressors() -> None:
    from oda_rl.annealing import ODARegressor

    points = _samples()
    for local_model in ("constant", "linear"):
        model = ODARegressor(6, local_model=local_model, random_state=0).fit(points, points[:, 0])
        model.partial_fit(points, points[:, 0]).predict(points)


def _mixtures() -> None:
    from oda_rl.distributed import DistributedGaussianMixture
    from oda_rl.mixtures import SGDGaussianMixture, StochasticEMGaussianMixture

    for dtype in (np.float64, np.float32):
        points = _samples().astype(dtype)
        for covariance in ("diag", "full", "tied_spherical"):
            for batch in (1, 20):
                model = SGDGaussianMixture(
                    4, covariance_type=covariance, batch_size=batch, random_state=0
                )
                model.fit(points).partial_fit(points).score_samples(points)
            StochasticEMGaussianMixture(4, covariance_type=covariance, random_state=0).fit(points)
        SGDGaussianMixture(4, update="sgd", random_state=0).fit(points)
        SGDGaussianMixture(4, forgetting=0.01, random_state=0).partial_fit(points)
    for covariance in ("diag", "full"):
        DistributedGaussianMixture(3, covariance_type=covariance, random_state=0).fit(_samples())


def _exemplars() -> None:
    from oda_rl.exemplars import INFEX, ConvexClustering, KernelVectorQuantization

    points = _samples(n=80)
    for kernel in ("gaussian", "epanechnikov"):
        INFEX(kernel=kernel, random_state=0).fit(points).score_samples(points)
    INFEX(max_exemplars=3, random_state=0).fit(points)
    INFEX("margin", kernel="disc", bandwidth=3.0, random_state=0, tol=0.1).fit(points)
    ConvexClustering().fit(points)
    KernelVectorQuantization(max_distortion=3.0).fit(points)


def _comparators() -> None:
    from oda_rl.quantization import LVQ, SOM, BatchDeterministicAnnealing, StochasticVQ

    points = _samples()
    y = (points[:, 0] > points[:, 1]).astype(np.int64)
    for shape in (8, (3, 3)):
        SOM(shape, random_state=0).fit(points).partial_fit(points)
    for algorithm in ("lvq1", "glvq", "rslvq"):
        LVQ(2, algorithm=algorithm, random_state=0).fit(points, y)
    StochasticVQ(4, random_state=0).fit(points)
    BatchDeterministicAnnealing(4, random_state=0).fit(points)


WORK: dict[str, Callable[[], None]] = {
    "TwoTimescaleAgent": _online,
    "FittedQAgent": _fitted,
    "compiled dynamics": _compiled_dynamics,
    "TwoTimescaleAgent in a Python loop": _online_in_a_loop,
    "FittedQAgent in a Python loop": _fitted_in_a_loop,
    "CodevectorAgent": _codevectors,
    "vector environments": _copies,
    **{f"partition {name}": _partition(name) for name in ("grid", "som", "gmm", "infex")},
    "ModelAgent": _model,
    "clusterers": _clusterers,
    "classifiers": _classifiers,
    "regressors": _regressors,
    "mixtures": _mixtures,
    "exemplars": _exemplars,
    "maps and comparators": _comparators,
}


def warm(names: Sequence[str] = tuple(WORK), console: Console | None = None) -> None:
    """Do the named pieces of work, with a progress bar that names the one under way.

    What they compile is kept in ``NUMBA_CACHE_DIR``, or else in the user's cache folder.

    Parameters
    ----------
    names : sequence of str
        Keys of ``WORK``; by default all.
    console : rich.console.Console, optional
        Where the bar is drawn.

    Raises
    ------
    KeyError
        If there is no such work.

    Examples
    --------
    >>> warm(["TwoTimescaleAgent"], Console(quiet=True))
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits this small need not converge
        for name in track(names, "compiling", console=console):
            WORK[name]()
