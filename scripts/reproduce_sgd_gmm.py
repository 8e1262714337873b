"""Streaming Gaussian mixtures by SGD beside stochastic EM and EM, as in the paper's section 3.

Prints a table for each experiment:

likelihood     test log-likelihood (Table 3), and Davies-Bouldin score and Dunn index (Table 2);
               K = 64, P <= 20, but for scikit-learn's EM, which has no bound; enlarged digits,
               60,000 of 28 x 28 pixels as MNIST has them, in three passes
robustness     starts (Table 1), without the first class
wide           made-up images of 3072 features

Stochastic EM has the best of five step sizes on USPS with seeds 0 to 7.

Run: python scripts/reproduce_sgd_gmm.py --data FOLDER
Without --data it takes the digits that come with scikit-learn.
"""

import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common.datasets import Sample, usps
from common.experiment import DataSelection, Experiment, chosen, say, seconds, start
from common.summaries import Column, Row, Rows, Table, among, of, the
from scipy.ndimage import zoom
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import davies_bouldin_score
from sklearn.mixture import GaussianMixture

from oda_rl import SGDGaussianMixture, StochasticEMGaussianMixture
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.plotting.axes import new_axes
from oda_rl.plotting.estimators import plot_density

EXPERIMENT = Experiment("reproduce_sgd_gmm", leave_out=("folder",), timed=True)
K = 64
EM_PASSES = 30
STEPS = {"first_step": 0.05, "last_step": 1e-4}
FLOOR = 1.0 / 20.0  # of variances: P <= 20
ENLARGED = "enlarged digits"
N_ENLARGED, N_SHOWN, PASSES = 60_000, 10_000, 3
N_IMAGES = 30_000  # made-up ones of 3072 features


def load(data: str, folder: str | None, seed: int) -> tuple[Sample, Sample]:
    if folder is not None and data != "digits":
        parts = [usps(Path(folder, f"usps.{part}.gz")) for part in ("train", "test")]
        return tuple(((x + 1.0) / 2.0, y) for x, y in parts)  # type: ignore[return-value]
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order] / 16.0, y[order].astype(np.int64)
    return (x[:1297], y[:1297]), (x[1297:], y[1297:])


def enlarge(sample: Sample, n: int, rng: np.random.Generator) -> Array:
    """Draw n images enlarged to 20 x 20 pixels, anywhere in the middle of 28 x 28."""
    x = sample[0]
    side = math.isqrt(x.shape[1])
    small = zoom(x.reshape(-1, side, side), (1, 20 / side, 20 / side), order=1)
    rows, places = rng.integers(len(x), size=n), rng.integers(2, 7, size=(n, 2))
    out = np.zeros((n, 28, 28), dtype=np.float32)
    for image, row, (i, j) in zip(out, rows, places, strict=True):
        image[i : i + 20, j : j + 20] = small[row]
    return out.reshape(n, -1)


def estimator(method: str, seed: int, **more: Any) -> Any:
    """Return the estimator of a name."""
    if method == "SGD":
        return SGDGaussianMixture(K, random_state=seed, **more)
    if method == "SGD, as printed":
        return SGDGaussianMixture(K, update="sgd", max_iter=30, random_state=seed, **more)
    if method == "EM":  # which has no floor
        return GaussianMixture(K, covariance_type="diag", reg_covar=1e-2, random_state=seed)
    init = "k-means" if method == "sEM, k-means" else "random"
    return StochasticEMGaussianMixture(
        K, init=init, max_iter=EM_PASSES, random_state=seed, **STEPS, **more
    )


def dunn_index(points: FloatArray, labels: IntArray) -> float:
    """Return the least distance between clusters by the largest within one, of 2000 points."""
    points, labels = points[:2000], labels[:2000]
    distances = cdist(points, points)
    same = labels[:, None] == labels
    return float(distances[~same].min() / distances[same].max())


def likelihood(data: str, folder: str | None, method: str, seed: int) -> Row:
    (train, _), (test, _) = parts = load(data, folder, seed)
    model = estimator(method, seed, variance_floor=FLOOR)
    if data == ENLARGED:
        rng = np.random.default_rng(seed)
        train, test = enlarge(parts[0], N_ENLARGED, rng), enlarge(parts[1], N_SHOWN, rng)
        model.set_params(max_iter=PASSES)
    train, test = train.astype(np.float32), test.astype(np.float32)
    taken = seconds(lambda: model.fit(train))
    labels = model.predict(test)
    several = len(np.unique(labels)) > 1  # of one cluster, neither score is defined
    return {
        "log_likelihood": float(model.score(test)), "train": float(model.score(train)),
        "davies_bouldin": float(davies_bouldin_score(test, labels)) if several else math.nan,
        "dunn": dunn_index(test, labels) if several else math.nan,
        "used": len(np.unique(model.predict(train))),
        "peak": float(model.predict_proba(test).max(axis=1).mean()),
        "passes": int(model.n_iter_), "seconds": taken,
    }  # fmt: skip


def robustness(data: str, folder: str | None, method: str, seed: int) -> Row:
    (train, y), (test, t) = load(data, folder, seed)
    first = train[y == y.min()].astype(np.float32)
    train, test = (x[c != y.min()].astype(np.float32) for x, c in ((train, y), (test, t)))
    name, start = method.split(": ")
    more: Row = {"variance_floor": FLOOR}
    if start.startswith("range"):
        more["init_range"] = float(start.split()[1])
    elif start == "other class":
        other = estimator(name, seed, **more).set_params(max_iter=5)
        more["means_init"] = other.fit(first).means_
    else:
        more["width"] = 0.01
    model = estimator(name, seed, **more).fit(train)
    used = len(np.unique(model.predict(train)))
    return {"log_likelihood": float(model.score(test)), "used": used}


