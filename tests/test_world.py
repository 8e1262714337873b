"""A learned world is what its arrays say, and knows how good it is."""

import numpy as np
import oracles
import pytest
from gymnasium import spaces

from oda_rl.agents.distilling.search import Imagination
from oda_rl.agents.environments.spaces import ActionBox, Interface
from oda_rl.agents.model.agent import ModelAgent
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds import laws, quality
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays, changes, read
from oda_rl.agents.worlds.laws import fit_rewards, reward_features
from oda_rl.agents.worlds.learning import CodedSteps, Learned, best_f1, fit_ends, stretches
from oda_rl.agents.worlds.world import World
from oda_rl.plotting import plot_world

D, LAWS = 3, 2  # one number of components: for each, compiled code is made anew
BOX = spaces.Box(-np.inf, np.inf, (D,), np.float64)
CART = BOX, spaces.Discrete(2, start=1)  # place, speed, warmth; pushed by 1 or 2
GLIDER = BOX, spaces.Box(-2.0, 2.0, (1,), np.float64)


def random_world(rng, boxed, quadratic=False, waves=0, cells=0, levels=False, rewards=2, rows=6):
    """Arrays of a world with a circle, in which about every other step ends."""
    codes = 2 if boxed else 3
    size = 1 + D + (D * (D + 1) // 2 if quadratic else 0)
    frame = np.concatenate(
        [[[0.0, 0.0, 0.7]], [[0.8, 0.6, 2.0]], [[-1.0, -1.0, -1.0]], [[1.0, 1.0, 2.0]]]
    )
    if levels:
        frame = np.concatenate([frame, [[np.nan, np.nan, value] for value in (-1.0, 0.5, 2.0)]])
    sinusoids = rng.normal(size=(LAWS, 2 * D + 1, waves)).astype(np.float32)
    sinusoids[:, D + 1 :] *= 0.02  # as small as fitted ones: single precision adds up
    n_features = codes, *laws.n_reward_features(D, codes, boxed, rows, 1)
    return WorldArrays(
        boxed, frame, np.array([[0, 1]]), 0.3 * rng.normal(size=(LAWS, codes, size, D)), sinusoids,
        rng.normal(size=(LAWS, D, max(cells, 3))), rng.normal(size=(LAWS, cells, codes, 1 + D, D)),
        rng.uniform(0.5, 2.0, size=LAWS), np.zeros((0, D)), rng.normal(size=n_features[rewards]),
        rng.normal(size=(rows, D)), np.array([-20.0, 20.0, -np.inf, np.inf]),
        np.array([[2.0, 1.0, 0.6], [0.0, -1.0, -1.2]]), np.array([[0, 0], [1, 0], [2, 3], [3, 3]]),
        rng.normal(size=(LAWS, 5)), rng.normal(size=(6, D + 1)),
    )  # fmt: skip


def asked(arrays):
    """A world of arrays."""
    box = ActionBox.of(GLIDER[1]) if arrays.boxed else None
    interface = Interface((D,), arrays.laws.shape[1], 0, box=box)
    at = Coordinates.of_frame(arrays.frame, arrays.circles)
    seen = CodedSteps(np.eye(D), np.zeros((D, 3)), np.zeros(D), np.eye(D), np.zeros(D, bool))
    return World(Learned(arrays, at, None), interface, seen, np.ones(D, bool))


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [({}, 1e-9), ({"quadratic": True, "levels": True, "rows": 4}, 1e-9),
     ({"cells": 7, "rewards": 1, "rows": 2}, 1e-9),
     ({"quadratic": True, "cells": 5, "rewards": 0}, 1e-9),
     ({"quadratic": True, "waves": 20}, 1e-5)],
)  # fmt: skip
def test_a_step_is_what_the_oracle_says(boxed, kind, tolerance):
    rng = np.random.default_rng(len(kind) + 10 * boxed)
    arrays = random_world(rng, boxed, **kind)
    world = asked(arrays)
    turns = rng.uniform(-np.pi, np.pi, size=60)
    points = np.column_stack([np.cos(turns), np.sin(turns), rng.normal(size=60)])
    numbers = rng.integers(3, size=60)
    actions = rng.uniform(-2.0, 2.0, size=(60, 1)) if boxed else numbers
    codes = np.column_stack([np.ones(60), actions / 2.0]) if boxed else np.eye(3)[numbers]
    n_ends = 0
    for law in range(LAWS):
        after, rewards, ended = world.predict(points, actions, law=law)
        for i in range(60):
            wanted = oracles.imagined_step(arrays, law, points[i], codes[i])
            np.testing.assert_allclose(after[i], wanted[0], rtol=0.0, atol=tolerance)
            assert rewards[i] == pytest.approx(wanted[1], abs=100 * tolerance)
            assert ended[i] == wanted[2]
        n_ends += ended.sum()
    assert 0 < n_ends < 60 * LAWS


