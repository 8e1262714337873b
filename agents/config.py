"""The settings of both agents."""

from oda_rl.agents.fitting.settings import FittedQConfig as FittedQConfig
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig as TwoTimescaleConfig
