"""Accuracy as the temperature falls, and from a start far outside the data: figures 1 and 4.

A classifier at given shares of the first temperature, and after fine-tuning, beside LVQ1 with as
many codevectors. Both start well (at the class means, at samples of the class) and, in the plane,
poorly: with all codevectors three standard deviations outside the data. Accuracies are those on
5000 other points, or on a fifth of a set from a file; of Shuttle, which stands for the paper's
credit cards, it is F1. Seconds are those of a fit that ends there.

Run: python scripts/reproduce_toys.py --data FOLDER_WITH_THE_FILES
Writes results/reproduce_toys.csv and results/reproduce_toys.png.
"""

from typing import Any, NamedTuple

import numpy as np
from common.datasets import RARE, Sample, gaussians, load, sets
from common.experiment import CONSOLE, DataSelection, Experiment, say, seconds, start
from common.summaries import Column, Row, Rows, Table, among, the
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from oda_rl import ODAClassifier
from oda_rl._types import FloatArray
from oda_rl.plotting.estimators import plot_decision_regions
from oda_rl.quantization.vq import LVQ
from oda_rl.runs.parallel import Run

EXPERIMENT = Experiment("reproduce_toys", ("folder", "n_samples"), timed=True)
DATA = ("circles", "half moons", "Gaussians")
STARTS = ("well", "poorly")
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the first temperature
REAL = {"WBCD": None, "PIMA": None, RARE: 15_000}
CODEVECTORS, MANY = 40, 100  # in the plane, and of other sets
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


def halves(
    data: str, folder: str | None, n: int | None, rng: np.random.Generator
) -> tuple[Sample, Sample]:
    """Draw samples to learn from, and others."""
    if data in DATA:
        return draw(data, SAMPLES, rng), draw(data, HELD_OUT, rng)
    X, y = load(data, folder, n, rng)
    seed = int(rng.integers(2**31))
    X, others, y, right = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(X)
    return (scaler.transform(X), y), (scaler.transform(others), right)


def outside(points: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Codevectors close together, three standard deviations from the middle of the data."""
    spread = np.sqrt(points.var(axis=0).sum())
    corner = points.mean(axis=0) + 3.0 * spread * np.sqrt([0.5, 0.5])
    return corner + 0.1 * spread * rng.normal(size=(n, 2))


def run(**setting: Any) -> list[Row]:
    return [stage.row for stage in train(**setting)]


def train(
    *, data: str, start: str, seed: int, folder: str | None = None, n_samples: int | None = None
) -> list[Stage]:
    rng = np.random.default_rng(seed)
    (points, classes), (others, right) = halves(data, folder, n_samples, rng)
    n = CODEVECTORS if data in DATA else MANY
    init = outside(points, n, rng) if start == "poorly" else None

    def fitted(**changed: Any) -> tuple[ODAClassifier, float]:
        model = ODAClassifier(n, init=init, random_state=seed, **changed)
        return model, seconds(lambda: model.fit(points, classes))

    annealed, taken = fitted()
    levels = annealed.history_
    temperatures = np.array([level.temperature for level in levels])
    models: dict[str, tuple[Any, int, float]] = {}
    for share in SHARES:
        level = int(np.argmax(temperatures <= share * temperatures[0] * (1.0 + 1e-9)))
        seen = levels[level].n_samples_seen
        until = fitted(fine_tuning=None, max_samples=seen)[1]
        models[f"T ≤ {share:g} T₀"] = annealed.at_level(level), seen, until
    models["fitted"] = annealed, levels[-1].n_samples_seen, taken
    per_class = n // len(np.unique(classes))
    lvq = LVQ(per_class, init="random" if init is None else init, random_state=seed)
    models["LVQ1"] = lvq, lvq.max_iter * len(points), seconds(lambda: lvq.fit(points, classes))
    stages = []
    for stage, (model, seen, until) in models.items():
        guess = model.predict(others)
        row = {
            "data": data,
            "start": start,
            "stage": stage,
            "T": getattr(model, "temperature_", np.nan),
            "K": len(model.codevectors_),
            "samples": seen,
            "seconds": until,
            "accuracy": float(f1_score(right, guess) if data == RARE else np.mean(guess == right)),
        }
        stages.append(Stage(model, (points, classes), row))
    return stages


def tables(rows: Rows) -> dict[str, Table]:
    def text(line: Rows) -> str:
        keys = ("accuracy", "K", "samples", "seconds")
        accuracy, k, seen, taken = (np.median(line.column(key)) for key in keys)
        return f"{accuracy:.3f} ({k:.0f}; {seen:,.0f}; {taken:.2g} s)"

    def enough(line: Rows) -> str:
        """Return the share of seeds whose accuracy is nearly that after a good start."""
        well = rows.where(data=line[0]["data"], stage=line[0]["stage"], start="well")
        goals = {row["seed"]: ENOUGH * row["accuracy"] for row in well}
        return f"{np.mean([row['accuracy'] >= goals.get(row['seed'], 2.0) for row in line]):.2f}"

    columns = [Column("data", the("data")), Column("start", the("start"))]
    columns += [Column(stage, among(text, stage=stage)) for stage in rows.values("stage")]
    for stage in ("fitted", "LVQ1"):
        head = f"{stage}: seeds with ≥ {ENOUGH:.0%} of a good start's"
        columns.append(Column(head, among(enough, start="poorly", stage=stage)))
    return {"toys": Table("medians", columns, rows.groups("data", "start"))}


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


def settings(options: DataSelection) -> list[Row]:
    kinds = [{"data": name, "start": start} for name in DATA for start in STARTS]
    kinds += [{**one, "start": "well"} for one in sets(REAL, options.data)]
    return [{**kind, "seed": seed} for seed in EXPERIMENT.seeds(options) for kind in kinds]


def main(options: DataSelection) -> None:
    runs = EXPERIMENT.runs(run, settings(options), options)
    rows = EXPERIMENT.store(runs)
    say(*tables(rows).values())
    with CONSOLE.status("figures"):
        draw_figures(runs)


if __name__ == "__main__":
    start(main, DataSelection, __doc__)
