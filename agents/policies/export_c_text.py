"""Tables of policies in C headers, and how large they are."""

from typing import Any

import numpy.typing as npt

from oda_rl.agents.policies.export_tables import Tables
from oda_rl.exporting.c_text import table

_DIMENSIONS = {
    "oda_diagram": "[ODA_CELLS][1 + ODA_FEATURES]",
    "oda_offsets": "[ODA_CELLS]",
    "oda_slopes": "[ODA_CELLS][ODA_FEATURES]",
    "oda_shifts": "[ODA_CELLS]",
    "oda_actions": "[ODA_CELLS]",
    "oda_advantages": "[ODA_CELLS][ODA_ACTIONS - 1]",
    "oda_exponents": "[ODA_CELLS]",
    "oda_origin": "[ODA_FEATURES]",
    "oda_scale": "[ODA_FEATURES]",
    "oda_affine": "[ODA_CELLS][ODA_COMPONENTS][1 + ODA_FEATURES]",
    "oda_codevectors": "[ODA_CELLS][ODA_ACTIONS][ODA_COMPONENTS]",
    "oda_low": "[ODA_COMPONENTS]",
    "oda_high": "[ODA_COMPONENTS]",
    "oda_conditions": "[ODA_ROWS][1 + ODA_FEATURES]",
    "oda_ends": "[ODA_CLAUSES]",
    "oda_forbidden": "[ODA_FORBIDDING]",
    "oda_power": "[ODA_DEGREE + 1]",
}
SCORES = ("oda_diagram", "oda_offsets", "oda_slopes", "oda_shifts")


def definition(name: str, array: npt.NDArray[Any], found: Tables) -> str:
    """Return the definition of a table."""
    size = _DIMENSIONS[name]
    if found.clauses is not None and name in ("oda_actions", "oda_affine"):
        more = len(found.clauses.outputs)
        size = size.replace("ODA_CELLS", f"ODA_CELLS + {more}", 1)
    if found.apart and name in SCORES:
        size = size.replace("ODA_CELLS", "ODA_CELLS - 1", 1)
    return table(name, size, array)
