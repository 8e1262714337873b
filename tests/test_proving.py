"""Proofs and atlases of rules: against many random states, and states that are worked out."""

import numpy as np
import pytest
from test_editing import POLICIES as EDITED
from test_rules import POLICIES as PLAIN
from test_rules import in_units

from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.rules.proofs import point_in

policies = pytest.mark.parametrize("policy", [*PLAIN, *EDITED])


@policies
@pytest.mark.parametrize(("size", "shift"), [(0.3, 1e5), (2.0, 0.0)])
def test_what_occurs_is_found_and_what_never_does_is_not_in_any_units(policy, size, shift):
    rng = np.random.default_rng(3)
    d = policy.scores.shape[1] - 1
    centre = rng.normal(size=d)
    low, high = centre - size, centre + size
    points = rng.uniform(low, high, size=(50_000, d))
    scale = 10.0 ** rng.uniform(-9.0, 9.0, size=d) if shift else np.ones(d)
    mean = rng.uniform(-1.0, 1.0, size=d) * np.minimum(shift * scale, 1e7)
    if shift:  # to one side the box has no end
        low[0], high[-1] = -np.inf, np.inf if d > 1 else high[0]
    plain = policy.prove({j: (low[j], high[j]) for j in range(d)})
    policy, points = in_units(policy, mean, scale), mean + scale * points
    low, high = mean + scale * low, mean + scale * high
    found = policy.prove({j: (low[j], high[j]) for j in range(d)})
    assert found.occurs == plain.occurs
    seen = set(policy.choices(points).tolist())
    assert seen <= set(found.occurs)
    assert set(found.occurs) | set(found.never) == set(range(policy.n_actions))
    for choice, state in found.states.items():
        assert ((state >= low) & (state <= high)).all()
        assert policy.choices(state[None])[0] == choice
    rare = set(found.occurs) - seen  # in less than a ten thousandth of the box
    assert len(rare) <= 1 or shift
    assert str(found).count("never") == len(found.never)
    if policy.continuous:
        ranges, acts = np.array(list(found.ranges.values())), policy.act(points)
        assert (ranges[:, 0] <= acts.min(axis=0) + 1e-9).all()
        assert (ranges[:, 1] >= acts.max(axis=0) - 1e-9).all()
        np.testing.assert_allclose(ranges, list(plain.ranges.values()), atol=2e-6)


def test_the_range_of_each_torque_is_exact_in_a_box_and_bounded_outside():
    outputs = np.array([[[0.1, 0.2, -0.4], [0.0, 0.0, 0.5]]])
    rule = RulePolicy(np.zeros((1, 3)), outputs, np.zeros((1, 2)))
    bounds = np.array([[-2.0, 0.0], [2.0, 1.0]])
    ends = {0: (-1.0, 1.0), 1: (0.0, 3.0)}
    found = rule.named(None, ["hip", "knee"], bounds).prove(ends)
    assert found.ranges["hip"] == pytest.approx((-2.0, 0.6))  # clipped; 2 (0.1 + 0.2)
    assert found.ranges["knee"] == pytest.approx((0.5, 1.0))
    assert str(found).splitlines()[1:] == ["  hip from -2 to 0.6", "  knee from 0.5 to 1"]
    pascals = rule.named(bounds=np.array([[101_325.0, 0.0], [101_425.0, 1 / 3]])).prove(ends)
    assert "\n  action[0] from 101325 to 101390\n" in str(pascals)
    assert str(pascals).endswith("  action[1] from 0.1666 to 0.3334")  # rounded outwards
    assert rule.prove({1: (0.0, 0.0)}).ranges == {"action[0]": (-1.0, 1.0), "action[1]": (0.0, 0.0)}
    halves = RulePolicy(np.eye(2, 3, 1), np.repeat(outputs, 2, axis=0), np.zeros((2, 2)))
    assert halves.named(bounds=bounds).prove(ends).ranges["action[0]"] == pytest.approx((-2.0, 0.6))


@policies
def test_regions_are_where_cells_decide(policy):
    rng = np.random.default_rng(4)
    d = policy.scores.shape[1] - 1
    space = np.full(d, -3.0), np.full(d, 3.0)
    pieces = policy.pieces_within(*space)
    atlas = [one for one in pieces if policy.cells(one.inside[None])[0] == one.cell]
    points = rng.uniform(-3.0, 3.0, size=(2_000, d))
    cells = policy.cells(points)
    inside = np.array(
        [(one.rows[:, 0] + points @ one.rows[:, 1:].T >= 0.0).all(axis=1) for one in atlas]
    )
    assert (inside.sum(axis=0) == 1).all()
    np.testing.assert_array_equal(
        np.array([one.cell for one in atlas])[inside.argmax(axis=0)], cells
    )


def test_where_two_scores_are_equal_the_first_decides_and_a_proof_reads_well():
    rule = RulePolicy(np.array([[0.0, 0.0], [0.0, 1.0]]), np.eye(2)[:, :, None], np.zeros((2, 1)))
    assert rule.prove({0: (0.0, 0.0)}).occurs == (0,)
    assert rule.prove({0: (0.0, 1e-3)}).occurs == (0, 1)
    assert rule.prove({0: (-1.0, 0.0)}).occurs == (0,)
    assert rule.prove({}).occurs == (0, 1)
    same = RulePolicy(np.zeros((2, 2)), np.eye(2)[:, :, None], np.zeros((2, 1)))
    assert same.prove({}).never == (1,)
    found = rule.named(["angle (rad)"], ["left", "right"]).prove({"angle": (0.5, 1.0)})
    assert str(found).splitlines()[0] == "where angle (rad) from 0.5 to 1:"
    assert "from 293.15 to 293.25:" in str(rule.prove({0: (293.15, 293.25)}))
    assert found.occurs == (1,)
    assert found.never == (0,)


@pytest.mark.parametrize(
    ("box", "message"),
    [({"speed": (0, 1)}, "component is 'speed': it must be one of"),
     ({0: (1, 0)}, r"box\[0\] is \(1, 0\): it must be \(lower, upper\)"),
     ({0: (np.nan, 0)}, r"it must be \(lower, upper\)"),
     ({0: 3}, r"box\[0\] is 3: it must be \(lower, upper\)")],
)  # fmt: skip
def test_boxes_are_checked(box, message):
    with pytest.raises(ValueError, match=message):
        EDITED[0].prove(box)


def test_polyhedra():
    assert point_in(np.array([[-1.0, 1.0, 0.0], [0.5, -1.0, 0.0]])) is None
    assert point_in(np.array([[-1.0, 0.0, 0.0]])) is None
    for size in (1e-15, 1e-9, 1e9):
        assert 1 < point_in(np.array([[-1.0, 1 / size], [2.0, -1 / size]]))[0] / size < 2
    small = PLAIN[2].edit().where("x[0] > 1e-10 and x[0] < 1e-9", do=0).done().codevectors[-1, 0]
    assert 1e-10 < small < 1e-9
    touching = np.array([[-1.0, 1.0], [1.0, -1.0]])
    assert point_in(touching) is None
    np.testing.assert_allclose(point_in(touching, np.array([False, False])), 1.0)
