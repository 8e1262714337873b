"""Figure 5 of the ODA paper: how long a cart-pole is balanced, over the number of aggregate states.

BartoCartPole (N_t = 1000), the online agent over cells by annealing (ODA), a self-organising map
(SOM) and a uniform grid, each with one-step Q-learning, as in the paper, and with traces. Nobody
rests on a solved task or starts again: what differs is the partition, and how distances are
measured in it:

learned         the metric that the agent learns along (ODA, SOM)
paper           components divided by the paper's ranges, x and angle ±1, velocities ±4
random play     within some standard deviations of the states of random play (grid)

For every point of the figure --draws settings are drawn from one space, with one more that is the
partition's own, and tried on the same tuning seeds; those with the best means are tried on more
tuning seeds, and the best mean over all of them is then run on fresh seeds. A
result is the mean length of 100 greedy episodes after --steps steps of training.

Run: python scripts/reproduce_figure5.py [--workers 2]
     python scripts/reproduce_figure5.py --backend dask --address tcp://...:8786
Runs are kept as they end in results/figure5_tuning.jsonl and results/figure5.jsonl; writes
results/figure5.csv, results/figure5_tuning.csv and results/figure5.png.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, Run, failures, rows_of, run_all, store_runs
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows
from oda_rl.statistics import Summary, summarize

ENV_ID = "oda_rl/BartoCartPole-v0"
TUNING_SEED, FIRST_SEED = 5_300_000, 52_000_000
SOLVED = 950.0
EVALUATION_EPISODES = 100

HALF_RANGES = (1.0, 4.0, 1.0, 4.0)
PAPER = [[float(i == j) / HALF_RANGES[i] ** 2 for j in range(4)] for i in range(4)]
METRICS: dict[str, Any] = {"learned": "learned", "paper": PAPER}
# Where annealing stops, and how fast it cools: about 8, 16, 32, 56, 118, 136, 202 and 252 cells.
STOPS = {
    "learned": ((0.45, 0.5), (0.3, 0.6), (0.18, 0.6), (0.11, 0.6), (0.015, 0.5), (0.024, 0.6),
                (0.0144, 0.6), (0.0085, 0.6), (0.005, 0.6), (0.003, 0.6)),
    "paper": ((0.45, 0.5), (0.24, 0.5), (0.12, 0.5), (0.06, 0.5), (0.067, 0.6), (0.015, 0.5),
              (0.0075, 0.5), (0.024, 0.6)),
}  # fmt: skip
MAP_SIDES = (4, 6, 8, 10, 12, 16)
COMMON = {"solved_episodes": 0, "restart_after": 0, "max_cells": 300}
SPACE: dict[str, tuple[Any, ...]] = {
    "discount": (0.85, 0.9, 0.95, 0.98, 0.99, 0.995),
    "step_exponent": (0.1, 0.2, 0.3, 0.5, 0.7),
    "min_step_size": (0.005, 0.01, 0.03, 0.1),
    "exploration": (0.1, 0.3, 0.5),
    "exploration_decay": (500.0, 1000.0, 4000.0, 16000.0),
}
TRACES = (0.8, 0.9, 0.95, 0.98)


@dataclasses.dataclass(frozen=True)
class Point:
    """A partition of one size, with one-step Q-learning or with traces."""

    method: str
    scaling: str
    size: str
    traces: bool
    partition: str
    config: Mapping[str, Any]
    own: tuple[str, tuple[Any, ...]] | None
    """A setting of the partition's own that is drawn, too."""

    @property
    def name(self) -> dict[str, Any]:
        """What it is called in results."""
        names = ("method", "scaling", "size", "traces")
        return {name: getattr(self, name) for name in names}


