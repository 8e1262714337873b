"""Streaming Gaussian mixtures by SGD beside stochastic EM and EM, as in the paper's section 3.

Prints a table for each experiment:

likelihood     test log-likelihood (Table 3), and Davies-Bouldin score and Dunn index (Table 2);
               K = 64, P <= 20, but for scikit-learn's EM, which has no bound
robustness     starts (Table 1), without the first class
low dimension  states of a cart-pole, K = 25, shuffled
drift          a correlated, drifting stream of such states, K = 64, beside k-means on all of it
wide           made-up images of 3072 features

Stochastic EM has the best of five step sizes on USPS with seeds 0 to 7.

Run: python scripts/reproduce_sgd_gmm.py --data FOLDER
Without --data it takes the digits that come with scikit-learn.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from common.datasets import Sample, usps
from common.experiment import Experiment, Selection, chosen, say, seconds, start
from common.summaries import Column, Row, Rows, Table, among, of, the
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
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
N_STATES = 40_000
N_IMAGES = 30_000  # made-up ones of 3072 features


def load(data: str, folder: str | None, seed: int) -> tuple[Sample, Sample]:
    if folder is not None and data != "digits":
        parts = [usps(Path(folder, f"usps.{part}.gz")) for part in ("train", "test")]
        return tuple(((x + 1.0) / 2.0, y) for x, y in parts)  # type: ignore[return-value]
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order] / 16.0, y[order].astype(np.int64)
    return (x[:1297], y[:1297]), (x[1297:], y[1297:])


def estimator(method: str, seed: int, n: int = K, **more: Any) -> Any:
    """Return the estimator of a name."""
    if method == "SGD":
        return SGDGaussianMixture(n, random_state=seed, **more)
    if method == "SGD, as printed":
        return SGDGaussianMixture(n, update="sgd", max_iter=30, random_state=seed, **more)
    if method == "EM":  # which has no floor
        return GaussianMixture(n, covariance_type="diag", reg_covar=1e-2, random_state=seed)
    init = "k-means" if method == "sEM, k-means" else "random"
    return StochasticEMGaussianMixture(
        n, init=init, max_iter=EM_PASSES, random_state=seed, **STEPS, **more
    )


def dunn_index(points: FloatArray, labels: IntArray) -> float:
    """Return the least distance between clusters by the largest within one, of 2000 points."""
    points, labels = points[:2000], labels[:2000]
    distances = cdist(points, points)
    same = labels[:, None] == labels
    return float(distances[~same].min() / distances[same].max())


def likelihood(data: str, folder: str | None, method: str, seed: int) -> Row:
    (train, _), (test, _) = load(data, folder, seed)
    train, test = train.astype(np.float32), test.astype(np.float32)
    model = estimator(method, seed, variance_floor=FLOOR)
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


def states(seed: int) -> FloatArray:
    """States of a cart-pole whose policy gets better, of unit variance."""
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(seed)
    state, _ = env.reset(seed=seed)
    out = np.empty((N_STATES, 4))
    for t in range(N_STATES):
        out[t] = state
        wise = rng.random() < 0.3 + 0.6 * t / N_STATES
        good = int(state @ [0.05, 0.1, 1.0, 0.3] > 0.0)
        state, _, terminated, truncated, _ = env.step(good if wise else int(rng.integers(2)))
        if terminated or truncated:
            state, _ = env.reset()
    return out / out.std(axis=0)


def low_dimension(data: str, folder: str | None, method: str, seed: int) -> Row:
    """Test log-likelihood of states."""
    points = np.random.default_rng(seed).permutation(states(seed))
    train, test = points[: N_STATES // 2], points[N_STATES // 2 :]
    if method == "EM":
        model = GaussianMixture(25, covariance_type="diag", random_state=seed).fit(train)
    else:
        model = estimator(method, seed, n=25).fit(train)
    return {"log_likelihood": float(model.score(test))}


def drift(data: str, folder: str | None, method: str, seed: int) -> Row:
    stream = states(seed)
    if method == "SGD, forgetting":
        model = SGDGaussianMixture(
            K, covariance_type="tied_spherical", forgetting=0.005, random_state=seed
        )
    else:
        model = StochasticEMGaussianMixture(K, init="random", random_state=seed, **STEPS)
    distances = cdist(stream, model.partial_fit(stream).means_) ** 2
    best = KMeans(K, n_init=3, random_state=seed).fit(stream).inertia_ / len(stream)
    return {
        "error": float(distances.min(axis=1).mean()), "k_means": best,
        "ratio": float(distances.min(axis=1).mean() / best),
        "used": len(np.unique(distances.argmin(axis=1))),
    }  # fmt: skip


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


EXPERIMENTS: dict[str, Callable[..., Row]] = {
    "likelihood": likelihood, "robustness": robustness, "low dimension": low_dimension,
    "drift": drift, "wide": wide,
}  # fmt: skip


def run(*, experiment: str, data: str, folder: str | None, method: str, seed: int) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # runs are as long as they are
        return EXPERIMENTS[experiment](data, folder, method, seed)


@dataclass(frozen=True)
class Options(Selection):
    data: Path | None = None
    """Folder with usps.train.gz and usps.test.gz."""


def settings(options: Options) -> list[Row]:
    folder = None if options.data is None else str(options.data.resolve())
    sets = ["digits", "USPS"] if folder is not None else ["digits"]
    load(sets[-1], folder, 0)
    starts = ["range 0.1", "range 0.3", "range 0.5", "other class", "no annealing"]
    starts = [f"SGD: {start}" for start in starts]
    starts += ["SGD, as printed: range 0.1", "SGD, as printed: no annealing"]
    methods = ["SGD", "SGD, as printed", "sEM, k-means", "sEM, random", "EM"]
    everything = [
        *(("likelihood", data, methods) for data in sets),
        *(("robustness", data, starts) for data in sets),
        ("low dimension", "states", ["SGD", "EM"]),
        ("drift", "states", ["SGD, forgetting", "sEM, random"]),
        ("wide", "images", [str(N_IMAGES)]),
    ]
    names = chosen(options.only, EXPERIMENTS)
    seeds = EXPERIMENT.seeds(options)
    return [
        {"experiment": experiment, "data": data, "folder": folder, "method": method, "seed": seed}
        for experiment, data, methods in everything
        if experiment in names
        for method in methods
        for seed in (seeds[:1] if experiment == "wide" else seeds)
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


def main(options: Options) -> None:
    if options.data is None:
        say("no --data: images are the digits that come with scikit-learn")
    rows = EXPERIMENT.run(run, settings(options), options)
    say(*map(measured, rows.groups("experiment", "data")))
    for axes, name in zip(draw(options.data), ("grid", "density"), strict=True):
        EXPERIMENT.save(axes, f"_{name}.png")


if __name__ == "__main__":
    start(main, Options, __doc__)
