"""Change files at random, load them, and use what was loaded: nothing may crash or hang.

Every class that saves is trained a little and saved. Of its file bytes, the structure of the zip,
arrays and JSON are changed, the latter two with checksums that are valid, numbers one at a time.
What still loads is used in a child process, so that a crash is seen: it predicts, acts, learns on,
explains and exports. Each case is one of

refused
    with :class:`oda_rl.InvalidFileError`, as it should be;
harmless
    it loads, and whatever is done with it ends, if with an exception of Python;
wrong
    it is refused with another exception;
costly
    loading took more than a second of the processor, or 100 MB and the size of the file of memory;
crashed, or hung
    the process died, or loading or using took too long.

Blocks of cases that were tried are in results/fuzz_files.jsonl, and not tried again; their counts
go to results/fuzz_files.csv, and files that escaped to the folder --keep.

    python scripts/fuzz_files.py --cases 200              # of each class
    python scripts/fuzz_files.py --only infex --keep escaped
    NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=checked python scripts/fuzz_files.py --cases 20
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.experiment import ALONE, Experiment, SharedOptions, chosen, say, start
from common.file_changes import CHANGES, SHARES, Rng
from common.summaries import Column, Row, Rows, Table, Text
from numba import config

from oda_rl import InvalidFileError
from oda_rl.experiments import Execution

EXPERIMENT = Experiment("fuzz_files", leave_out=("keep",))
BLOCK = 5000  # cases of a class in a run
BATCH = 25  # cases in a child process
Load = Callable[[Path], Any]
Use = Callable[[Any], None]
SECONDS = 20  # for loading and using what was loaded
ATTACKS = Path(__file__).parent.parent / "tests" / "attacks"  # files that once escaped
LOADING = 1.0, 100.0  # most seconds of the processor, and most MB beyond the size of the file
OUTCOMES = ("refused", "harmless", "wrong", "costly", "crashed", "hung")


@dataclass(frozen=True)
class Subject:
    """A class that saves: a file of it, and how it is loaded and used."""

    name: str
    file: Path
    load: Load
    use: Use


# What is done with what was loaded.


def use_agent(agent: Any) -> None:
    """Predict, explain, export, act, update and learn."""
    from oda_rl.agents import export_policy

    shape = agent.interface.observation_shape
    points = np.random.default_rng(0).uniform(-0.1, 0.1, (8, *shape))
    _try(lambda: agent.predict(points))
    _try(lambda: agent.predict(points[0], deterministic=False))
    _try(lambda: (agent.q_values, agent.visits, agent.scale_, agent.metric_, agent.extent))
    _try(lambda: agent.explain(points[0]))
    if hasattr(agent, "rules"):
        _try(agent.rules)
        _try(lambda: agent.world.forecast(points[0], horizon=5))
        _try(lambda: agent.world.imagine(agent.policy, 3, horizon=5))
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("c", "json"):
            _try(lambda kind=kind: export_policy(agent, Path(folder) / "policy", kind))

    def live() -> None:
        observation = points[0].astype(agent.interface.dtype)
        for point in points[1:]:
            action = agent.act(observation)
            agent.update(observation, action, 1.0, point, False, False)
            observation = point
        agent.update(observation, agent.act(observation), 1.0, points[0], True, False)

    _try(live)
    _try(lambda: agent.learn(150))
    _try(lambda: agent.begin_in_all(points[:3]))
    with tempfile.TemporaryDirectory() as folder:
        _try(lambda: agent.save(Path(folder) / "again.zip"))


def use_sb3(model: Any) -> None:
    """Use the agent, and predict as Stable-Baselines3 does."""
    _try(lambda: model.predict(np.zeros(model.observation_space.shape, np.float32)))
    use_agent(model.agent)


def use_estimator(model: Any) -> None:
    """Predict, transform and learn on."""
    points = np.random.default_rng(1).uniform(0.1, 1.0, (120, 2))
    classes = (points[:, 0] > 0.5).astype(int)
    for name in ("predict", "transform", "predict_proba", "score_samples", "apply"):
        if hasattr(model, name):
            _try(lambda name=name: getattr(model, name)(points))
    for name in ("history_", "codevectors_", "weights_", "leaf_probabilities_"):
        _try(lambda name=name: getattr(model, name))
    if hasattr(model, "at_level"):
        _try(lambda: model.at_level(0).predict(points))
    if hasattr(model, "at_depth"):
        _try(lambda: model.at_depth(1).predict(points))
    _try(lambda: model.partial_fit(points, classes))
    _try(lambda: model.predict(points))


def _try(act: Callable[[], Any]) -> None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            act()
    except Exception:
        pass


# The classes.


def subject(name: str, folder: Path) -> Subject:
    """Train and save one of a class."""
    file = folder / f"{name}.zip"
    return Subject(name, file, *_MAKERS[name](file))


def _agent(kind: str, env: str, steps: int, **settings: Any) -> Callable[[Path], tuple[Load, Use]]:
    def make(file: Path) -> tuple[Load, Use]:
        from oda_rl import agents

        cls = getattr(agents, kind)
        cls(env, seed=0, **settings).learn(steps).save(file)
        return agents.load_agent, use_agent

    return make


def _several(file: Path) -> tuple[Load, Use]:
    import gymnasium as gym

    from oda_rl import agents

    envs = gym.make_vec("CartPole-v1", 3)
    agents.TwoTimescaleAgent(envs, seed=0).learn(1500).save(file)
    return agents.load_agent, use_agent


def _sb3(kind: str, steps: int) -> Callable[[Path], tuple[Load, Use]]:
    def make(file: Path) -> tuple[Load, Use]:
        from oda_rl.agents import sb3

        cls = getattr(sb3, kind)
        cls("CartPole-v1", seed=0).learn(steps).save(file)
        return cls.load, use_sb3

    return make


def _estimator(kind: str, streamed: bool, **settings: Any) -> Callable[[Path], tuple[Load, Use]]:
    def make(file: Path) -> tuple[Load, Use]:
        import oda_rl

        cls = getattr(oda_rl, kind)
        points = np.random.default_rng(0).uniform(0.1, 1.0, (400, 2))
        target = (points[:, 0] > points[:, 1]).astype(int)
        seed = {"random_state": 0} if hasattr(cls, "random_state") else {}
        model = cls(**seed, **settings)
        (model.partial_fit if streamed else model.fit)(points, target)
        model.save(file)
        return cls.load, use_estimator

    return make


_MAKERS: dict[str, Callable[[Path], tuple[Load, Use]]] = {
    "online-oda": _agent("TwoTimescaleAgent", "CartPole-v1", 1500),
    "online-grid": _agent("TwoTimescaleAgent", "CartPole-v1", 700, partition="grid"),
    "online-som": _agent("TwoTimescaleAgent", "CartPole-v1", 700, partition="som"),
    "online-gmm": _agent("TwoTimescaleAgent", "CartPole-v1", 700, partition="gmm"),
    "online-infex": _agent("TwoTimescaleAgent", "CartPole-v1", 1500, partition="infex"),
    "online-vector": _several,
    "fitted": _agent("FittedQAgent", "CartPole-v1", 500),
    "codevectors": _agent("CodevectorAgent", "Pendulum-v1", 500),
    "model": _agent("ModelAgent", "CartPole-v1", 300),
    "model-continuous": _agent("ModelAgent", "Pendulum-v1", 300),
    "model-table": _agent("ModelAgent", "FrozenLake-v1", 300),
    "sb3-online": _sb3("TwoTimescale", 700),
    "sb3-fitted": _sb3("FittedQ", 300),
    "clusterer": _estimator("ODAClusterer", False),
    "clusterer-stream": _estimator("ODAClusterer", True),
    "clusterer-affine": _estimator("ODAClusterer", True, divergence="i_divergence"),
    "classifier": _estimator("ODAClassifier", False, n_clusters=8),
    "classifier-stream": _estimator("ODAClassifier", True),
    "regressor": _estimator("ODARegressor", True),
    "blocks": _estimator("DistributedODAClusterer", False),
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
    "density-classes": _estimator("DensityClassifier", False),
    "density-outliers": _estimator("DensityOutlierDetector", False),
    "tree-clusterer": _estimator("ODATreeClusterer", False),
    "tree-stream": _estimator("ODATreeClusterer", True),
    "tree-classifier": _estimator("ODATreeClassifier", True),
    "tree-regressor": _estimator("ODATreeRegressor", True),
}  # fmt: skip


# Cases in child processes.


def case(subject: Subject, rng: Rng) -> tuple[str, bytes]:
    """Return what was changed, and the changed file."""
    kind = str(rng.choice(list(CHANGES), p=SHARES))
    return kind, CHANGES[kind](subject.file, rng)


class Outcome(NamedTuple):
    """Of a case."""

    name: str
    said: str
    seconds: float = 0.0
    """Of the processor, for loading."""
    megabytes: float = 0.0
    """By which that let the process grow, beyond the size of the file."""


def outcomes(subject: Subject, files: Sequence[Path]) -> Iterator[Outcome]:
    """Load files one after another, and use them, in a child process, or one more after each crash.

    What loading takes of memory is seen where it is more than what was taken before.
    """
    files = list(files)
    while files:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # nothing that this process has open is closed, or written twice
            os.close(reader)
            _in_child(subject, files, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found = [Outcome(*json.loads(line)) for line in pipe if line.endswith("\n")]
        status = os.waitpid(child, 0)[1]
        yield from found
        if len(found) < len(files):
            signals = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            hung = signals == signal.SIGALRM
            found.append(Outcome("hung" if hung else "crashed", f"signal {signals}"))
            yield found[-1]
        files = files[len(found) :]


def _in_child(subject: Subject, files: Sequence[Path], writer: int) -> None:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        for file in files:
            signal.alarm(SECONDS)  # kills, whatever compiled code does
            os.write(writer, f"{json.dumps(_tried(subject, file))}\n".encode())
    finally:
        os._exit(0)


def _tried(subject: Subject, file: Path) -> Outcome:
    began, grown, loaded, said = time.process_time(), _most_megabytes(), None, ""
    try:
        loaded = subject.load(file)
        name = "harmless"
    except InvalidFileError as error:
        name, said = "refused", str(error)
    except BaseException as error:
        name, said = "wrong", f"{type(error).__name__}: {error}"
    took = time.process_time() - began
    grown = max(_most_megabytes() - grown - file.stat().st_size / 1e6, 0.0)
    if name != "wrong" and (took > LOADING[0] or grown > LOADING[1]):
        name, said = "costly", f"{took:.2f} s, {grown:.0f} MB {said}"
    if name == "harmless":
        subject.use(loaded)
    return Outcome(name, said[:1000], round(took, 4), round(grown, 2))


def _most_megabytes() -> float:
    """Most memory that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def attack(own: Subject, cases: int, seed: int, folder: Path, keep: Path | None) -> Row:
    """Try so many cases of a class; returns how many had which outcome, and what loading took."""
    counts: Counter[str] = Counter()
    seconds = megabytes = 0.0
    own.use(own.load(own.file))  # children find all that is compiled
    number = list(_MAKERS).index(own.name)
    for begin in range(0, cases, BATCH):
        tried = range(begin, min(begin + BATCH, cases))
        changed = [case(own, np.random.default_rng([seed, number, k])) for k in tried]
        files = [folder / f"changed-{i}.zip" for i in range(len(changed))]
        for file, (_, content) in zip(files, changed, strict=True):
            file.write_bytes(content)
        for k, (kind, content), (result, said, *cost) in zip(
            tried, changed, outcomes(own, files), strict=True
        ):
            counts[result] += 1
            seconds, megabytes = max(seconds, cost[0]), max(megabytes, cost[1])
            if result not in ("refused", "harmless"):
                print(f"{own.name} case {k} of seed {seed} ({kind}): {result}: {said}", flush=True)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{own.name}-{kind}-{seed}-{k}.zip").write_bytes(content)
    return {**{name: counts[name] for name in OUTCOMES}, "load_s": seconds, "load_mb": megabytes}


