"""What an agent delivers: arrays that decide, explain themselves and can be written down in C."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.policies.cells import CellPolicy as CellPolicy
    from oda_rl.agents.policies.explaining import Explanation as Explanation
    from oda_rl.agents.policies.explaining import Overview as Overview
    from oda_rl.agents.policies.export import export_policy as export_policy

__getattr__, __dir__ = offer(
    __name__,
    {
        "CellPolicy": "cells",
        "Explanation": "explaining",
        "Overview": "explaining",
        "export_policy": "export",
    },
)