def test_all_laws_have_a_say():
    rng = np.random.default_rng(0)
    world = asked(random_world(rng, boxed=False, levels=True))
    turns = rng.uniform(-np.pi, np.pi, size=40)
    points = np.column_stack([np.cos(turns), np.sin(turns), rng.normal(size=40)])
    each = [world.predict(points, np.ones(40), law=law) for law in range(LAWS)]
    after, rewards, ended = world.predict(points, np.ones(40))
    mean = (each[0][0] + each[1][0]) / 2.0
    mean[:, :2] /= np.linalg.norm(mean[:, :2], axis=1)[:, None]
    np.testing.assert_allclose(after[:, :2], mean[:, :2])
    assert set(after[:, 2]) <= {-1.0, 0.5, 2.0}
    np.testing.assert_allclose(rewards, (each[0][1] + each[1][1]) / 2.0)
    np.testing.assert_array_equal(ended, each[0][2] & each[1][2])
    one = world.predict(points[3], 1)
    np.testing.assert_array_equal(one[0], after[3])
    assert one[1:] == (rewards[3], ended[3])


@pytest.mark.parametrize("origin", [0.0, 20.0, 293.0])
@pytest.mark.parametrize("boxed", [False, True])
def test_rewards_have_an_origin_of_their_own(boxed, origin):
    rng = np.random.default_rng(1)
    before, after = origin + rng.normal(size=(2, 500, D))
    codes = rng.uniform(-1.0, 1.0, (500, 2)) if boxed else np.eye(3)[rng.integers(3, size=500)]
    codes[:, 0] = 1.0 if boxed else codes[:, 0]
    at, place = read(before, after)[0], origin + 0.37
    for wanted, error in (
        (-np.abs(after[:, 1] - place), 1e-3),
        (-((after[:, 1] - place) ** 2) + codes[:, 1] * (before[:, 0] - place), 1e-3),
        (codes[:, 1] * (after[:, 0] - place) + before[:, 0] * (after[:, 1] - place), 1e-3),
        (np.maximum(np.abs(after[:, 0] - place) - 0.5, 0.0), 0.15),  # none in a band
        (-np.hypot(after[:, 0] - place, 3.0 * (after[:, 2] - place)), 1e-3),
        (before[:, 1] - np.linalg.norm(after - place, axis=1), 1e-3),
        (-np.abs(after[:, 0] - 2.0 * after[:, 2]) - np.abs(after[:, 1] + after[:, 0]), 1e-3),
    ):
        law = fit_rewards(at, before, codes, after, wanted, boxed, rng)
        found = reward_features(at, law.hinges, before, codes, after, boxed) @ law.weights
        assert np.sqrt(((found - wanted) ** 2).mean()) < error * wanted.std()
    few = (column[:40] for column in (before, codes, after, wanted))
    law, size = fit_rewards(at, *few, boxed, rng), codes.shape[1]
    assert len(law.weights) == laws.n_reward_features(D, size, boxed, len(law.hinges), 0)[0]


def test_rewards_far_below_the_others_do_not_bend_their_law():
    rng = np.random.default_rng(0)
    before = rng.normal(size=(800, 2)) * np.where(np.arange(800) < 40, 300.0, 1.0)[:, None]
    codes, wanted = np.ones((800, 2)), -(before**2).sum(axis=1)
    seen = [x + 0.01 * rng.normal(size=x.shape) for x in (before, before + 0.1)]
    at = read(*seen)[0]
    law = fit_rewards(at, seen[0], codes, seen[1], wanted, True, rng)
    found = reward_features(at, law.hinges, seen[0], codes, seen[1], True) @ law.weights
    assert abs((found - wanted)[40:].mean()) < 0.01


