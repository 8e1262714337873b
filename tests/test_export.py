"""Exported policies decide as the agent does: in C, from JSON, and in ONNX."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import onnx
import pytest
from environments import BARTO, ODD, Exploring, Grid, Judged, Toy, Varied, quick_rule, steps_for
from oracles import decide, is_tie
from test_cell_policy import random_policy
from test_codevectors import Aim

from oda_rl.agents import (
    CodevectorAgent,
    FittedQAgent,
    ModelAgent,
    TwoTimescaleAgent,
    export_policy,
    load_agent,
)
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.spaces import ActionBox, Interface
from oda_rl.agents.policies.cells import CellPolicy, MixturePolicy
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.export_tables import CLIP
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.command.cli import main
from oda_rl.diagram import ordered
from oda_rl.divergences import quadratic_diagram

FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow"]
FLAGS += ["-Wdouble-promotion"]
SHARES = (0.0, 0.05, 0.2, 0.5, 1.0)  # of random actions
TIE = 1e-6

PROGRAMS = Path(__file__).parents[1] / "scripts" / "c"
DECISIONS, CARTPOLE = ((PROGRAMS / f"{name}.c").read_text() for name in ("decisions", "cartpole"))


TRAINED = {
    "online": (TwoTimescaleAgent, "MountainCar-v0", 8_000),
    "fitted": (FittedQAgent, Grid, 3_000),
    "model": (quick_rule, "CartPole-v1", 500),
    "mixture": (partial(TwoTimescaleAgent, partition="gmm"), "MountainCar-v0", 8_000),
}
KINDS = (TwoTimescaleAgent, FittedQAgent, quick_rule)


class Case:
    """A trained agent, observations of real episodes, and what it does there."""

    def __init__(self, kind, env, steps):
        make = (lambda: make_env(env)) if isinstance(env, str) else env
        self.agent = kind(make(), seed=0).learn(steps)
        each = 5_000 // len(SHARES)
        episodes = [
            self.agent.visited_states(each, env=Exploring(make(), share), seed=1)
            for share in SHARES
        ]
        self.observations = np.concatenate(episodes).astype(np.float32)
        self.actions = predictions(self.agent, self.observations)


@pytest.fixture(scope="module", params=TRAINED)
def case(request):
    return Case(*TRAINED[request.param])


def predictions(agent, observations):
    return agent.predict(observations.reshape(-1, *agent.interface.observation_shape))[0]


def compiled(agent, folder, source, fixed_point=False):
    """Compile a program with the agent's policy; mathematics is linked if a fitted one needs it."""
    export_policy(agent, folder / "policy.h", "c", fixed_point)
    blended = isinstance(agent.policy, CellPolicy)
    library = ["-lm"] if blended or source == CARTPOLE else []
    return linked(folder, source, library)


def linked(folder, source, library):
    """Compile a program with the policy in a folder."""
    (folder / "program.c").write_text(source)
    command = ["gcc", *FLAGS, "-O2", "-I", PROGRAMS, "program.c", "-o", "program", *library]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def run_in_c(agent, folder, observations, fixed_point=False):
    return decisions(compiled(agent, folder, DECISIONS, fixed_point), observations)


def decisions(program, observations):
    data = np.ascontiguousarray(observations, dtype=np.float32)
    command = [program, str(len(data))]
    done = subprocess.run(command, input=data.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.intc)


