"""Write the tables of README and docs anew, from the rows in results/, and put the figures there.

A table stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end -->``, and is made by
``tables`` of the script that makes the rows. Figures in results/ replace those in docs/figures/.

Run: python scripts/render_tables.py
"""

import re
import shutil
from importlib import import_module
from pathlib import Path

import tyro
from benchmarks import NAMES as BENCHMARKS
from common.summaries import Rows

from oda_rl.runs.results import read_rows

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
OTHERS = (
    "compare_sb3", "fuzz_files", "kill_trainings",
    "reproduce_classification", "reproduce_sgd_gmm", "reproduce_toys", "soak",
)  # fmt: skip
TABLES: dict[str, str] = {
    **{f"benchmark_{name}": f"benchmarks.{name}.tables" for name in BENCHMARKS},
    **{name: f"{name}.tables" for name in OTHERS},
    "benchmark_vector_actors": "benchmarks.vector.acted",
    "figure5": "reproduce_figure5.tables",
    "infex_codebook": "reproduce_infex.margins",
    "infex_heldout": "reproduce_infex.densities",
    "infex_modes": "reproduce_infex.digits",
    "infex_table": "reproduce_infex.likelihoods",
}  # who says what of the rows in a file
RENAMED = {
    "annealing": "reproduce_toys",
    "compare": "compare_sb3",
    "continuous": "benchmark_continuous",
    "infex": "infex_toy",
    "mixture_density": "reproduce_sgd_gmm_density",
    "mixture_grid": "reproduce_sgd_gmm_grid",
    "suite": "benchmark_suite",
}  # figures of the pages whose files in results/ have other names
_BLOCK = re.compile(r"(<!-- table: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(results: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, function in TABLES.items():
        if (results / f"{name}.csv").is_file():
            script, _, tables = function.rpartition(".")
            made = getattr(import_module(script), tables)(Rows(read_rows(results / f"{name}.csv")))
            found |= {title: str(table) for title, table in made.items()}
    return found


def render(page: str, tables: dict[str, str]) -> str:
    """Return a page with its tables written anew; ValueError if one of them is unknown."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise ValueError(f"page has a table {name!r}, which is none of {sorted(tables)}")
        return f"{match[1]}{tables[name]}\n{match[3]}"

    return _BLOCK.sub(table, page)


def main() -> None:
    tables = rendered(ROOT / "results")
    different = []
    for name in PAGES:
        before = (ROOT / name).read_text(encoding="utf-8")
        after = render(before, tables)
        if after != before:
            different.append(name)
            (ROOT / name).write_text(after, encoding="utf-8")
    for shown in (ROOT / "docs/figures").iterdir():
        made = ROOT / f"results/{RENAMED.get(shown.stem, shown.stem)}{shown.suffix}"
        if made.is_file():
            shutil.copy(made, shown)
    if (logo := ROOT / "results/logo.svg").is_file():
        shutil.copy(logo, ROOT / "docs/_static")
    print(f"written: {', '.join(different) or 'nothing'}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
