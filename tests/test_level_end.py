"""The end of a temperature level in compiled code does what numpy does step by step."""

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO

from oda_rl.agents import ODAPartition, TwoTimescaleAgent
from oda_rl.agents.two_timescale import engine as module

NAMES = "table", "metric", "partition_cells", "partition_diagram", "partition_metric"


class Unknown(ODAPartition):
    """The same cells, of which the engine does not know that they are."""


def nine_components():
    """A cart-pole of which also squares are seen, and one product."""
    space = gym.spaces.Box(-np.inf, np.inf, (9,))
    return gym.wrappers.TransformObservation(
        gym.make(BARTO), lambda x: np.concatenate([x, x * x, [x[0] * x[1]]]), space
    )


def twins(env, steps, settings, seed):
    """Two engines in the state of an agent's, the second of which works with numpy."""
    env = nine_components() if env == "nine components" else env
    agent = TwoTimescaleAgent(env, partition=ODAPartition(**settings), seed=seed).learn(steps)
    arrays = {name: np.array(array) for name, array in agent._engine.state_arrays().items()}
    found = []
    for kind in (ODAPartition, Unknown):
        engine = TwoTimescaleAgent(env, partition=kind(**settings), seed=seed)._engine
        engine.restore(arrays)
        found.append(engine)
    return found


def close(one, other):
    # Sums of a few numbers, perhaps in another order: some 1e-15 of the largest.
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * np.abs(other).max())


@pytest.fixture
def ends(monkeypatch):
    """How many levels have ended in compiled code."""
    seen = []
    own = module.end_level
    monkeypatch.setattr(module, "end_level", lambda *args: seen.append(1) or own(*args))
    return seen


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (BARTO, {}),
        (BARTO, {"max_cells": 3}),  # annealing ends with the second level
        (BARTO, {"merge_threshold": 2.0}),  # nearly all become one
        (BARTO, {"min_mass": 0.4, "samples_per_level": 150}),  # most are dropped
        ("MountainCar-v0", {"initial_temperature": 0.5}),
        ("Acrobot-v1", {}),
        ("nine components", {"max_cells": 32}),
    ],
)
def test_levels_end_as_with_numpy(env, settings, seed, ends):
    engines = twins(env, 1200, settings, seed)
    for _ in range(4):
        so_far = len(ends)
        for engine in engines:
            engine._reshape()
        assert len(ends) == so_far + 1
        one, other = (engine.state_arrays() for engine in engines)
        assert one["state"].tobytes() == other["state"].tobytes()
        for name in NAMES:
            close(one[name], other[name])
        close(one["partition_spread"], other["partition_spread"])
        close(*(engine.history[-1].lineage for engine in engines))
        if not engines[0].partition.active:
            break


def test_so_they_do_where_several_environments_teach(ends):
    vector = gym.make_vec("CartPole-v1", num_envs=3)
    engines = twins(vector, 3600, {}, 0)
    for engine in engines * 2:
        engine._reshape()
    assert len(ends) > 0
    one, other = (engine.state_arrays() for engine in engines)
    for name in NAMES:
        close(one[name], other[name])
    np.testing.assert_array_equal(one["lanes"]["cell"], other["lanes"]["cell"])


@pytest.mark.parametrize(
    "settings", [{"metric": "std"}, {"metric": tuple(map(tuple, np.eye(4)))}, {"partition": "som"}]
)
def test_other_metrics_and_cells_go_without(settings, ends):
    TwoTimescaleAgent(BARTO, seed=0, **settings).learn(4000)
    assert not ends
