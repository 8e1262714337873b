"""Differences between policies: where, how often, and at what cost."""

import gymnasium as gym
import numpy as np
import pytest
from test_editing import ACTIONS, NAMES, UPRIGHT
from test_rules import continuous

from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.review import diff, where
from oda_rl.plotting import plot_difference

STATES = np.random.default_rng(0).normal(size=(3_000, 4)) * [1.0, 1.0, 0.1, 0.5]


def test_a_region_is_found_that_is_one():
    meant = (STATES[:, 2] > 0.05) & (STATES[:, 0] < 0.3) & (STATES[:, 0] > -1.0)
    found = where(STATES, meant)
    assert found.precision > 0.95
    assert found.recall > 0.95
    assert {(j, side) for j, side, _ in found.bounds} == {(2, ">"), (0, "<"), (0, ">")}
    inside = np.all([(STATES[:, j] > at) == (side == ">") for j, side, at in found.bounds], axis=0)
    assert found.precision == (inside & meant).sum() / inside.sum()
    assert found.recall == (inside & meant).sum() / meant.sum()
    kelvin = where(293.15 + STATES, meant).bounds  # the same thresholds
    np.testing.assert_allclose(
        [a for _, _, a in kelvin], [293.15 + a for _, _, a in found.bounds], rtol=3e-6
    )
    assert where(STATES, np.ones(len(STATES), dtype=bool)).said(NAMES) == "everywhere"


def test_a_diff_counts_and_says():
    before = UPRIGHT.named(NAMES, ACTIONS)
    edited = before.edit().where("pole angle < -.1", do="push right").done()
    found = diff(before, edited, STATES)
    differs = (STATES[:, 2] < -0.1) & (UPRIGHT.act(STATES) == 0)
    np.testing.assert_array_equal(found.differs, differs)
    assert found.share == differs.mean()
    own = UPRIGHT.cells(STATES) == 0
    assert found.changed == {0: differs[own].mean()}
    assert "Where: pole angle < -0.1" in str(found)
    assert "+push right where pole angle < -0.1" in str(found).splitlines()
    assert "Return" not in str(found)
    assert np.isnan(found.change)


def test_equal_policies_do_not_differ():
    found = diff(UPRIGHT, UPRIGHT, STATES)
    assert str(found) == "They decide alike in all of 3,000 states."


def test_costs_are_paired():
    worse = RulePolicy(-UPRIGHT.scores, UPRIGHT.outputs, UPRIGHT.codevectors)
    found = diff(UPRIGHT, worse, STATES, "CartPole-v1", episodes=20, seed=3)
    assert len(found.before) == len(found.after) == 20
    assert found.change == (found.after - found.before).mean() < -100
    assert found.interval[0] <= found.change <= found.interval[1] < 0
    again = diff(worse, UPRIGHT, STATES, gym.make("CartPole-v1"), episodes=20, seed=3)
    np.testing.assert_array_equal(again.after, found.before)


def test_continuous_actions_differ_beyond_a_tolerance():
    rule = continuous(2, 3, 1)
    points = STATES[:, :3]
    slightly = RulePolicy(rule.scores, rule.outputs + 1e-4, rule.codevectors)
    assert diff(rule, slightly, points).share == 0.0
    other = rule.edit().where("x[0] > 0", do=-1.0).done()
    found = diff(rule, other, points)
    np.testing.assert_array_equal(
        found.differs, np.abs(rule.act(points) - other.act(points)).max(axis=1) > 0.04
    )


def test_the_figure_shows_both_and_the_region():
    edited = UPRIGHT.named(NAMES, ACTIONS).edit().where("pole angle < -.1", do="push right").done()
    found = diff(UPRIGHT, edited, STATES)
    axes = plot_difference(found)
    alike, different = axes.collections
    assert len(different.get_offsets()) == found.differs.sum()
    assert len(alike.get_offsets()) == (~found.differs).sum()
    assert axes.get_xlabel() == NAMES[found.region.bounds[0][0]]
    assert len(axes.patches) == 1
    plot_difference(diff(UPRIGHT, UPRIGHT, STATES))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((UPRIGHT, continuous(1, 2, 1), STATES), "after takes observations of 2 components"),
     ((UPRIGHT, UPRIGHT, STATES[:, :3]), r"states has shape \(3000, 3\): it must be \(n, 4\)"),
     ((UPRIGHT, 3, STATES), "after is of type int: it must be a policy, or an agent")],
)  # fmt: skip
def test_what_cannot_be_compared(arguments, message):
    with pytest.raises(ValueError, match=message):
        diff(*arguments)