def test_coordinates_are_found():
    rng = np.random.default_rng(3)
    angle = np.cumsum(rng.normal(size=400)) * 0.4
    speed = np.clip(rng.normal(size=400), -1.5, 1.5)
    gear = rng.integers(3, size=400) * 0.5
    seen = np.column_stack([speed, np.cos(angle), gear, np.sin(angle), np.full(400, 7.0)])
    at, cut = read(seen[:-1], seen[1:])
    assert at.circles.tolist() == [[1, 3]]
    assert (at.low[0], at.high[0]) == (-1.5, 1.5)
    np.testing.assert_array_equal(cut, np.abs(seen[1:, 0]) == 1.5)
    np.testing.assert_array_equal(at.levels[2, :3], [0.0, 0.5, 1.0])
    assert np.isnan(at.levels[[0, 1, 3, 4]]).all()
    assert at.scale[4] == 1.0
    assert (at.low[1], at.high[1], at.mean[1]) == (-1.0, 1.0, 0.0)
    for radius in (0.7, 3.0, 2.0**100):
        wide, _ = read(radius * seen[:-1], radius * seen[1:])
        moved = wide.on_circles(2.0 * radius * seen)
        np.testing.assert_allclose(np.hypot(*moved[:, [1, 3]].T), radius, rtol=1e-6)
    turned = changes(at, seen[:-1], seen[1:])
    small = np.abs(np.diff(angle)) < 1.5
    np.testing.assert_allclose(turned[small, 1], np.diff(angle)[small], atol=1e-9)
    np.testing.assert_array_equal(turned[:, 3], 0.0)


def test_a_half_space_is_found():
    rng = np.random.default_rng(4)
    points = rng.normal(size=(600, 3))
    ended = points[:, 1] < -1.2
    last, first = points[~ended, 1].min(), points[ended, 1].max()
    for margin in (0.2, 0.5):
        found = fit_ends(points, ended, margin, 2, None, rng)
        assert len(found.terms) == 0
        ((component, sign, threshold),) = found.walls.tolist()
        assert (component, sign) == (1.0, -1.0)
        assert threshold == pytest.approx(last + margin * (first - last))
        assert threshold == pytest.approx(-1.2, abs=0.05)


def test_an_end_that_is_no_half_space_is_found():
    def acrobots(n):
        a, b = rng.uniform(-np.pi, np.pi, size=(2, n))
        ended = -np.cos(a) - np.cos(a + b) > 1.0
        points = np.column_stack([np.cos(a), np.sin(a), np.cos(b), np.sin(b), rng.normal(size=n)])
        return points / points.std(axis=0), ended

    rng = np.random.default_rng(5)
    points, ended = acrobots(2500)
    found = fit_ends(points, ended, 0.5, 1, None, rng)
    assert len(found.terms) < 12  # of 21
    arrays = random_world(rng, boxed=False)
    arrays = arrays._replace(walls=found.walls, terms=found.terms, hazards=found.hazards)
    fresh, wanted = acrobots(2000)
    said = np.array([oracles.imagined_end(arrays, 0, x) for x in fresh])
    hits = (said & wanted).sum()
    assert 2.0 * hits / (said.sum() + wanted.sum()) > 0.95


MOVE = np.array([[1.0, 0.1, 0.0], [-0.05, 1.0, 0.0], [0.0, 0.3, 0.9]])
PUSH = np.array([0.01, 0.2, -0.1])


def cart_log(n=500, seed=6):
    """Steps of a cart that is pushed at random, and ends when it leaves a place of length 2."""
    rng = np.random.default_rng(seed)
    rows, state = [], rng.uniform(-0.5, 0.5, size=D)
    for t in range(n):
        if t % 5 == 0:
            action = int(rng.integers(1, 3))
        after = MOVE @ state + PUSH * (2 * action - 3)
        ended = abs(after[0]) > 1.0
        rows.append((state, action, 1.0 - after[1] ** 2, after, ended))
        state = rng.uniform(-0.5, 0.5, size=D) if ended else after
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def log():
    return cart_log()


@pytest.fixture(scope="module")
def cart(log):
    return World.fit(*log, env=CART, seed=0)


