"""Options, seeds and result files of the scripts.

A script defines what a run measures, the runs, and its tables and figures. Runs are stored in
results/NAME.jsonl as they end, and not repeated; their rows replace those of the same settings in
results/NAME.csv.
"""

import os
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
from oda_rl.runs.parallel import Run, failures, run_all, store_runs
from oda_rl.runs.results import read_rows, store_rows

RESULTS = Path("results")
CONSOLE = Console(highlight=False, width=max(Console().width, 150))

# The first seed of each experiment. The first two draw data and tune nothing; no two of the others
# may share a seed, and reserved seeds may not be used.
FIRST_SEEDS = {
    "reproduce_toys": 0,
    "reproduce_classification": 11,
    "reproduce_infex": 100,
    "reproduce_sgd_gmm": 360,
    "benchmark_clustering": 500,
    "benchmark_number": 600,
    "figure5_tuning": 5_300_000,
    "benchmark_speed": 40_000_000,
    "baselines": 50_000_000,  # of the suite
    "benchmark_suite": 51_000_000,
    "benchmark_disturbed": 51_200_000,
    "benchmark_sparse": 51_300_000,
    "benchmark_bodies": 51_450_000,  # earlier ones tuned the climb
    "benchmark_offline": 51_550_000,  # earlier ones tuned fit
    "benchmark_distil": 51_800_000,
    "figure5": 52_000_000,
    "benchmark_continuous": 53_000_000,
    "suite_model": 54_000_000,  # earlier ones tuned its search
    "compare_sb3": 57_000_000,  # set by oda_rl/agents/comparison
    "benchmark_vector": 59_000_000,
    "benchmark_vector_actors": 59_500_000,
    "benchmark_export": 61_000_000,
    "benchmark_chip": 62_000_000,
    "kill_trainings": 63_000_000,
    "fuzz_files": 64_000_000,
    "benchmark_everyday": 65_500_000,  # earlier ones tuned tables
    "benchmark_tables": 66_000_000,
    "benchmark_online": 240_000_000,
}
RESERVED = range(7_000_000, 9_000_000)


@dataclass(frozen=True)
class SharedOptions:
    """Options of all experiments."""

    seeds: int = 20  # Runs of each kind, with different seeds
    first_seed: int | None = None  # First seed; by default the experiment's own
    workers: int | None = None
    """Runs at a time; -1: one for each core, which is the default where runs are not timed."""
    retry_failed: bool = False  # Repeat the runs that failed the last time


@dataclass(frozen=True)
class Selection(SharedOptions):
    only: tuple[str, ...] = ()
    """Names of the parts, tasks, worlds or data sets to do; all by default."""


@dataclass(frozen=True)
class DataSelection(Selection):
    data: Path | None = None  # Folder with the files that are read by common/datasets.py


@dataclass(frozen=True)
class MethodSelection(Selection):
    methods: tuple[str, ...] = ()  # Names of the agents or methods; all by default


@dataclass(frozen=True)
class Experiment:
    """An experiment's seeds and result files."""

    name: str
    leave_out: tuple[str, ...] = ()  # Settings that are not stored in the rows
    timed: bool = False  # Whether runs are timed: one at a time by default

    def seeds(self, options: SharedOptions) -> range:
        """Return the seeds to run."""
        first = FIRST_SEEDS[self.name] if options.first_seed is None else options.first_seed
        if options.seeds < 1:
            sys.exit(f"--seeds is {options.seeds}: it must be at least 1")
        seeds = range(first, first + options.seeds)
        assert not any(seed in RESERVED for seed in seeds), f"seeds in {RESERVED} are reserved"
        return seeds

    def path(self, ending: str) -> Path:
        return RESULTS / f"{self.name}{ending}"

    def runs(
        self,
        function: Callable[..., list[Row] | Row],
        settings: Iterable[Row],
        options: Any,
        title: str = "runs",
    ) -> list[Run]:
        """Make missing runs; report failures, and exit if no run succeeded."""
        if not self.timed:
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes, too
        how = options.workers or (1 if self.timed else -1), options.retry_failed
        runs = run_all(function, settings, self.path(".jsonl"), *how, title=title)
        say(*failures(runs))
        if not any(run.rows for run in runs):
            sys.exit("there is nothing to show: no run succeeded")
        return runs

    def store(self, runs: Sequence[Run]) -> Rows:
        """Write and return the rows of runs."""
        rows = Rows(store_runs(self.path(".csv"), runs, self.leave_out))
        say(f"written: {self.path('.csv')}")
        return rows

    def run(self, *arguments: Any) -> Rows:
        return self.store(self.runs(*arguments))

    def write(self, rows: list[Row], key: Sequence[str]) -> Rows:
        """Write rows of this process, and return all stored rows."""
        stored = Rows(store_rows(self.path(".csv"), rows, key))
        say(f"written: {self.path('.csv')}")
        return stored

    def save(self, axes: Any, ending: str = ".png") -> None:
        """Write the figure of the axes."""
        say(f"written: {save_figure(axes, self.path(ending))}")


def measure(benchmark: Any, options: Any) -> None:
    """Make the runs of a benchmark, store their rows, and show its tables and its figure."""
    experiment = benchmark.EXPERIMENT
    rows = experiment.run(benchmark.measure, benchmark.settings(options), options)
    say(*benchmark.tables(rows).values())
    if hasattr(benchmark, "draw"):
        stored = read_rows(experiment.path(".csv"))  # those of other runs, too
        experiment.save(benchmark.draw(Rows(stored)))


OptionsT = TypeVar("OptionsT")


def start(
    main: Callable[[OptionsT], None],
    options: type[OptionsT],
    about: str | None,
    program: str | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Call a script's main with the options of the command line, or of the arguments."""
    config = (tyro.conf.OmitArgPrefixes,)
    main(tyro.cli(options, prog=program, description=about, args=arguments, config=config))


def say(*things: Any) -> None:
    """Print lines, and tables with their titles."""
    for thing in things:
        text = f"{thing.title}\n\n{thing}\n" if isinstance(thing, Table) else thing
        CONSOLE.print(text, markup=False, soft_wrap=True)


def chosen(only: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the names given on the command line, or all; exit if one is unknown."""
    every = list(names)
    if unknown := sorted(set(only) - set(every)):
        sys.exit(f"the options name {unknown}: there are {every}")
    return [name for name in every if not only or name in only]


def seconds(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