def made_images(n: int, d: int, seed: int) -> Array:
    """Smooth random patterns in [0, 1], each sample a mixture of few, with noise."""
    rng = np.random.default_rng(seed)
    patterns = np.cumsum(rng.normal(size=(100, d)), axis=1)
    patterns -= patterns.min(axis=1, keepdims=True)
    patterns = (patterns / patterns.max(axis=1, keepdims=True)).astype(np.float32)
    out = np.empty((n, d), dtype=np.float32)
    for i in range(n):
        one, other = rng.integers(100, size=2)
        share = np.float32(rng.beta(0.3, 0.3))
        out[i] = share * patterns[one] + (1 - share) * patterns[other]
        out[i] += rng.normal(scale=0.05, size=d).astype(np.float32)
    return np.clip(out, 0.0, 1.0)


def wide(data: str, folder: str | None, method: str, seed: int) -> Row:
    points = made_images(int(method), 3072, seed)
    model = estimator("SGD", seed, batch_size=100, max_iter=8)
    taken = seconds(lambda: model.fit(points))
    held = sum(part.nbytes for part in model._mixture if isinstance(part, np.ndarray))
    scores = model.score_samples(points[:2000])
    return {
        "finite": bool(np.isfinite(scores).all() and np.isfinite(model.means_).all()),
        "used": len(np.unique(model.predict(points[:10_000]))),
        "bytes_per_number": held / (K * 3072), "log_likelihood": float(scores.mean()),
        "seconds": taken,
    }  # fmt: skip


EXPERIMENTS = {part.__name__: part for part in (likelihood, robustness, wide)}


def run(*, experiment: str, data: str, folder: str | None, method: str, seed: int) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # runs are as long as they are
        return EXPERIMENTS[experiment](data, folder, method, seed)


def settings(options: DataSelection) -> list[Row]:
    folder = None if options.data is None else str(options.data.resolve())
    sets = ["digits", "USPS"] if folder is not None else ["digits"]
    load(sets[-1], folder, 0)
    starts = ["range 0.1", "range 0.3", "range 0.5", "other class", "no annealing"]
    starts = [f"SGD: {start}" for start in starts]
    starts += ["SGD, as printed: range 0.1", "SGD, as printed: no annealing"]
    methods = ["SGD", "SGD, as printed", "sEM, k-means", "sEM, random", "EM"]
    everything = [
        *(("likelihood", data, methods) for data in sets),
        ("likelihood", ENLARGED, ["SGD", "sEM, k-means", "sEM, random"]),
        *(("robustness", data, starts) for data in sets),
        ("wide", "images", [str(N_IMAGES)]),
    ]
    names = chosen(options.only, EXPERIMENTS)
    seeds = EXPERIMENT.seeds(options)
    return [
        {"experiment": experiment, "data": data, "folder": folder, "method": method, "seed": seed}
        for experiment, data, methods in everything
        if experiment in names
        for method in methods
        for seed in (seeds[:1] if experiment == "wide" or data == ENLARGED else seeds)
    ]


def spread(form: str, values: FloatArray) -> str:
    return f"{values.mean():{form}}" + (f" ± {values.std(ddof=1):.2g}" if len(values) > 1 else "")


def measured(line: Rows) -> Table:
    """Everything about one experiment on one data set."""
    setting = ("experiment", "data", "method", "seed", "made")
    names = [name for name in line[0] if name not in setting]
    columns = [Column(name, of(partial(spread, ".4g"), name, "")) for name in names]
    title = f"{line[0]['experiment']}: {line[0]['data']}"
    return Table(title, [Column("method", the("method")), *columns], line.groups("method"))


def tables(rows: Rows) -> dict[str, Table]:
    labels = {"likelihood": "", "robustness": "without the first class: "}
    columns = [Column("", lambda line: labels[line[0]["experiment"]] + line[0]["method"])]
    for data in rows.where(experiment="likelihood").values("data"):
        found = of(partial(spread, ".2f"), "log_likelihood", "")
        columns.append(Column(data, among(found, data=data)))
        columns.append(Column("used", among(of(np.mean, "used", ".0f"), data=data)))
    lines = [line for name in labels for line in rows.where(experiment=name).groups("method")]
    return {"mixtures": Table("mean and standard deviation over seeds", columns, lines)}


def draw(folder: Path | None) -> tuple[Any, Any]:
    data = "digits" if folder is None else "USPS"
    train = load(data, None if folder is None else str(folder), 0)[0][0].astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SGDGaussianMixture(K, batch_size=10, max_iter=30, random_state=0).fit(train)
    panels = new_axes(4.8, 4.8, *model.grid_shape_[::-1])
    for panel, mean in zip(panels, model.means_, strict=True):
        panel.imshow(mean.reshape(math.isqrt(len(mean)), -1), cmap="gray_r")
        panel.axis("off")
    rng = np.random.default_rng(0)
    turn = rng.uniform(0.0, 3.0 * np.pi, 2000)
    spiral = np.column_stack([turn * np.cos(turn), turn * np.sin(turn)]) / 4.0
    spiral += rng.normal(scale=0.1, size=spiral.shape)
    flat = SGDGaussianMixture(25, covariance_type="full", variance_floor=0.005, random_state=0)
    return panels[0], plot_density(flat.fit(spiral), spiral)


def main(options: DataSelection) -> None:
    if options.data is None:
        say("no --data: images are the digits that come with scikit-learn")
    rows = EXPERIMENT.run(run, settings(options), options)
    say(*map(measured, rows.groups("experiment", "data")))
    for axes, name in zip(draw(options.data), ("grid", "density"), strict=True):
        EXPERIMENT.save(axes, f"_{name}.png")


if __name__ == "__main__":
    start(main, DataSelection, __doc__)
