"""Annealing in the plane and a start far outside the data: the papers' figure 1.

Circles, half moons and Gaussians of four classes. A classifier is shown at the temperatures where
its annealing had come down to given shares of the first one, and as it was when ``fit`` ended with
fine-tuning, beside LVQ1 with as many codevectors. Both start well (at the class means, at samples
of the class) and poorly: with all codevectors three standard deviations outside the data.

Accuracies are those on 5000 points that nothing was learned from or chosen by.

Run: python scripts/reproduce_toys.py [--workers 2]
     python scripts/reproduce_toys.py --backend dask --address tcp://...:8786
Runs are kept as they end in results/reproduce_toys.jsonl; writes results/reproduce_toys.csv (every
accuracy), results/reproduce_toys.png and results/annealing.gif (both of the first seed, whose
models are trained again for them).
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from datasets import FloatArray, Sample, gaussians
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_circles, make_moons

from oda_rl import ODAClassifier
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, Run, failures, run_all, store_runs
from oda_rl.plotting.annealing import animate_annealing, plot_decision_regions
from oda_rl.quantization.estimators import LVQ

DATA = ("circles", "half moons", "Gaussians")
STARTS = ("well", "poorly")
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the first temperature
CODEVECTORS = 40
HELD_OUT = 5000
ENOUGH = 0.95  # of the accuracy after a good start
RESULTS = Path("results")
LEFT_OUT = ("n_samples", "n_held_out", "n_codevectors")
PANELS = (*((name, "well") for name in DATA), ("Gaussians", "poorly"))
ANIMATED = ("half moons", "well")


class Stage(NamedTuple):
    """One panel: a model, and what is known about it."""

    model: Any
    sample: Sample
    row: dict[str, Any]


def draw(name: str, n: int, rng: np.random.Generator) -> Sample:
    """Draw points and their classes."""
    if name == "Gaussians":
        return gaussians(n, rng)
    seed = int(rng.integers(2**31))
    if name == "circles":
        return make_circles(n, noise=0.1, factor=0.5, random_state=seed)
    return make_moons(n, noise=0.15, random_state=seed)


def outside(points: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Codevectors close together, three standard deviations from the middle of the data."""
    spread = np.sqrt(points.var(axis=0).sum())
    corner = points.mean(axis=0) + 3.0 * spread * np.sqrt([0.5, 0.5])
    return corner + 0.1 * spread * rng.normal(size=(n, 2))


def run(**setting: Any) -> list[dict[str, Any]]:
    """Train both; return what is known about each stage."""
    return [stage.row for stage in train(**setting)]


def train(
    *, data: str, start: str, seed: int, n_samples: int, n_held_out: int, n_codevectors: int
) -> list[Stage]:
    """Train both; return the annealing from high temperature to low, and LVQ1 last."""
    rng = np.random.default_rng(seed)
    points, classes = draw(data, n_samples, rng)
    held_out = draw(data, n_held_out, rng)
    init = outside(points, n_codevectors, rng) if start == "poorly" else None
    per_class = n_codevectors // len(np.unique(classes))
    annealed = ODAClassifier(n_codevectors, init=init, random_state=seed).fit(points, classes)
    lvq = LVQ(per_class, init="random" if init is None else init, random_state=seed)
    lvq.fit(points, classes)

    temperatures = np.array([level.temperature for level in annealed.history_])
    models: dict[str, Any] = {}
    for share in SHARES:
        level = int(np.argmax(temperatures <= share * temperatures[0] * (1.0 + 1e-9)))
        models[f"T ≤ {share:g} T₀"] = annealed.at_level(level)
    models["fitted"] = annealed
    models["LVQ1"] = lvq
    stages = []
    for stage, model in models.items():
        row = {
            "data": data,
            "start": start,
            "stage": stage,
            "T": getattr(model, "temperature_", np.nan),
            "K": len(model.codevectors_),
            "accuracy": model.score(*held_out),
        }
        stages.append(Stage(model, (points, classes), row))
    return stages


def stage_table(rows: list[dict[str, Any]]) -> Table:
    """Temperature, number and accuracy at each stage: medians over the seeds."""
    n_seeds = len({row["seed"] for row in rows})
    table = Table(title=f"Annealing, {n_seeds} seeds: medians", box=None)
    for column in ("data", "start", "stage"):
        table.add_column(column)
    for column in ("T", "K", "accuracy", "least"):
        table.add_column(column, justify="right")
    before = None
    for key in dict.fromkeys((row["data"], row["start"], row["stage"]) for row in rows):
        own = [row for row in rows if (row["data"], row["start"], row["stage"]) == key]
        accuracies = [row["accuracy"] for row in own]
        temperature = np.median([row["T"] for row in own])
        table.add_row(
            *(key if key[:2] != before else ("", "", key[2])),
            "" if np.isnan(temperature) else f"{temperature:.3g}",
            f"{np.median([row['K'] for row in own]):.0f}",
            f"{np.median(accuracies):.3f}",
            f"{min(accuracies):.3f}",
        )
        before = key[:2]
    return table


