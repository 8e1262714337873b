"""Partitions that place an online agent's cells in place of annealing.

``base`` says what an agent asks of one. A built-in partition is a subclass of
:class:`oda_rl.agents.partitions.base.BuiltIn` in a module of its own, and a name here, by which
agents and the command offer it with its settings.
"""

from typing import Any

from oda_rl.agents.partitions.gmm import GMMPartition
from oda_rl.agents.partitions.grid import GridPartition
from oda_rl.agents.partitions.infex import InfexPartition
from oda_rl.agents.partitions.som import SOMPartition

PARTITIONS: dict[str, type[Any]] = {
    "gmm": GMMPartition,
    "grid": GridPartition,
    "infex": InfexPartition,
    "som": SOMPartition,
}
