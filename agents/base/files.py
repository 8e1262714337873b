"""Saving and loading agents: files, run folders, checkpoints."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from oda_rl._lock import locked
from oda_rl.agents.base.history import SHARED, EpisodeLog, history_from_arrays, history_to_arrays
from oda_rl.agents.base.player import Limits
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.base.training_run import Snapshot, TrainingRun
from oda_rl.agents.environments.copying import EnvCopy
from oda_rl.agents.environments.making import generator_of
from oda_rl.agents.environments.origins import from_json, remade, to_json
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.files.archive import load_archive, refuse_links, save_archive, sweep, write_text
from oda_rl.files.schema import InvalidFileError, check, generator_state, number, reading, require

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent

AGENT_FILE = "agent.zip"
CONFIG_FILE = "config.json"
MONITOR_FILE = "monitor.csv"
FIGURES = ("learning_curve", "partition", "metric", "bifurcation")
OF_AGENT = (
    AGENT_FILE, CONFIG_FILE, MONITOR_FILE, "rule.txt", "policy.h", "policy.json", "policy.onnx",
    "report.html",
    *(f"{name}.png" for name in FIGURES),
)  # fmt: skip  # files of a run folder that are replaced or removed by another agent
_FORMAT = 1
_VERSION = re.compile(r"[\w.+!-]{1,50}")
_MAX_TEXTS = 100  # names and versions
_ENV_ID = re.compile(r"[\w:./-]{1,200}")

AnyAgent = TypeVar("AnyAgent", bound="Agent")


def save(agent: "Agent", path: Path) -> None:
    """Save an agent to a ``.zip`` file or a run folder."""
    if path.suffix == ".zip":
        save_file(agent, path)
        return
    if path.exists() and not path.is_dir():
        raise ValueError(f"path is {str(path)!r}: it must be a folder or end in .zip")
    refuse_links(*(path / name for name in OF_AGENT))
    for name in OF_AGENT[1:]:  # first, so that they are never taken for those of the new agent
        (path / name).unlink(missing_ok=True)
    metadata = save_file(agent, path / AGENT_FILE)
    config = {
        "algorithm": metadata["kind"],
        "env_id": agent.env_id,
        "env_spec": metadata["env_spec"],
        "partition": metadata["partition"],
        "num_timesteps": agent.num_timesteps,
        "total_timesteps": agent.num_timesteps + agent._unused_steps,  # that were asked for
        "config": metadata["config"],
        **({} if agent._seed is None else {"seed": agent._seed}),
    }
    write_text(path / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    started = time.time() - agent.training_seconds
    write_text(path / MONITOR_FILE, agent.episodes.to_monitor_csv(agent.env_id, started))


def refuse_foreign(
    folder: Path, names: Sequence[str] = OF_AGENT[1:], earlier: str = AGENT_FILE, what: str = "path"
) -> None:
    """Raise ValueError if a folder has files of these names, but no earlier result's main file.

    Links are refused when they would be written.
    """
    paths = ((name, folder / name) for name in names)
    found = [name for name, path in paths if path.exists() and not path.is_symlink()]
    if found and not (folder / earlier).exists():
        raise ValueError(
            f"{what} is {str(folder)!r}, where {found[0]} would be replaced, which is of no "
            f"earlier result: there is no {earlier}; move it away, or take another folder"
        )


def save_file(agent: "Agent", path: Path, **more: Any) -> dict[str, Any]:
    """Save an agent, with further metadata, to a file; return the metadata."""
    metadata, arrays = contents(agent)
    metadata |= more
    load = None if agent._parts else partial(restored, type(agent), path)
    save_archive(path, metadata, arrays, load)
    return metadata


def contents(agent: "Agent") -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return metadata and arrays from which :func:`restored` makes the agent."""
    agent_metadata, agent_arrays = agent._to_file()
    origin = agent.origin
    metadata = {
        "kind": type(agent).__name__,
        "format": _FORMAT,
        "env_id": agent.env_id,
        "env_rng": generator_of(agent._env) if agent._env_seeded else agent._env_rng,
        "env_spec": None if origin is None else to_json(origin),
        "interface": agent.interface.to_json(),
        "training_seconds": agent.training_seconds,
        "unused_steps": agent._unused_steps,
        "versions": present_versions(),
        **agent_metadata,
    }
    arrays = {"episodes": agent.episodes.groups, **history_to_arrays(agent.history), **agent_arrays}
    return metadata, arrays


def pickled(agent: "Agent") -> tuple[Any, ...]:
    """Return what ``__reduce__`` does: the content of its file, and what no file holds."""
    metadata, arrays = contents(agent)
    copies = {name: np.array(array) for name, array in arrays.items()}
    plain = json.loads(json.dumps(metadata))
    env = agent.env
    if env is not None and from_json(plain["env_spec"]).obstacle is None:
        made, changed = remade(env)
        made.close()
        env = env if changed else None  # the copy makes another
    state = {name: getattr(agent, name) for name in ("_seed", "_acted_on", "_env_module")}
    state |= {"_env": EnvCopy(env), "named_by_file": False, "limits": None}
    return restored, (type(agent), Path("a pickle"), plain, copies, None, *agent._parts), state


