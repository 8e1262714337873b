"""Annealing in the plane and a start far outside the data: the papers' figure 1.

A classifier at given shares of the first temperature, and after fine-tuning, beside LVQ1 with as
many codevectors. Both start well (at the class means, at samples of the class) and poorly: with all
codevectors three standard deviations outside the data. Accuracies are those on 5000 other points.

Writes results/reproduce_toys.csv and results/reproduce_toys.png.
"""

from typing import Any, NamedTuple

import numpy as np
from common.datasets import Sample, gaussians
from common.experiment import CONSOLE, Experiment, SharedOptions, say, start
from common.summaries import Column, Row, Rows, Table, among, of, the
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import make_circles, make_moons

from oda_rl import ODAClassifier
from oda_rl._types import FloatArray
from oda_rl.plotting.estimators import plot_decision_regions
from oda_rl.quantization.vq import LVQ
from oda_rl.runs.parallel import Run

EXPERIMENT = Experiment("reproduce_toys")
DATA = ("circles", "half moons", "Gaussians")
STARTS = ("well", "poorly")
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the first temperature
CODEVECTORS = 40
SAMPLES, HELD_OUT = 1500, 5000
ENOUGH = 0.95  # of the accuracy after a good start
PANELS = (*((name, "well") for name in DATA), ("Gaussians", "poorly"))


class Stage(NamedTuple):
    """One panel: a model, and what is known about it."""

    model: Any
    sample: Sample
    row: Row


def draw(name: str, n: int, rng: np.random.Generator) -> Sample:
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


def run(**setting: Any) -> list[Row]:
    return [stage.row for stage in train(**setting)]


def train(*, data: str, start: str, seed: int) -> list[Stage]:
    rng = np.random.default_rng(seed)
    points, classes = draw(data, SAMPLES, rng)
    held_out = draw(data, HELD_OUT, rng)
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
            "data": data,
            "start": start,
            "stage": stage,
            "T": getattr(model, "temperature_", np.nan),
            "K": len(model.codevectors_),
            "accuracy": model.score(*held_out),
        }
        stages.append(Stage(model, (points, classes), row))
    return stages


def stage_table(rows: Rows) -> Table:
    def temperature(line: Rows) -> str:
        median = np.median(line.column("T"))
        return "" if np.isnan(median) else f"{median:.3g}"

    def enough(line: Rows) -> str:
        """Return the share of seeds whose accuracy is nearly that after a good start."""
        well = rows.where(data=line[0]["data"], stage=line[0]["stage"], start="well")
        goals = {row["seed"]: ENOUGH * row["accuracy"] for row in well}
        return f"{np.mean([row['accuracy'] >= goals.get(row['seed'], 2.0) for row in line]):.2f}"

    columns = [
        Column("data, start", lambda line: f"{line[0]['data']}, {line[0]['start']}", once=True),
        Column("stage", the("stage")),
        Column("T", temperature),
        Column("K", of(np.median, "K", ".0f")),
        Column("accuracy", of(np.median, "accuracy", ".3f")),
        Column("min", of(np.min, "accuracy", ".3f")),
        Column(f"seeds with ≥ {ENOUGH:.0%} of a good start's", among(enough, start="poorly")),
    ]
    title = f"Annealing, {len(rows.values('seed'))} seeds: medians"
    return Table(title, columns, rows.groups("data", "start", "stage"))


def figure(rows_of_stages: list[list[Stage]]) -> Axes:
    n_rows, n_columns = len(rows_of_stages), len(rows_of_stages[0])
    whole = Figure(figsize=(2.7 * n_columns, 2.75 * n_rows), layout="constrained")
    grid = whole.subplots(n_rows, n_columns, squeeze=False)
    for axes, stages in zip(grid, rows_of_stages, strict=True):
        for ax, stage in zip(axes, stages, strict=True):
            plot_decision_regions(stage.model, *stage.sample, ax=ax)
            ax.get_legend().remove()
            ax.set(xticks=[], yticks=[])
            row = stage.row
            ended = "fine-tuned, " if row["stage"] == "fitted" else ""
            name = "LVQ1" if row["stage"] == "LVQ1" else f"{ended}T = {row['T']:.2g}"
            title = f"{name}, K = {row['K']}\naccuracy {row['accuracy']:.3f}"
            ax.set_title(title, fontsize=10)
        row = stages[0].row
        poorly = ", poor start" if row["start"] == "poorly" else ""
        axes[0].set_ylabel(f"{row['data']}{poorly}", fontsize=12)
    return grid[0, 0]


def draw_figures(runs: list[Run]) -> None:
    """Train again what is shown, each on the first seed of which there is a result."""
    settings = [dict(one.setting) for one in runs if one.error is None]
    first = {(one["data"], one["start"]): one for one in reversed(settings)}
    shown = {panel: train(**first[panel]) for panel in PANELS if panel in first}
    if shown:
        EXPERIMENT.save(figure(list(shown.values())))


def settings(options: SharedOptions) -> list[Row]:
    return [
        {"data": name, "start": start, "seed": seed}
        for seed in EXPERIMENT.seeds(options)
        for name in DATA
        for start in STARTS
    ]


def main(options: SharedOptions) -> None:
    runs = EXPERIMENT.runs(run, settings(options), options)
    rows = EXPERIMENT.store(runs)
    rows.sort(key=lambda row: (DATA.index(row["data"]), STARTS.index(row["start"])))
    say(stage_table(rows))
    with CONSOLE.status("figures"):
        draw_figures(runs)


if __name__ == "__main__":
    start(main, SharedOptions, __doc__)
