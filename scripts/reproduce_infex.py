"""Exemplars anywhere against exemplars among the samples, and EM.

Parts, each of which can be left out with --only:

table     Table 1 of the paper: mean log-likelihood (kernels of height 1) on 110 images of each
          digit of USPS, pixels from 0 to 255, by convex clustering, INFEX, and EM with as many
          components from 20 random starts.
codebook  Figures 3 and 4: margin and number of codebook vectors of INFEX and of kernel vector
          quantization.
modes     Figure 5: exemplars of the Epanechnikov kernel, and the digits that they stand for.
toy       Figures 1 and 2: a Gaussian and a ring; exemplars among the samples against a grid.
heldout   Not in the paper: mean log-density of 2,000 samples held out, with Scott's bandwidth and
          with the default one, beside kernel density estimation and a Gaussian mixture.

Run: python scripts/reproduce_infex.py --data FOLDER
Takes zip.train.gz as usps.train.gz from the folder; without it the first three parts are left out.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.datasets import load, sets
from common.experiment import DataSelection, Experiment, chosen, say, seconds, start
from common.summaries import Column, Row, Rows, Table, Text, of, the
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
from threadpoolctl import threadpool_limits

from oda_rl import INFEX, ConvexClustering, KernelVectorQuantization
from oda_rl._types import FloatArray
from oda_rl.exemplars.pricing import squared_distances
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.plotting.estimators import plot_density

EXPERIMENT = Experiment("reproduce_infex", timed=True)
PER_DIGIT = 110
SIGMAS = (440.0, 460.0, 480.0, 500.0, 520.0, 540.0)
RADII = (800.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0)
EM_RUNS = 20
NEEDS_DATA = ("table", "codebook", "modes")
WIDTH = 1500.0  # of the Epanechnikov kernel
GRID_SIZES = (4, 6, 8, 10, 15, 20, 30)
TOY_SIGMA = 2.5
ROUNDS = 40


def images(folder: str, rng: np.random.Generator) -> FloatArray:
    points, digits = load("USPS", folder, None, np.random.default_rng(0))
    points = 127.5 * points
    rows = [rng.choice(np.flatnonzero(digits == c), PER_DIGIT, replace=False) for c in range(10)]
    return points[np.concatenate(rows)]


def fitted(model: Any, points: FloatArray) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model, seconds(lambda: model.fit(points))


def expectation_maximisation(
    points: FloatArray, sigma: float, n: int, rng: np.random.Generator
) -> float:
    """Mean log-likelihood of n components of one width after EM from random samples."""
    scaled = (points - points.mean(axis=0)) / sigma
    squares = np.einsum("ij,ij->i", scaled, scaled)
    exemplars = scaled[rng.choice(len(scaled), n, replace=False)]
    weights, last = np.full(n, 1.0 / n), -np.inf
    while True:
        shares = np.exp(-0.5 * squared_distances(exemplars, scaled, squares).T) * weights
        combined = shares.sum(axis=1, keepdims=True)
        value = float(np.log(combined).mean())
        if value - last < 1e-9:
            return value
        last = value
        shares /= combined
        sizes = np.maximum(shares.sum(axis=0), 1e-300)
        weights, exemplars = sizes / len(scaled), shares.T @ scaled / sizes[:, None]


def table(folder: str, seed: int, sigma: float) -> Row:
    points = images(folder, np.random.default_rng(seed))
    convex = ConvexClustering(bandwidth=sigma, tol=1e-7).fit(points)
    infex, taken = fitted(INFEX(bandwidth=sigma, random_state=seed), points)
    n = len(infex.weights_)
    begun = time.perf_counter()
    runs = [
        expectation_maximisation(points, sigma, n, np.random.default_rng([seed, run]))
        for run in range(EM_RUNS)
    ]
    return {
        "convex": convex.objective_value_, "convex_n": len(convex.weights_),
        "infex": infex.objective_value_, "infex_n": n, "gap": infex.duality_gap_,
        "certificate": infex.certificate_, "em_best": max(runs), "em_mean": float(np.mean(runs)),
        "infex_seconds": taken, "em_seconds": time.perf_counter() - begun,
    }  # fmt: skip


def codebook(folder: str, seed: int, radius: float) -> Row:
    points = images(folder, np.random.default_rng(seed))
    fixed = KernelVectorQuantization(max_distortion=radius).fit(points)
    model = INFEX(
        "margin", kernel="disc", bandwidth=radius, tol=1e-3, max_rounds=ROUNDS, random_state=seed
    )
    infex, taken = fitted(model, points)
    return {
        "kvq": fixed.objective_value_, "kvq_n": len(fixed.weights_),
        "infex": infex.objective_value_, "infex_n": len(infex.weights_),
        "ratio": infex.objective_value_ / fixed.objective_value_, "gap": infex.duality_gap_,
        "seconds": taken,
    }  # fmt: skip


def modes(folder: str, seed: int) -> Row:
    """Digits that most samples of an exemplar show, and the share of these samples."""
    points = images(folder, np.random.default_rng(seed))
    kernels = INFEX(kernel="epanechnikov", bandwidth=WIDTH, init=points, random_state=seed)
    model, taken = fitted(kernels, points)
    counts = np.zeros((len(model.weights_), 10))
    np.add.at(counts, (model.predict(points), np.arange(10).repeat(PER_DIGIT)), 1.0)
    shown = counts.argmax(axis=1)[counts.sum(axis=1) > 0.0]
    return {
        "n": len(counts), "value": model.objective_value_, "gap": model.duality_gap_,
        "digits": " ".join(map(str, np.unique(shown))),
        "purity": float(counts.max(axis=1).sum() / len(points)), "seconds": taken,
    }  # fmt: skip


def ring_and_gaussian(rng: np.random.Generator) -> FloatArray:
    """66 points: 33 of a Gaussian at (5, 5), 33 of a ring around (0, 0)."""
    angles = rng.uniform(0.0, 2.0 * np.pi, 33)
    radius = rng.uniform(1.6, 2.0, 33)
    ring = radius[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    return np.concatenate([ring, 5.0 + 0.5 * rng.normal(size=(33, 2))])


def toy(seed: int, candidates: int) -> Row:
    """Likelihood with a grid of n² candidates in [-2, 7]²; 0: the samples; -1: anywhere."""
    points = ring_and_gaussian(np.random.default_rng(seed))
    if candidates < 0:
        model: Any = INFEX(bandwidth=TOY_SIGMA, random_state=seed).fit(points)
    else:
        axis = np.linspace(-2.0, 7.0, candidates)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        given = None if candidates == 0 else grid
        model = ConvexClustering(TOY_SIGMA, candidates=given).fit(points)
    return {"value": model.objective_value_, "n": len(model.weights_)}


DRAWN: dict[str, Callable[[int, np.random.Generator], FloatArray]] = {
    "moons": lambda n, rng: make_moons(n, noise=0.1, random_state=int(rng.integers(2**31)))[0],
    "three Gaussians": lambda n, rng: 6.0 * rng.integers(3, size=(n, 1)) + rng.normal(size=(n, 2)),
}
HELD_OUT = {"Gaussian 1": 300, "Gaussian 2": 500, "Gaussian 5": 2000, **dict.fromkeys(DRAWN, 600)}


def heldout(seed: int, samples: str) -> Row:
    rng, n = np.random.default_rng(seed), HELD_OUT[samples]
    draw = DRAWN.get(samples) or (lambda n, rng: rng.normal(size=(n, int(samples[-1]))))
    points, new = draw(n, rng), draw(2000, rng)
    scott, taken_scott = fitted(INFEX(bandwidth="scott", random_state=seed), points)
    auto, taken = fitted(INFEX(random_state=seed), points)
    mixtures = [GaussianMixture(k, random_state=seed).fit(points) for k in (1, 2, 3, 5, 8)]
    kernels = KernelDensity(bandwidth=scott.bandwidth_).fit(points)
    return {
        "n": n, "kde": kernels.score(new) / len(new), "scott": scott.score(new),
        "gmm": min(mixtures, key=lambda one: one.bic(points)).score(new), "auto": auto.score(new),
        "scott_n": len(scott.weights_), "auto_n": len(auto.weights_),
        "scott_seconds": taken_scott, "auto_seconds": taken,
    }  # fmt: skip


PARTS: dict[str, Callable[..., Row]] = {
    "table": table, "codebook": codebook, "modes": modes, "toy": toy,
    "heldout": heldout,
}  # fmt: skip


def run(*, part: str, threads: int, **setting: Any) -> Row:
    with threadpool_limits(threads):
        # Compiles; once is enough for a process, but no run knows whether it is the first.
        INFEX(bandwidth=1.0).fit(np.random.default_rng(0).normal(size=(40, 3)))
        return PARTS[part](**setting)


@dataclass(frozen=True)
class Options(DataSelection):
    seeds: int = 3  # Subsets of the images, and draws of everything else


def settings(options: Options) -> list[Row]:
    parts = chosen(options.only, PARTS)
    folders = [one["folder"] for one in sets({"USPS": None}, options.data)]
    varied: dict[str, list[Row]] = {
        "table": [{"sigma": sigma} for sigma in SIGMAS],
        "codebook": [{"radius": radius} for radius in RADII],
        "modes": [{}],
        "toy": [{"candidates": n} for n in (-1, 0, *GRID_SIZES)],
        "heldout": [{"samples": name} for name in HELD_OUT],
    }
    return [
        {"part": part, "threads": 1, "seed": seed, **where, **variant}
        for part in parts
        for where in ([{"folder": one} for one in folders] if part in NEEDS_DATA else [{}])
        for variant in varied[part]
        for seed in EXPERIMENT.seeds(options)
    ]


def likelihoods(rows: Rows) -> dict[str, Table]:
    def time_beside_em(line: Rows) -> str:
        infex, em = (np.median(line.column(key)) for key in ("infex_seconds", "em_seconds"))
        return f"{infex / em:.2f}"

    columns = [
        Column("bandwidth", the("sigma")),
        Column("convex clustering", both("convex", ".3f", "convex_n")),
        Column("INFEX", both("infex", ".4f", "infex_n")),
        Column("EM, best of 20", of(np.median, "em_best", ".4f")),
        Column("EM, mean of 20", of(np.median, "em_mean", ".4f")),
        Column("time / 20 EM runs", time_beside_em),
        Column("largest gap", of(np.max, "gap", ".1g")),
    ]
    return {"infex table": Table("likelihoods", columns, rows.groups("sigma"))}


def both(key: str, form: str, size: str) -> Text:
    """Make a text of the medians of a figure and of a number of exemplars."""
    value, count = of(np.median, key, form), of(np.median, size, ".0f")
    return lambda line: f"{value(line)} ({count(line)})"


def margins(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("distortion", the("radius")),
        Column("margin of KVQ (codevectors)", both("kvq", ".2g", "kvq_n")),
        Column("of INFEX", both("infex", ".2g", "infex_n")),
        Column("ratio", of(np.median, "ratio", ".2g")),
        Column("gap left", of(np.median, "gap", ".2g")),
    ]
    return {"infex codebook": Table("margins", columns, rows.groups("radius"))}


def digits(rows: Rows) -> dict[str, Table]:
    keys = {"n": ".0f", "value": ".3f", "gap": ".1g", "digits": "", "purity": ".2f"}
    columns = (Column(key, the(key, form)) for key, form in keys.items())
    return {"infex modes": Table("modes", [*columns], rows.groups("seed"))}


def densities(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("samples, components", the("samples")),
        Column("n", the("n")),
        Column("KernelDensity, Scott", of(np.median, "kde", ".3f")),
        Column("GaussianMixture, BIC", of(np.median, "gmm", ".3f")),
        Column("INFEX, Scott (exemplars)", both("scott", ".3f", "scott_n")),
        Column("INFEX (exemplars)", both("auto", ".3f", "auto_n")),
        Column("s, Scott", of(np.median, "scott_seconds", ".2g")),
        Column("s", of(np.median, "auto_seconds", ".2g")),
    ]
    return {"infex heldout": Table("held-out samples", columns, rows.groups("samples"))}


TABLES = {"table": likelihoods, "codebook": margins, "modes": digits, "heldout": densities}


def draw_toy(rows: Rows, seed: int) -> Any:
    """Draw Figures 1 and 2 for one draw."""
    axes = new_axes(12.5, 4.0, columns=3)
    points = ring_and_gaussian(np.random.default_rng(seed))
    fixed = ConvexClustering(TOY_SIGMA).fit(points)
    infex = INFEX(bandwidth=TOY_SIGMA, random_state=seed).fit(points)
    for ax, model, title in zip(axes, (fixed, infex), ("samples", "anywhere"), strict=False):
        plot_density(model, points, ax=ax)
        ax.set_title(f"exemplars: {title}", loc="left")
    drawn = rows.where(seed=seed)
    on_grid = Rows(row for row in drawn if row["candidates"] > 0)
    axes[2].plot(on_grid.column("candidates"), on_grid.column("value"), "o-", color=COLORS[0],
                 label="grid")  # fmt: skip
    for row, color, label in zip(drawn, COLORS[1:], ("anywhere", "samples"), strict=False):
        axes[2].axhline(row["value"], color=color, label=label)
    axes[2].set(xlabel="candidates along each side", ylabel="mean log-likelihood")
    axes[2].legend(frameon=False)
    return axes[0]


def main(options: Options) -> None:
    runs = EXPERIMENT.runs(run, settings(options), options)
    for part in PARTS:
        of_part = [run for run in runs if run.setting["part"] == part and run.rows]
        if not of_part:
            continue
        files = Experiment(f"infex_{part}", leave_out=("part", "folder"))
        rows = files.store(of_part)
        if part == "toy":
            files.save(draw_toy(rows, EXPERIMENT.seeds(options).start))
        else:
            say(*TABLES[part](rows).values())


if __name__ == "__main__":
    start(main, Options, __doc__)
