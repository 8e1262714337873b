"""Exported policies where states are numbers, or whole numbers: cells are often equally near."""

import re
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import test_export
from environments import quick_rule
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from oracles import decide
from test_export import DECISIONS, decisions, document_of, linked, predictions, run_in_c

from oda_rl import agents
from oda_rl.command.cli import main

TAXI = "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3"
STATES = np.arange(500, dtype=np.float32)[:, None]
SINGLE = partial(agents.FittedQAgent, n_fits=1)  # values of means that are equal differ by 1e-30
KINDS = {agents.ModelAgent: 2_000, agents.FittedQAgent: 3_000, agents.TwoTimescaleAgent: 3_000}


class Spelled(gym.ObservationWrapper):
    """A taxi whose state is spelled out: four whole numbers, or each of them one-hot."""

    def __init__(self, space):
        super().__init__(gym.make(TAXI))
        self.observation_space = space

    def observation(self, observation):
        numbers = list(self.unwrapped.decode(observation))
        return np.array(numbers, dtype=self.observation_space.dtype)


SPELLED = {
    "numbers": spaces.Box(0, 4, (4,), np.int64),
    "one-hot": spaces.MultiDiscrete([5, 5, 5, 4]),
}


def in_all_languages(agent, folder, observations, fixed_point=True):
    """Actions in C, in single precision and in fixed point, in ONNX and by JSON."""
    document = document_of(agent, folder)
    in_integers = run_in_c(agent, folder, observations, fixed_point=True) if fixed_point else None
    return {
        **({"fixed point": in_integers} if fixed_point else {}),
        "C": run_in_c(agent, folder, observations),
        "ONNX": test_export.run_in_onnx(agent, folder, observations),
        "JSON": [decide(document, observation) for observation in observations],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_numbered_states_are_a_table_everywhere(kind, tmp_path):
    agent = kind(TAXI, seed=0).learn(KINDS[kind])
    expected = predictions(agent, STATES[:, 0].astype(int))
    assert len(set(expected)) > 2
    for actions in in_all_languages(agent, tmp_path, STATES).values():
        np.testing.assert_array_equal(actions, expected)
    document = document_of(agent, tmp_path)
    assert document.pop("table") == {"first": 0, "actions": expected.tolist()}
    known = np.ravel(document["codevectors"]).astype(int)  # others may be as near to two cells
    assert [decide(document, state) for state in STATES[known]] == expected[known].tolist()
    text = agents.export_policy(agent, tmp_path / "policy.h").read_text()
    assert "Policy: a table of 500 states\n * Tables: 500 bytes" in text
    assert text == agents.export_policy(agent, tmp_path / "policy.h", fixed_point=True).read_text()


@pytest.mark.parametrize(
    ("kind", "name"),
    [(agents.ModelAgent, "one-hot"), (SINGLE, "numbers"), (agents.TwoTimescaleAgent, "numbers")],
)
def test_whole_numbers_that_are_equally_near(kind, name, tmp_path):
    space = SPELLED[name]
    agent = kind(Spelled(space), seed=1).learn(3_000)
    env = gym.make(TAXI).unwrapped
    numbers = np.array([list(env.decode(state)) for state in range(500)])
    states = numbers
    if name == "one-hot":
        states = np.array([spaces.flatten(space, state) for state in numbers])
    expected = agent.predict(numbers)[0]
    found = in_all_languages(agent, tmp_path, states.astype(np.float32), fixed_point=False)
    for actions in found.values():
        np.testing.assert_array_equal(actions, expected)
    assert "typedef double oda_number" in (tmp_path / "policy.h").read_text()


class Corridor(gym.Env):
    """Numbered places from 3 to 9; what pays is to go right, by an action of two components."""

    observation_space = spaces.Discrete(7, start=3)

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t = int(self.np_random.integers(3, 10)), 0
        return self.at, {}

    def step(self, action):
        right = float(np.ravel(action)[0]) > 0.0
        self.at, self.t = min(max(self.at + (1 if right else -1), 3), 9), self.t + 1
        return self.at, float(self.at), self.t == 20, False, {}


@pytest.mark.parametrize("kind", [agents.TwoTimescaleAgent, agents.FittedQAgent, quick_rule])
def test_numbers_that_do_not_begin_at_0(kind, tmp_path):
    agent = kind(Corridor(spaces.Discrete(2, start=0)), seed=0).learn(2_000)
    states = np.arange(3, 10)
    expected = predictions(agent, states)
    for actions in in_all_languages(agent, tmp_path, states[:, None].astype(np.float32)).values():
        np.testing.assert_array_equal(actions, expected)
    beyond = np.array([[-np.inf], [np.nan], [0.0], [2.0], [3.4], [9.4], [12.0], [3e38]])
    for run in (run_in_c, test_export.run_in_onnx):
        np.testing.assert_array_equal(run(agent, tmp_path, beyond), expected[[0] * 5 + [6] * 3])


def test_continuous_actions_of_numbered_states(tmp_path):
    box = spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 5.0]))
    agent = agents.CodevectorAgent(Corridor(box), seed=0).learn(1_000)
    states = np.arange(3, 10)
    expected, column = predictions(agent, states), states[:, None].astype(np.float32)
    document = document_of(agent, tmp_path)
    in_c = test_export.components_in_c(agent, tmp_path, column)
    np.testing.assert_allclose(in_c, expected, rtol=1e-6)
    onnx = test_export.run_in_onnx(agent, tmp_path, column, np.float32)
    np.testing.assert_allclose(onnx, expected, rtol=1e-6)
    np.testing.assert_allclose([decide(document, one) for one in column], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="fixed_point is True: it must be False for continuous"):
        agents.export_policy(agent, tmp_path / "policy.h", fixed_point=True)