def test_a_linear_system_is_recovered(cart, log):
    rng = np.random.default_rng(7)
    assert cart.learned.chosen.form.name == "affine"
    points = rng.uniform(-0.5, 0.5, size=(200, D))
    actions = rng.integers(1, 3, size=200)
    after, rewards, ended = cart.predict(points, actions)
    wanted = points @ MOVE.T + PUSH * (2 * actions[:, None] - 3)
    np.testing.assert_allclose(after, wanted, atol=1e-3)
    np.testing.assert_allclose(rewards, 1.0 - wanted[:, 1] ** 2, atol=1e-2)
    assert not ended.any()
    walls = np.sort(cart.learned.arrays.walls[:, 0] * 10 + cart.learned.arrays.walls[:, 1])
    assert walls.tolist() == [-1.0, 1.0]
    assert cart.predict([1.5, 0.0, 0.0], 1)[2]


def test_a_linear_system_with_continuous_actions_is_recovered():
    rng = np.random.default_rng(8)
    points = rng.normal(size=(300, D))
    points[7] *= 20.0  # when it is held out, it is beyond all bounds of the others
    actions = rng.uniform(-2.0, 2.0, size=(300, 1))
    after = points @ MOVE.T + PUSH * actions
    world = World.fit(points, actions, -(actions[:, 0] ** 2), after, [0] * 300, env=GLIDER, seed=0)
    told, gains, ended = world.predict([0.2, -0.3, 0.1], [1.5])
    np.testing.assert_allclose(told, MOVE @ [0.2, -0.3, 0.1] + PUSH * 1.5, atol=1e-6)
    assert (gains, ended) == (pytest.approx(-2.25, abs=1e-4), False)
    imagined = world.imagine(lambda state: np.array([2.0]), 3, 10, seed=0)
    assert imagined.actions.shape[2:] == (1,)
    assert np.nanmin(imagined.actions) == np.nanmax(imagined.actions) == 2.0
    assert (world.report().r2 > 0.999).all()


def test_goals_that_only_resets_change_are_predicted():
    rng = np.random.default_rng(0)
    goals = rng.uniform(-1.0, 1.0, (6, 2)).repeat(100, axis=0)
    actions, places = rng.uniform(-2.0, 2.0, (600, 1)), np.zeros(601)
    for t, action in enumerate(actions[:, 0]):
        places[t + 1] = 0.9 * places[t] + 0.1 * action
    before, after = (np.column_stack([part, goals]) for part in (places[:-1], places[1:]))
    rewards = -((places[1:] - goals[:, 0]) ** 2)
    world = World.fit(before, actions, rewards, after, np.zeros(600), env=GLIDER, seed=0)
    assert min(world.report().r2) > 0.999
    assert world.trust


