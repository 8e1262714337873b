"""What fixed seeds leave behind, as digests: whether a change of form changes a result.

python tests/golden.py record [--only oda]    writes build/golden.json
python tests/golden.py compare [--only oda]   compares with it; fails if a digest differs

Digests are those of the machine and the versions that they were made with: the C library's exp and
the vector instructions of the processor are part of them; the number of threads is not. So they are
not committed: record before a change and compare after it. They use public names only.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np

import oda_rl
import oda_rl.envs
from oda_rl.agents import (
    CodevectorAgent,
    FittedQAgent,
    ModelAgent,
    TwoTimescaleAgent,
    World,
    distill,
    export_policy,
    load_agent,
)

FILE = Path(__file__).parent.parent / "build" / "golden.json"
BARTO, CARTPOLE = "oda_rl/BartoCartPole-v0", "CartPole-v1"
PARTITIONS = ("oda", "gmm", "grid", "infex", "som")
PATHS = ("fused", "loop", "own loop", "copies", "copies at once")


def add(digest, value):
    """Add arrays, numbers and texts, and lists and dicts of them."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            add(digest, [key, value[key]])
    elif isinstance(value, list | tuple):
        digest.update(f"({len(value)}".encode())
        for one in value:
            add(digest, one)
    elif value is None or isinstance(value, str | bool):
        digest.update(repr(value).encode())
    else:
        array = np.asarray(value)
        assert array.dtype != object, value
        digest.update(
            f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        )


def digest_of(*values):
    found = hashlib.sha256()
    add(found, values)
    return found.hexdigest()[:16]


def left_by(agent, observations, env):
    """All that an agent shows."""
    shown = [agent.q_values, agent.visits, agent.codevectors, agent.metric_, agent.scale_,
             agent.temperature, agent.num_timesteps, agent.episodes.rows[:, :2]]  # fmt: skip
    shown += [[level.temperature, level.codevectors] for level in agent.history]
    shown += [agent.predict(observations)[0], agent.predict(observations, deterministic=False)[0]]
    shown += [agent.cell(observations), agent.evaluate(3, seed=5, env=env)]
    if not isinstance(agent, CodevectorAgent):
        explained = agent.explain(observations[0])
        shown.append(str(explained))
    return shown


class Plain(gym.Wrapper):
    """Does nothing, so that the environment takes the Python loop."""


def train(agent, path, steps):
    if path != "own loop":
        agent.learn(steps)
        return
    observation, _ = agent.env.reset(seed=77)
    for _ in range(steps):
        action = agent.act(observation)
        after, reward, terminated, truncated, _ = agent.env.step(action)
        agent.update(observation, action, reward, after, terminated, truncated)
        observation = agent.env.reset()[0] if terminated or truncated else after


def make(path, env_id):
    if path == "fused":
        return env_id
    if path == "copies":
        return gym.make_vec(env_id, 8, vectorization_mode="sync")
    if path == "copies at once":
        return gym.make_vec(env_id, 8, vectorization_mode="vector_entry_point")
    return Plain(gym.make(env_id))


def agent_digests(kind, path, env_id, steps, seed, settings):
    agent = kind(make(path, env_id), seed=seed, **settings)
    place = gym.make(env_id, max_episode_steps=200)
    rng = np.random.default_rng(3)
    place.reset(seed=1)
    observations = []
    for _ in range(20):
        place.action_space.seed(int(rng.integers(1000)))
        after, _, terminated, truncated, _ = place.step(place.action_space.sample())
        observations.append(after)
        if terminated or truncated:
            place.reset(seed=int(rng.integers(1000)))
    observations = np.array(observations).reshape(len(observations), -1)
    train(agent, path, steps)
    shown = left_by(agent, observations, place)
    train(agent, path, 1000)
    shown.append(left_by(agent, observations, place))
    with tempfile.TemporaryDirectory() as folder:
        agent.save(folder)
        loaded = load_agent(folder, make(path, env_id))
        shown.append(left_by(loaded, observations, place))
        train(loaded, path, 1000)
    shown.append(left_by(loaded, observations, place))
    return digest_of(shown)


