"""Load an agent of any class."""

from pathlib import Path
from typing import Any

import gymnasium as gym

from oda_rl.agents.base import files
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.codevectors import CodevectorAgent
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent
from oda_rl.files.schema import InvalidFileError


def load_agent(path: str | Path, env: str | gym.Env[Any, Any] | None = None) -> Agent:
    """Load an agent of any class from a file or a run folder.

    Parameters
    ----------
    path, env
        As for :meth:`oda_rl.agents.Agent.load`, like the errors that are raised.

    Examples
    --------
    >>> import tempfile
    >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     agent.save(folder)
    ...     load_agent(folder).num_timesteps
    500
    """
    kinds: dict[str, type[Agent]] = {
        kind.__name__: kind
        for kind in (FittedQAgent, CodevectorAgent, ModelAgent, TwoTimescaleAgent)
    }
    file, metadata, arrays = files.read(path)
    found = str(metadata.get("kind"))
    if found not in kinds:
        raise InvalidFileError(
            f"path is {str(path)!r}, which holds {found!r}: it must hold an agent"
        )
    return files.restored(kinds[found], file, metadata, arrays, env)