def run(name: str, cases: int, seed: int, checked: bool, keep: str | None) -> Row:
    """Try a block of cases; with ``checked`` compiled code says when an index is out of bounds."""
    assert checked == bool(config.BOUNDSCHECK), "set NUMBA_BOUNDSCHECK for the workers, too"
    with tempfile.TemporaryDirectory() as folder:
        made = subject(name, Path(folder))
        return attack(made, cases, seed, Path(folder), None if keep is None else Path(keep))


def kept(folder: Path) -> list[Subject]:
    """Return the files that once escaped, each with its class."""
    from oda_rl import ODAClusterer, ODATreeClusterer
    from oda_rl.agents import load_agent

    loads: dict[str, Load] = {"clusterer": ODAClusterer.load, "tree": ODATreeClusterer.load}
    return [
        Subject(
            path.stem, path, loads.get(path.stem.partition("-")[0], load_agent), lambda one: None
        )
        for path in sorted(folder.glob("*.zip"))
    ]


def _sum(*names: str) -> Text:
    return lambda own: f"{sum(int(own.column(name).sum()) for name in names):,}"


def tables(rows: Rows) -> dict[str, Table]:
    """Return how many cases of each kind of file had which outcome."""
    columns = [
        Column("file", lambda own: own[0]["name"] if len(own.values("name")) == 1 else "all"),
        Column("cases", _sum(*OUTCOMES)),
        *(Column(name, _sum(name)) for name in OUTCOMES),
        Column("most seconds", lambda own: f"{own.column('load_s').max():.2f}"),
        Column("most MB", lambda own: f"{own.column('load_mb').max():.0f}"),
    ]
    found = {}
    for checked, name in ((False, "fuzz"), (True, "fuzz_checked")):
        if own := Rows(row for row in rows if str(row["checked"]) == str(checked)):
            title = "with indices checked" if checked else "changed files"
            found[name] = Table(title, columns, [*own.groups("name"), own])
    return found