def agent_cases():
    def case(name, *arguments):
        cases[name] = partial(agent_digests, *arguments)

    cases = {}
    for path in PATHS:
        for partition in PARTITIONS:
            for seed in (0, 1):
                case(f"online {partition} {path} barto {seed}", TwoTimescaleAgent, path, BARTO,
                     6000, seed, {"partition": partition})  # fmt: skip
            case(f"online {partition} {path} cartpole", TwoTimescaleAgent, path, CARTPOLE, 8000, 2,
                 {"partition": partition})  # fmt: skip
        for seed in (0, 1):
            case(f"fitted {path} barto {seed}", FittedQAgent, path, BARTO, 2500, seed, {})
        case(f"fitted {path} cartpole", FittedQAgent, path, CARTPOLE, 3000, 2, {})
        case(f"fitted {path} bounded", FittedQAgent, path, CARTPOLE, 3000, 3,
             {"max_transitions": 1500})  # fmt: skip
        case(f"online one-step {path}", TwoTimescaleAgent, path, BARTO, 12_000, 4,
             {"trace_decay": 0.0})  # fmt: skip
        case(f"online few cells {path}", TwoTimescaleAgent, path, BARTO, 9000, 5,
             {"max_cells": 40, "metric": "std", "observe_every": 1})  # fmt: skip
    for env_id, steps in (("MountainCar-v0", 4000), ("Acrobot-v1", 4000), ("Pendulum-v1", 2500),
                          ("FrozenLake-v1", 3000), ("CliffWalking-v1", 1500)):  # fmt: skip
        case(f"online {env_id}", TwoTimescaleAgent, "loop", env_id, 2 * steps, 6, {})
        if env_id != "CliffWalking-v1":
            case(f"fitted {env_id}", FittedQAgent, "loop", env_id, steps, 6, {})
    for path in ("loop", "own loop"):
        case(f"codevectors Pendulum {path}", CodevectorAgent, path, "Pendulum-v1", 2500, 7, {})
    case("codevectors car", CodevectorAgent, "loop", "MountainCarContinuous-v0", 3000, 8, {})
    return cases


