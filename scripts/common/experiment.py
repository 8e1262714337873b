"""What the scripts share: options, seeds, result files, and the way from the one to the other.

A script says what a run measures, which runs there are, and what its tables and figures show. Runs
are kept in results/NAME.jsonl as they end, and not repeated; their rows go to results/NAME.csv,
where they replace those of the same settings.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console

from common.summaries import Row, Rows, Table
from oda_rl.command.reporting import save_figure
from oda_rl.runs.parallel import Execution, Run, failures, run_all, store_runs
from oda_rl.runs.results import store_rows

RESULTS = Path("results")
ALONE = Execution(workers=1)  # nothing runs beside what is timed
CONSOLE = Console(highlight=False, width=max(Console().width, 150))

# Where the seeds of each experiment begin. The first two draw data and choose nothing by it; of
# the others no two may share a seed, and nobody may use a reserved one.
FIRST_SEEDS = {
    "reproduce_toys": 0,
    "reproduce_classification": 11,
    "reproduce_infex": 100,
    "reproduce_sgd_gmm": 360,
    "benchmark_clustering": 500,
    "figure5_tuning": 5_300_000,
    "benchmark_speed": 40_000_000,
    "baselines": 50_000_000,  # of the suite
    "benchmark_suite": 51_000_000,
    "benchmark_disturbed": 51_200_000,
    "benchmark_sparse": 51_300_000,
    "benchmark_mujoco": 51_400_000,
    "benchmark_offline": 51_550_000,  # of those before, fit was improved upon
    "benchmark_distil": 51_800_000,
    "figure5": 52_000_000,
    "benchmark_continuous": 53_000_000,
    "suite_model": 54_000_000,  # those before were looked at while its search was made
    "compare_sb3": 57_000_000,  # which oda_rl/agents/comparison sets
    "benchmark_vector": 59_000_000,
    "benchmark_vector_actors": 59_500_000,
    "benchmark_export": 61_000_000,
    "benchmark_chip": 62_000_000,
    "kill_trainings": 63_000_000,
    "fuzz_files": 64_000_000,
    "benchmark_soft_cells": 150_000_000,
}
RESERVED = range(7_000_000, 9_000_000)


@dataclass(frozen=True)
class SharedOptions:
    """How much to run, and where."""

    seeds: int = 20
    """Runs of each kind, all with different seeds."""
    first_seed: int | None = None
    """The others follow it; by default the experiment's own."""
    execution: Execution = Execution()  # noqa: RUF009 (which is frozen)
    """Where to run; by default what is timed is alone on the machine."""


@dataclass(frozen=True)
class Experiment:
    """Seeds and result files of a name."""

    name: str
    leave_out: tuple[str, ...] = ()
    """Settings that are no columns of the rows."""

    def seeds(self, options: SharedOptions) -> range:
        """Return the seeds to run, by default those of the table."""
        first = FIRST_SEEDS[self.name] if options.first_seed is None else options.first_seed
        seeds = range(first, first + options.seeds)
        refuse_reserved(seeds)
        return seeds

    def path(self, ending: str) -> Path:
        return RESULTS / f"{self.name}{ending}"

    def runs(
        self,
        function: Callable[..., list[Row] | Row],
        settings: Iterable[Row],
        execution: Execution,
        title: str = "runs",
    ) -> list[Run]:
        """Make the runs that are not there yet; tells of failures, and ends if nothing is left."""
        runs = run_all(function, settings, self.path(".jsonl"), execution, title=title)
        say(*failures(runs))
        if not any(run.rows for run in runs):
            sys.exit("there is nothing to show: no run has succeeded")
        return runs

    def store(self, runs: Sequence[Run]) -> Rows:
        """Write the rows of runs, and return them."""
        rows = Rows(store_runs(self.path(".csv"), runs, self.leave_out))
        say(f"written: {self.path('.csv')}")
        return rows

    def run(self, *arguments: Any) -> Rows:
        return self.store(self.runs(*arguments))

    def write(self, rows: list[Row], key: Sequence[str]) -> Rows:
        """Write rows that were made here, and return all that are there."""
        stored = Rows(store_rows(self.path(".csv"), rows, key))
        say(f"written: {self.path('.csv')}")
        return stored

    def save(self, axes: Any, ending: str = ".png") -> None:
        """Write the figure that the axes belong to."""
        say(f"written: {save_figure(axes, self.path(ending))}")


def refuse_reserved(seeds: Iterable[int]) -> None:
    """Stop if one of the seeds is reserved."""
    assert not any(seed in RESERVED for seed in seeds), f"seeds in {RESERVED} are reserved"


OptionsT = TypeVar("OptionsT")


def start(
    main: Callable[[OptionsT], None],
    options: type[OptionsT],
    about: str | None,
    program: str | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Call a script's main with options of the command line, or with those arguments."""
    config = (tyro.conf.OmitArgPrefixes,)
    shown = _as_written(about or "")
    main(tyro.cli(options, prog=program, description=shown, args=arguments, config=config))


def _as_written(about: str) -> str:
    """Keep lines of a list, and of how a script is run, apart in its help.

    tyro joins lines but those that begin with no letter.
    """
    parts = [
        re.sub(r"\n(?=\w)", "\n\u200b", part) if re.match(r"Run:|[\w ]+ {2,}", part) else part
        for part in about.split("\n\n")
    ]
    return "\n\n".join(parts)


def say(*things: Any) -> None:
    """Print tables, with their titles, and lines."""
    for thing in things:
        text = f"{thing.title}\n\n{thing}\n" if isinstance(thing, Table) else thing
        CONSOLE.print(text, markup=False, soft_wrap=True)


def chosen(only: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return those names that --only names, or all; ends if it names something else."""
    every = list(names)
    unknown = set(only) - set(every)
    if unknown:
        sys.exit(f"--only names {sorted(unknown)}: there are {every}")
    return [name for name in every if not only or name in only]


def seconds(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
