"""A classifier in C learns as it does in Python."""

import re
import subprocess

import numpy as np
import oracles
import pytest
from test_export import FLAGS, PROGRAMS

from oda_rl import LVQ, ODAClassifier
from oda_rl.divergences import Mahalanobis
from oda_rl.exporting import export_c

NAMES = np.array(["a", "b", "c"])
NEAR_LABELS = np.array([-3, 7, 400])
EXP = """
#include <stdio.h>
#include "predict.h"

int main(void)
{
    float x;
    while (fread(&x, sizeof x, 1, stdin) == 1) {
        x = oda_exp(x);
        fwrite(&x, sizeof x, 1, stdout);
    }
    return 0;
}
"""
REFUSALS = """
#include <stdio.h>
#include <string.h>
#include "predict.h"

static float zero = 0.0f;

int main(void)
{
    oda_learner learner, before;
    float obs[ODA_FEATURES] = {0.0f, 1.0f, 2.0f, 3.0f};
    oda_init(&learner);
    before = learner;
    printf("%u %d", (unsigned)sizeof learner, oda_partial_fit(&learner, obs, 8));
    obs[1] = 0.0f / zero;
    printf(" %d", oda_partial_fit(&learner, obs, 7));
    obs[1] = 1.0f / zero;
    printf(" %d", oda_partial_fit(&learner, obs, 7));
    obs[1] = 1e30f;
    printf(" %d %d", oda_partial_fit(&learner, obs, 7), memcmp(&learner, &before, sizeof learner));
    obs[1] = 1.0f;
    printf(" %d", oda_partial_fit(&learner, obs, 7));
    printf(" %d %d", memcmp(&learner, &before, sizeof learner) != 0, oda_predict(&learner, obs));
    return 0;
}
"""


def drawn(n, seed=0, speed=0.0):
    """Three classes of two clouds each in four features, which may drift; and their numbers."""
    rng = np.random.default_rng(seed)
    clouds = np.random.default_rng(0).normal(size=(3, 2, 4))
    numbers, which = rng.choice(3, size=n, p=[0.5, 0.3, 0.2]), rng.integers(2, size=n)
    drift = speed * np.linspace(0.0, 1.0, n)[:, None]
    return clouds[numbers, which] + drift + 0.5 * rng.normal(size=(n, 4)), numbers


def fitted(labels=NAMES, *, offset=0.0, size=1.0, n_clusters=8, **settings):
    X, numbers = drawn(2_000, seed=1)
    settings = {"prediction": "density", **settings}
    model = ODAClassifier(n_clusters, random_state=0, **settings)
    return model.fit(size * X + offset, labels[numbers])


def compiled(model, folder, source, compiler=("gcc", *FLAGS)):
    header = export_c(model, folder / "predict.h", learn=True).read_text()
    program = folder / ("program.cpp" if compiler[0] == "g++" else "program.c")
    program.write_text(source)
    subprocess.run([*compiler, "-O1", program, "-o", folder / "program"], check=True)
    return folder / "program", header


def learned(model, folder, X, y, block):
    """Predictions in C, and what has changed: state by names."""
    program, header = compiled(model, folder, (PROGRAMS / "adapting.c").read_text())
    d, (n, c) = model.n_features_in_, (len(model.codevectors_), len(model.classes_))
    rows = np.zeros(len(X), dtype=[("obs", np.float32, d), ("label", np.int32)])
    rows["obs"], rows["label"] = X, y
    command = [program, str(len(X)), str(block)]
    done = subprocess.run(command, input=rows.tobytes(), capture_output=True, check=True).stdout
    numbers = np.frombuffer(done[: -4 * len(X)], dtype=np.float32)
    assert numbers.nbytes == int(re.search(r"State: (\d+) bytes", header)[1])
    codevectors, masses, clocks, *_ = np.split(numbers, np.cumsum([n * d, n, c]))
    unit = float(re.search(r"define ODA_UNIT (.*)f", header)[1])
    origin = re.search(r"oda_origin\[ODA_FEATURES\] = {\n(.*),\n", header)[1].replace("f", "")
    places = codevectors.reshape(n, d) / unit + np.array(origin.split(","), dtype=float)
    return np.frombuffer(done[-4 * len(X) :], dtype=np.int32), places, masses, clocks


def python_learned(model, X, y, block):
    found = []
    for begin in range(0, len(X), block):
        rows = slice(begin, begin + block)
        found.append(model.predict(X[rows]))
        model.partial_fit(X[rows], y[rows])
    return np.concatenate(found)


def masses_of(model):
    sizes = np.unique(model.codevector_labels_, return_counts=True)[1]
    return model.weights_ / np.repeat(model.class_prior_, sizes)


