"""Partitions of the observation space: what an agent asks of one, and the five that there are.

``contract`` is what it asks, ``schedule`` the arrays by which compiled loops run a learner.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.partitions.contract import Lineage as Lineage
    from oda_rl.agents.partitions.contract import Partition as Partition
    from oda_rl.agents.partitions.contract import Scaling as Scaling
    from oda_rl.agents.partitions.gmm import GMMPartition as GMMPartition
    from oda_rl.agents.partitions.gmm import GMMSettings as GMMSettings
    from oda_rl.agents.partitions.grid import GridPartition as GridPartition
    from oda_rl.agents.partitions.grid import GridSettings as GridSettings
    from oda_rl.agents.partitions.infex import InfexPartition as InfexPartition
    from oda_rl.agents.partitions.infex import InfexSettings as InfexSettings
    from oda_rl.agents.partitions.oda import ODAPartition as ODAPartition
    from oda_rl.agents.partitions.oda import ODASettings as ODASettings
    from oda_rl.agents.partitions.schedule import Learner as Learner
    from oda_rl.agents.partitions.schedule import interpreted_learner as interpreted_learner
    from oda_rl.agents.partitions.som import SOMPartition as SOMPartition
    from oda_rl.agents.partitions.som import SOMSettings as SOMSettings

__getattr__, __dir__ = offer(
    __name__,
    {
        "Lineage": "contract",
        "Partition": "contract",
        "Scaling": "contract",
        "GMMPartition": "gmm",
        "GMMSettings": "gmm",
        "GridPartition": "grid",
        "GridSettings": "grid",
        "InfexPartition": "infex",
        "InfexSettings": "infex",
        "ODAPartition": "oda",
        "ODASettings": "oda",
        "Learner": "schedule",
        "interpreted_learner": "schedule",
        "SOMPartition": "som",
        "SOMSettings": "som",
    },
)
