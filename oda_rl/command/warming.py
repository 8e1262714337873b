"""Small pieces of work that together compile all code of the package, which numba caches."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import track

import oda_rl
from oda_rl import agents
from oda_rl.agents.two_timescale.engine import OnlineEngine
from oda_rl.divergences import Mahalanobis

_COMPILED = "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"  # cart-poles share their dynamics
_STEPPED = "MountainCarContinuous-v0", "FrozenLake-v1"  # without compiled dynamics

_POINTS = np.random.default_rng(0).gamma(4.0, size=(300, 3))  # positive for all divergences
_TYPES = _POINTS, _POINTS.astype(np.float32)
_LABELS = (_POINTS[:, 0] > _POINTS[:, 1]).astype(np.int64)


def _train(kind: type[Any], tasks: Mapping[str, int], **settings: Any) -> None:
    for env_id, steps in tasks.items():
        agent = kind(env_id, seed=0, **settings).learn(steps)
        agent.evaluate(2, seed=0)
        observation = agent.env.reset(seed=0)[0]
        action = agent.act(observation)
        following, reward, terminated, truncated, _ = agent.env.step(action)
        agent.update(observation, action, reward, following, terminated, truncated)
        agent.predict(observation)
        agent.predict(np.array([observation, observation]))
        agent.explain(observation)
        if kind is agents.ModelAgent:
            agent.constrain(agent.edit().where("x[0] > 1e6", 0).done())
            agent.learn(steps).evaluate(2, seed=0)


def _fit(*models: Any, X: Any = _POINTS, y: Any = _LABELS) -> None:
    """Fit models, call their predictions, and learn online where they can."""
    for model in models:
        model.fit(X, y)
        for name in ("predict", "predict_proba", "score_samples"):
            if hasattr(model, name):
                getattr(model, name)(X)
        if hasattr(model, "partial_fit"):
            model.partial_fit(X, y)


def _fit_clusterers() -> None:
    names = "squared_euclidean", "i_divergence", "itakura_saito"
    for divergence in (*names, Mahalanobis(np.eye(3))):
        settings: Any = {"divergence": divergence, "random_state": 0}
        _fit(oda_rl.ODAClusterer(6, **settings), oda_rl.ODATreeClusterer(2, **settings))
    _fit(oda_rl.ODAClusterer(6, random_state=0), X=_TYPES[1])


def _fit_supervised() -> None:
    fine_tuning: Any
    for X, fine_tuning in product(_TYPES, (None, "lvq1", "glvq", "rslvq", "mrslvq")):
        _fit(oda_rl.ODAClassifier(6, fine_tuning=fine_tuning, random_state=0), X=X)
    oda_rl.ODAClassifier(6, random_state=0).partial_fit(_POINTS, _LABELS, classes=[0, 1])
    _fit(oda_rl.ODATreeClassifier(2, random_state=0))
    for kind in ("constant", "linear"):
        _fit(oda_rl.ODARegressor(6, local_model=kind, random_state=0), y=_POINTS[:, 0])


def _fit_mixtures() -> None:
    for X, covariance in product(_TYPES, ("diag", "full", "tied_spherical")):
        settings: Any = {"covariance_type": covariance, "random_state": 0}
        _fit(*(oda_rl.SGDGaussianMixture(4, batch_size=n, **settings) for n in (1, 20)), X=X)
        _fit(oda_rl.StochasticEMGaussianMixture(4, **settings), X=X)
        if covariance != "tied_spherical":
            _fit(oda_rl.DistributedGaussianMixture(3, **settings), X=X)
    for X in _TYPES:
        _fit(oda_rl.SGDGaussianMixture(4, update="sgd", random_state=0), X=X)
        oda_rl.SGDGaussianMixture(4, forgetting=0.01, random_state=0).partial_fit(X)


def _fit_exemplars() -> None:
    X = _POINTS[:80]
    for kernel in ("gaussian", "epanechnikov"):
        _fit(oda_rl.INFEX(kernel=kernel, random_state=0), X=X)
    _fit(oda_rl.ConvexClustering(), X=X)
    _fit(oda_rl.INFEX("margin", kernel="disc", bandwidth=3.0, random_state=0, tol=0.1), X=X)
    _fit(oda_rl.KernelVectorQuantization(max_distortion=3.0), X=X)


def _fit_quantizers() -> None:
    _fit(*(oda_rl.SOM(shape, random_state=0) for shape in (8, (3, 3))))
    for algorithm in ("lvq1", "glvq", "rslvq"):
        _fit(oda_rl.LVQ(2, algorithm=algorithm, random_state=0))
    _fit(oda_rl.StochasticVQ(4, random_state=0))
    _fit(oda_rl.BatchDeterministicAnnealing(4, random_state=0))


def _train_copies() -> None:
    for kind in (_ONLINE, _FITTED):
        kind(gym.make_vec("CartPole-v1", 4), seed=0).learn(4_000)


_ONLINE, _FITTED = agents.TwoTimescaleAgent, agents.FittedQAgent
_SHORT = dict.fromkeys(["CartPole-v1", *_COMPILED, *_STEPPED], 2_000)
WORK: dict[str, Callable[[], None]] = {
    "ModelAgent": partial(
        _train, agents.ModelAgent, dict.fromkeys(["CartPole-v1", *_COMPILED], 550), generations=1
    ),
    "TwoTimescaleAgent": partial(_train, _ONLINE, _SHORT),
    "torques": partial(_train, _ONLINE, {"Pendulum-v1": 2_000}, action_bins=5),
    "FittedQAgent": partial(_train, _FITTED, _SHORT, max_transitions=1_000),
    "CodevectorAgent": partial(_train, agents.CodevectorAgent, {"Pendulum-v1": 1_500}),
    "vector environments": _train_copies,
    **{
        f"partition {name}": partial(
            _train, _ONLINE, {"CartPole-v1": 5_000, _STEPPED[0]: 5_000}, partition=name
        )
        for name in ("grid", "som", "gmm", "infex")
    },
    "clusterers": _fit_clusterers,
    "classifiers and regressors": _fit_supervised,
    "mixtures": _fit_mixtures,
    "exemplars": _fit_exemplars,
    "maps and comparators": _fit_quantizers,
}


def warm(names: Sequence[str] = tuple(WORK), console: Console | None = None) -> None:
    """Do the named pieces of work, by default all of ``WORK``, with a progress bar."""
    OnlineEngine.steps_before_loop = 0  # else short trainings compile no loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits this small need not converge
        for name in track(names, "compiling", console=console):
            WORK[name]()
