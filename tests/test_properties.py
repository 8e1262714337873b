"""What holds of every estimator, partition and agent, whatever it is given: drawn by hypothesis."""

import re
import warnings

import numpy as np
import pytest
from environments import Toy
from hypothesis import given, settings
from hypothesis import strategies as st
from test_numbers import ESTIMATORS, LARGEST, estimator

from oda_rl import agents

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
few = settings(max_examples=4, deadline=None, derandomize=True, database=None)

SHAPES = {
    "clouds": lambda rng, n, d: rng.normal(size=(n, d)) + 4.0 * rng.integers(3, size=(n, 1)),
    "constant": lambda rng, n, d: np.tile(rng.normal(size=d), (n, 1)),
    "duplicates": lambda rng, n, d: rng.normal(size=(3, d))[rng.integers(3, size=n)],
    "collinear": lambda rng, n, d: rng.normal(size=(n, 1)) * rng.normal(size=d),
    "unequal features": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** np.linspace(0, 6, d),
    "flips": lambda rng, n, d: np.where(np.arange(n)[:, None] % 2, 1.0, -1.0) * np.ones(d),
    "drift": lambda rng, n, d: 0.1 * rng.normal(size=(n, d)) + np.linspace(0, 20, n)[:, None],
}
# Whose units are not powers of two: other units change the last bits.
ABSOLUTE = ("SGDGaussianMixture", "StochasticEMGaussianMixture", "DensityClassifier",
            "DensityOutlierDetector")  # fmt: skip
# Codevectors also move away from samples of other classes.
REPELLED = ("LVQ", "ODAClassifier", "DistributedODAClassifier")


POWERS = st.sampled_from([0, 0, 3, 60, 132, -3, -60, -150, -300, -315])


@st.composite
def points(draw, largest=POWERS):
    """Samples of some shape, whose greatest numbers are some power of ten or subnormal."""
    shape = draw(st.sampled_from(sorted(SHAPES)))
    n, d = draw(st.sampled_from([2, 3, 7, 30])), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    return SHAPES[shape](rng, n, d) * 10.0 ** draw(largest)


def arguments(name, X, classes=(0, 1, 2)):
    """What an estimator is fitted to."""
    if "Class" in name or name == "LVQ":
        return X, np.asarray(classes)[np.arange(len(X)) % len(classes)]
    return (X, X.sum(axis=1)) if name.endswith("Regressor") else (X,)


TOO_FEW = r"n_samples(=\d+ should be)? >= n_(clusters|components)|have no candidate|squares vanish"


def fitted(name, *data):
    """A fitted estimator, or None if it refuses so few samples, or such small gaps."""
    model = estimator(name)
    if name == "KernelVectorQuantization":
        reach = 2.0 * np.linalg.norm(np.ptp(data[0], axis=0))
        model.set_params(max_distortion=max(reach, 2.0**-20 * np.abs(data[0]).max(), 1e-100))
    try:
        return model.fit(*data)
    except ValueError as error:
        if re.search(TOO_FEW, str(error)):
            return None
        raise


def centres(model):
    """Its codevectors, exemplars or means, or those of its densities."""
    if hasattr(model, "densities_") or hasattr(model, "density_"):
        own = getattr(model, "densities_", None) or [model.density_]
        return np.concatenate([centres(one) for one in own])
    names = ("codevectors_", "exemplars_", "means_")
    return next(np.asarray(getattr(model, name)) for name in names if hasattr(model, name))


@pytest.mark.parametrize("name", ESTIMATORS)
@few
@given(X=points())
def test_what_is_learned_is_a_distribution_over_places_among_the_samples(name, X):
    model = fitted(name, *arguments(name, X))
    if model is None:
        return
    found = centres(model)
    assert np.isfinite(found).all()
    if name not in REPELLED:
        # Of splits that no sample has come to since, codevectors are off by a perturbation.
        off = 0.05 * np.ptp(X) + 1e-9 * np.abs(X).max() + (0.05 if name in ABSOLUTE else 0.0)
        assert (found >= X.min(axis=0) - off).all()
        assert (found <= X.max(axis=0) + off).all()
    if hasattr(model, "weights_"):
        weights = np.asarray(model.weights_)
        assert (weights >= 0.0).all()
        assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(X)
        assert (shares >= 0.0).all()
        np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-9)
    assert len(model.predict(X)) == len(X)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ABSOLUTE])
@few
@given(X=points(st.just(0)), power=st.sampled_from([-300, -40, -1, 7, 40, 300]))
def test_units_change_nothing_but_the_units(name, X, power):
    unit = 2.0**power  # exact
    one, other = (fitted(name, *arguments(name, X * u)) for u in (1.0, unit))
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_array_equal(centres(other), unit * centres(one))
        if not name.endswith("Regressor"):  # whose predictions are in these units, too
            np.testing.assert_array_equal(other.predict(unit * X), one.predict(X))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name in REPELLED or "Cla" in name])
