"""Policies that several environments of a fitted agent play, and in what order they choose."""

from dataclasses import replace

import numpy as np
import pytest
from environments import Toy

from oda_rl.agents import FittedQAgent
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.state import UNIFORMS
from oda_rl.agents.fitted.played import PlayedPolicies
from oda_rl.agents.policies.cells import CellPolicy


def acting(observations, acts=None):
    """A step after which some environments need actions, or all."""
    n = len(observations)
    acts, no = np.ones(n, np.bool_) if acts is None else np.array(acts), np.zeros(n, np.bool_)
    return VectorStep(observations, observations, np.zeros(n), no, no, no, acts, no)


@pytest.mark.parametrize(
    ("acts", "order"),  # those of a policy one after the other
    [
        ([1, 1, 1, 1], [0, 2, 1, 3]),
        ([0, 1, 1, 1], [2, 1, 3]),
        ([1, 0, 0, 1], [0, 3]),
        ([0] * 4, []),
    ],
)
@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])  # random numbers until they are drawn anew
def test_environments_choose_in_the_order_of_their_policies(acts, order, left):
    engine = FittedQAgent(Toy(n_actions=8), seed=0)._engine
    engine.set_lanes(4)
    running, uniforms = engine._running, engine._workspace.uniforms
    first = replace(running.playing[0], epsilon=1.0, longest_hold=1)
    other = replace(first, policy=replace(first.policy))
    for lane, playing in enumerate([first, other, first, other]):
        running.play(lane, playing)
    uniforms[:4] = uniforms[len(uniforms) - left :] = 0.0
    numbers = (np.arange(8) + 0.5) / 8.0  # so that an action says which number it was
    uniforms[len(uniforms) - left :] = numbers[:left]
    engine.state.next_uniform = len(uniforms) - left
    actions, at = np.full(4, -1), 0
    step = acting(np.zeros((4, 2)), np.array(acts, dtype=np.bool_))
    while at < 4:
        event, at = running.choose(at, step, actions, engine.raw, engine.room)
        if event:
            assert event == UNIFORMS
            uniforms[: 8 - left] = numbers[left:]
            engine.state.next_uniform = 0
    expected = np.full(4, -1)
    expected[order] = np.arange(len(order))
    np.testing.assert_array_equal(actions, expected)


def test_tables_have_the_policies_that_environments_play():
    rng = np.random.default_rng(0)

    def drawn(most):
        k = rng.integers(1, most)
        blank = CellPolicy.blank(2, 3)
        return replace(
            blank, origin=rng.normal(size=2), diagram=rng.normal(size=(k, 3)),
            models=rng.normal(size=(k, 6)), width=rng.random()
        )  # fmt: skip

    policies = [drawn(9)] * 5
    played = PlayedPolicies(5, policies[0])
    for i in range(300):
        lane = int(rng.integers(5))
        policies[lane] = policies[rng.integers(5)] if i % 3 == 0 else drawn(9 + 2 * i)
        played.play(lane, policies[lane], i / 300.0, i + 1)
        assert played.turns.epsilons[lane] == i / 300.0
        assert played.turns.holds[lane] == i + 1
        for place, policy in zip(played.turns.places, policies, strict=True):
            diagrams, models, n_cells, origins, widths = (own[place] for own in played.tables)
            np.testing.assert_array_equal(models[: policy.n_cells], policy.models)
            np.testing.assert_array_equal(diagrams[:n_cells], policy.diagram)
            np.testing.assert_array_equal(origins, policy.origin)
            assert widths == policy.width
    assert len(played.tables.models) <= 10  # places are used again
