"""Write the tables of README and docs anew, from the rows in results/, and put the figures there.

A table stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end -->``; what stands
there is what ``tables`` of the script that makes the rows says of them. Figures that
scripts have left in results/ are copied to docs/.

Run: python scripts/render_tables.py [--check]
With --check nothing is written: it says what differs, and fails if anything does.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import benchmark_clustering
import benchmark_continuous
import benchmark_export
import benchmark_first_call
import benchmark_fitting
import benchmark_oda_speed
import benchmark_speed
import benchmark_suite
import benchmark_vector
import compare_sb3
import reproduce_classification
import reproduce_figure5
import reproduce_infex
import reproduce_sgd_gmm
import tyro
from summaries import Rows

from oda_rl.results import read_rows

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/screening.md")
TABLES: dict[str, Callable[[Rows], Mapping[str, Any]]] = {
    "benchmark_clustering": benchmark_clustering.tables,
    "benchmark_continuous": benchmark_continuous.tables,
    "benchmark_export": benchmark_export.tables,
    "benchmark_first_call": benchmark_first_call.tables,
    "benchmark_fitting": benchmark_fitting.tables,
    "benchmark_oda_speed": benchmark_oda_speed.tables,
    "benchmark_speed": benchmark_speed.tables,
    "benchmark_suite": benchmark_suite.tables,
    "benchmark_vector": benchmark_vector.tables,
    "benchmark_vector_times": benchmark_vector.times,
    "compare_sb3": compare_sb3.tables,
    "figure5": reproduce_figure5.tables,
    "infex_codebook": reproduce_infex.margins,
    "infex_density": reproduce_infex.densities,
    "infex_table": reproduce_infex.likelihoods,
    "reproduce_classification": reproduce_classification.tables,
    "reproduce_sgd_gmm": reproduce_sgd_gmm.tables,
}  # by the file of their rows
FIGURES = {
    "annealing": "reproduce_toys",
    "compare": "compare_sb3",
    "continuous": "benchmark_continuous",
    "figure5": "figure5",
    "infex": "infex_toy",
    "metric": "metric",
    "mixture_density": "reproduce_sgd_gmm_density",
    "mixture_grid": "reproduce_sgd_gmm_grid",
    "partition": "partition",
    "suite": "benchmark_suite",
    "vector": "benchmark_vector",
}
_BLOCK = re.compile(r"(<!-- table: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(results: Path) -> dict[str, str]:
    """Return all tables whose rows are there, by their names."""
    found: dict[str, str] = {}
    for name, tables in TABLES.items():
        if (results / f"{name}.csv").is_file():
            made = tables(Rows(read_rows(results / f"{name}.csv")))
            found |= {title: str(table) for title, table in made.items()}
    return found


def render(page: str, tables: dict[str, str]) -> str:
    """Return a page with its tables written anew.

    Raises
    ------
    ValueError
        If the page names a table that nobody makes.
    """

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise ValueError(f"page has a table {name!r}, which is none of {sorted(tables)}")
        return f"{match[1]}{tables[name]}\n{match[3]}"

    return _BLOCK.sub(table, page)


def main(check: bool = False) -> None:
    """Render all pages.

    Parameters
    ----------
    check
        Write nothing; fail if a table differs from its rows.
    """
    tables = rendered(ROOT / "results")
    different = []
    for name in PAGES:
        before = (ROOT / name).read_text(encoding="utf-8")
        after = render(before, tables)
        if after != before:
            different.append(name)
            if not check:
                (ROOT / name).write_text(after, encoding="utf-8")
    if not check:
        for name, made in FIGURES.items():
            if (ROOT / f"results/{made}.png").is_file():
                shutil.copy(ROOT / f"results/{made}.png", ROOT / f"docs/{name}.png")
    if check and different:
        sys.exit(f"tables differ from their rows in {', '.join(different)}")
    print(f"{'different' if check else 'written'}: {', '.join(different) or 'nothing'}")


if __name__ == "__main__":
    tyro.cli(main)