@few
@given(X=points())
def test_names_of_classes_change_nothing_but_the_names(name, X):
    one = fitted(name, *arguments(name, X))
    other = fitted(name, *arguments(name, X, ("a", "bird", "cell")))
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_array_equal(centres(other), centres(one))
        np.testing.assert_array_equal(
            other.predict(X), np.array(["a", "bird", "cell"])[one.predict(X)]
        )


SMALL = {
    agents.GridPartition: {"bins": 3},
    agents.SOMPartition: {"map_shape": (3, 3), "map_samples_per_cell": 20},
    agents.GMMPartition: {"mixture_components": 4, "mixture_samples_per_cell": 50},
    agents.InfexPartition: {},
}


@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.__name__)
@few
@given(X=points(st.sampled_from([0, 50, -50])))
def test_lineages_share_out_what_there_was_and_cells_stay_among_the_points(kind, X):
    d, spread = X.shape[1], X.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    cells = kind(**SMALL[kind]).prepare(d, np.random.default_rng(0))
    cells.start(X)
    before = cells.codevectors
    low = np.minimum(X.min(axis=0), before.min(axis=0)) - 0.3 * spread
    high = np.maximum(X.max(axis=0), before.max(axis=0)) + 0.3 * spread
    for t in range(6):
        old = cells.n_cells
        lineage = cells.observe(X[np.arange(100 * t, 100 * t + 100) % len(X)])
        if lineage is not None:
            assert lineage.shape == (cells.n_cells, old)
            assert (lineage >= 0.0).all()
            np.testing.assert_allclose(lineage.sum(axis=1), 1.0, atol=1e-9)
        assert cells.n_cells <= cells.capacity
    found = cells.codevectors
    assert ((found >= low) & (found <= high)).all()


class Paying(Toy):
    """Pays for the action by the signs of two features, in units of one's own."""

    def __init__(self, length, least, most, far=1.0):
        super().__init__(n_actions=3, length=length)
        self.least, self.most, self.far = least, most, far

    def reset(self, **options):
        self.last, info = super().reset(**options)
        return self.far * self.last, info

    def step(self, action):
        right = action == np.count_nonzero(self.last > 0.0)
        self.last, _, *ends = super().step(action)
        return self.far * self.last, self.most if right else self.least, *ends


AGENTS = [
    *(
        (agents.TwoTimescaleAgent, {"partition": name})
        for name in ("oda", "grid", "som", "gmm", "infex")
    ),
    (agents.FittedQAgent, {}),
]
kinds = pytest.mark.parametrize(
    ("kind", "options"), AGENTS, ids=lambda value: getattr(value, "__name__", None)
)


@kinds
@settings(few, max_examples=3)
@given(
    least=st.floats(-1.0, 1.0), most=st.floats(-1.0, 1.0), length=st.sampled_from([1, 7, None]),
    unit=st.sampled_from([1.0, 1e-300, 1e-30, 0.9 * LARGEST]), seed=st.integers(0, 99),
)  # fmt: skip
def test_values_lie_within_what_rewards_could_add_up_to(
    kind, options, least, most, length, unit, seed
):
    if kind is agents.TwoTimescaleAgent:  # traces add up what several steps have learned of a cell
        options = {**options, "trace_decay": 0.0}
    agent = kind(Paying(length, unit * least, unit * most), seed=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        agent.learn(600)
    longest = 1.0 / (1.0 - agent.config.gamma)
    # Slopes of few states in a cell lead values a little beyond.
    slack = (1e-2 if kind is agents.FittedQAgent else 1e-1) * unit * longest
    assert agent.q_values.min() >= min(0.0, unit * least, unit * most) * longest - slack
    assert agent.q_values.max() <= max(0.0, unit * least, unit * most) * longest + slack


@kinds
@settings(few, max_examples=2)
@given(
    paid=st.sampled_from([-100, -20, 20, 100]), far=st.sampled_from([-400, -20, 20, 400]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_units_of_rewards_and_observations_change_nothing_else(kind, options, paid, far, seed):
    one, other = (
        kind(Paying(8, -0.25 * unit, unit, meter), seed=seed, **options).learn(800)
        for unit, meter in ((1.0, 1.0), (2.0**paid, 2.0**far))
    )
    np.testing.assert_array_equal(other.q_values, 2.0**paid * one.q_values)
    np.testing.assert_array_equal(other.codevectors, 2.0**far * one.codevectors)


@pytest.mark.parametrize("power", [-400, -150, 150])
def test_values_in_extreme_units_differ_by_rounding(power):
    # In single precision rewards of 2^-150 would all be 0.
    one, other = (
        agents.FittedQAgent(Paying(8, -0.25 * unit, unit), seed=1, min_refit=300).learn(320)
        for unit in (1.0, 2.0**power)
    )
    assert one.metric_ is not None
    learned = one.n_cells > 1  # a constant action, where that is delivered, has no values
    scale = 2.0**power if learned else 1.0
    np.testing.assert_allclose(other.q_values, scale * one.q_values, rtol=1e-6)
    np.testing.assert_allclose(other.metric_, one.metric_, atol=1e-5)
