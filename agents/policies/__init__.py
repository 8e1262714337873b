"""Policies, which agents deliver: arrays that decide, explain themselves and export to C.

``contract`` says what a policy is, and ``cells``, ``joint`` and ``rules`` are the kinds there are;
``explaining`` and ``export`` take any.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.policies.cells import CellPolicy as CellPolicy
    from oda_rl.agents.policies.cells import CodevectorPolicy as CodevectorPolicy
    from oda_rl.agents.policies.cells import TablePolicy as TablePolicy
    from oda_rl.agents.policies.contract import Policy as Policy
    from oda_rl.agents.policies.contract import Trained as Trained
    from oda_rl.agents.policies.explaining import Explanation as Explanation
    from oda_rl.agents.policies.explaining import Overview as Overview
    from oda_rl.agents.policies.export import export_policy as export_policy
    from oda_rl.agents.policies.rules import RulePolicy as RulePolicy

__getattr__, __dir__ = offer(
    __name__,
    {
        "CellPolicy": "cells",
        "CodevectorPolicy": "cells",
        "Policy": "contract",
        "RulePolicy": "rules",
        "TablePolicy": "cells",
        "Trained": "contract",
        "Explanation": "explaining",
        "Overview": "explaining",
        "export_policy": "export",
    },
)