def run_in_onnx(agent, folder, observations, dtype=np.int64):
    import onnxruntime

    path = export_policy(agent, folder / "policy.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (actions,) = session.run(["action"], {"obs": observations.astype(np.float32)})
    assert actions.dtype == dtype
    return actions


def document_of(agent, folder):
    return json.loads(export_policy(agent, folder / "policy.json").read_text())


def assert_same_but_for_ties(agent, folder, observations, actions, share=1e-4):
    """All actions are the agent's, but where what it compares is equal up to 1e-6."""
    different = np.flatnonzero(actions != predictions(agent, observations))
    document = document_of(agent, folder)
    assert all(is_tie(document, observations[i], TIE) for i in different)
    assert len(different) <= share * len(observations)


def table_bytes(header):
    return int(re.search(r"Tables: (\d+) bytes", header)[1])


def test_c(case, tmp_path):
    actions = run_in_c(case.agent, tmp_path, case.observations)
    assert_same_but_for_ties(case.agent, tmp_path, case.observations, actions)


def test_c_in_fixed_point(case, tmp_path):
    if isinstance(case.agent.policy, MixturePolicy):
        with pytest.raises(ValueError, match="must be False for cells of a mixture"):
            export_policy(case.agent, tmp_path / "policy.h", fixed_point=True)
        return
    actions = run_in_c(case.agent, tmp_path, case.observations, fixed_point=True)
    assert (actions == case.actions).mean() >= 0.999


def test_onnx(case, tmp_path):
    actions = run_in_onnx(case.agent, tmp_path, case.observations)
    assert_same_but_for_ties(case.agent, tmp_path, case.observations, actions)
    first = run_in_onnx(case.agent, tmp_path, case.observations[:1])
    np.testing.assert_array_equal(first, actions[:1])


def test_json(case, tmp_path):
    document = document_of(case.agent, tmp_path)
    some = slice(None, None, 7)
    actions = [decide(document, observation) for observation in case.observations[some]]
    np.testing.assert_array_equal(actions, case.actions[some])


@pytest.mark.parametrize(("kind", "steps"), [(TwoTimescaleAgent, 50_000), (FittedQAgent, 10_000)])
def test_the_pole_stays_up_in_c(kind, steps, tmp_path):
    agent = kind(BARTO, seed=0).learn(steps)
    usual = agent.evaluate(50, seed=1).mean()
    for fixed_point in (False, True):
        program = compiled(agent, tmp_path, CARTPOLE, fixed_point)
        done = subprocess.run([program], capture_output=True, check=True, text=True)
        lengths = [int(line) for line in done.stdout.split()]
        assert np.mean(lengths) >= min(950.0, 0.8 * usual)
        # Of 256 cells a diagram of 1 + 4 numbers and an advantage, and where far from 0 an origin
        # of 4, each of four bytes or less.
        assert table_bytes((tmp_path / "policy.h").read_text()) <= (256 * 6 + 4) * 4


def test_the_header_says_what_it_is(tmp_path):
    agent = FittedQAgent(BARTO, seed=0).learn(2_000)
    text = export_policy(agent, tmp_path / "policy.h").read_text()
    comment = text[: text.index("*/")]
    n = agent.n_cells
    for words in (BARTO, f"{n} cells", f"{n * (5 + 1) * 4} bytes", "obs[2]  pole angle (rad)"):
        assert words in comment
    assert "1  push right" in comment
    assert text.count("#ifndef ODA_POLICY_H\n#define ODA_POLICY_H") == 1
    integers = export_policy(agent, tmp_path / "policy.h", fixed_point=True).read_text()
    for words in ("16-bit", "steps of 1 / oda_scale[j]", f"ODA_CLIP {CLIP}", "oda_exponents"):
        assert words in integers


def test_json_says_what_it_is(tmp_path):
    agent = TwoTimescaleAgent("MountainCar-v0", seed=0).learn(2_000)
    document = document_of(agent, tmp_path)
    assert document["version"] == 1
    assert document["env_id"] == "MountainCar-v0"
    assert document["observation"] == {"shape": [2], "names": ["position", "velocity"]}
    assert document["actions"] == {"first": 0, "names": ["push left", "coast", "push right"]}
    np.testing.assert_allclose(document["values"], agent.q_values, rtol=1e-12)
    np.testing.assert_array_equal(document["codevectors"], agent.codevectors)
    lines = (tmp_path / "policy.json").read_text().splitlines()
    assert len(lines) < 32 + 4 * agent.n_cells  # a line for each row of four tables


@pytest.mark.parametrize(
    ("kind", "name"),
    [(quick_rule, "many actions"), (TwoTimescaleAgent, "constant component"),
     (FittedQAgent, "scales"), (quick_rule, "scales"), (FittedQAgent, "one-hot")],
)  # fmt: skip
def test_odd_environments(kind, name, tmp_path):
    agent = kind(ODD[name](Varied), seed=0).learn(steps_for(kind, 1_000))
    env = ODD[name](Varied)
    observations = agent.visited_states(1_000, env=env, seed=1).astype(np.float32)
    actions = run_in_c(agent, tmp_path, observations)
    assert_same_but_for_ties(agent, tmp_path, observations, actions)
    if kind is not TwoTimescaleAgent:  # whose values may differ by less than fixed point can say
        actions = run_in_c(agent, tmp_path, observations, fixed_point=True)
        assert (actions == predictions(agent, observations)).mean() >= 0.99
    actions = run_in_onnx(agent, tmp_path, observations)
    assert_same_but_for_ties(agent, tmp_path, observations, actions)


@pytest.mark.parametrize(
    "kind",
    [TwoTimescaleAgent, FittedQAgent, partial(ModelAgent, generations=2, plan_every=0.5)],
    ids=["online", "fitted", "model"],
)
def test_an_origin_far_away_is_subtracted_and_a_near_one_folded(kind, tmp_path):
    for offset, subtracted in ((0.1, False), (300.0, True)):
        env = Judged(offset)
        agent = kind(env, seed=0).learn(steps_for(kind, 1_000))
        observations = agent.visited_states(1_000, env=env, seed=1).astype(np.float32)
        actions = run_in_c(agent, tmp_path, observations)
        assert ("oda_origin" in (tmp_path / "policy.h").read_text()) == subtracted
        assert_same_but_for_ties(agent, tmp_path, observations, actions)
        actions = run_in_onnx(agent, tmp_path, observations)
        assert_same_but_for_ties(agent, tmp_path, observations, actions)


CONTINUOUS = {
    "Pendulum": lambda: gym.make("Pendulum-v1"),
    "two by two": lambda: Aim([[0.5, 0.2], [-0.5, 0.9]], np.array([-0.4, -9.0]), 1.5, np.float64),
}
WRITES_COMPONENTS = """
#include <stdio.h>
#include "policy.h"

int main(void)
{
    float obs[ODA_FEATURES], action[ODA_COMPONENTS];
    while (fread(obs, sizeof obs, 1, stdin) == 1) {
        oda_policy(obs, action);
        fwrite(action, sizeof action, 1, stdout);
    }
    return 0;
}
"""


def components_in_c(agent, folder, observations):
    export_policy(agent, folder / "policy.h")
    program = linked(folder, WRITES_COMPONENTS, ["-lm"])
    data = np.ascontiguousarray(observations, dtype=np.float32)
    done = subprocess.run([program], input=data.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(data), -1)


@pytest.mark.parametrize(
    ("name", "max_cells"),
    [("Pendulum", 256), ("Pendulum", None), ("two by two", 2), ("two by two", None)],
)
def test_continuous_actions(name, max_cells, tmp_path):
    make = CONTINUOUS[name]
    if max_cells is None:
        agent = quick_rule(make(), seed=0).learn(500)
    else:
        agent = CodevectorAgent(make(), seed=0, max_cells=max_cells).learn(2_000)
    observations = agent.visited_states(1_000, env=make(), seed=1).astype(np.float32)
    expected = predictions(agent, observations)
    low, high = agent.interface.box.bounds
    width = high - low
    document = document_of(agent, tmp_path)
    for found in (
        components_in_c(agent, tmp_path, observations),
        run_in_onnx(agent, tmp_path, observations, np.float32),
        np.array([decide(document, observation) for observation in observations]),
    ):
        # Where two codevectors are worth the same, the other may be taken.
        different = np.flatnonzero((np.abs(found - expected) > 1e-5 * width).any(axis=1))
        assert all(is_tie(document, observations[i], TIE) for i in different)
        assert len(different) <= 1e-2 * len(observations)
    assert ((found >= low) & (found <= high)).all()
    assert len(np.unique(expected)) > (1 if max_cells is None else 20)


def test_continuous_actions_say_what_they_are_and_stay_in_the_box(tmp_path):
    agent = CodevectorAgent("Pendulum-v1", seed=0).learn(1_000)
    nonsense = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0, -np.inf, 0], [3e38, -3e38, np.nan]])
    for run in (components_in_c, partial(run_in_onnx, dtype=np.float32)):
        actions = run(agent, tmp_path, nonsense)
        assert (np.abs(actions) <= 2.0).all()
        assert actions[0] == 0.0
    text = export_policy(agent, tmp_path / "policy.h").read_text()
    assert "action[0]  from -2 to 2" in text[: text.index("*/")]
    assert "static inline void oda_policy(const float obs[ODA_FEATURES], float action[" in text
    document = document_of(agent, tmp_path)
    about = {"names": ["torque (N m)"], "low": [-2.0], "high": [2.0]}
    assert document["actions"] == {"shape": [1], **about}
    model = onnx.load(export_policy(agent, tmp_path / "policy.onnx"))
    facts = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    names = about.pop("names")
    assert facts == {"observation": list(agent.interface.names), "actions": names, **about}
    parts = np.clip(document["action_codevectors"], -2.0, 2.0)
    np.testing.assert_allclose(parts, agent.action_codevectors, rtol=1e-6)
    with pytest.raises(ValueError, match="fixed_point is True: it must be False for continuous"):
        export_policy(agent, tmp_path / "policy.h", fixed_point=True)
    assert (tmp_path / "policy.h").read_text() == text


