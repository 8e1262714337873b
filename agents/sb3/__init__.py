"""Stable-Baselines3: the agents as its algorithms, and its own algorithms as baselines."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.sb3.algorithms import Codevector as Codevector
    from oda_rl.agents.sb3.algorithms import FittedQ as FittedQ
    from oda_rl.agents.sb3.algorithms import Model as Model
    from oda_rl.agents.sb3.algorithms import TwoTimescale as TwoTimescale
    from oda_rl.agents.sb3.base import CellsPolicy as CellsPolicy
    from oda_rl.agents.sb3.baselines import Baseline as Baseline
    from oda_rl.agents.sb3.settings import settings_for as settings_for

__getattr__, __dir__ = offer(__name__, __file__)