def points() -> list[Point]:
    """All points of the figure."""
    found = []
    for traces in (False, True):
        for scaling, metric in METRICS.items():
            for temperature, cooling in STOPS[scaling]:
                stop = {"min_temperature": temperature, "cooling": cooling}
                config = {"metric": metric, **stop}
                own = ("samples_per_level", (150, 200, 300))
                size = f"T ≥ {temperature}"
                found.append(Point("ODA", scaling, size, traces, "oda", config, own))
            for side in MAP_SIDES:
                config = {"metric": metric, "map_shape": [side, side]}
                own = ("map_samples_per_cell", (10, 30, 100))
                size = f"{side} x {side}"
                found.append(Point("SOM", scaling, size, traces, "som", config, own))
        for bins in (2, 3, 4, 5):
            ranges = [[-half, half] for half in HALF_RANGES]
            config = {"bins": bins, "ranges": ranges}
            found.append(Point("grid", "paper", f"{bins}^4", traces, "grid", config, None))
        for bins in (2, 4, 6):
            own = ("spread", (1.0, 1.5, 2.0, 3.0, 4.0))
            config = {"bins": bins}
            found.append(Point("grid", "random play", f"{bins}^4", traces, "grid", config, own))
    return found


def draws(point: Point, n: int) -> list[dict[str, Any]]:
    """Draw the settings to try: of the common space the same for every point."""
    rng = np.random.default_rng(0)
    space = {**SPACE, "trace_decay": TRACES, "own": (point.own or ("", (None,)))[1]}
    found = []
    for _ in range(n):
        # One number each, whatever the space, so that all points try the same.
        chosen = {name: values[int(rng.random() * len(values))] for name, values in space.items()}
        own = chosen.pop("own")
        if point.own is not None:
            chosen[point.own[0]] = own
        if not point.traces:
            chosen["trace_decay"] = 0.0
        found.append(chosen)
    return found


