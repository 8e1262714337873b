"""Certificates: affine arithmetic encloses, and proofs hold."""

import gymnasium as gym
import numpy as np
import pytest

from oda_rl.agents import certifying
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.policies.rules import RulePolicy

RULE = RulePolicy(
    np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]]), np.eye(2)[:, :, None], np.zeros((2, 4))
)
AGENT = type("Agent", (), {"policy": RULE})
LIMITS = np.array([2.4, np.inf, 12 * 2 * np.pi / 360, np.inf])


def forms(rng, n=50, m=3):
    return certifying.Affine(
        rng.normal(size=n), rng.normal(size=(n, m)) * 0.15, rng.uniform(0, 0.1, n)
    )


def drawn(rng, one, noise):
    own = rng.uniform(-1, 1, (len(noise), len(one.centre)))
    return one.centre + noise @ one.shared.T + own * one.remainder


@pytest.mark.parametrize(
    "function",
    [lambda x, y: x + 2.0 * y - 1.0, lambda x, y: x * y, lambda x, y: x * x - y * x,
     lambda x, y: certifying.sine_and_cosine(x)[0] * certifying.sine_and_cosine(y)[1],
     lambda x, y: (1.0 - x) / (y * y + 4.0), lambda x, y: -x * 3.0],
)  # fmt: skip
def test_affine_forms_enclose_and_are_not_much_wider(function):
    rng = np.random.default_rng(0)
    x, y = forms(rng), forms(rng)
    low, high = function(x, y).ends
    noise = rng.uniform(-1, 1, size=(4_000, 3))
    noise[:64] = np.sign(noise[:64])
    values = function(drawn(rng, x, noise), drawn(rng, y, noise))
    assert (values >= low).all()
    assert (values <= high).all()
    assert ((high - low) < 8.0 * np.ptp(values, axis=0) + 0.3).all()


def test_the_cart_pole_is_gymnasiums():
    env = gym.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    for _ in range(50):
        env.reset(seed=0)
        state, action = rng.normal(size=4) * [1, 1, 0.1, 1], int(rng.integers(2))
        env.state = state.copy()
        env.step(action)
        found = [
            one[0]
            for one in certifying.CartPole().step(list(state[:, None]), np.eye(2)[action][:, None])
        ]
        np.testing.assert_allclose(found, env.state, rtol=1e-12, atol=1e-14)


def played(rule, states, steps):
    """Whether the pole stays up from many states, shape (n,)."""
    states, up = states.copy(), np.ones(len(states), dtype=bool)
    for _ in range(steps):
        actions = rule.act(states.astype(np.float32).astype(np.float64))
        for a in (0, 1):
            own = actions == a
            pushed = certifying.CartPole().step(list(states[own].T), np.eye(2)[a][:, None])
            states[own] = np.column_stack(pushed)
        up &= (np.abs(states) <= LIMITS).all(axis=1)
    return up


def test_from_a_certified_box_no_pole_falls():
    asked = np.array([0.5, 0.5, 0.1, 0.5])
    found = certifying.certify(RULE, [certifying.CartPole()], -asked, asked, steps=40, sets=40)
    assert 0.1 < found.share <= 1.0
    np.testing.assert_allclose(found.high, found.share * asked)
    states = np.random.default_rng(1).uniform(found.low, found.high, size=(20_000, 4))
    states[:16] = np.sign(states[:16]) * found.high
    assert played(RULE, states, 40).all()
    assert not played(RULE, states * 40.0, 40).all()
    worlds = [certifying.CartPole(half_length=1.0, gravity=20.0), certifying.CartPole()]
    said = str(certifying.certify(AGENT, worlds, -0.02 * asked, 0.02 * asked, 5, 10))
    assert "CartPole-v1 with gravity=20.0, half_length=1.0 and of CartPole-v1, exact" in said


def test_sets_enclose_where_states_come():
    edited = (
        RULE.edit()
        .forbid(0, "x[0] < -.045 and x[2] > 0")
        .where("x[2] > .05 and x[3] > .1", 1)
        .done()
    )
    world, rng = certifying.CartPole(), np.random.default_rng(0)
    pieces = [(one.rows, edited.all_outputs[one.cell]) for one in edited.pieces]
    half = np.array([0.05, 0.05, 0.02, 0.05])
    reach = certifying.Reach(world, pieces, certifying.frames(world, pieces, np.zeros(4), half))
    sets = reach.start(-half, half, 16)
    states = rng.uniform(-half, half, size=(2_000, 4))
    for _ in range(12):
        sets, ended = reach.step(certifying.merged(sets, 40))
        assert not ended
        actions = edited.act(states)
        both = [np.column_stack(world.step(list(states.T), np.eye(2)[a][:, None])) for a in (0, 1)]
        states = np.where(actions[:, None] == 1, both[1], both[0])
        at = np.einsum("fij,nj->nfi", reach.frames, states)[:, None]
        inside = ((at >= sets[:, 0]) & (at <= sets[:, 1])).all(axis=(2, 3))
        assert inside.any(axis=1).all()


def test_merged_sets_contain_all():
    rng = np.random.default_rng(0)
    low = rng.normal(size=(500, 2, 3))
    high = low + rng.uniform(0, 0.1, size=low.shape)
    few = certifying.merged(np.stack([low, high], axis=1), 60)
    assert len(few) <= 60
    inside = (few[:, 0] <= low[:, None]) & (few[:, 1] >= high[:, None])
    assert inside.all(axis=(2, 3)).any(axis=1).all()


def test_what_is_not_proved_is_not_certified():
    asked = np.full(4, 1.0)
    away = RulePolicy(-RULE.scores, RULE.outputs, RULE.codevectors)
    found = certifying.certify(away, [certifying.CartPole()], -asked, asked, steps=100, sets=10)
    assert found.share == 0.0
    assert str(found).startswith("Not certified")
    with pytest.raises(ValueError, match="they must be 4 numbers, in order"):
        certifying.certify(RULE, [certifying.CartPole()], [1.0] * 4, [0.0] * 4, 10)
    for policy in (CellPolicy.blank(4, 2, 1), RULE.scores):
        with pytest.raises(
            ValueError, match=f"policy is of type {type(policy).__name__}: it must be"
        ):
            certifying.certify(policy, [certifying.CartPole()], -asked, asked, 10)
    for worlds in ([], ["CartPole-v1"], certifying.CartPole()):
        with pytest.raises(ValueError, match="it must be a list of CartPole"):
            certifying.certify(RULE, worlds, -asked, asked, 10)
    with pytest.raises(ValueError, match="they must be finite"):
        certifying.certify(RULE, [certifying.CartPole()], [-np.inf] * 4, [0.0] * 4, 10)
