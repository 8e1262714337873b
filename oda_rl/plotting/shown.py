"""How much of a policy figures and tables show."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from oda_rl.agents.policies.explaining import Overview

MOST_ROWS = 40  # of a policy that are shown
MOST_COMPONENTS = 12
MOST_ACTIONS = 8


def shown_components(policy: "Overview") -> list[int]:
    """Return the components to show: those in which codevectors differ most, if there are many."""
    spread = policy.codevectors.std(axis=0) * policy.scale
    return sorted(np.argsort(-spread, kind="stable")[:MOST_COMPONENTS].tolist())