def escaped(rows: Rows) -> int:
    """How many cases were neither refused nor harmless."""
    return sum(int(rows.column(name).sum()) for name in OUTCOMES[2:])


@dataclass(frozen=True)
class Options(SharedOptions):
    """How many cases, of what, and where."""

    seeds: int = 1
    """Blocks of cases of each class."""
    cases: int = BLOCK
    """Of a block."""
    only: tuple[str, ...] = ()
    """Classes; all by default."""
    keep: Path | None = None
    """Folder for files that escaped."""
    execution: Execution = ALONE


def main(options: Options) -> None:
    """Fuzz all classes; exits with 1 if anything escaped."""
    keep = None if options.keep is None else str(options.keep.resolve())
    settings = [
        {"name": name, "cases": options.cases, "seed": seed, "checked": bool(config.BOUNDSCHECK),
         "keep": keep}
        for seed in EXPERIMENT.seeds(options)
        for name in chosen(options.only, _MAKERS)
    ]  # fmt: skip
    rows = EXPERIMENT.run(run, settings, options.execution)
    found = [next(outcomes(one, [one.file])) for one in kept(ATTACKS)]
    say(*tables(rows).values(), f"once escaped: {Counter(one.name for one in found)}")
    sys.exit(int(escaped(rows) > 0 or any(one.name != "refused" for one in found)))


if __name__ == "__main__":
    start(main, Options, __doc__)
