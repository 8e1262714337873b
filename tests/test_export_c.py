"""Estimators in C predict what they predict in Python."""

import subprocess

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from test_export import FLAGS
from test_onnx import CASES, HOLED, IRIS, MOONS, NAMES, NUMBERS, SIDES, around

import oda_rl
from oda_rl.exporting import export_c

PROGRAM = """
#include <stdio.h>
#include "predict.h"

int main(void)
{
    float obs[ODA_FEATURES];
    while (fread(obs, sizeof obs, 1, stdin) == 1) {
        TYPE result = oda_predict(obs);
        fwrite(&result, sizeof result, 1, stdout);
    }
    return 0;
}
"""
REFUSED = ("tree", "densities", "outliers", "full", "by sums", "finite", "balls")


def run(model, folder, points):
    """Predict in C, and return the header, too."""
    header = export_c(model, folder / "predict.h").read_text()
    kind = "float" if "float oda_predict" in header else "int"
    (folder / "program.c").write_text(PROGRAM.replace("TYPE", kind))
    library = ["-lm"] if "math.h" in header else []
    command = ["gcc", *FLAGS, "-O1", "program.c", "-o", "program", *library]
    subprocess.run(command, cwd=folder, check=True)
    data = np.ascontiguousarray(points, dtype=np.float32).tobytes()
    done = subprocess.run([folder / "program"], input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.float32 if kind == "float" else np.intc), header


def compare(model, folder, points):
    points = points.astype(np.float32)
    predicted, header = run(model, folder, points)
    expected = model.predict(points)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-5)
        return header
    if expected.dtype.kind in "OU":
        expected = np.searchsorted(model.classes_, expected)
    assert (predicted == expected).mean() >= 0.999  # the others are ties
    return header


@pytest.mark.parametrize("name", [name for name in CASES if not any(r in name for r in REFUSED)])
def test_predictions_are_those_of_python(name, tmp_path):
    model, X, y = CASES[name]
    model.fit(X) if y is None else model.fit(X, y)
    compare(model, tmp_path, around(X, 4000))


@pytest.mark.parametrize(
    ("model", "size", "offset"),
    [(oda_rl.ODAClusterer(6, random_state=0), 1e-15, 0.0),
     (oda_rl.ODAClassifier(12, random_state=0), 1.0, 1e4),
     (oda_rl.ODAClassifier(12, fine_tuning="mrslvq", random_state=0), 1e14, 0.0),
     (oda_rl.SGDGaussianMixture(4, tol=1e-2, random_state=0), 1e-3, 30.0)],
)  # fmt: skip
def test_scale_and_offset_do_not_matter(model, size, offset, tmp_path):
    X = (MOONS * size + offset).astype(np.float32)
    predicted, header = run(model.fit(X, SIDES), tmp_path, X)
    assert (predicted == model.predict(X)).mean() > 0.99
    assert ("oda_origin" in header) == (
        offset > 0.0 or isinstance(model, oda_rl.SGDGaussianMixture)
    )


@pytest.mark.parametrize("offset", [0.0, 30.0])  # without an origin, and with one
def test_missing_values_count_as_in_python(offset, tmp_path):
    points = HOLED + offset
    for model in (
        oda_rl.SOM((2, 3)), oda_rl.ODAClusterer(5), oda_rl.ODAClassifier(6),
        oda_rl.ODAClassifier(6, prediction="nearest"), oda_rl.ODAClassifier(),
        oda_rl.SGDGaussianMixture(3),
        oda_rl.SGDGaussianMixture(3, covariance_type="tied_spherical"),
    ):  # fmt: skip
        model.set_params(random_state=0).fit(points, NUMBERS)
        assert "NaN is a missing value." in compare(model, tmp_path, points)
    predicted, _ = run(oda_rl.ODARegressor(5, random_state=0).fit(IRIS, NUMBERS), tmp_path, points)
    np.testing.assert_array_equal(np.isnan(predicted), np.isnan(HOLED).any(axis=1))


def test_header_explains_labels(tmp_path):
    words = np.array(["a", "b */ c", "d"])[NUMBERS // 5 + 1]
    header = compare(oda_rl.LVQ(2, random_state=0).fit(IRIS, words), tmp_path, IRIS)
    assert "number of a label:\n *     0  a\n *     1  b _/ c\n" in header
    header = compare(oda_rl.LVQ(2, random_state=0).fit(IRIS, 10_000 * NUMBERS), tmp_path, IRIS)
    assert "static const int32_t oda_labels[" in header
    assert "Tables: 160 bytes" in header  # 6 rows of 5 numbers, 6 labels, and an origin
    assert "math.h" not in header


def test_errors_of_unsupported_models(tmp_path):
    def refused(model, match, out="predict.h"):
        with pytest.raises(ValueError, match=match):
            export_c(model, tmp_path / out)
        assert list(tmp_path.iterdir()) == []

    tree = oda_rl.ODATreeClassifier(random_state=0).fit(IRIS, NAMES)
    refused(tree, "estimator is of ODATreeClassifier: it must be an ODAClusterer, ODAClassifier")
    refused(KMeans(2), "estimator is of KMeans")
    full = oda_rl.SGDGaussianMixture(2, covariance_type="full", tol=1e-2, random_state=0).fit(MOONS)
    refused(full, "covariance_type is 'full': to be exported to C it must be 'diag'")
    finite = oda_rl.INFEX(kernel="epanechnikov", bandwidth=0.5).fit(MOONS)
    refused(finite, "kernel is 'epanechnikov': it must be 'gaussian'")
    refused(
        oda_rl.StochasticVQ(2, random_state=0).fit(1e60 * MOONS),
        "beyond the range of single precision",
    )
    refused(oda_rl.LVQ(random_state=0).fit(MOONS, 2**40 * SIDES), "they must fit 32 bits")
    with pytest.raises(NotFittedError):
        export_c(oda_rl.LVQ(), tmp_path / "predict.h")
