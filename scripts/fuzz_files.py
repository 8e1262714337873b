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

    python scripts/fuzz_files.py --cases 200              # of each class
    python scripts/fuzz_files.py --only infex --keep /tmp/escaped
    NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=/tmp/checked python scripts/fuzz_files.py --cases 20
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.file_changes import CHANGES, SHARES, Rng

from oda_rl import InvalidFileError

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


def subjects(folder: Path, only: str = "") -> list[Subject]:
    """Train and save one of each class whose name holds a text."""
    made = []
    for name, make in _MAKERS.items():
        if only in name:
            file = folder / f"{name}.zip"
            made.append(Subject(name, file, *make(file)))
    return made


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
        model = cls(random_state=0, **settings)
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
    "tree-clusterer": _estimator("ODATreeClusterer", False),
    "tree-stream": _estimator("ODATreeClusterer", True),
    "tree-classifier": _estimator("ODATreeClassifier", True),
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


def outcome(subject: Subject, file: Path) -> Outcome:
    """Load a file and use it in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing that this process has open is closed, or written twice
        os.close(reader)
        signal.alarm(SECONDS)  # kills, whatever compiled code does
        _in_child(subject, file, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        hung = os.WTERMSIG(status) == signal.SIGALRM
        return Outcome("hung" if hung else "crashed", f"signal {os.WTERMSIG(status)} {said}")
    name, _, rest = said.partition(" ")
    if name not in OUTCOMES:
        return Outcome("crashed", said)
    seconds, megabytes, text = (*rest.split(" ", 2), "", "")[:3]
    return Outcome(name, text, float(seconds), float(megabytes))


def _in_child(subject: Subject, file: Path, writer: int) -> None:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        began, grown, loaded, said = time.process_time(), _most_megabytes(), None, ""
        try:
            loaded = subject.load(file)
            name = "harmless"
        except InvalidFileError as error:
            name, said = "refused", str(error)
        except BaseException as error:
            name, said = "wrong", f"{type(error).__name__}: {error}"
        took = time.process_time() - began
        grown = _most_megabytes() - grown - file.stat().st_size / 1e6
        if name != "wrong" and (took > LOADING[0] or grown > LOADING[1]):
            name, said = "costly", f"{took:.2f} s, {grown:.0f} MB {said}"
        if name == "harmless":
            subject.use(loaded)
        os.write(writer, f"{name} {took:.4f} {grown:.2f} {said}"[:2000].encode())
    finally:
        os._exit(0)


def _most_megabytes() -> float:
    """Most memory that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def run(
    found: list[Subject], cases: int, seed: int, folder: Path, keep: Path | None, show: bool
) -> dict[str, Counter[str]]:
    """Try so many cases of each class; returns how many had which outcome."""
    counts: dict[str, Counter[str]] = {}
    for number, subject in enumerate(found):
        own = counts[subject.name] = Counter()
        seconds = megabytes = 0.0
        _warm(subject)
        for k in range(cases):
            kind, content = case(subject, np.random.default_rng([seed, number, k]))
            file = folder / "changed.zip"
            file.write_bytes(content)
            result, said, *cost = outcome(subject, file)
            own[result] += 1
            seconds, megabytes = max(seconds, cost[0]), max(megabytes, cost[1])
            if result not in ("refused", "harmless"):
                print(f"\r{subject.name} case {k} ({kind}): {result}: {said}", flush=True)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{subject.name}-{kind}-{k}.zip").write_bytes(content)
            if show and k % 10 == 9:
                print(f"\r{subject.name}: {k + 1}/{cases} {dict(own)}", end="", flush=True)
        if show:
            most = f"  at most {seconds:.2f} s, {megabytes:.0f} MB"
            print(f"\r{line(subject.name, own)}{most}", flush=True)
    return counts


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


def _warm(subject: Subject) -> None:
    """Load and use the file as it is, so that children find all that is compiled."""
    subject.use(subject.load(subject.file))


def line(name: str, own: Counter[str]) -> str:
    """Return the counts of a class in a line."""
    return f"{name:18s}" + "".join(f"{what} {own[what]:6d}  " for what in OUTCOMES)


def main() -> int:
    """Fuzz all classes; returns 1 if anything escaped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200, help="of each class")
    parser.add_argument("--only", default="", help="classes whose names hold this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for files that escaped")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = run(subjects(folder, options.only), options.cases, options.seed, folder,
                     options.keep, show=True)  # fmt: skip
    for attack in kept(ATTACKS):
        found = outcome(attack, attack.file)
        counts[attack.name] = Counter([found.name])
        print(f"{attack.name}: {found.name}, {found.seconds:.2f} s, {found.megabytes:.0f} MB")
    total = sum(counts.values(), Counter())
    print(line("all", total))
    return int(total["refused"] + total["harmless"] < total.total())


if __name__ == "__main__":
    sys.exit(main())