def test_numbers_that_single_precision_does_not_tell_apart(tmp_path):
    class Far(Corridor):
        observation_space = spaces.Discrete(7, start=2**24)

        def _far(self, result):
            return result[0] + 2**24 - 3, *result[1:]

        def reset(self, **options):
            return self._far(super().reset(**options))

        def step(self, action):
            return self._far(super().step(action))

    agent = agents.FittedQAgent(Far(spaces.Discrete(2)), seed=0).learn(1_000)
    with pytest.raises(ValueError, match=r"start=16777216\): .*which is exact up to 16,777"):
        agents.export_policy(agent, tmp_path / "policy.h")


@pytest.fixture(scope="module")
def coarse():
    """An agent with 400 cells on a line, for which 16 bits are too few."""
    line = spaces.Box(0.0, 499.0, (1,), np.float32)  # whole numbers, not known to number states
    env = TransformObservation(gym.make(TAXI), lambda state: np.array([state], np.float32), line)
    return agents.ModelAgent(env, seed=0).learn(8_000)


def test_fixed_point_that_decides_otherwise_is_refused(coarse, tmp_path):
    path = tmp_path / "policy.h"
    with pytest.raises(ValueError, match="fixed_point is True: ") as refused:
        agents.export_policy(coarse, path, fixed_point=True)
    assert not path.exists()
    assert "and at least 99.9 % must be; export in single precision" in str(refused.value)
    agents.export_policy(coarse, path, fixed_point=True, allow_disagreement=True)
    text = path.read_text()
    told = re.search(r"\* ([\d.]+) % of decisions in 8,000 states of its training", text)
    assert f"fixed_point is True: {told[1]} % of decisions in 8,000 states" in str(refused.value)
    states = coarse.recent
    found = decisions(linked(tmp_path, DECISIONS, ["-lm"]), states)
    share = 100.0 * (found == predictions(coarse, states.astype(np.float32))).mean()
    assert share < 99.0
    assert float(told[1]) == pytest.approx(share, abs=0.01)
    np.testing.assert_array_equal(run_in_c(coarse, tmp_path, STATES), predictions(coarse, STATES))


def test_the_header_says_how_often_fixed_point_agrees(tmp_path):
    agent = agents.FittedQAgent("MountainCar-v0", seed=0).learn(3_000)
    path = agents.export_policy(agent, tmp_path / "policy.h", fixed_point=True)
    told = re.search(r"\* ([\d.]+) % of decisions in ([\d,]+) states", path.read_text())
    states = agent.recent
    assert int(told[2].replace(",", "")) == len(states) >= 600
    found = decisions(linked(tmp_path, DECISIONS, ["-lm"]), states)
    share = 100.0 * (found == predictions(agent, states.astype(np.float32))).mean()
    assert float(told[1]) == pytest.approx(share, abs=0.05)
    assert float(told[1]) >= 99.9


def test_the_command_asks_before_it_writes_what_disagrees(coarse, tmp_path, capsys):
    coarse.save(tmp_path / "agent.zip")
    command = ["export", str(tmp_path / "agent.zip"), "--fixed-point"]
    assert main(command) == 2
    assert "(--allow-disagreement)" in capsys.readouterr().err
    assert main([*command, "--allow-disagreement"]) == 0
    assert "int16_t oda_slopes" in (tmp_path / "agent.h").read_text()
    assert main(["export", str(tmp_path / "agent.zip"), "--allow-disagreement"]) == 2
    assert "allow_disagreement is True: it must be False without" in capsys.readouterr().err