def model_digest(env_id, steps, settings):
    """Train a ModelAgent, save it, load it and go on."""
    agent = ModelAgent(env_id, seed=0, **settings).learn(steps)
    shown = [agent.rules(), agent.q_values if env_id == "FrozenLake-v1" else agent.policy.scores]
    shown += [agent.evaluate(3, seed=5), agent.episodes.rows[:, :2]]
    if agent.models_laws:
        shown += [str(agent.world.report()), str(agent.world.trust)]
    with tempfile.TemporaryDirectory() as folder:
        agent.save(folder)
        loaded = load_agent(folder, env_id).learn(steps // 2)
    return digest_of(shown, loaded.rules(), loaded.evaluate(3, seed=5))


def world_digest():
    """Learn a world from rows: a mass on a line that is pushed left or right."""
    rng = np.random.default_rng(0)
    before = rng.uniform(-1.0, 1.0, size=(600, 2))
    actions = rng.integers(2, size=600)
    speed = before[:, 1] + 0.2 * (2 * actions - 1)
    after = np.column_stack([before[:, 0] + 0.1 * speed, speed])
    spaces = gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Discrete(2)
    off = np.abs(after[:, 0]) > 0.9
    world = World.fit(before, actions, np.zeros(600), after, off, env=spaces, seed=0)
    rollout = world.imagine(lambda state: 1, 4, horizon=20, seed=0)
    shown = [rollout.observations, rollout.rewards, rollout.lengths]
    return digest_of(list(world.predict([0.5, 0.5], 1)), str(world.report()), shown)


def distilled_digest():
    rule = distill(lambda x: int(6 * x[2] + x[3] > 0), CARTPOLE, 2, steps=10_000, seed=0)
    return digest_of(rule.rules(), rule.policy.scores, rule.policy.outputs)


def exported_digest(kind, env_id, steps, formats):
    """Digest the bytes of exported files."""
    agent = kind(env_id, seed=0).learn(steps)
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        for options in formats:
            path = Path(folder) / f"policy.{options['format']}"
            export_policy(agent, path, **options)
            shown.append(path.read_bytes().hex())
    return digest_of(shown)


def apart_cases():
    """Model agents, worlds, distillation and export."""
    c = {"format": "c"}
    cases = {
        f"model {env_id}": partial(model_digest, env_id, steps, settings)
        for env_id, steps, settings in (
            (CARTPOLE, 600, {}),
            ("Pendulum-v1", 1000, {"generations": 5}),
            ("MountainCar-v0", 1000, {"generations": 5}),
            ("FrozenLake-v1", 2000, {}),
        )
    }
    cases |= {
        f"export {kind.__name__} {env_id}": partial(exported_digest, kind, env_id, steps, formats)
        for kind, env_id, steps, formats in (
            (TwoTimescaleAgent, CARTPOLE, 4000, [c, {**c, "learn": True}, {"format": "json"}]),
            (FittedQAgent, CARTPOLE, 2000, [c, {**c, "fixed_point": True}, {"format": "onnx"}]),
            (ModelAgent, CARTPOLE, 500, [c, {"format": "json"}]),
        )
    }
    return {**cases, "world": world_digest, "distil": distilled_digest}


def fitted_attributes(estimator):
    found = {}
    for name in sorted(vars(estimator)):
        value = vars(estimator)[name]
        if name.endswith("_") and not name.startswith("_"):
            try:
                digest_of(value)
            except (AssertionError, ValueError, TypeError):
                continue
            found[name] = value
    return found


def estimator_digest(make_estimator, X, y, partially):
    estimator = make_estimator()
    rng = np.random.default_rng(9)
    probe = X[rng.permutation(len(X))[:50]] + 0.1
    if np.all(X >= 0):
        probe = np.abs(probe)
    if partially:
        for part in np.array_split(np.arange(len(X)), 5):
            if y is None:
                estimator.partial_fit(X[part])
            elif hasattr(estimator, "predict_proba") or hasattr(estimator, "classes_"):
                estimator.partial_fit(X[part], y[part], classes=np.unique(y))
            else:
                estimator.partial_fit(X[part], y[part])
    else:
        estimator.fit(X, y)
    shown = [fitted_attributes(estimator)]
    for method in ("predict", "transform", "score_samples", "predict_proba", "decision_function"):
        if hasattr(estimator, method):
            try:
                shown.append([method, getattr(estimator, method)(probe)])
            except (AttributeError, NotImplementedError, ValueError) as error:
                shown.append([method, type(error).__name__])
    return digest_of(shown)


def estimator_cases():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 3)) * 4
    blobs = np.concatenate([rng.normal(c, 1.0, size=(70, 3)) for c in centers])
    blobs = np.ascontiguousarray(blobs[rng.permutation(len(blobs))])
    classes = (blobs[:, 0] + blobs[:, 1] ** 2 > 4).astype(int) + (blobs[:, 2] > 2)
    real = np.sin(blobs[:, 0]) + 0.1 * blobs[:, 1]
    positive = np.abs(blobs) + 0.1
    wide = rng.normal(size=(300, 40)) * rng.uniform(0.1, 5.0, size=40)
    labels = np.array(["a", "b", "c"])[np.clip(classes, 0, 2)]
    o = oda_rl
    cluster, classify, regress, density = [], [], [], []
    for divergence in ("squared_euclidean", "i_divergence", "itakura_saito"):
        data = blobs if divergence == "squared_euclidean" else positive
        for options in ({}, {"refine": False}, {"forgetting": 0.05}, {"target_distortion": 1.0},
                        {"cooling": 0.6, "samples_per_cluster": 50}):  # fmt: skip
            cluster.append(
                (partial(o.ODAClusterer, 6, divergence=divergence, random_state=0, **options), data)
            )
        cluster.append(
            (partial(o.ODATreeClusterer, 3, divergence=divergence, random_state=0), data)
        )
        cluster.append((partial(o.BatchDeterministicAnnealing, random_state=0), data))
        for options in ({}, {"prediction": "nearest"}, {"fine_tuning": None},
                        {"fine_tuning": "glvq"}, {"forgetting": 0.02}):  # fmt: skip
            if divergence != "squared_euclidean":
                options = {**options, "fine_tuning": None}
            classify.append(
                (
                    partial(o.ODAClassifier, 10, divergence=divergence, random_state=0, **options),
                    data,
                )
            )
        classify.append(
            (partial(o.ODATreeClassifier, 3, divergence=divergence, random_state=0), data)
        )
        for model in ("linear", "constant"):
            regress.append(
                (
                    partial(
                        o.ODARegressor, 10, divergence=divergence, local_model=model, random_state=0
                    ),
                    data,
                )
            )
    cluster += [
        (partial(o.BatchDeterministicAnnealing, random_state=1), wide),
        (partial(o.ODATreeClusterer, 4, random_state=1), wide),
    ]
    for options in ({}, {"max_iter": 3}):
        cluster.append((partial(o.StochasticVQ, 6, random_state=0, **options), blobs))
    for options in ({}, {"shape": (4, 4)}, {"shape": (3, 3), "periodic": True, "init": "random"}):
        cluster.append((partial(o.SOM, random_state=0, **options), blobs))
    for algorithm in ("lvq1", "glvq", "rslvq"):
        classify.append((partial(o.LVQ, 2, algorithm=algorithm, random_state=0), blobs))
    for kind in ("diag", "tied_spherical", "full"):
        for update in ("natural", "sgd"):
            density.append(
                (
                    partial(
                        o.SGDGaussianMixture,
                        4,
                        covariance_type=kind,
                        update=update,
                        max_iter=5,
                        random_state=0,
                    ),
                    blobs,
                )
            )
        density.append(
            (
                partial(
                    o.SGDGaussianMixture,
                    9,
                    covariance_type=kind,
                    batch_size=7,
                    max_iter=5,
                    random_state=0,
                ),
                blobs,
            )
        )
        density.append(
            (
                partial(
                    o.StochasticEMGaussianMixture,
                    4,
                    covariance_type=kind,
                    max_iter=3,
                    random_state=0,
                ),
                blobs,
            )
        )
    density += [
        (partial(o.SGDGaussianMixture, 9, forgetting=0.02, max_iter=3, random_state=0), blobs),
        (partial(o.SGDGaussianMixture, 16, max_iter=3, random_state=0), wide),
        (
            partial(o.StochasticEMGaussianMixture, 4, init="random", max_iter=3, random_state=0),
            blobs,
        ),
        (
            partial(o.StochasticEMGaussianMixture, 4, batch_size=5, max_iter=3, random_state=0),
            blobs,
        ),
    ]
    few = blobs[:80]
    for objective, kernel, bandwidth in (
        ("log_likelihood", "gaussian", 1.0),
        ("log_likelihood", "epanechnikov", 3.0),
        ("log_likelihood", "disc", 3.0),
        ("mean_variance", "gaussian", 1.0),
        ("margin", "gaussian", 1.0),
        ("margin_variance", "gaussian", 1.0),
        ("log_likelihood", "gaussian", "scott"),
    ):
        density.append(
            (
                partial(
                    o.INFEX,
                    objective,
                    kernel=kernel,
                    bandwidth=bandwidth,
                    tol=1e-2,
                    max_rounds=20,
                    random_state=0,
                ),
                few,
            )
        )
    density += [
        (partial(o.INFEX, max_exemplars=5, bandwidth=1.0, max_rounds=20, random_state=0), few),
        (partial(o.ConvexClustering, 1.0), few),
        (partial(o.KernelVectorQuantization, 3.0), few),
    ]
    holes = blobs.copy()
    holes[rng.random(blobs.shape) < 0.15] = np.nan
    holes = holes[np.isfinite(holes).any(axis=1)]
    missing = [
        (partial(kind, 4, random_state=0), holes)
        for kind in (
            o.ODAClusterer, o.SOM, o.SGDGaussianMixture, o.StochasticEMGaussianMixture,
            o.ODATreeClusterer,
        )
    ]  # fmt: skip
    blocks = [
        (partial(kind, 4, random_state=0), blobs)
        for kind in (o.DistributedODAClusterer, o.DistributedGaussianMixture)
    ]
    cases = {}

    def put(entries, y, name):
        for i, (maker, data) in enumerate(entries):
            text = f"{name} {i} {maker.func.__name__} {maker.args} {maker.keywords}"
            cases[text] = partial(estimator_digest, maker, data, y, False)
            if hasattr(maker.func, "partial_fit"):
                cases[text + " partial"] = partial(estimator_digest, maker, data, y, True)

    put(cluster, None, "cluster")
    put(classify, classes, "classify")
    put(classify[:3], labels, "classify texts")
    put(regress, real, "regress")
    put(density, None, "density")
    put(missing, None, "missing")
    put(blocks, None, "blocks")
    put([(partial(o.DistributedODAClassifier, 10, random_state=0), blobs)], classes, "blocks")
    return cases


def run(name):
    warnings.simplefilter("ignore")
    try:
        return name, CASES[name]()
    except ValueError as error:  # an option that is not offered
        return name, f"ValueError: {str(error)[:60]}"


CASES = {**agent_cases(), **apart_cases(), **estimator_cases()}


def main(task, only=""):
    names = [name for name in CASES if only in name]
    with ProcessPoolExecutor(2) as pool:
        found = {}
        for name, digest in pool.map(run, names):
            found[name] = digest
            print(name, digest, flush=True) if task == "record" else None
    if task == "record":
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        print(len(found), "digests")
        return 0
    known = json.loads(FILE.read_text())
    different = [name for name in names if found[name] != known.get(name)]
    for name in different:
        print("differs:", name, known.get(name), found[name])
    print(f"{len(names) - len(different)} of {len(names)} equal")
    return bool(different)


if __name__ == "__main__":
    arguments = [one for one in sys.argv[1:] if one != "--only"]
    sys.exit(main(*arguments))
