"""Data sets: drawn Gaussians, and sets read from files.

Every set is X, shape (n, d), float64, and y, shape (n,), int64. The files, which do not come with
the package, are those of the UCI machine learning repository and of "The Elements of Statistical
Learning".
"""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from common.experiment import chosen
from common.summaries import Row
from oda_rl._types import FloatArray, IntArray

Sample = tuple[FloatArray, IntArray]

_FILES = {
    "WBCD": "wbcd.data", "PIMA": "pima.csv", "Adult": "adult.csv.gz", "USPS": "usps.train.gz"
}  # fmt: skip
RARE = "Shuttle, 0.6 % anomalies (F1)"
_SPREAD = 0.16  # standard deviation; neighbouring centres are 1 apart
_ADULT_NUMBERS = (0, 2, 4, 10, 11, 12)  # age, weight, education, capital gain and loss, hours


def load(data: str, folder: str | None, n: int | None, rng: np.random.Generator) -> Sample:
    if data == "Gaussians":
        assert n is not None
        return gaussians(n, rng)
    if data == RARE:
        assert n is not None
        return shuttle(n, rng)
    if data in ("WDBC", "digits"):
        return (load_breast_cancer if data == "WDBC" else load_digits)(return_X_y=True)
    assert folder is not None
    path = Path(folder, _FILES[data])
    if data == "Adult":
        assert n is not None
        return adult(path, n, rng)
    return {"WBCD": wbcd, "PIMA": pima, "USPS": usps}[data](path)


def sets(
    sizes: Mapping[str, int | None], folder: Path | None, only: Sequence[str] = ()
) -> list[Row]:
    """Return the arguments of :func:`load` for each set, without those that need a folder.

    A missing file stops the script here, not in a run.
    """
    place = None if folder is None else str(folder.resolve())
    there = [name for name in sizes if place is not None or name not in _FILES]
    found = []
    for name in chosen(only, there):
        where = place if name in _FILES else None
        if where is not None:
            load(name, where, sizes[name], np.random.default_rng(0))
        found.append({"data": name, "folder": where, "n_samples": sizes[name]})
    return found


def gaussians(n: int, rng: np.random.Generator) -> Sample:
    """Draw four classes of three round Gaussians each on a 4 x 3 grid in the plane.

    Neighbours differ in class, and about 0.4 % of the points are nearer to a wrong centre.
    """
    centre = rng.integers(12, size=n)
    column, row = centre % 4, centre // 4
    points = np.column_stack([column, row]) + rng.normal(0.0, _SPREAD, (n, 2))
    return points, ((column + 2 * row) % 4).astype(np.int64)


def shuttle(n: int, rng: np.random.Generator) -> Sample:
    """Draw rows of nine sensors of a shuttle, 0.6 % of them anomalies; 7 % are in River's file."""
    from river.datasets import Shuttle

    table = np.array([[*x.values(), y] for x, y in Shuttle()], dtype=np.float64)
    n_rare = round(0.006 * n)
    parts = [
        rng.choice(np.flatnonzero(table[:, -1] == label), size, replace=False)
        for label, size in ((0, n - n_rare), (1, n_rare))
    ]
    rows = rng.permutation(np.concatenate(parts))
    return table[rows, :-1], table[rows, -1].astype(np.int64)


def wbcd(path: Path) -> Sample:
    """Read breast cancer in Wisconsin, 1992: nine marks from 1 to 10, malignant or not.

    The 16 incomplete rows are left out. File: ``breast-cancer-wisconsin.data``.
    """
    lines = [line.split(",") for line in _lines(path) if "?" not in line]
    table = np.array(lines, dtype=np.float64)
    return table[:, 1:10].copy(), (table[:, 10] == 4.0).astype(np.int64)


def pima(path: Path) -> Sample:
    """Read diabetes among Pima women: eight measurements; zeros for missing values stay."""
    table = np.array([line.split(",") for line in _lines(path)], dtype=np.float64)
    return table[:, :8].copy(), table[:, 8].astype(np.int64)


def adult(path: Path, n: int, rng: np.random.Generator) -> Sample:
    """Read ``n`` random rows of the census of 1994: six numbers, income above 50,000 or not.

    File: ``adult.data``, compressed with gzip.
    """
    lines = [line.split(", ") for line in _lines(path)]
    rows = [lines[i] for i in rng.permutation(len(lines))[:n]]
    numbers = np.array([[row[j] for j in _ADULT_NUMBERS] for row in rows], dtype=np.float64)
    return numbers, np.array([row[-1].startswith(">") for row in rows], dtype=np.int64)


def usps(path: Path) -> Sample:
    """Read digits of 16 x 16 pixels from -1 to 1: ``zip.train.gz`` or ``zip.test.gz``."""
    table = np.array([line.split() for line in _lines(path)], dtype=np.float64)
    return table[:, 1:].copy(), table[:, 0].astype(np.int64)


def _lines(path: Path) -> list[str]:
    """Return the non-empty lines."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: the script takes its folder with --data")
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [line.strip() for line in content.decode().splitlines() if line.strip()]
