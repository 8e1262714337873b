"""Agents as files, and run folders."""

import json
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy.typing as npt

from oda_rl import persistence
from oda_rl.agents.engine.format4 import upgraded
from oda_rl.agents.engine.history import Level, history_from_arrays, history_to_arrays
from oda_rl.agents.engine.training import EpisodeLog
from oda_rl.agents.environments.spaces import AnyEnv, Interface

AGENT_FILE = "agent.zip"
CONFIG_FILE = "config.json"
MONITOR_FILE = "monitor.csv"
_FORMAT = 5
_SB3_VERSION = "_stable_baselines3_version"


class Savable(Protocol):
    """What is saved, and made anew: an agent."""

    env: AnyEnv | None
    env_id: str | None
    interface: Interface
    episodes: EpisodeLog
    training_seconds: float

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from."""

    @property
    def history(self) -> list[Level]:
        """The cells at the beginning of each level, or after each fit."""

    def _to_file(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return metadata and arrays."""

    @classmethod
    def _from_file(
        cls, metadata: dict[str, Any], arrays: dict[str, npt.NDArray[Any]], *parts: Any
    ) -> Self:
        """Make one without an environment from what :meth:`_to_file` returned."""

    def _enter(self, env: str | AnyEnv) -> AnyEnv:
        """Take an environment for the agent's own."""

    def _interface(self) -> Interface:
        """Read the spaces of its environment."""


AnySavable = TypeVar("AnySavable", bound=Savable)


def save(agent: Savable, path: Path) -> None:
    """Save an agent to a ``.zip`` file or a run folder."""
    if path.suffix == ".zip":
        save_file(agent, path)
        return
    if path.exists() and not path.is_dir():
        raise ValueError(f"path is {str(path)!r}: it must be a folder or end in .zip")
    metadata = save_file(agent, path / AGENT_FILE)
    config = {
        "algorithm": metadata["kind"],
        "env_id": agent.env_id,
        "partition": metadata["partition"],
        "num_timesteps": agent.num_timesteps,
        "config": metadata["config"],
    }
    persistence.write_text(path / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    started = time.time() - agent.training_seconds
    persistence.write_text(
        path / MONITOR_FILE, agent.episodes.to_monitor_csv(agent.env_id, started)
    )


def save_file(
    agent: Savable,
    path: Path,
    more_metadata: Mapping[str, Any] | None = None,
    more_arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> dict[str, Any]:
    """Save an agent to a file, with anything else that belongs to it; returns the metadata."""
    own_metadata, own_arrays = agent._to_file()
    metadata = {
        "kind": type(agent).__name__,
        "format": _FORMAT,
        "env_id": agent.env_id,
        "interface": agent.interface.to_json(),
        "training_seconds": agent.training_seconds,
        **own_metadata,
        **(more_metadata or {}),
    }
    arrays = {
        "episodes": agent.episodes.rows,
        **history_to_arrays(agent.history),
        **own_arrays,
        **(more_arrays or {}),
    }
    persistence.save_archive(path, metadata, arrays)
    return metadata


def load(cls: type[AnySavable], path: Path, env: str | AnyEnv | None, *parts: Any) -> AnySavable:
    """Load an agent of a class from a file or a run folder; ``parts`` go to its ``_from_file``."""
    return restored(cls, *read(path), env, *parts)


def restored(
    cls: type[AnySavable],
    file: Path,
    metadata: dict[str, Any],
    arrays: dict[str, npt.NDArray[Any]],
    env: str | AnyEnv | None,
    *parts: Any,
) -> AnySavable:
    """Make an agent of what :func:`read` returned; ``parts`` go to its ``_from_file``."""
    form = metadata.get("format")
    if metadata.get("kind") != cls.__name__ or form not in (_FORMAT, _FORMAT - 1):
        raise ValueError(
            f"{str(file)!r} holds {metadata.get('kind')!r} in format {form!r}: "
            f"it must hold {cls.__name__!r} in format {_FORMAT}"
        )
    try:
        if form != _FORMAT:
            arrays = upgraded(arrays)
        agent = cls._from_file(metadata, arrays, *parts)
        agent.episodes = EpisodeLog(arrays["episodes"])
        agent.history[:] = history_from_arrays(arrays, agent.interface.n_features)
        agent.training_seconds = metadata["training_seconds"]
        agent.env_id = metadata["env_id"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error!r}") from error
    if env is not None:
        agent._enter(env)
        found = agent._interface()
        known = found if "native" in metadata["interface"] else replace(found, native=None)
        if known != agent.interface:
            raise ValueError(f"env has {found}: the agent was trained with {agent.interface}")
        agent.interface = found
    return agent


def kind_of(path: Path) -> str:
    """Return the class name of the agent in a file or a run folder."""
    return str(read(path)[1].get("kind"))


def read(path: Path) -> tuple[Path, dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the file of a file or a run folder, and the metadata and arrays that it holds."""
    file = path / AGENT_FILE if path.is_dir() else path
    if not file.exists():
        what = f"run folder with an {AGENT_FILE}" if path.is_dir() else "file or run folder"
        raise FileNotFoundError(f"{str(path)!r} is no {what}")
    try:
        return file, *persistence.load_archive(file)
    except ValueError as error:
        foreign = _foreign(file)
        if foreign is None:
            raise
        raise ValueError(
            f"{str(file)!r} holds {foreign}: it must hold an agent of oda_rl"
        ) from error


def _foreign(file: Path) -> str | None:
    """Say what a file of Stable-Baselines3 or PyTorch holds; None for any other."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if _SB3_VERSION in names:
                return f"a model of Stable-Baselines3 {archive.read(_SB3_VERSION).decode()}"
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError):
        return None
    if any(Path(name).name == "data.pkl" for name in names):
        return "what PyTorch has pickled, such as a policy of Stable-Baselines3"
    return None
