"""Write the tables of docs/file-format.md from the schemas that files are checked against.

    python scripts/render_formats.py

A test fails when the page differs from them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import oda_rl
from oda_rl._schema import Member
from oda_rl._state import State
from oda_rl.agents.engine.state import ROOM, Lane
from oda_rl.agents.fitted import codevector_engine
from oda_rl.agents.fitted import contents as fitted
from oda_rl.agents.fitted.replay import FittedState
from oda_rl.agents.fitting import placed
from oda_rl.agents.model import candidates, choosing, planning, tabled, tables
from oda_rl.agents.model import engine as model
from oda_rl.agents.partitions import gmm, grid, infex, oda, som
from oda_rl.agents.partitions.schedule import MapSchedule, Schedule
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.policies.codevectors import CodevectorPolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.agents.rules import editing
from oda_rl.agents.training import course, files
from oda_rl.agents.two_timescale import engine as online
from oda_rl.agents.two_timescale.qlearning import OnlineState
from oda_rl.agents.worlds import files as worlds
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.codebook import Balls, Layout, Seen
from oda_rl.annealing.levels import Codebook, Level
from oda_rl.annealing.levels import Schedule as Levels
from oda_rl.divergences import Mahalanobis
from oda_rl.exemplars.column_generation import Round
from oda_rl.filing.contents import ANYTHING, OF_ALL, Each, Floats, Maybe, Optional, Several
from oda_rl.mixtures.state import Mixture, Progress, Rules
from oda_rl.quantization.batch_annealing import AnnealingRecord
from oda_rl.trees.growth import Plan, Tree
from oda_rl.trees.nodes import Cells, Node, NodeAnnealer, Partial, Statistics

PAGE = Path(__file__).parent.parent / "docs" / "file-format.md"
BEGIN, END = "<!-- tables -->", "<!-- end -->"

AGENTS: dict[str, Mapping[str, Any]] = {
    "Of every agent": files.SHARED,
    "Of a checkpoint, besides": course.SCHEMA,
    "TwoTimescaleAgent": online.SCHEMA,
    "TwoTimescaleAgent, partition_ of an ODAPartition": oda.SCHEMA,
    "partition_ of a GridPartition": grid.SCHEMA,
    "partition_ of a SOMPartition": som.SCHEMA,
    "partition_ of a GMMPartition": gmm.SCHEMA,
    "partition_ of an InfexPartition": infex.SCHEMA,
    "FittedQAgent and CodevectorAgent": fitted.SCHEMA,
    "CodevectorAgent, besides": codevector_engine.SCHEMA,
    "policy0_, policy1_, … of a FittedQAgent, and curious_": CellPolicy.SCHEMA,
    "policy0_, policy1_, … of a CodevectorAgent, and curious_": CodevectorPolicy.SCHEMA,
    "placed_cells_ of a FittedQAgent": placed.SCHEMA,
    "ModelAgent": model.SCHEMA,
    "candidates_ of a ModelAgent with discrete actions, besides": choosing.SCHEMA,
    "candidates_ of a ModelAgent, rules": candidates.SCHEMA,
    "candidates_ of a ModelAgent, rules within clauses_, besides": editing.SCHEMA,
    "candidates_ of a ModelAgent, tables": tabled.SCHEMA,
    "planner_ of a ModelAgent, of rules": planning.SCHEMA,
    "planner_ of a ModelAgent, its world": worlds.SCHEMA,
    "planner_ of a ModelAgent, of tables": tables.SCHEMA,
    "Rows of room": ROOM,
}
POLICIES: dict[str, Mapping[str, Any]] = {
    "RulePolicy.from_arrays": RulePolicy.SCHEMA,
    "clauses_ of an edited rule": editing.SCHEMA,
    "TablePolicy.from_arrays": TablePolicy.SCHEMA,
}
RECORDS: tuple[type[State], ...] = (OnlineState, FittedState, Lane, Schedule, MapSchedule,
                                    Progress, Seen)  # fmt: skip
ESTIMATORS = [kind for name in oda_rl.__all__ if hasattr(kind := getattr(oda_rl, name), "LEARNED")]
OBJECTS: tuple[Any, ...] = (Annealer, Levels, Level, Codebook, Layout, Balls, Mahalanobis, Tree,
                            Plan, Node, Statistics, Partial, Cells, NodeAnnealer, AnnealingRecord,
                            Round, Mixture, Rules)  # fmt: skip


def said(kind: Any) -> str:
    """Say what an attribute or a member may be."""
    if kind is ANYTHING:
        return "numbers or text"
    if isinstance(kind, Member):
        shape = f"({kind.shape}), " if kind.shape else ""
        return f"{shape}{kind.text}{', if at all' if kind.optional else ''}"
    if isinstance(kind, Floats):
        return f"({kind.shape}), float64 or float32, {kind.span}"
    if isinstance(kind, Maybe):
        return f"null, or {said(kind.inner)}"
    if isinstance(kind, Each):
        return f"list of {said(kind.inner)}"
    if isinstance(kind, Several):
        return " and ".join(map(said, kind.inner))
    if isinstance(kind, Optional):
        return said(kind.inner)
    return str(kind.__name__)


def table(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield from (f"### {title}", "", "| member | what it may be |", "|---|---|")
    yield from (
        f"| `{name}` | {said(kind)} |".replace("|, ", "| ") for name, kind in schema.items()
    )
    yield ""


def rendered() -> str:
    """Return all tables."""
    lines: list[str] = []
    for title, schema in {**AGENTS, **POLICIES}.items():
        lines += table(title, schema)
    for kind in RECORDS:
        fields = {name: f"{kind.kinds[name].__name__}, {span.text}"
                  for name, span in kind.spans.items()}  # fmt: skip
        lines += [f"### {kind.__name__}", "", "| field | what it may be |", "|---|---|"]
        lines += [f"| `{name}` | {fields[name]} |" for name in kind.kinds]
        lines.append("")
    lines += table("Every estimator", OF_ALL)
    for estimator in ESTIMATORS:
        lines += table(estimator.__name__, estimator.LEARNED)
    for kind in OBJECTS:
        lines += table(kind.__name__, kind.SCHEMA)
    return "\n".join(lines)


def page() -> str:
    """Return the page with its tables."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{rendered()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
