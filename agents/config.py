"""The settings of both agents."""

from oda_rl.agents.fitted.settings import FittedQConfig as FittedQConfig
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig as TwoTimescaleConfig
