"""A file of each class that saves, for ``fuzz_files.py``, and how loaded objects are used."""

import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import oda_rl
from oda_rl import agents
from oda_rl.exporting.c_header import export_c

Load = Callable[[Path], Any]
Use = Callable[[Any, bool], None]  # what was loaded, and whether to do what takes long, too


@dataclass(frozen=True)
class Subject:
    """A class that saves: a file of it, and how it is loaded and used."""

    name: str
    file: Path
    load: Load
    use: Use


def tried(act: Callable[[], Any]) -> None:
    """Do something, whatever exception of Python comes of it."""
    with suppress(Exception), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        act()


def use_agent(agent: Any, thoroughly: bool) -> None:
    """Predict, explain, export, act, update and learn; thoroughly: imagine, estimate, and save."""
    agent = getattr(agent, "agent", agent)  # that of an algorithm of Stable-Baselines3
    points = np.random.default_rng(0).uniform(-0.1, 0.1, (8, *agent.interface.observation_shape))
    tried(lambda: agent.predict(points))
    tried(lambda: agent.predict(points[0], deterministic=False))
    tried(lambda: (agent.q_values, agent.visits, agent.scale_, agent.metric_, agent.extent))
    tried(lambda: agent.explain(points[0]))
    tried(lambda: agent.rules())

    def live() -> None:
        observation = points[0].astype(agent.interface.dtype)
        for point in points[1:]:
            agent.update(observation, agent.act(observation), 1.0, point, False, False)
            observation = point
        agent.update(observation, agent.act(observation), 1.0, points[0], True, False)

    tried(live)
    tried(lambda: agent.resume(callback=lambda own: False))  # of a checkpoint
    tried(lambda: agent.learn(150))
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("c", "json"):
            tried(lambda kind=kind: agents.export_policy(agent, Path(folder) / "policy", kind))
        if thoroughly:
            tried(lambda: agent.world.imagine(agent.policy, 3, horizon=5))
            tried(lambda: agent.estimate_return())
            tried(lambda: agent.save(Path(folder) / "again.zip"))


def use_estimator(model: Any, thoroughly: bool) -> None:
    """Predict, transform and learn on; thoroughly: earlier levels, exports, missing values."""
    points = np.random.default_rng(1).uniform(0.1, 1.0, (120, 2))
    classes = (points[:, 0] > 0.5).astype(int)
    for name in ("predict", "transform", "predict_proba", "score_samples", "apply"):
        tried(lambda name=name: getattr(model, name)(points))
    for name in ("history_", "codevectors_", "weights_"):
        tried(lambda name=name: getattr(model, name))
    tried(lambda: model.partial_fit(points, classes))
    tried(lambda: model.predict(points))
    if thoroughly:
        tried(lambda: model.at_level(1).predict(points))
        with tempfile.TemporaryDirectory() as folder:
            tried(lambda: export_c(model, Path(folder) / "model.h"))
            tried(lambda: model.save(Path(folder) / "again.zip"))
        holes = np.where(points > 0.9, np.nan, points)
        tried(lambda: model.predict(holes))
        tried(lambda: model.partial_fit(holes, classes))


Maker = Callable[[Path], tuple[Load, Use]]  # trains and saves


def _agent(kind: str, env: Any, steps: int, **settings: Any) -> Maker:
    def make(file: Path) -> tuple[Load, Use]:
        from oda_rl.agents import sb3

        cls = getattr(agents if kind.endswith("Agent") else sb3, kind)
        cls(env() if callable(env) else env, seed=0, **settings).learn(steps).save(file)
        return cls.load, use_agent

    return make


def _checkpoint(file: Path) -> tuple[Load, Use]:
    def stop(agent: Any) -> None:
        if agent.num_timesteps > 1000:
            raise InterruptedError

    agent = agents.TwoTimescaleAgent("CartPole-v1", seed=0)
    tried(lambda: agent.learn(1500, callback=stop, checkpoint=file, checkpoint_every=700))
    return agents.load_agent, use_agent