def agent_of(policy, box=None, env_id=None, **attributes):
    """What is needed of an agent to export its policy."""
    d = policy.codevectors.shape[1]
    n_actions = policy.n_actions if box is None else 4
    names = ("torque (N m)",) if env_id == "Pendulum-v1" and len(box.low) == 1 else ()
    interface = Interface((d,), n_actions, 0, box=box, action_names=names)
    return SimpleNamespace(
        policy=policy, interface=interface, env=None, env_id=env_id, num_timesteps=1,
        scale_=np.ones(d), extent=Extent(np.zeros(d), np.full(d, 4.0)),
        predict=lambda points: (policy.act(points.astype(np.float64)), None), **attributes,
    )  # fmt: skip


def by_rule(scores, outputs, box=None, env_id=None):
    """An agent with a rule, and the rule."""
    codevectors = np.zeros((len(scores), len(scores[0]) - 1))
    policy = RulePolicy(np.array(scores, dtype=float), np.array(outputs), codevectors)
    return agent_of(policy, box, env_id), policy


@pytest.mark.parametrize(
    ("whole", "n_cells", "n_nearest"),
    [(False, 1, 6), (False, 4, 1), (False, 40, 6), (True, 40, 1), (True, 4, 6)],
)
def test_blended_cells_everywhere(whole, n_cells, n_nearest, tmp_path):
    policy, rng = random_policy(n_cells, 3, 4, n_nearest=n_nearest)
    points = rng.normal(size=(1_000, 3)) + policy.origin
    if whole:  # many cells are equally near
        codevectors = rng.integers(0, 4, size=(n_cells, 3)).astype(float)
        diagram = ordered(quadratic_diagram(np.eye(3) / 7.0, codevectors - policy.origin))
        policy = replace(policy, codevectors=codevectors, diagram=diagram)
        points = rng.integers(0, 8, size=(1_000, 3)) / 2.0
    else:
        policy.diagram[-1] = policy.diagram[0]  # two cells in the same place
    points = points.astype(np.float32)
    agent = agent_of(policy, recent=points.astype(np.float64))
    far = np.concatenate([100.0 * points, policy.codevectors]).astype(np.float32)
    program, document = compiled(agent, tmp_path, DECISIONS), document_of(agent, tmp_path)
    for observations, share in ((points, 1e-3), (far, 0.02)):  # far from all, ties are not known
        for actions in (
            decisions(program, observations),
            run_in_onnx(agent, tmp_path, observations),
            np.array([decide(document, observation) for observation in observations]),
        ):
            assert_same_but_for_ties(agent, tmp_path, observations, actions, share)
    assert f"#define ODA_NEAR {min(n_nearest, n_cells)}" in (tmp_path / "policy.h").read_text()
    if not whole:  # ties are rounded
        found = run_in_c(agent, tmp_path, points, fixed_point=True)
        assert (found == predictions(agent, points)).mean() >= 0.999


