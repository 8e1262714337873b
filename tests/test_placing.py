"""Cells are placed in compiled code where numpy, step by step, would place them."""

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO

from oda_rl.agents import ODAPartition, TwoTimescaleAgent
from oda_rl.agents.two_timescale import placing

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
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * np.abs(other).max(initial=0.0))


@pytest.fixture
def placed(monkeypatch):
    """How often compiled code has placed cells."""
    seen = []
    own = placing._place
    monkeypatch.setattr(placing, "_place", lambda *args: seen.append(1) or own(*args))
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
def test_levels_end_as_with_numpy(env, settings, seed, placed):
    engines = twins(env, 1200, settings, seed)
    for _ in range(4):
        so_far = len(placed)
        for engine in engines:
            engine._reshape()
        assert len(placed) == so_far + 1
        one, other = (engine.state_arrays() for engine in engines)
        assert one["state"].tobytes() == other["state"].tobytes()
        for name in NAMES:
            close(one[name], other[name])
        close(one["partition_spread"], other["partition_spread"])
        close(*(engine.history[-1].lineage for engine in engines))
        if not engines[0].partition.active:
            break


@pytest.mark.parametrize("steps", [500, 1200])  # without a metric yet, and with one
@pytest.mark.parametrize("env", [BARTO, "MountainCar-v0", "nine components"])
def test_cells_start_as_with_numpy(env, steps, placed):
    engines = twins(env, steps, {}, 0)
    for engine in engines:
        engine.start()
    assert len(placed) > 0
    one, other = (engine.state_arrays() for engine in engines)
    assert one["state"].tobytes() == other["state"].tobytes()
    assert one["partition_schedule"].tobytes() == other["partition_schedule"].tobytes()
    for name in (*NAMES, "partition_spread"):
        close(one[name], other[name])


def test_so_they_do_where_several_environments_teach(placed):
    vector = gym.make_vec("CartPole-v1", num_envs=3)
    engines = twins(vector, 3600, {}, 0)
    for engine in engines * 2:
        engine._reshape()
    assert len(placed) > 0
    one, other = (engine.state_arrays() for engine in engines)
    for name in NAMES:
        close(one[name], other[name])
    np.testing.assert_array_equal(one["lanes"]["cell"], other["lanes"]["cell"])


@pytest.mark.parametrize(
    "settings", [{"metric": "std"}, {"metric": tuple(map(tuple, np.eye(4)))}, {"partition": "som"}]
)
def test_other_metrics_and_cells_go_without(settings, placed):
    TwoTimescaleAgent(BARTO, seed=0, **settings).learn(4000)
    assert not placed