CASES = {
    "names": (NAMES, {}, 0.0),
    "nearest": (NEAR_LABELS, {"prediction": "nearest"}, 0.0),
    "drift": (np.arange(3), {"forgetting": 0.02}, 4.0),
    "far off": (NAMES, {"offset": 300.0, "size": 1e-2}, 0.0),
    "many": (NEAR_LABELS, {"n_clusters": 19, "forgetting": 1e-3}, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions_are_those_of_python(name, tmp_path):
    labels, settings, speed = CASES[name]
    model = fitted(labels, **settings)
    before = model._annealer._clocks.copy()
    X, numbers = drawn(100_000, speed=speed)
    X = (settings.get("size", 1.0) * X + settings.get("offset", 0.0)).astype(np.float32)
    codes = numbers if labels is NAMES else labels[numbers]
    found, places, masses, clocks = learned(model, tmp_path, X, codes, 1000)
    expected = python_learned(model, X, labels[numbers], 1000)
    if labels is NAMES:
        expected = np.searchsorted(NAMES, expected)
    assert (found != expected).sum() <= 3  # equal up to 1e-5: of 2,000,000 there were 3
    # The distance that the temperature is.
    width = np.sqrt(model.temperature_)
    np.testing.assert_allclose(places, model.codevectors_, rtol=0, atol=1e-2 * width)
    np.testing.assert_allclose(masses, masses_of(model), rtol=1e-3)
    np.testing.assert_array_equal(clocks, before + np.bincount(numbers))


@pytest.mark.parametrize("forgetting", [0.0, 0.05])
def test_learning_is_that_of_the_formula(forgetting, tmp_path):
    model = fitted(NAMES, forgetting=forgetting)
    X, numbers = drawn(3_000)
    X = X.astype(np.float32)
    clocks = np.bincount(drawn(2_000, seed=1)[1]).astype(np.float32)
    oracle, expected = oracles.SinglePrecisionClassifier(model, clocks), []
    for x, label in zip(X, NAMES[numbers], strict=True):
        expected.append(oracle.predict(x))
        oracle.learn(x, label)
    found, places, masses, _ = learned(model, tmp_path, X, numbers, 1)
    # The formula leaves out no shares below a millionth.
    assert oracle.codevectors.dtype == oracle.of_prediction.dtype == np.float32
    assert (NAMES[found] == expected).mean() > 0.999
    np.testing.assert_allclose(places, oracle.codevectors, atol=1e-4)
    np.testing.assert_allclose(masses, oracle.masses, atol=1e-4)


def test_a_stream_goes_on_where_it_was(tmp_path):
    X, numbers = drawn(20_000)
    X = X.astype(np.float32)
    model = ODAClassifier(8, max_samples=2_000, random_state=0)
    for begin in range(0, 10_000, 500):  # labels do not come in their order
        rows = slice(begin, begin + 500)
        model.partial_fit(X[rows], -numbers[rows])
    rest = slice(10_000, 20_000)
    found = learned(model, tmp_path, X[rest], -numbers[rest], 10)[0]
    np.testing.assert_array_equal(found, python_learned(model, X[rest], -numbers[rest], 10))


def test_exponentials_without_a_library(tmp_path):
    program, _ = compiled(fitted(), tmp_path, EXP)
    x = np.append(np.linspace(0.0, 86.0, 10_000), [0.0, 87.0, 1e9, np.inf, np.nan])
    x = x.astype(np.float32)
    done = subprocess.run(program, input=x.tobytes(), capture_output=True, check=True).stdout
    found = np.frombuffer(done, dtype=np.float32)
    # The number of halvings is rounded, and that is multiplied with log 2.
    expected = np.exp(-x[:-4].astype(float))
    tolerance = (4.0 + 2.0 * x[:-4]) * 2.0**-24
    assert (np.abs(found[:-4] / expected - 1.0) <= tolerance).all()
    assert found[0] == 1.0
    assert not found[-4:].any()


@pytest.mark.parametrize(
    "compiler",
    [("gcc", *FLAGS), ("g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")],
    ids=lambda command: command[0],
)
def test_it_is_clean_small_and_refuses_what_is_no_sample(compiler, tmp_path):
    model = fitted(NEAR_LABELS)
    program, header = compiled(model, tmp_path, REFUSALS, compiler)
    done = subprocess.run(program, capture_output=True, check=True, text=True)
    size, *answers, label = map(int, done.stdout.split())
    assert size == int(re.search(r"State: (\d+) bytes", header)[1]) <= 480
    assert answers == [0, 0, 0, 0, 0, 1, 1]
    assert label in NEAR_LABELS
    assert re.findall(r"#include <(.*)>", header) == ["stdint.h"]
    assert "malloc" not in header


def test_what_can_not_learn_in_c_is_said(tmp_path):
    def refused(model, match):
        with pytest.raises(ValueError, match=match):
            export_c(model, tmp_path / "predict.h", learn=True)
        assert list(tmp_path.iterdir()) == []

    X, numbers = drawn(500)
    refused(LVQ().fit(X, numbers), "learn is True: it must be False for LVQ: what learns in C is")
    other = ODAClassifier(8, divergence=Mahalanobis(np.eye(4)), random_state=0).fit(X, numbers)
    refused(other, r"the divergence .*: it must be 'squared_euclidean'")
    learned = ODAClassifier(8, fine_tuning="mrslvq", random_state=0).fit(X, numbers)
    refused(learned, "a metric that was learned: set fine_tuning='rslvq'")
    stream = ODAClassifier(random_state=0).partial_fit(X[:50], numbers[:50])
    refused(stream, "still annealing, after 50 samples")
    refused(stream.partial_fit(X[50:300], numbers[50:300]), "still annealing, after 300 samples")
    point = ODAClassifier(random_state=0).fit([[0.0], [0.0], [4.0], [4.0]], [0, 0, 1, 1])
    refused(point, "knows of each class one point")
    X[100, 0] = np.nan
    holed = ODAClassifier(8, random_state=0).fit(X[:100], numbers[:100])
    export_c(holed, tmp_path / "predict.h", learn=True).unlink()
    refused(holed.partial_fit(X[100:], numbers[100:]), "goes on learning from missing values")