@pytest.mark.parametrize("values", [[[1, 1, 0], [0, 1, 0]], [[0, 1, 1], [0, 0, 1]]])
def test_of_equal_values_the_first_decides_everywhere(values, tmp_path):
    diagram = quadratic_diagram(np.eye(1), np.array([[0.0], [1.0]]))
    models = np.column_stack([np.zeros((2, 2)), values])
    policy = CellPolicy(np.zeros(1), diagram, models, 1.0, 2, np.array([[0.0], [1.0]]))
    points = np.linspace(-12, -4, 500)[:, None]  # the other cell weighs from exp(-25) to exp(-9)
    expected, agent = policy.act(points.astype(np.float32)), agent_of(policy, recent=points)
    assert len(np.unique(expected)) == 2
    np.testing.assert_array_equal(run_in_c(agent, tmp_path, points), expected)
    np.testing.assert_array_equal(run_in_c(agent, tmp_path, points, fixed_point=True), expected)
    np.testing.assert_array_equal(run_in_onnx(agent, tmp_path, points), expected)


@pytest.mark.parametrize("fixed_point", [False, True])
@pytest.mark.parametrize(
    ("actions", "numbers"), [([1], 0), ([1, 0], 1), ([2, 0], 1), ([1, 2, 0], 2), ([0, 1, 0], 3)]
)
def test_a_rule_is_its_numbers(actions, numbers, fixed_point, tmp_path):
    rng = np.random.default_rng(len(actions))
    outputs = np.eye(max(actions) + 1)[actions][:, :, None]
    agent, policy = by_rule(rng.normal(size=(len(actions), 5)), outputs)
    points = rng.normal(size=(10_000, 4)).astype(np.float32)
    expected = policy.act(points.astype(np.float64))
    found = run_in_c(agent, tmp_path, points, fixed_point)
    header = (tmp_path / "policy.h").read_text()
    if fixed_point:
        assert (found == expected).mean() >= 0.999
        return
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run_in_onnx(agent, tmp_path, points), expected)
    document = document_of(agent, tmp_path)
    assert [decide(document, point) for point in points[:200]] == expected[:200].tolist()
    numbered = sorted(actions) == list(range(len(actions)))
    assert table_bytes(header) == numbers * 5 * 4 + (0 if numbered else len(actions))
    assert ("oda_actions" in header) == (not numbered)


