"""Data frames of pandas and polars: names go in and come out, and nobody is warned for nothing."""

from itertools import cycle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from test_estimator_files import KINDS, made

import oda_rl

POINTS, LABELS = make_moons(200, noise=0.1, random_state=0)
POINTS += 5.0  # in the domain of every divergence
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}

MODELS = [made(kind) for kind in KINDS]
TRANSFORMERS = [model for model in MODELS if hasattr(model, "transform")]


def framed(library, points=POINTS):
    return FRAMES[library]({"east": points[:, 0], "north": points[:, 1]})


@pytest.mark.parametrize(("model", "library"), list(zip(MODELS, cycle(FRAMES))))
def test_frames_are_arrays_with_names(model, library):
    # Warnings are errors here: also those about names that are there.
    plain, named = clone(model).fit(POINTS, LABELS), clone(model).fit(framed(library), LABELS)
    assert named.feature_names_in_.tolist() == ["east", "north"]
    for method in ("predict", "predict_proba", "transform", "score_samples", "apply"):
        if hasattr(plain, method):
            found = getattr(named, method)(framed(library))
            np.testing.assert_array_equal(found, getattr(plain, method)(POINTS))
    if hasattr(plain, "partial_fit"):
        named.partial_fit(framed(library), LABELS)
        np.testing.assert_array_equal(
            named.predict(framed(library)), plain.partial_fit(POINTS, LABELS).predict(POINTS)
        )
    with pytest.raises(ValueError, match="feature names"):
        named.predict(framed(library)[["north", "east"]])


@pytest.mark.parametrize(("model", "library"), list(zip(TRANSFORMERS, cycle(FRAMES))))
def test_what_is_transformed_is_a_frame_if_asked_for(model, library):
    own = clone(model).set_output(transform=library).fit(POINTS, LABELS)
    out = own.transform(POINTS)
    assert isinstance(out, FRAMES[library])
    names = own.get_feature_names_out().tolist()
    assert list(out.columns) == names
    assert names == [f"{type(model).__name__.lower()}{k}" for k in range(len(own.codevectors_))]
    plain = own.set_output(transform="default").transform(POINTS)
    np.testing.assert_array_equal(np.asarray(out), plain)


def test_frames_of_dask_may_have_pandas_own_types():
    dask = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "whole": pd.array(rng.integers(0, 9, 60), dtype="Int64"),
        "arrow": pd.array(rng.normal(size=60), dtype="double[pyarrow]"),
        "truth": rng.random(60) > 0.5,
        "sure": pd.array(rng.random(60) > 0.5, dtype="bool[pyarrow]"),
    })  # fmt: skip
    labels = pd.Series(pd.array(rng.integers(0, 2, 60), dtype="Int64"))
    model = oda_rl.DistributedODAClassifier(4, fine_tuning=None, random_state=0)
    found, wanted = (
        clone(model).fit(*(dask.from_pandas(part, npartitions=2) for part in data))
        for data in ((frame, labels), (frame.astype(float), labels.astype("category")))
    )
    np.testing.assert_array_equal(found.codevectors_, wanted.codevectors_)
    assert found.classes_.tolist() == [0, 1]


def test_all_that_measure_distances_are_transformers():
    names = {type(model).__name__ for model in TRANSFORMERS}
    assert {"SOM", "StochasticVQ", "ODATreeClusterer", "ODATreeClassifier"} < names