def _logged(file: Path) -> tuple[Load, Use]:
    rng = np.random.default_rng(0)
    before, after = rng.uniform(-0.1, 0.1, (2, 300, 4))
    actions, ends = rng.integers(2, size=300), rng.random(300) < 0.1
    log = before, actions, after[:, 2], after, ends
    agents.FittedQAgent("CartPole-v1", seed=0).fit(log).save(file)
    return agents.load_agent, use_agent


def _estimator(kind: str, streamed: bool, missing: float = 0.0, **settings: Any) -> Maker:
    def make(file: Path) -> tuple[Load, Use]:
        cls = getattr(oda_rl, kind)
        rng = np.random.default_rng(0)
        points = rng.uniform(0.1, 1.0, (400, 2))
        target = (points[:, 0] > points[:, 1]).astype(int)
        points[rng.random(len(points)) < missing, 1] = np.nan
        seed = {"random_state": 0} if hasattr(cls, "random_state") else {}
        model = cls(**seed, **settings)
        (model.partial_fit if streamed else model.fit)(points, target)
        model.save(file)
        return cls.load, use_estimator

    return make


MAKERS: dict[str, Maker] = {
    **{f"online-{name}": _agent("TwoTimescaleAgent", "CartPole-v1", 1500, partition=name)
       for name in ("oda", "grid", "som", "gmm", "infex")},
    "online-vector": _agent("TwoTimescaleAgent", lambda: gym.make_vec("CartPole-v1", 3), 1500),
    "checkpoint": _checkpoint,
    "fitted-logged": _logged,
    "fitted": _agent("FittedQAgent", "CartPole-v1", 500),
    "codevectors": _agent("CodevectorAgent", "Pendulum-v1", 500),
    "model": _agent("ModelAgent", "CartPole-v1", 300, generations=2),
    "model-continuous": _agent("ModelAgent", "Pendulum-v1", 300, generations=2),
    "model-table": _agent("ModelAgent", "FrozenLake-v1", 300),
    "sb3-online": _agent("TwoTimescale", "CartPole-v1", 700),
    "sb3-fitted": _agent("FittedQ", "CartPole-v1", 300),
    "clusterer": _estimator("ODAClusterer", False),
    "clusterer-stream": _estimator("ODAClusterer", True),
    "clusterer-affine": _estimator("ODAClusterer", True, divergence="i_divergence"),
    "clusterer-missing": _estimator("ODAClusterer", True, missing=0.2),
    "classifier": _estimator("ODAClassifier", False, n_clusters=8),
    "classifier-stream": _estimator("ODAClassifier", True),
    "regressor": _estimator("ODARegressor", True),
    "blocks": _estimator("DistributedODAClusterer", False),
    "blocks-mixture": _estimator(
        "DistributedGaussianMixture", False, missing=0.2, n_components=4, covariance_type="full"),
    "blocks-classes": _estimator("DistributedODAClassifier", True),
    "vq": _estimator("StochasticVQ", False),
    "lvq": _estimator("LVQ", False, n_prototypes=3),
    "map": _estimator("SOM", True, shape=(3, 4)),
    "batch-annealing": _estimator("BatchDeterministicAnnealing", False),
    "infex": _estimator("INFEX", False, bandwidth=0.2),
    "convex": _estimator("ConvexClustering", False, bandwidth=0.2),
    "kernel-vq": _estimator("KernelVectorQuantization", False, max_distortion=0.3),
    "mixture": _estimator("SGDGaussianMixture", True, n_components=4, covariance_type="full"),
    "mixture-held": _estimator("SGDGaussianMixture", True, n_components=9, batch_size=7),
    "mixture-em": _estimator("StochasticEMGaussianMixture", True, n_components=4),
    "mixture-missing": _estimator("SGDGaussianMixture", True, missing=0.2, n_components=4),
    "density-classes": _estimator("DensityClassifier", False),
    "density-outliers": _estimator("DensityOutlierDetector", False),
    "tree-clusterer": _estimator("ODATreeClusterer", False),
    "tree-stream": _estimator("ODATreeClusterer", True),
    "tree-classifier": _estimator("ODATreeClassifier", True),
    "tree-regressor": _estimator("ODATreeRegressor", True),
}  # fmt: skip


def subject(name: str, folder: Path) -> Subject:
    file = folder / f"{name}.zip"
    return Subject(name, file, *MAKERS[name](file))
