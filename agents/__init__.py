"""Agents that learn to act in Gymnasium environments."""

from pathlib import Path
from typing import Any

import gymnasium as gym

from oda_rl.agents.base.actors import Actors
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.certifying import certify
from oda_rl.agents.distilling.distil import Distilled, distill
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.codevectors import CodevectorAgent
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.offline import Transitions
from oda_rl.agents.partitions.base import Partition
from oda_rl.agents.partitions.gmm import GMMPartition
from oda_rl.agents.partitions.grid import GridPartition
from oda_rl.agents.partitions.infex import InfexPartition
from oda_rl.agents.partitions.som import SOMPartition
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.policies.explaining import Explanation
from oda_rl.agents.policies.export import export_policy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.review import diff
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig
from oda_rl.agents.worlds.world import World

__all__ = [
    "Actors",
    "Agent",
    "CellPolicy",
    "CodevectorAgent",
    "Distilled",
    "Explanation",
    "FittedQAgent",
    "FittedQConfig",
    "GMMPartition",
    "GridPartition",
    "InfexPartition",
    "ModelAgent",
    "ModelConfig",
    "Partition",
    "RulePolicy",
    "SOMPartition",
    "Transitions",
    "TwoTimescaleAgent",
    "TwoTimescaleConfig",
    "World",
    "certify",
    "diff",
    "distill",
    "export_policy",
    "load_agent",
]


def load_agent(path: str | Path, env: str | gym.Env[Any, Any] | None = None) -> Agent:
    """Load an agent of whatever class from a file or a run folder.

    Parameters
    ----------
    path : str or Path
        What the agent's ``save`` was given.
    env : str or gymnasium.Env, optional
        To train or evaluate in. By default the environment is made from its id when needed.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    ValueError
        If the file is damaged, or of something else, or ``env`` has other spaces.

    Examples
    --------
    >>> import tempfile
    >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     agent.save(folder)
    ...     load_agent(folder).num_timesteps
    500
    """
    from oda_rl.agents.base import files
    from oda_rl.files.schema import InvalidFileError

    kinds: dict[str, type[Agent]] = {
        kind.__name__: kind
        for kind in (FittedQAgent, CodevectorAgent, ModelAgent, TwoTimescaleAgent)
    }
    file, metadata, arrays = files.read(Path(path))
    found = str(metadata.get("kind"))
    if found not in kinds:
        raise InvalidFileError(
            f"path is {str(path)!r}, which holds {found!r}: it must hold an agent"
        )
    return files.restored(kinds[found], file, metadata, arrays, env)