def restored(
    cls: type[AnyAgent],
    file: Path,
    metadata: dict[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    env: str | AnyEnv | None = None,
    *parts: Any,
) -> AnyAgent:
    """Make an agent from the result of :func:`read`; ``parts`` go to its ``_from_file``."""
    kind, form = metadata.get("kind"), metadata.get("format")
    if kind != cls.__name__ or type(form) is not int or form != _FORMAT:
        raise InvalidFileError(
            f"{str(file)!r} holds {kind!r} in format {form!r}: it must hold {cls.__name__!r} in "
            f"format {_FORMAT}, which this version of oda_rl reads"
        )
    with reading(file):
        shared = {name: arrays[name] for name in SHARED if name in arrays}
        check(shared, SHARED, {})
        env_id = metadata["env_id"]
        legal = env_id is None or (isinstance(env_id, str) and _ENV_ID.fullmatch(env_id))
        require(legal, f"env_id is {env_id!r}: it must be the id of an environment")
        env_spec = metadata["env_spec"]
        origin = None if env_spec is None else from_json(env_spec)
        require(origin is None or origin.id == env_id, "env_spec.id is another than env_id")
        rng = metadata["env_rng"]
        learned = {name: array for name, array in arrays.items() if name not in SHARED}
        log = EpisodeLog.from_file(shared["episodes"])
        agent = cls._from_file(metadata, learned, *parts)
        agent.episodes = log
        agent.history[:] = history_from_arrays(shared, agent.interface.n_features)
        last = agent.history[-1].step if agent.history else 0
        require(last <= agent.num_timesteps, f"history_step reaches {last}: steps are fewer")
        seconds = metadata["training_seconds"]
        agent.training_seconds = number(seconds, "training_seconds", "[0, inf)")
        unused = agent._unused_steps = metadata["unused_steps"]
        require(type(unused) is int, f"unused_steps is {unused!r:.50}: it must be an integer")
        agent.env_id, agent._origin, agent.named_by_file = env_id, origin, True
        agent.limits = Limits()
        agent._env_rng = None if rng is None else generator_state(rng, "env_rng")
        if "training" in metadata:
            agent._paused = Snapshot.from_json(metadata["training"])
            agent._seed, agent._paused_at = agent._paused.seed, agent.num_timesteps
        versions = agent._versions = dict(metadata["versions"])
        texts = *versions, *versions.values()
        legal = all(isinstance(text, str) and _VERSION.fullmatch(text) for text in texts)
        require(legal and len(texts) <= _MAX_TEXTS, "versions must be names and versions")
    if env is not None:
        agent._check_spaces(agent._enter(env))
        agent.limits = None
    return agent


def present_versions() -> dict[str, str]:
    """Return the versions of oda_rl, Python and the libraries that results depend on."""
    from oda_rl.runs.results import versions  # slow to import

    package = __name__.partition(".")[0]
    return {package: str(import_module(package).__version__), **versions()}


def read(given: str | Path) -> tuple[Path, dict[str, Any], Mapping[str, npt.NDArray[Any]]]:
    """Return the file at a path or in a run folder, and its metadata and arrays."""
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"path is {given!r}: it must be a string or a Path")
    path = Path(given)
    file = path / AGENT_FILE if path.is_dir() else path
    if not file.exists():
        what = f"run folder with an {AGENT_FILE}" if path.is_dir() else "file or run folder"
        raise FileNotFoundError(f"{str(path)!r} is no {what}")
    return file, *load_archive(file)


@dataclass(frozen=True)
class Checkpoints:
    """The file for the checkpoints of a training, each of which replaces the last."""

    path: Path
    every: int  # steps between checkpoints

    @classmethod
    def of(cls, checkpoint: str | Path | None, checkpoint_every: int | None) -> Self | None:
        """Check the arguments of ``learn``; return None for no checkpoints."""
        if checkpoint is None and checkpoint_every is None:
            return None
        if checkpoint is None or checkpoint_every is None:
            raise ValueError(
                f"checkpoint is {checkpoint!r}, and checkpoint_every is {checkpoint_every!r}: they "
                "must be the file to write, and the steps from one checkpoint to the next"
            )
        path = Path(checkpoint)
        if path.suffix != ".zip" or path.is_dir():
            raise ValueError(f"checkpoint is {str(path)!r}: it must be a file that ends in .zip")
        return cls(path, checked_count("checkpoint_every", checkpoint_every))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file for this training; remove temporary files of a killed one."""
        refuse_links(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        with locked(lock, f"checkpoint {str(self.path)!r}"):
            sweep(self.path.parent, [self.path.name])
            yield

    def write(self, agent: "Agent", run: TrainingRun, seed: int | None) -> None:
        env = agent.env
        assert env is not None
        save_file(agent, self.path, training=vars(Snapshot.of(run, env, seed)))
        run.schedule()
