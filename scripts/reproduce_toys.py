"""Annealing in the plane and a start far outside the data: the papers' figure 1.

Circles, half moons and Gaussians of four classes. A classifier is shown at the temperatures where
its annealing had come down to given shares of the first one, and as it was when ``fit`` ended with
fine-tuning, beside LVQ1 with as many codevectors. Both start well (at the class means, at samples
of the class) and poorly: with all codevectors three standard deviations outside the data.

Accuracies are those on 5000 points that nothing was learned from or chosen by.

Run: python scripts/reproduce_toys.py
Writes results/reproduce_toys.csv (every accuracy), results/reproduce_toys.png and
results/annealing.gif (both of the first seed).
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from datasets import FloatArray, Sample, gaussians, write_rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import make_circles, make_moons

from oda_rl import ODAClassifier
from oda_rl.annealing_plots import animate_annealing, plot_decision_regions
from oda_rl.quantization import LVQ
from oda_rl.report import save_figure

DATA = ("circles", "half moons", "Gaussians")
STARTS = ("well", "poorly")
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the first temperature
CODEVECTORS = 40
HELD_OUT = 5000
ENOUGH = 0.95  # of the accuracy after a good start
RESULTS = Path("results")


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


def run(name: str, start: str, seed: int, n: int) -> list[Stage]:
    """Train both; return the annealing from high temperature to low, and LVQ1 last."""
    rng = np.random.default_rng(seed)
    points, classes = draw(name, n, rng)
    held_out = draw(name, HELD_OUT, rng)
    init = outside(points, CODEVECTORS, rng) if start == "poorly" else None
    per_class = CODEVECTORS // len(np.unique(classes))
    annealed = ODAClassifier(CODEVECTORS, init=init, random_state=seed).fit(points, classes)
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
            "data": name,
            "start": start,
            "seed": seed,
            "stage": stage,
            "T": getattr(model, "temperature_", np.nan),
            "K": len(model.codevectors_),
            "accuracy": model.score(*held_out),
        }
        stages.append(Stage(model, (points, classes), row))
    return stages


def stage_table(rows: list[dict[str, Any]], n_seeds: int) -> Table:
    """Temperature, number and accuracy at each stage: medians over the seeds."""
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


def start_table(rows: list[dict[str, Any]], n_seeds: int) -> Table:
    """How often a poor start ends as well as a good one."""
    table = Table(title=f"Starting outside the data, {n_seeds} seeds", box=None)
    table.add_column("data")
    table.add_column("model")
    for column in ("started well", "started poorly", f"≥ {ENOUGH:.0%} of it"):
        table.add_column(column, justify="right")
    for name in DATA:
        for label, stage in (("ODAClassifier", "fitted"), ("LVQ1", "LVQ1")):
            well, poorly = (
                np.array([
                    row["accuracy"]
                    for row in rows
                    if (row["data"], row["start"], row["stage"]) == (name, start, stage)
                ])
                for start in STARTS
            )  # fmt: skip
            table.add_row(
                name,
                label,
                f"{np.median(well):.3f}",
                f"{np.median(poorly):.3f}",
                f"{np.mean(poorly >= ENOUGH * well):.2f} of the seeds",
            )
    return table


def figure(rows_of_stages: list[list[Stage]]) -> Axes:
    """Draw a row of panels for each list of stages."""
    n_rows, n_columns = len(rows_of_stages), len(rows_of_stages[0])
    whole = Figure(figsize=(2.7 * n_columns, 2.75 * n_rows), layout="constrained")
    grid = whole.subplots(n_rows, n_columns, squeeze=False)
    for axes, stages in zip(grid, track(rows_of_stages, "figure"), strict=True):
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


def main(seeds: int = 20, samples: int = 1500, first_seed: int = 0) -> None:
    """Print both tables and write the files.

    Parameters
    ----------
    seeds : int
        How many seeds; data, starts and training of each are its own.
    samples : int
        Points to learn from.
    first_seed : int
        The others follow it.
    """
    console = Console(highlight=False, soft_wrap=True)
    shown: dict[tuple[str, str], list[Stage]] = {}
    rows = []
    for seed in track(range(first_seed, first_seed + seeds), "seeds"):
        for name in DATA:
            for start in STARTS:
                stages = run(name, start, seed, samples)
                shown.setdefault((name, start), stages)
                rows += [stage.row for stage in stages]
    rows.sort(key=lambda row: (DATA.index(row["data"]), STARTS.index(row["start"])))
    console.print(stage_table(rows, seeds), "", start_table(rows, seeds), "")
    write_rows(RESULTS / "reproduce_toys.csv", rows)

    panels = [shown[name, "well"] for name in DATA] + [shown["Gaussians", "poorly"]]
    save_figure(figure(panels), RESULTS / "reproduce_toys.png")
    fitted = shown["half moons", "well"][-2]
    with console.status("annealing.gif"):
        points, classes = fitted.sample
        animate_annealing(fitted.model, points, RESULTS / "annealing.gif", classes)
    console.print(f"written to {RESULTS}: reproduce_toys.csv, reproduce_toys.png, annealing.gif")


if __name__ == "__main__":
    tyro.cli(main)
