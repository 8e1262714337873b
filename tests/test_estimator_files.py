"""Every estimator can be saved and loaded, and continues as it would have."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.datasets import make_moons

import oda_rl
from oda_rl import InvalidFileError, SGDGaussianMixture, StochasticEMGaussianMixture
from oda_rl.files.archive import load_archive, save_archive

MOONS, LABELS = make_moons(300, noise=0.15, random_state=0)
MOONS += 5.0  # in the domain of every divergence

EXPORTED = [getattr(oda_rl, name) for name in oda_rl.__all__]
KINDS = [kind for kind in EXPORTED if issubclass(kind, BaseEstimator)]
SETTINGS = {
    "BatchDeterministicAnnealing": {"n_clusters": 5}, "ConvexClustering": {"bandwidth": 0.3},
    "INFEX": {"bandwidth": 0.3}, "KernelVectorQuantization": {"max_distortion": 0.5},
    "LVQ": {"n_prototypes": 3}, "SOM": {"shape": [3, 4]},
    **{kind.__name__: {"n_components": 4} for kind in KINDS if "Mixture" in kind.__name__},
    **{kind.__name__: {"max_depth": 2} for kind in KINDS if "Tree" in kind.__name__},
    **{kind.__name__: {"n_clusters": 4} for kind in KINDS if re.search("ODA[CR]", kind.__name__)},
}  # fmt: skip
STREAMED = [
    (kind, {}) for kind in KINDS if hasattr(kind, "partial_fit") and "ODA" not in kind.__name__
] + [
    (SGDGaussianMixture, {"batch_size": 30, "covariance_type": "full"}),
    (SGDGaussianMixture, {"update": "sgd", "covariance_type": "tied_spherical"}),
    (SGDGaussianMixture, {"forgetting": 0.01, "batch_size": 64}),
    (StochasticEMGaussianMixture, {"batch_size": 50, "covariance_type": "full"}),
]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def made(kind, **more):
    seed = {"random_state": 0} if "random_state" in kind().get_params() else {}
    return kind(**{**SETTINGS.get(kind.__name__, {}), **seed, **more})


def outputs(model, points=MOONS):
    """Return all predictions of an estimator, and its learned attributes."""
    methods = ("predict", "predict_proba", "transform", "score_samples", "apply")
    values = {name: getattr(model, name)(points) for name in methods if hasattr(model, name)}
    names = [name for name in vars(model) if name[0] != "_" and name[-1] == "_"]
    names += ["means_", "weights_", "covariances_", "codevectors_", "cluster_centers_"]
    values |= {name: getattr(model, name) for name in names if hasattr(model, name)}
    return {name: value for name, value in values.items() if not hasattr(value, "keys")}


def assert_same(first, second):
    first, second = outputs(first), outputs(second)
    assert first.keys() == second.keys()
    for name, value in first.items():
        if isinstance(value, list | BaseEstimator):
            assert str(second[name]) == str(value)
        else:
            np.testing.assert_array_equal(second[name], value)
            assert np.asarray(second[name]).dtype == np.asarray(value).dtype


@pytest.mark.parametrize("kind", KINDS)
def test_fitted_estimators(kind, tmp_path):
    frame = pd.DataFrame(MOONS, columns=["east", "north"])
    model = made(kind).fit(frame, LABELS)
    model.save(tmp_path / "model.zip")
    loaded = kind.load(tmp_path / "model.zip")
    assert loaded.get_params() == model.get_params()
    assert vars(loaded).keys() == vars(model).keys()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["north", "east"]])
    for one in (model, loaded):
        del one.feature_names_in_
    assert_same(model, loaded)
    with pytest.raises(ValueError, match=f"holds {kind.__name__}, not Other"):
        type("Other", (kind,), {}).load(tmp_path / "model.zip")


@pytest.mark.parametrize("kind", KINDS)
def test_unfitted_estimators(kind, tmp_path):
    made(kind).save(tmp_path / "model.zip")
    loaded = kind.load(tmp_path / "model.zip").fit(MOONS, LABELS)
    assert_same(loaded, made(kind).fit(MOONS, LABELS))


@pytest.mark.parametrize(("kind", "more"), STREAMED)
@pytest.mark.parametrize(("steps", "dtype"), [(20, np.float64), (150, np.float32)])
def test_streams_continue_to_the_same_bits(kind, more, steps, dtype, reloaded):
    points = MOONS.astype(dtype)
    model = made(kind, **more).partial_fit(points[:steps])
    loaded = reloaded(model)
    for one in (model, loaded):
        one.partial_fit(points[steps:])
    assert_same(model, loaded)


def test_settings_of_scikit_learn_are_saved(reloaded):
    with sklearn.config_context(enable_metadata_routing=True):
        model = oda_rl.ODAClusterer(3, random_state=0).set_output(transform="pandas")
        model.set_fit_request(sample_weight="how_much").fit(MOONS)  # which is not saved
        loaded = reloaded(model)
        assert list(loaded.transform(MOONS).columns) == [f"odaclusterer{k}" for k in range(3)]


# Invalid files.


def changed(kind, path, change, **more):
    """Save a model of which one attribute has been changed."""
    model = made(kind, **more).partial_fit(MOONS)
    change(model)
    model.save(path)
    return path


def put(**values):
    """Return a change of the mixture's arrays."""

    def change(model):
        for name, value in values.items():
            model._mixture = model._mixture._replace(**{name: value(getattr(model._mixture, name))})

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [(put(weights=lambda a: a[:-1]), "weights has shape"),
     (put(means=lambda a: a * np.nan), "means.* is nan"),
     (put(means=lambda a: a.astype(np.float32)), "has 2 dtypes"),
     (put(means=lambda a: a.astype(np.int64)), "must be of float64"),
     (put(precisions=lambda a: a[:, :1]), "must have 2 columns"),
     (put(precisions=lambda a: -a), "must be a number in"),
     (put(progress=lambda a: a[:-8]), "another size"),
     (lambda model: delattr(model, "_rules"), "only some"),
     (lambda model: setattr(model, "more", 1), "unknown attribute"),
     (lambda model: setattr(model, "_rules", model._rules._replace(period=0)), "period is 0")],
)  # fmt: skip
def test_invalid_mixtures(change, message, tmp_path):
    with pytest.raises(ValueError, match=f"could not be loaded: .*{message}"):
        SGDGaussianMixture.load(changed(SGDGaussianMixture, tmp_path / "model.zip", change))


def test_invalid_grid_of_a_map(tmp_path):
    def change(model):
        model._grid = (5, 5)

    with pytest.raises(ValueError, match="could not be loaded: .*_grid has 25 places: it must"):
        oda_rl.SOM.load(changed(oda_rl.SOM, tmp_path / "model.zip", change))


@pytest.mark.parametrize("kind", KINDS)
def test_infinite_codevectors(kind, tmp_path):
    made(kind).fit(MOONS, LABELS).save(tmp_path / "model.zip")
    metadata, arrays = load_archive(tmp_path / "model.zip")
    names = [n for n, a in arrays.items() if a.dtype == float and a.shape[1:] == (2,) and a.size]
    for name in names[:: max(1, len(names) // 5)]:
        others = {**arrays, name: np.full_like(arrays[name], np.inf)}
        save_archive(tmp_path / "other.zip", metadata, others)
        with pytest.raises(InvalidFileError, match="is inf|are not|out of|another"):
            kind.load(tmp_path / "other.zip")
