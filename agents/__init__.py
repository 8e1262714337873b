"""Agents that learn to act in Gymnasium environments."""

from oda_rl.agents.config import TwoTimescaleConfig
from oda_rl.agents.partitions import ODAPartition, Partition
from oda_rl.agents.two_timescale import TwoTimescaleAgent

__all__ = ["ODAPartition", "Partition", "TwoTimescaleAgent", "TwoTimescaleConfig"]
