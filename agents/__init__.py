"""Agents that learn to act in Gymnasium environments; each is loaded when it is first used."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.base.actors import Actors as Actors
    from oda_rl.agents.base.agent import Agent as Agent
    from oda_rl.agents.certifying import certify as certify
    from oda_rl.agents.distilling.distil import Distilled as Distilled
    from oda_rl.agents.distilling.distil import distill as distill
    from oda_rl.agents.fitted.agent import FittedQAgent as FittedQAgent
    from oda_rl.agents.fitted.codevectors import CodevectorAgent as CodevectorAgent
    from oda_rl.agents.fitting.settings import FittedQConfig as FittedQConfig
    from oda_rl.agents.loading import load_agent as load_agent
    from oda_rl.agents.model.agent import ModelAgent as ModelAgent
    from oda_rl.agents.model.settings import ModelConfig as ModelConfig
    from oda_rl.agents.offline import Transitions as Transitions
    from oda_rl.agents.partitions.base import Partition as Partition
    from oda_rl.agents.partitions.gmm import GMMPartition as GMMPartition
    from oda_rl.agents.partitions.grid import GridPartition as GridPartition
    from oda_rl.agents.partitions.infex import InfexPartition as InfexPartition
    from oda_rl.agents.partitions.som import SOMPartition as SOMPartition
    from oda_rl.agents.policies.cells import CellPolicy as CellPolicy
    from oda_rl.agents.policies.explaining import Explanation as Explanation
    from oda_rl.agents.policies.export import export_policy as export_policy
    from oda_rl.agents.policies.rules import RulePolicy as RulePolicy
    from oda_rl.agents.review import diff as diff
    from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent as TwoTimescaleAgent
    from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig as TwoTimescaleConfig
    from oda_rl.agents.worlds.world import World as World

__getattr__, __dir__ = offer(__name__, __file__)
__all__ = __dir__()
