"""Components of very different sizes: all that is learned is finite, and what is saved loads."""

import gymnasium as gym
import numpy as np
import pytest

from oda_rl import LVQ, SOM, ODAClassifier, ODAClusterer, SGDGaussianMixture
from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, load_agent
from oda_rl.files.archive import load_archive

EXPONENTS = (-1000, -530, -515, 440, 500, 1000)  # -515 is 9e-156; from 499 on refused
# Members of files that hold infinities or NaN of their own: no temperature, nothing seen yet.
INFINITE = {"history_temperature"}


class Scaled(gym.Env):
    """Pays for the side of the first component; one of two is scaled."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, component, exponent):
        self.factors = np.ones(2)
        self.factors[component] = 2.0**exponent

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.x = self.np_random.normal(size=2)
        return self.x * self.factors, {}

    def step(self, action):
        reward = float(action == (self.x[0] > 0.0))
        self.t += 1
        self.x = 0.5 * self.x + self.np_random.normal(size=2)
        return self.x * self.factors, reward, self.t == 20, False, {}


def check_finite(arrays):
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name not in INFINITE:
            assert np.isfinite(array).all(), name


@pytest.mark.parametrize(
    ("component", "exponent", "kind", "settings"),
    [
        *((0, e, kind, {}) for e in EXPONENTS for kind in (TwoTimescaleAgent, FittedQAgent)),
        *((1, e, kind, {}) for e in EXPONENTS[2:4] for kind in (TwoTimescaleAgent, FittedQAgent)),
        *((1, e, TwoTimescaleAgent, {"partition": name})
          for name, e in (("grid", -524), ("gmm", 440), ("som", -524), ("infex", 440))),
    ],
)  # fmt: skip
def test_agents(component, exponent, kind, settings, tmp_path):
    agent = kind(Scaled(component, exponent), seed=0, gamma=0.1, **settings)
    file = tmp_path / "agent.zip"
    if exponent >= 500:
        with pytest.raises(ValueError, match=rf"observation\[{component}\] is .* beyond 1e.150"):
            agent.learn(700)
        return
    agent.learn(700)
    agent.save(file)
    check_finite(load_archive(file)[1])
    np.testing.assert_array_equal(load_agent(file).q_values, agent.q_values)


@pytest.mark.parametrize("exponent", [-1000, -515, 440, 500])
@pytest.mark.parametrize(
    "model",
    [ODAClusterer(3, random_state=0), ODAClassifier(4, random_state=0), LVQ(2, random_state=0),
     SOM((2, 2), random_state=0), SGDGaussianMixture(2, random_state=0)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_estimators(model, exponent, tmp_path):
    rng = np.random.default_rng(0)
    X, y = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 4.0]), None
    y = np.repeat([0, 1], 100)
    X[:, 1] *= 2.0**exponent
    if exponent >= 500:
        with pytest.raises(ValueError, match=r"its values must be from .* \(in feature 1\)"):
            model.fit(X, y)
        return
    model.fit(X, y).save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    file = tmp_path / "agent.zip"
    agent = TwoTimescaleAgent(Scaled(0, 0), seed=0).learn(500)
    agent.save(file)
    before = file.read_bytes()
    agent._engine.places[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"agent.zip' was not written, .*places\[0, 0, 0\] is nan"):
        agent.save(file)
    with pytest.raises(ValueError, match="checkpoint.zip' was not written"):
        agent.learn(10, checkpoint=tmp_path / "checkpoint.zip", checkpoint_every=5)
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"agent.zip"}
    model = ODAClusterer(2, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    model.cluster_centers_[0, 0] = np.nan
    with pytest.raises(ValueError, match="model.zip' was not written, .* is nan"):
        model.save(tmp_path / "model.zip")
