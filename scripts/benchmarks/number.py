"""The number of clusters found by annealing, silhouettes, BIC and HDBSCAN on data of known K.

ODA takes the number that persists longest as the temperature falls (``n_clusters="auto"``); the
silhouette chooses among KMeans with 2 to 20 clusters, BIC among Gaussian mixtures with 1 to 20
components and full covariances, and HDBSCAN counts its clusters. All have their defaults. Real data
are standardised, and their K is that of their labels.
"""

import time
from dataclasses import dataclass

import numpy as np
from common.experiment import Experiment, MethodSelection, chosen
from common.summaries import Column, Row, Rows, Table, among, of, the
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl._types import FloatArray

EXPERIMENT = Experiment("benchmark_number", timed=True)
REAL = {"iris": load_iris, "wine": load_wine, "WDBC": load_breast_cancer, "digits": load_digits}
TRUE = {
    "four tight Gaussians": 4, "seven in the plane": 7, "twelve in 10 dimensions": 12,
    "three of other widths": 3, "five of other sizes": 5, "three that are elongated": 3,
    "iris": 3, "wine": 3, "WDBC": 2, "digits": 10,
}  # fmt: skip
MAX_CLUSTERS = 20  # clusters that silhouette and BIC try
METHODS = ("ODA", "silhouette", "BIC", "HDBSCAN")


def sample(data: str, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    if data in REAL:
        points = StandardScaler().fit_transform(REAL[data]().data)
        return points[rng.permutation(len(points))[:600]]
    if data == "four tight Gaussians":
        centres = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
        return make_blobs(400, centers=centres, cluster_std=0.05, random_state=seed)[0]
    if data == "seven in the plane":
        angles = 2.0 * np.pi * np.arange(7) / 7.0
        centres = 8.0 * np.column_stack([np.cos(angles), np.sin(angles)])
        return make_blobs(700, centers=centres, random_state=seed)[0]
    if data == "twelve in 10 dimensions":
        return make_blobs(600, 10, centers=12, random_state=seed)[0]
    triangle = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 9.0]])
    if data == "three of other widths":
        return make_blobs(600, centers=triangle, cluster_std=[0.3, 1.0, 1.7], random_state=seed)[0]
    if data == "five of other sizes":
        centres = np.vstack([triangle, [[-5.0, 9.0], [15.0, 9.0]]])
        return make_blobs([300, 150, 80, 40, 20], centers=centres, random_state=seed)[0]
    stretched = make_blobs(600, centers=triangle * [1.0, 2.0], random_state=seed)[0]
    return stretched @ np.array([[1.0, 0.0], [1.5, 0.6]])


def count(points: FloatArray, method: str, seed: int) -> int:
    if method == "ODA":
        return len(ODAClusterer("auto", random_state=seed).fit(points).codevectors_)
    if method == "HDBSCAN":
        return int(HDBSCAN(copy=True).fit(points).labels_.max()) + 1
    if method == "BIC":
        mixtures = [GaussianMixture(k, random_state=seed) for k in range(1, MAX_CLUSTERS + 1)]
        return 1 + int(np.argmin([mixture.fit(points).bic(points) for mixture in mixtures]))
    scores = [
        silhouette_score(points, KMeans(k, n_init=10, random_state=seed).fit_predict(points))
        for k in range(2, MAX_CLUSTERS + 1)
    ]
    return 2 + int(np.argmax(scores))


def measure(*, data: str, method: str, seed: int) -> Row:
    points = sample(data, seed)
    with threadpool_limits(1):
        if method == "ODA":  # compiles, which is no part of the time
            count(points, method, seed)
        begun = time.perf_counter()
        found = count(points, method, seed)
        return {"found": found, "seconds": time.perf_counter() - begun}


def shares(line: Rows) -> str:
    found, true = line.column("found"), TRUE[line[0]["data"]]
    return f"{np.median(found):g} ({np.mean(found == true):.1f})"


def tables(rows: Rows) -> dict[str, Table]:
    times = of(np.median, "seconds", ".2g")
    columns = [
        Column("", the("data")),
        Column("K", lambda line: str(TRUE[line[0]["data"]])),
        *(Column(method, among(shares, method=method)) for method in METHODS),
        *(Column(f"s, {method}", among(times, method=method)) for method in METHODS),
    ]
    lines = [rows.where(data=data) for data in TRUE]
    return {"number": Table("median number (share of seeds with the true one)", columns, lines)}


@dataclass(frozen=True)
class Options(MethodSelection):
    seeds: int = 5  # Draws of each set


def settings(options: Options) -> list[Row]:
    return [
        {"data": data, "method": method, "seed": seed}
        for data in chosen(options.only, TRUE)
        for method in chosen(options.methods, METHODS)
        for seed in EXPERIMENT.seeds(options)
    ]