@pytest.mark.parametrize(("n_cells", "p"), [(1, 1), (2, 1), (4, 3)])
def test_a_rule_with_affine_actions(n_cells, p, tmp_path):
    rng = np.random.default_rng(n_cells)
    # 0.1 and 0.3 have no exact numbers in single precision.
    box = ActionBox((-2.0, -1.0, 0.1)[:p], (2.0, 5.0, 0.3)[:p], (p,), "float64")
    agent, policy = by_rule(
        rng.normal(size=(n_cells, 4)), rng.normal(size=(n_cells, p, 4)), box, "Pendulum-v1"
    )
    points = rng.normal(size=(10_000, 3)).astype(np.float32)
    expected = box.actions(policy.act(points.astype(np.float64)))
    document = document_of(agent, tmp_path)
    for found in (
        components_in_c(agent, tmp_path, points),
        run_in_onnx(agent, tmp_path, points, np.float32),
        np.array([decide(document, point) for point in points]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert ((found >= np.array(box.low)) & (found <= np.array(box.high))).all()
    text = (tmp_path / "policy.h").read_text()
    assert table_bytes(text) == 4 * ((n_cells - 1) * 4 + n_cells * p * 4 + 2 * p)
    assert ("from -2 to 2  torque (N m)" in text) == (p == 1)
    assert "values" not in document
    nonsense = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0, -np.inf, 0], [3e38, -3e38, np.nan]])
    actions = components_in_c(agent, tmp_path, nonsense)
    np.testing.assert_array_almost_equal_nulp(actions[0], np.float32([0.0, 0.0, 0.1][:p]))
    assert ((actions >= np.array(box.low)) & (actions <= np.array(box.high))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_gives_some_action(kind, tmp_path):
    agent = kind("MountainCar-v0", seed=0).learn(steps_for(kind, 1_000, 300))
    nonsense = np.array([[np.nan, 0], [np.inf, 0], [0, -np.inf], [3e38, -3e38], [np.nan, np.nan]])
    for fixed_point in (False, True):
        actions = run_in_c(agent, tmp_path, nonsense, fixed_point)
        assert set(actions.tolist()) <= {0, 1, 2}


def test_a_wicked_name_stays_in_the_comment(tmp_path):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    agent.env_id = "a*/ error /* ??/ \\\n#error\r*/"
    run_in_c(agent, tmp_path, agent.visited_states(10, env=make_env("CartPole-v1")))


@pytest.mark.parametrize("kind", KINDS)
def test_exporting_changes_nothing(kind, tmp_path):
    agent, other = (kind("CartPole-v1", seed=0).learn(steps_for(kind, 1_000, 250)) for _ in "12")
    for form, fixed_point in (("c", False), ("c", True), ("json", False), ("onnx", False)):
        export_policy(agent, tmp_path / "policy", form, fixed_point)
    np.testing.assert_array_equal(agent.learn(200).q_values, other.learn(200).q_values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 20])