def train(
    *, partition: str, config: Mapping[str, Any], drawn: Mapping[str, Any], seed: int, steps: int,
    **name: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train once; ``name`` says which point it is."""
    from oda_rl.agents import TwoTimescaleAgent

    settings = {**COMMON, **config, **drawn}
    agent = TwoTimescaleAgent(ENV_ID, partition=partition, seed=seed, **settings).learn(steps)
    returns = agent.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
    return {"cells": agent.n_cells, "mean": returns.mean(), "seconds": agent.training_seconds}


def setting(point: Point, drawn: Mapping[str, Any], seed: int, steps: int) -> dict[str, Any]:
    """Arguments of :func:`train`."""
    return {
        **point.name, "partition": point.partition, "config": point.config, "drawn": drawn,
        "seed": seed, "steps": steps,
    }  # fmt: skip


def tune(
    all_points: list[Point], options: "Options", folder: Path
) -> tuple[list[Run], list[dict[str, Any]]]:
    """Try the drawn settings of every point; returns the runs, and each point's best.

    A few seeds choose badly among many settings, and many seeds for all would take long: so those
    that do best on a few are tried on more.
    """
    path = folder / "figure5_tuning.jsonl"
    first = range(TUNING_SEED, TUNING_SEED + options.tuning_seeds)
    more = range(first.stop, first.stop + options.final_seeds)
    tried = [draws(point, options.draws) for point in all_points]
    runs: list[Run] = []
    totals: list[dict[int, float]] = [dict.fromkeys(range(options.draws), 0.0) for _ in all_points]
    for seeds, most, title in (
        (first, options.draws, "tuning"),
        (more, options.finalists, "tuning, finals"),
    ):
        left = [sorted(sorted(total, key=total.__getitem__)[-most:]) for total in totals]
        begun = [(point, i) for point, still in enumerate(left) for i in still]
        settings = [
            setting(all_points[point], tried[point][i], seed, options.steps)
            for point, i in begun
            for seed in seeds
        ]
        made = run_all(train, settings, path, options.execution, title=title)
        returns = np.array([run.rows[0]["mean"] if run.rows else 0.0 for run in made])
        sums = returns.reshape(len(begun), len(seeds)).sum(axis=1)
        totals = [{i: total[i] for i in still} for total, still in zip(totals, left, strict=True)]
        for (point, i), added in zip(begun, sums, strict=True):
            totals[point][i] += float(added)
        runs += made
    best = [max(total, key=total.__getitem__) for total in totals]
    return runs, [candidates[i] for candidates, i in zip(tried, best, strict=True)]


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README: the best and the worst point of each partition, by means."""
    rows = read_rows(results / "figure5.csv")
    lines = []
    for method, scaling in dict.fromkeys((row["method"], row["scaling"]) for row in rows):
        line = [f"{method}, {scaling} scaling"]
        for traces in (False, True):
            own = [row for row in rows if (row["method"], row["scaling"], row["traces"])
                   == (method, scaling, traces)]  # fmt: skip
            found = []
            for size in dict.fromkeys(row["size"] for row in own):
                at = [row for row in own if row["size"] == size]
                mean, cells = (np.mean([row[key] for row in at]) for key in ("mean", "cells"))
                found.append((mean, cells, np.mean([row["mean"] >= SOLVED for row in at])))
            (low, _, _), (mean, cells, share) = min(found), max(found)
            line += [f"{mean:.0f} ({cells:.0f} cells)", f"{share:.2f}", f"{low:.0f}"]
        lines.append(line)
    heads = ["", *(f"{kind}: {head}" if i == 0 else head
                   for kind in ("one-step Q", "Q(λ)")
                   for i, head in enumerate(("best mean", "solved", "least mean")))]  # fmt: skip
    return {"figure 5": markdown_table(heads, lines)}


def tell(console: Console, results: list[tuple[Point, float, Summary, dict[str, Any]]]) -> None:
    """Print a line for each point."""
    table = Table(title="mean time steps balanced, of 1000, on fresh seeds")
    for column in (
        "partition", "scaling", "Q-learning", "cells", "median", "IQM (95 %)", "mean", "least",
        "solved (95 %)", "discount", "trace decay",
    ):  # fmt: skip
        table.add_column(column)
    for point, cells, found, drawn in results:
        assert found.solved_interval is not None
        table.add_row(
            point.method, point.scaling, "traces" if point.traces else "one-step", f"{cells:.0f}",
            f"{found.median:.0f}", f"{found.interquartile_mean:.0f} {interval(found.interval, 0)}",
            f"{found.mean:.0f}", f"{found.least:.0f}",
            f"{found.solved:.2f} {interval(found.solved_interval, 2)}",
            f"{drawn['discount']}", f"{drawn['trace_decay']}",
        )  # fmt: skip
    console.print(table)


def interval(ends: tuple[float, float], digits: int) -> str:
    """Write an interval."""
    return f"({ends[0]:.{digits}f} to {ends[1]:.{digits}f})"


def verdict(results: list[tuple[Point, float, Summary, dict[str, Any]]]) -> list[str]:
    """Say of what was expected whether it came out."""
    lines = []
    for traces in (False, True):
        here = [(p, cells, s) for p, cells, s, _ in results if p.traces == traces]
        best = max(s.mean for p, _, s in here if p.method == "grid")
        for scaling in METRICS:
            small = [
                s.mean for p, k, s in here
                if p.method == "ODA" and p.scaling == scaling and k <= 56
            ]  # fmt: skip
            above = sum(mean > best for mean in small)
            kind = "traces" if traces else "one-step"
            lines.append(
                f"{kind}: {above} of {len(small)} ODA points of at most 56 cells, {scaling} "
                f"scaling, have a mean above the best grid point's ({best:.0f})"
            )
    return lines


def draw(results: list[tuple[Point, float, Summary, dict[str, Any]]], runs: list[Run]) -> Any:
    """Draw medians and quartiles above, shares of seeds solved below."""
    panels = new_axes(10.0, 7.0, columns=2, rows=2)
    panels[0].figure.subplots_adjust(left=0.08, right=0.98, top=0.94, bottom=0.15, hspace=0.12)
    looks = {
        ("ODA", "learned"): (COLORS[0], "o-"), ("ODA", "paper"): (COLORS[4], "o--"),
        ("SOM", "learned"): (COLORS[5], "s-"), ("SOM", "paper"): (COLORS[1], "s--"),
        ("grid", "random play"): ("black", "^-"), ("grid", "paper"): (COLORS[7], "^--"),
    }  # fmt: skip
    by_point: dict[tuple[Any, ...], list[float]] = {}
    for row in rows_of(runs):
        name = tuple(row[key] for key in ("method", "scaling", "size", "traces"))
        by_point.setdefault(name, []).append(row["mean"])
    for column, traces in enumerate((False, True)):
        above, below = panels[column], panels[2 + column]
        for (method, scaling), (color, style) in looks.items():
            here = sorted(
                (cells, *np.percentile(by_point[tuple(p.name.values())], (50, 25, 75)), s.solved)
                for p, cells, s, _ in results
                if (p.method, p.scaling, p.traces) == (method, scaling, traces)
            )
            if not here:
                continue
            cells, median, low, high, solved = np.array(here, dtype=np.float64).T
            look = {"color": color, "markersize": 4.0, "linewidth": 1.2}
            above.errorbar(
                cells, median, (median - low, high - median), fmt=style, capsize=2.0,
                elinewidth=0.8, **look,
            )  # fmt: skip
            below.plot(cells, solved, style, label=f"{method}, {scaling} scaling", **look)
        above.set(title="Q(λ)" if traces else "one-step Q-learning", ylim=(-20.0, 1040.0))
        below.set(xlabel="aggregate states", ylim=(-0.04, 1.05))
        for ax in (above, below):
            ax.set_xscale("log", base=2)
            ax.set_xticks([4, 8, 16, 32, 64, 128, 256, 512, 1024])
            ax.xaxis.set_major_formatter("{x:.0f}")
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("time steps balanced: median, quartiles")
    panels[2].set_ylabel(f"share of seeds with a mean ≥ {SOLVED:.0f}")
    handles, labels = panels[2].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False)
    return panels[0]