def test_the_same_seed_gives_the_same_world(cart, log):
    again = World.fit(*log, env=CART, seed=0)
    for one, other in zip(cart.learned.arrays, again.learned.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_report_is_right(cart, log):
    report = cart.report()
    assert report.n_transitions == 500
    assert report.n_ends == log[4].sum() > 5
    assert (report.r2 > 0.999).all()
    assert report.reward_r2 > 0.9  # at an end it is that of the nearest end that is remembered
    assert report.inner_reward_r2 > 0.999
    assert report.replay_error < 0.05
    assert report.replay_steps == 50
    assert report.precision > 0.7
    assert report.recall > 0.7
    assert report.form == "affine"
    assert set(report.form_errors) == set(cart.learned.chosen.errors)
    assert report.trust
    assert bool(cart.trust)
    text = str(report)
    assert "500 steps" in text
    assert "observation[2]" in text
    assert text.splitlines()[-1] == str(report.trust)


def wandering(hidden):
    """1,000 steps of places that return to 0, moved by noise, or by a wind that is not seen."""
    rng = np.random.default_rng(9)
    before, taken, after, wind = [], rng.integers(1, 3, size=1000), [], np.zeros(2)
    for i in range(1000):
        before.append(after[-1] if i % 50 else rng.normal(size=3))
        wind = 0.98 * hidden * wind + (0.06 if hidden else 0.3) * rng.normal(size=2)
        after.append(0.95 * before[-1] + [*wind, 0.02 * taken[i]])
    return list(map(np.array, (before, taken, -np.abs(after)[:, 0], after, np.zeros(1000))))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_world_is_trusted_with_the_noise_that_it_imagines(hidden):
    report = World.fit(*wandering(hidden), env=CART, seed=0).report()
    assert report.replay_error > 0.5
    assert bool(report.trust) != hidden
    assert ("it predicts observation[0" in report.trust.reason) == hidden
    assert report.reward_r2 < 0.995 < report.inner_reward_r2  # where it is known what is reached


def test_noise_alone_does_not_lead_too_far():
    learned = World.fit(*wandering(hidden=False), env=CART, seed=0).learned
    rule = np.zeros((1, 1 + D)), np.eye(2)[:1, :, None]
    starts, bounds = np.zeros((8, D)), np.array([-9.0, 0.0, -400.0, 1.0])
    for bias, lost in ((0.0, False), (1.0, True)):  # to where the law itself leads
        arrays = learned.arrays._replace(laws=learned.arrays.laws + bias, bounds=bounds)
        returns = Imagination(arrays, None, 50, None).returns_of(rule, starts)
        assert (returns <= bounds[2]).tolist() == [lost] * 8


def test_a_component_that_no_law_predicts_is_assumed_constant():
    """A slope that the clock hides, beside a speed at its bounds for most of the time."""
    rng, steps, speed = np.random.default_rng(2), [], 0.0
    phases, pushes = rng.uniform(0.0, 6.28, size=5), rng.uniform(-2.0, 2.0, size=100)
    for i in range(1000):
        t, push = i % 200, pushes[i // 10]
        slope, later = np.sin(phases[i // 200] + 0.05 * np.arange(t, t + 2))
        faster = np.clip(speed + 0.5 * push - 0.3 * slope, -2.0, 2.0)
        steps.append(([speed, slope, t], [push], -abs(faster), [faster, later, t + 1]))
        speed = faster
    before, actions, rewards, after = map(np.array, zip(*steps, strict=True))
    assert (np.abs(after[:, 0]) == 2.0).mean() > 0.5
    world = World.fit(before, actions, rewards, after, np.zeros(1000), env=GLIDER, seed=0)
    report = world.report()
    assert report.unpredicted.tolist() == [False, True, False]
    assert report.r2[0] > 0.99
    assert report.trust
    assert "observation[1], which no law predicts, is assumed constant" in report.trust.reason
    assert "no law predicts it: assumed constant" in str(report)
    told, _, _ = world.predict([0.5, 0.7, 30.0], [1.0])
    np.testing.assert_allclose(told, [0.79, 0.7, 31.0], atol=1e-2)


@pytest.mark.parametrize(
    ("effect", "pull", "trusted", "said"),
    [(0.0, 0.0, True, "; lamp, which no law predicts, is assumed constant"),
     (0.0, 0.1, False, "standard deviations; it predicts lamp worst"),
     (0.05, 0.0, False, " (R² -0.00013), and the reward depends on it"),
     (1.0, 0.0, False, "R² of the change of lamp, which rewards depend on most, is -0.00013")],
)  # fmt: skip
def test_a_component_predicted_worse_than_by_its_mean_is_named(effect, pull, trusted, said):
    """It jumps at random, and matters or does not."""
    rng = np.random.default_rng(0)
    before, taken, after, rewards = [], rng.integers(1, 3, size=600), [], []
    for i, push in enumerate((2 * taken - 3).tolist()):
        x, y, lamp = (*rng.uniform(-1, 1, size=2), 0.0) if i % 50 == 0 else after[-1]
        before.append([x, y, lamp])
        x, y = 0.95 * x + 0.1 * push, 0.9 * y + 0.1 * x + pull * lamp
        after.append([x, y, lamp + (rng.random() < 0.05) * rng.normal(scale=3.0)])
        rewards.append(-abs(x) + effect * after[-1][2])
    log = map(np.array, (before, taken, rewards, after, np.zeros(600)))
    trust = World.fit(*log, env=CART, seed=0, names=["x", "y", "lamp"]).trust
    assert bool(trust) is trusted
    assert str(trust).endswith(said)


@pytest.mark.parametrize(
    ("errors", "trusted", "said"),
    [((0.1, 50, 0.9, 0.8, 0.99), True, "0.80"),
     ((0.1, 50, np.nan, np.nan, 0.99), True, "off by 0.1"),
     ((0.7, 50, 0.9, 0.8, 0.99), False, "50 steps ahead it is off by 0.7"),
     ((np.nan, 50, 0.9, 0.8, 0.99), False, "nan"),
     ((0.1, 50, 0.35, 0.54, 0.99), False, "precision 0.35"),
     ((0.1, 50, np.nan, 0.0, 0.99), False, "recall 0.00"),
     ((0.1, 50, 0.9, 0.8, -0.5), False, "R² of rewards is -0.5")],
)  # fmt: skip
def test_trust_says_why(errors, trusted, said):
    trust = quality.judged(*errors)
    assert bool(trust) is trusted
    assert said in trust.reason


def test_imagined_steps_are_predicted_ones(cart):
    rule = RulePolicy(np.array([[0.0] * 4, [0.0, 1.0, 1.0, 0.0]]), np.eye(2)[:, :, None],
                      np.zeros((2, D)))  # fmt: skip
    imagined = cart.imagine(rule, 9, horizon=30, seed=1)
    observations, actions, rewards, lengths, ended, lost = imagined
    longest = lengths.max()
    assert observations.shape == (9, longest + 1, D)
    assert actions.shape == rewards.shape == (9, longest)
    assert set(actions[~np.isnan(actions)]) == {1.0, 2.0}
    assert not (ended & lost).any()
    assert ((lengths == 30) | ended | lost).all()
    for i in range(9):
        n = lengths[i]
        assert np.isnan(rewards[i, n:]).all()
        assert np.isnan(observations[i, n + 1 :]).all()
        np.testing.assert_array_equal(actions[i, :n], 1 + rule.act(observations[i, :n]))
        after, gains, over = cart.predict(observations[i, :n], actions[i, :n], law=i % cart.n_laws)
        np.testing.assert_allclose(after, observations[i, 1 : n + 1], rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(gains, rewards[i, :n], rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(over, [*[False] * (n - 1), ended[i]])
    np.testing.assert_allclose(imagined.returns, np.nansum(rewards, axis=1))
    again = cart.imagine(lambda state: 1 + int(state[0] + state[1] > 0.0), 9, horizon=30, seed=1)
    np.testing.assert_array_equal(again.observations, observations)


def test_noise_differs_from_step_to_step_and_not_from_seed_to_seed(cart):
    rng = np.random.default_rng(10)
    noisy = cart.learned.arrays._replace(residuals=0.05 * rng.normal(size=(64, D)))
    world = World(Learned(noisy, cart.learned.at, cart.learned.chosen), cart.interface, cart.seen)
    one, same, other = (world.imagine(lambda s: 1, 4, 12, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.observations, same.observations)
    assert not np.array_equal(one.observations[:, 1], other.observations[:, 1])
    n = one.lengths[0]
    quiet = cart.predict(one.observations[0, :n], one.actions[0, :n], law=0)[0]
    left = one.observations[0, 1 : n + 1] - quiet
    assert len(np.unique(left[:, 0].round(9))) > n / 2
    point = [0.1, 0.2, 0.3]
    np.testing.assert_array_equal(world.predict(point, 1)[0], cart.predict(point, 1)[0])


def test_the_figure_shows_both(cart):
    axes = plot_world(cart)
    real, imagined = cart.replayed()
    assert [ax.get_ylabel() for ax in axes] == list(cart.names)
    for j, ax in enumerate(axes):
        lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
        np.testing.assert_array_equal(lines["real"], real[:, j])
        np.testing.assert_array_equal(lines["imagined, with the same actions"], imagined[:, j])
    with pytest.raises(ValueError, match="ax has 1 axes: it must have 3"):
        plot_world(cart, ax=axes[:1])


def test_an_agent_has_a_world():
    agent = ModelAgent("Pendulum-v1", seed=0, random_steps=200, generations=1, population=4)
    with pytest.raises(ValueError, match="learned nothing yet after 0 steps; it begins after 200"):
        _ = agent.world
    world = agent.learn(401).world
    assert world.report().names == ("cos θ", "sin θ", "angular velocity (rad/s)")
    assert world.trust
    assert world.imagine(agent.policy, 8, seed=0).lengths.max() == 200  # some leave what was seen
    one, other = (world.imagine(policy, 2, 5, seed=0) for policy in (agent, agent.policy))
    np.testing.assert_array_equal(one.actions, other.actions)
    with pytest.raises(ValueError, match=r"action\[0\] is \[3.0\]: .* and lie between"):
        world.predict([1.0, 0.0, 0.0], [3.0])


def changed(log, place, value):
    new = [column.copy() for column in log]
    new[place] = value
    return new


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(0, np.zeros((500, 2)), r"observations has shape \(500, 2\): it must be \(3,\)"),
     (0, np.full((500, 3), np.inf), r"observations\[0\] is .*inf.* not finite"),
     (1, np.zeros(499), r"actions has shape \(499,\): it must have 500 rows"),
     (1, np.full(500, 3), r"actions\[0\] is 3: it must be an integer from 1 to 2"),
     (1, np.full(500, np.nan), r"actions\[0\] is nan: it must be an integer from 1 to 2"),
     (2, np.zeros((500, 1)), r"rewards has shape \(500, 1\): it must be \(500,\)"),
     (2, np.full(500, np.nan), r"rewards\[0\] is nan: a reward must be a number from"),
     (3, np.full((500, 3), np.nan), r"next_observations\[0\] is .*not finite"),
     (4, np.full(500, 2), r"terminated\[0\] is 2.0: it must be True or False")],
)  # fmt: skip
def test_bad_logs_are_refused(log, place, value, message):
    with pytest.raises(ValueError, match=message):
        World.fit(*changed(log, place, value), env=CART)


def test_a_log_of_one_step_is_refused(log):
    with pytest.raises(ValueError, match="observations has 1 row: there must be at least 2"):
        World.fit(*(column[:1] for column in log), env=CART)


def test_bad_environments_are_refused(log):
    with pytest.raises(TypeError, match="env is 3: it must be an environment"):
        World.fit(*log, env=3)
    with pytest.raises(TypeError, match="observation_space is Discrete"):
        World.fit(*log, env=(spaces.Discrete(3), spaces.Discrete(2)))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda w: w.predict([0.0, 0.0], 1), r"observation has shape \(2,\)"),
        (lambda w: w.predict([0.0, 0.0, 0.0], 0), r"is 0: it must be an integer from 1 to 2"),
        (lambda w: w.predict(np.zeros((4, 3)), [1, 2]), r"action has shape \(2,\): .*\(4,\)"),
        (lambda w: w.predict(np.zeros(3), 1, law=4), "law is 4: it must be .* from 0 to 3"),
        (lambda w: w.imagine(lambda s: 1, 0), "n is 0: it must be an integer of at least 1"),
        (lambda w: w.imagine(lambda s: 7, 2), r"policy\(observation\)\[0\] is 7"),
        (lambda w: w.imagine(RulePolicy(np.zeros((1, 3)), np.ones((1, 1, 1)), np.zeros((1, 2))), 2),
         "policy takes observations of 2 components: it must take 3"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(cart, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(cart)
    with pytest.raises(TypeError, match="policy is 5: it must be a policy or a function"):
        cart.imagine(5, 2)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e5])
def test_a_law_is_learned_beside_far_points_from_few_steps_and_of_equal_components(scale):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 3))[:, [0, 1, 2, 0, 0]] * [1.0, 1.0, 1.0, 1.0, 0.0]
    points[:5] *= scale  # their squares hide any penalty: the matrix is singular in rounding
    codes = np.insert(rng.uniform(-1.0, 1.0, (400, 2)), 0, 1.0, axis=1)
    change = 0.1 * points + codes[:, 1:] @ np.ones((2, 5))
    law = laws.fit_law(laws.FORMS[7], points, codes, change, 16, rng)
    found = laws.global_change(law.weights, laws.monomials(points, True), codes)
    found += laws.sinusoids(points @ law.waves[:5] + law.waves[5]) @ law.waves[6:].T
    np.testing.assert_allclose(found[5:], change[5:], atol=0.01)
    x, noise = rng.normal(size=(1120, 18)), 0.3 * rng.normal(size=(1120, 10))
    codes, change = np.insert(x[:, 10:], 0, 1.0, axis=1), x @ rng.normal(size=(18, 10)) + noise
    law = laws.fit_law(laws.FORMS[0], x[:120, :10], codes[:120], change[:120], 3, rng)
    found = laws.global_change(law.weights, laws.monomials(x[:, :10], False), codes)
    assert (change - found)[120:].std() < 0.55  # least squares of 99 columns: 0.83


def test_scores_and_stretches():
    assert best_f1(np.array([0.1, 0.4, 0.8]), np.array([0.0, 1.0, 1.0])) == (1.0, 0.4)
    assert quality.explained(np.array([1.0, 3.0]), np.array([0.5, -0.5])) == 0.75
    assert [len(rows) for rows in stretches([np.arange(7), np.arange(2)], 3)] == [4, 3, 2]