def test_an_agent_that_has_learned_nothing(kind, steps, tmp_path):
    agent = kind("CartPole-v1", seed=0)
    if steps:
        agent.learn(steps)
    (tmp_path / "policy.h").write_text("mine")
    with pytest.raises(ValueError, match=f"agent has learned nothing yet in {steps} steps: it mus"):
        export_policy(agent, tmp_path / "policy.h")
    assert (tmp_path / "policy.h").read_text() == "mine"


def test_bad_arguments(tmp_path):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(1_000)
    (tmp_path / "file").write_text("mine")
    for arguments, message in (
        ((tmp_path / "x", "rust"), "format is 'rust': it must be one of ['c', 'json', 'onnx']"),
        ((tmp_path / "x", "json", True), "fixed_point is True: it must be False for the format"),
        ((tmp_path / "x", "onnx", True), "fixed_point is True"),
        ((tmp_path,), "which is a folder: it must be a file"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            export_policy(agent, *arguments)
    with pytest.raises(ValueError, match="agent is of type int: it must be an agent"):
        export_policy(3, tmp_path / "x")
    with pytest.raises(OSError, match="file"):
        export_policy(agent, tmp_path / "file" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_actions_stand_for_what_is_offered(kind, tmp_path):
    env = Aim(np.eye(2), np.array([0.0, 101_325.0]), np.array([1 / 3, 101_425.0]), np.float64)
    agent = kind(env, seed=0, action_bins=4).learn(steps_for(kind, 600, 250))
    observations = agent.visited_states(100, seed=1).astype(np.float32)
    numbers = run_in_c(agent, tmp_path, observations)
    np.testing.assert_array_equal(run_in_onnx(agent, tmp_path, observations), numbers)
    header = (tmp_path / "policy.h").read_text().split("double oda_components[16][2] = ")[1]
    in_c = np.array(re.findall(r"[\d.e-]+", header.split(";")[0]), dtype=float).reshape(16, 2)
    facts = onnx.load(tmp_path / "policy.onnx").metadata_props
    (in_onnx,) = (json.loads(entry.value) for entry in facts if entry.key == "components")
    about = document_of(agent, tmp_path)["actions"]
    for table in (in_c, np.array(in_onnx), np.array(about["components"])):
        np.testing.assert_array_equal(table[numbers], predictions(agent, observations))
    assert about["names"][8:10] == ["action (0.2222, 101325)", "action (0.2222, 101358.3)"]


@pytest.mark.parametrize("kind", KINDS)
def test_spaces_that_can_not_be_exported(kind, tmp_path):
    env = Toy()
    env.action_space = gym.spaces.Discrete(2, start=2**40)
    with pytest.raises(ValueError, match="action_space is Discrete.*32 bits"):
        export_policy(kind(env, seed=0).learn(steps_for(kind, 1_000, 250)), tmp_path / "x")


def test_numbers_beyond_single_precision(tmp_path):
    agent = FittedQAgent(Varied(lambda rng: rng.normal(size=2) * 1e-60), seed=0).learn(1_000)
    with pytest.raises(ValueError, match="single precision.*scale observations or rewards"):
        export_policy(agent, tmp_path / "x")
    assert not list(tmp_path.iterdir())
    assert document_of(agent, tmp_path)["kind"] == "nearest cells, blended"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "x"
    TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000).save(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "name"),
    [([], "policy.h"), (["--format", "c", "--fixed-point"], "policy.h"),
     (["--format", "json"], "policy.json"), (["--format", "onnx"], "policy.onnx")],
)  # fmt: skip
def test_the_command(options, name, run, tmp_path, capsys):
    assert main(["export", str(run), *options]) == 0
    assert f"{run / name}: " in capsys.readouterr().out
    assert main(["export", str(run), *options, "--out", str(tmp_path / "deep" / "x")]) == 0
    assert (tmp_path / "deep" / "x").read_bytes() == (run / name).read_bytes()
    assert (b"int16_t" in (run / name).read_bytes()) == ("--fixed-point" in options)
    (tmp_path / "mine.zip").write_bytes((run / "agent.zip").read_bytes())
    assert main(["export", str(tmp_path / "mine.zip"), *options]) == 0
    assert (tmp_path / "mine").with_suffix(Path(name).suffix).exists()


def test_without_onnx_the_error_names_the_extra(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'oda-rl[onnx]'")):
        export_policy(load_agent(run), tmp_path / "policy.onnx", "onnx")
    assert main(["export", str(run), "--format", "onnx"]) == 2
    assert "pip install 'oda-rl[onnx]'" in capsys.readouterr().err