@dataclasses.dataclass(frozen=True)
class Options:
    """How much to run, and where."""

    draws: int = 16
    """Settings tried for each point."""
    tuning_seeds: int = 4
    """Seeds on which each is tried."""
    finalists: int = 4
    """Settings of each point that are tried on more seeds."""
    final_seeds: int = 8
    """Seeds on which they are tried in addition."""
    seeds: int = 20
    """Fresh seeds of the figure."""
    steps: int = 100_000
    """Environment steps of each training."""
    only: tuple[str, ...] = ()
    """Sizes to run, as in the results; all by default."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def main(options: Options) -> None:
    """Tune, run, write, print."""
    console = Console(width=max(Console().width, 150))
    folder = Path("results")
    chosen = [point for point in points() if not options.only or point.size in options.only]
    tuning, best = tune(chosen, options, folder)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    settings = [
        setting(point, drawn, seed, options.steps)
        for point, drawn in zip(chosen, best, strict=True)
        for seed in seeds
    ]
    path = folder / "figure5.jsonl"
    runs = run_all(train, settings, path, options.execution, title="fresh seeds")
    results = []
    for point, drawn in zip(chosen, best, strict=True):
        rows = [row for row in rows_of(runs) if {**row, **point.name} == row]
        if rows:
            cells = float(np.mean([row["cells"] for row in rows]))
            summary = summarize([row["mean"] for row in rows], SOLVED)
            results.append((point, cells, summary, drawn))
    console.print(
        f"{len(chosen)} points, each tuned by {options.draws} settings x {options.tuning_seeds} "
        f"seeds (from {TUNING_SEED:,} on), and the best {options.finalists} x "
        f"{options.final_seeds} more, {options.steps:,} steps each"
    )
    tell(console, results)
    console.print(*verdict(results), *failures([*tuning, *runs]), sep="\n")
    store_runs(folder / "figure5_tuning.csv", tuning, ("config", "partition"))
    store_runs(folder / "figure5.csv", runs, ("config", "partition", "drawn"))
    save_figure(draw(results, runs), folder / "figure5.png")
    console.print(f"written: {folder}/figure5.csv, figure5_tuning.csv, figure5.png")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