def start_table(rows: list[dict[str, Any]]) -> Table:
    """How often a poor start ends as well as a good one."""
    n_seeds = len({row["seed"] for row in rows})
    table = Table(title=f"Starting outside the data, {n_seeds} seeds", box=None)
    table.add_column("data")
    table.add_column("model")
    for column in ("started well", "started poorly", f"≥ {ENOUGH:.0%} of it"):
        table.add_column(column, justify="right")
    for name in DATA:
        for label, stage in (("ODAClassifier", "fitted"), ("LVQ1", "LVQ1")):
            well, poorly = (
                {
                    row["seed"]: row["accuracy"]
                    for row in rows
                    if (row["data"], row["start"], row["stage"]) == (name, start, stage)
                }
                for start in STARTS
            )
            both = [(well[seed], poorly[seed]) for seed in well if seed in poorly]
            if not both:
                continue
            goods, poors = np.transpose(both)
            table.add_row(
                name,
                label,
                f"{np.median(goods):.3f}",
                f"{np.median(poors):.3f}",
                f"{np.mean(poors >= ENOUGH * goods):.2f} of the seeds",
            )
    return table


def figure(rows_of_stages: list[list[Stage]]) -> Axes:
    """Draw a row of panels for each list of stages."""
    n_rows, n_columns = len(rows_of_stages), len(rows_of_stages[0])
    whole = Figure(figsize=(2.7 * n_columns, 2.75 * n_rows), layout="constrained")
    grid = whole.subplots(n_rows, n_columns, squeeze=False)
    for axes, stages in zip(grid, rows_of_stages, strict=True):
        for ax, stage in zip(axes, stages, strict=True):
            plot_decision_regions(stage.model, *stage.sample, ax=ax)
            ax.get_legend().remove()
            ax.set(xticks=[], yticks=[])
            row = stage.row
            if row["stage"] == "LVQ1":
                first = f"LVQ1, K = {row['K']}{out_of_sight(ax, stage.model.codevectors_)}"
            else:
                ended = "fine-tuned, " if row["stage"] == "fitted" else ""
                first = f"{ended}T = {row['T']:.2g}, K = {row['K']}"
            ax.set_title(f"{first}\naccuracy {row['accuracy']:.3f}", fontsize=10)
        row = stages[0].row
        poorly = ", poor start" if row["start"] == "poorly" else ""
        axes[0].set_ylabel(f"{row['data']}{poorly}", fontsize=12)
    return grid[0, 0]


def out_of_sight(ax: Axes, codevectors: FloatArray) -> str:
    """How many codevectors lie outside the picture, if any do."""
    low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
    n = int(((codevectors < low) | (codevectors > high)).any(axis=1).sum())
    return f", {n} not in sight" if n > 0 else ""


def draw_figures(runs: list[Run]) -> list[str]:
    """Train again what is shown, each on the first seed of which there is a result."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for one in runs:
        if one.error is None:
            first.setdefault((one.setting["data"], one.setting["start"]), dict(one.setting))
    shown = {panel: train(**first[panel]) for panel in PANELS if panel in first}
    written = []
    if shown:
        save_figure(figure(list(shown.values())), RESULTS / "reproduce_toys.png")
        written.append("reproduce_toys.png")
    if ANIMATED in shown:
        fitted = shown[ANIMATED][-2]
        points, classes = fitted.sample
        animate_annealing(fitted.model, points, RESULTS / "annealing.gif", classes)
        written.append("annealing.gif")
    return written


@dataclasses.dataclass(frozen=True)
class Options:
    """How much to run, and where."""

    seeds: int = 20
    """How many seeds; data, starts and training of each are its own."""
    samples: int = 1500
    """Points to learn from."""
    first_seed: int = 0
    """The others follow it."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def settings(options: Options) -> list[dict[str, Any]]:
    """Arguments of :func:`run`."""
    return [
        {
            "data": name, "start": start, "seed": seed, "n_samples": options.samples,
            "n_held_out": HELD_OUT, "n_codevectors": CODEVECTORS,
        }
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for name in DATA
        for start in STARTS
    ]  # fmt: skip


def main(options: Options) -> None:
    """Print both tables and write the files."""
    console = Console(highlight=False, soft_wrap=True)
    path = RESULTS / "reproduce_toys.jsonl"
    runs = run_all(run, settings(options), path, options.execution)
    for line in failures(runs):
        console.print(line, markup=False)
    if not any(run.rows for run in runs):
        sys.exit("there is nothing to show: no run has succeeded")
    rows = store_runs(RESULTS / "reproduce_toys.csv", runs, LEFT_OUT)
    rows.sort(key=lambda row: (DATA.index(row["data"]), STARTS.index(row["start"])))
    console.print(stage_table(rows), "", start_table(rows), "")
    with console.status("figures"):
        written = ["reproduce_toys.csv", *draw_figures(runs)]
    console.print(f"written to {RESULTS}: {', '.join(written)}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
