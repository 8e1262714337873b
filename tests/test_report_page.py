"""Reports in a real browser: they decide and step as Python does, and can be tried by hand."""

import json
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from browser import browser
from environments import BARTO, quick_rule

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.policies.export import json_document
from oda_rl.agents.policies.export_tables import export_of
from oda_rl.envs.dynamics import known_dynamics
from oda_rl.reporting import page as reported
from oda_rl.reporting.content import policy_of, report_of
from oda_rl.reporting.page import page_of, write_page

STATES = 1_000


def constrained():
    agent = quick_rule("CartPole-v1", seed=0).learn(500)
    begun = agent.edit().lock(1).forbid("push left", where="pole angle > .03")
    agent.constrain(begun.done())
    return agent


class SixBlended(FittedQAgent):
    """Its policy blends twice as many cells as it has learned to."""

    @property
    def policy(self):
        return replace(super().policy, n_nearest=6)


TRAINED = {
    "table": lambda: TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000),
    "grid": lambda: TwoTimescaleAgent("MountainCar-v0", partition="grid", seed=0).learn(5_000),
    "blended": lambda: FittedQAgent("MountainCar-v0", seed=0).learn(5_000),
    "six blended": lambda: SixBlended("MountainCar-v0", seed=0).learn(5_000),
    "codevectors": lambda: CodevectorAgent("Pendulum-v1", seed=0).learn(2_000),
    "joint": lambda: TwoTimescaleAgent("Pendulum-v1", seed=0, max_cells=50).learn(2_000),
    "torques": lambda: FittedQAgent("Pendulum-v1", seed=0, action_bins=5).learn(2_000),
    "acrobot": lambda: TwoTimescaleAgent("Acrobot-v1", partition="gmm", seed=0).learn(3_000),
    "rule": lambda: quick_rule(BARTO, seed=0).learn(500),
    "affine": lambda: quick_rule("Pendulum-v1", seed=0).learn(500),
    "clauses": constrained,
    "states": lambda: ModelAgent("FrozenLake-v1", seed=0).learn(1_000),
}


@pytest.fixture(scope="module")
def agents():
    made = {}

    def agent(name):
        if name not in made:
            made[name] = TRAINED[name]()
        return made[name]

    return agent


@pytest.fixture(scope="module")
def open_page(agents, tmp_path_factory):
    folder, quick = tmp_path_factory.mktemp("reports"), pytest.MonkeyPatch()
    for name in ("_DRAWN_STEPS", "_VISITED_STEPS"):
        quick.setattr(reported, name, 500)

    def page(name, **how):
        path = name if isinstance(name, Path) else folder / f"{name}.html"
        if not path.exists():
            write_page(agents(name), report_of(agents(name), episodes=2), path)
        return opened(path, **how)

    with browser(folder) as opened:
        yield page
    quick.undo()


@pytest.fixture(scope="module")
def page(open_page):
    """One for all tests that do not depend on what state it is in."""
    return open_page("table")


def states_of(agent, seed=0):
    """States about those that a policy visits, and far from them."""
    seen = agent.visited_states(200, seed=seed)
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.1, 1.0, 5.0], size=(STATES, 1)) * (seen.std(axis=0) + 1e-3)
    return seen[rng.integers(len(seen), size=STATES)] + rng.normal(size=(STATES, 1)) * spread


@pytest.mark.parametrize("name", TRAINED)
def test_a_page_decides_as_python_does(name, agents, page):
    agent = agents(name)
    document, states = json_document(export_of(agent)), states_of(agent)
    found = page.run(
        f"(policy => {json.dumps(states.tolist())}.map(x => {{const d = oda.decide(policy, x);"
        f"return [d.cell, d.choice, d.action]}}))({document})"
    )
    cells, choices, actions = zip(*found, strict=True)
    policy, made = agent.policy, policy_of(json.loads(document))
    np.testing.assert_array_equal(made.cells(states), policy.cells(states))
    np.testing.assert_array_equal(made.choices(states), policy.choices(states))
    np.testing.assert_allclose(made.act(states), policy.act(states), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(cells, policy.cells(states))
    np.testing.assert_array_equal(choices, policy.choices(states))
    performed = agent.interface.actions(policy.act(states)) - agent.interface.first_action
    np.testing.assert_allclose(np.array(actions), performed, rtol=1e-6, atol=1e-6)  # float32


def nearest_others(agent, page, n):
    """Choices in states, and their alternatives by Python and by the page."""
    document, states = json_document(export_of(agent)), states_of(agent)[:n]
    found = page.run(
        f"(policy => {json.dumps(states.tolist())}.map(x => oda.nearestOther(policy, x, "
        f"{json.dumps(agent.scale_.tolist())})))({document})"
    )
    for state, one in zip(states, found, strict=True):
        choice = int(agent.policy.choices(state[None])[0])
        yield choice, agent.policy.alternative(state, choice, agent.scale_), one


@pytest.mark.parametrize("name", ["rule", "affine"])
def test_the_nearest_state_that_is_treated_otherwise_is_pythons(name, agents, page):
    agent = agents(name)
    for choice, expected, one in nearest_others(agent, page, 40):
        if expected.point is None:
            assert one is None
            continue
        assert one["exact"]
        assert one["distance"] == pytest.approx(expected.distance, rel=1e-6, abs=1e-9)
        assert agent.policy.choices(np.array([one["point"]]))[0] != choice


@pytest.mark.parametrize(
    "name", ["table", "grid", "acrobot", "blended", "six blended", "codevectors", "clauses"]
)
def test_a_near_state_that_is_treated_otherwise_is_found(name, agents, page):
    agent, ratios = agents(name), []
    for choice, expected, one in nearest_others(agent, page, 10):
        if one is None:
            continue
        assert not one["exact"]
        assert one["distance"] >= expected.at_least * (1.0 - 1e-6)
        assert agent.policy.choices(np.array([one["point"]]))[0] != choice
        ratios.append(one["distance"] / max(expected.distance, 1e-9))
    assert len(ratios) >= 8  # a search may fail where Python's, which looks longer, does not
    assert np.median(ratios) < 1.2


WORLDS = ["CartPole-v1", BARTO, "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"]


def trajectory(env, page, factors):
    """States and observations of an episode of random actions, in Gymnasium and in the page."""
    bare, rng = env.unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    state = np.array(bare.state, dtype=np.float64)
    parameters = known_dynamics(gym.make(env.spec.id)).parameters.tolist()
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    actions, own = [], []
    for _ in range(200):
        drawn = rng.uniform(-2.0, 2.0, 1).astype(np.float32)
        action = int(rng.integers(env.action_space.n)) if discrete else drawn
        observation, _, ended, _, _ = env.step(action)
        actions.append(action if discrete else action.tolist())
        own.append([*map(float, bare.state), *observation.tolist(), float(ended)])
        if ended:
            break
    found = page.run(
        f"(() => {{const world = oda.worlds.{type(bare).__name__};"
        f"const p = oda.disturbed(world, {parameters}, {json.dumps(factors)});"
        f"const state = {state.tolist()};"
        f"return {json.dumps(actions)}.map(a => {{const ended = world.step(p, state, a);"
        "return [...state, ...world.look(state), ended ? 1 : 0]})})()"
    )
    return np.array(own), np.array(found)


@pytest.mark.parametrize("env_id", WORLDS)
def test_worlds_step_as_gymnasium_does(env_id, page):
    own, found = trajectory(gym.make(env_id, disable_env_checker=True), page, {})
    assert len(own) > 5
    np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("env_id", "names", "factors"),
    [
        ("CartPole-v1",
         {"gravity": ["gravity"], "length of the pole": ["length", "polemass_length"]},
         {"gravity": 2.0, "length of the pole": 0.5}),
        ("MountainCar-v0", {"gravity": ["gravity"], "force of the engine": ["force"]},
         {"gravity": 0.8, "force of the engine": 1.5}),
        ("Pendulum-v1", {"gravity": ["g"], "length of the pendulum": ["l"]},
         {"gravity": 0.5, "length of the pendulum": 1.25}),
        ("Acrobot-v1",
         {"length of the links": ["LINK_LENGTH_1", "LINK_COM_POS_1", "LINK_COM_POS_2"]},
         {"length of the links": 1.5}),
    ],
)  # fmt: skip
def test_disturbed_worlds_step_as_those_with_other_constants(env_id, names, factors, page):
    env = gym.make(env_id, disable_env_checker=True)
    for name, factor in factors.items():
        for attribute in names[name]:
            setattr(env.unwrapped, attribute, factor * getattr(env.unwrapped, attribute))
    own, found = trajectory(env, page, factors)
    np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["blended", "acrobot", "states", "codevectors"])
def test_a_page_opens_without_a_complaint_and_asks_nobody(name, open_page):
    page = open_page(name, dark=name == "acrobot", width=390 if name == "blended" else 1280)
    live = name != "states"
    assert page.run("!!oda.view") == live
    assert page.run("document.querySelector('#live').hidden") == (not live)
    if live:
        page.run("oda.view.run(20); oda.view.show()")
        assert page.text("#steps") == "step 20"
        assert page.text("#action")
        assert page.text("#other").endswith(".")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in page.requests)


def test_the_pole_stays_up_and_a_push_is_balanced(agents, page):
    page.run(f"oda.view.policy = {json_document(export_of(agents('rule')))}")
    page.run("oda.view.restart()")
    assert page.run("oda.view.run(1000)") == 1000
    assert not page.run("oda.view.over")
    before = page.run("oda.view.state[3]")
    page.click("#push-right")
    assert page.run("oda.view.state[3]") == pytest.approx(before + 0.5)
    assert "was pushed right" in page.text("#status")
    assert page.run("oda.view.run(100)") == 1100
    assert not page.run("oda.view.over")
    page.run("oda.view.policy = oda.policy")


def test_without_the_policy_the_pole_falls(page):
    page.run("oda.view.policy = {...oda.policy, values: oda.policy.values.map(() => [1, 0])}")
    page.run("oda.view.restart()")
    steps = page.run("oda.view.run(1000)")
    assert steps < 100
    assert f"After {steps} steps the pole has fallen" in page.text("#status")
    page.run("oda.view.policy = oda.policy")


def test_a_world_runs_by_itself_until_it_is_stopped(open_page):
    page = open_page("table", still=False)
    page.wait("oda.view.steps > 30")
    assert page.text("#run") == "Pause"
    page.click("#run")
    steps = page.run("oda.view.steps")
    page.run("new Promise(done => setTimeout(done, 200))")
    assert (page.text("#run"), page.run("oda.view.steps")) == ("Run", steps)


def test_what_would_be_done_elsewhere_is_never_what_is_done(page):
    page.run("oda.view.restart(); oda.view.other.due = Infinity")  # as if the search took that long
    seen = []
    for _ in range(30):
        page.run("oda.view.run(1); oda.view.show(0)")
        action, other = page.text("#action"), page.text("#other")
        assert f"({action})" not in other
        seen.append(action)
    assert set(seen) == {"push left", "push right"}


def place(page, action):
    """Somewhere on the map where an action is taken, as shares from its upper left corner."""
    return page.run(
        """(action => {
          const view = oda.view, [width, height] = [40, 30];
          for (let i = 2; i < height - 2; i++) for (let k = 2; k < width - 2; k++) {
            const state = [...view.state];
            const [x, y] = view.plane.map((j) => view.world.ranges[j]);
            state[view.plane[0]] = x[0] + (k / width) * (x[1] - x[0]);
            state[view.plane[1]] = y[1] - (i / height) * (y[1] - y[0]);
            const all = [-0.02, 0.02].map((by) => state.map((value) => value + by));
            const taken = [state, ...all].map((one) => oda.decide(oda.policy, one).choice);
            if (taken.every((one) => one === action)) return [k / width, i / height];
          }})"""
        + f"({action})"
    )


def test_what_is_dragged_over_a_boundary_is_treated_otherwise(page):
    left, right = place(page, 0), place(page, 1)
    page.drag("#map", [right, left])
    assert page.text("#action") == "push left"
    assert page.text("#values .taken th") == "push left"
    page.drag("#map", [left, right])
    assert page.text("#action") == "push right"
    cell = page.run("oda.decide(oda.policy, oda.view.world.look(oda.view.state)).cell")
    assert page.text("#cell").startswith(f"cell {cell} of ")


def test_the_pole_can_be_dragged(page):
    page.run("oda.view.restart()")
    page.drag("#scene", [(0.5, 0.3), (0.55, 0.3)])
    assert page.run("oda.view.state[2]") > 0.02
    page.drag("#scene", [(0.5, 0.8), (0.3, 0.8)])
    assert page.run("oda.view.state[0]") < -0.5


def test_everything_can_be_done_from_the_keyboard(page):
    page.run("oda.view.restart()")
    page.run("document.querySelector('#map').focus()")
    before = page.run("[...oda.view.state]")
    page.press("ArrowUp")
    page.press("ArrowRight")
    after = page.run("oda.view.state")
    assert after[3] > before[3]
    assert after[2] > before[2]
    reached = set()
    page.run("document.activeElement.blur()")
    for _ in range(30):
        page.press("Tab")
        reached.add(page.run("document.activeElement.id || document.activeElement.type"))
    buttons = {"run", "one-step", "restart", "push-left", "push-right"}
    assert buttons | {"map", "plane-x", "plane-y", "push-size", "range", "cells"} <= reached
    page.run("document.querySelector('#one-step').focus()")
    page.press("Enter")
    assert page.text("#steps") == "step 1"
    page.run("document.querySelector('#state input').focus()")
    page.press("ArrowRight")
    assert page.run("oda.view.state[0]") > after[0]


def test_sliders_disturb_the_world(open_page):
    page = open_page("table")
    page.run("document.querySelector('#disturbances input').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    assert page.text("#disturbances output") == "\u00d7 1.15"
    assert page.run("oda.view.parameters[0]") == pytest.approx(1.15 * 9.8)
    page.run("oda.view.noise = 1; oda.view.restart()")
    seen = np.array(page.run("Array.from({length: 2000}, () => oda.view.seen())"))
    scale = np.array(page.run("oda.report.scale"))
    np.testing.assert_allclose(seen.std(axis=0) * scale, 1.0, rtol=0.1)  # 6 standard errors


def test_what_came_out_of_a_file_is_no_html(agents, open_page, tmp_path):
    agent = agents("table")
    attack = "</script><script>oda = 1</script><img src=x onerror='oda = 2'>"
    report = replace(report_of(agent, 2, 0, attack), env_id=attack, value_name=attack)
    (tmp_path / "report.html").write_text(page_of(agent, report), encoding="utf-8")
    page = open_page(tmp_path / "report.html")
    assert page.text("h1") == f"A policy for {attack}"
    assert page.text("#command") == attack
    assert page.run("typeof oda.decide") == "function"
    assert page.run("document.querySelector('[onerror]')") is None
    assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_it_is_on(dark, page):
    page.prefer(dark)
    colors = page.run(
        """(() => {const style = getComputedStyle(document.documentElement);
        return ["ink", "soft", "accent", "paper", "panel", "now"].map((name) =>
          style.getPropertyValue(`--${name}`).trim())})()"""
    )
    ink, soft, accent, paper, panel, now = map(luminance, colors)
    contrasts = [
        (max(a, b) + 0.05) / (min(a, b) + 0.05) for a in (ink, soft, accent) for b in (paper, panel)
    ]
    assert min([*contrasts, (max(ink, now) + 0.05) / (min(ink, now) + 0.05)]) >= 4.5  # WCAG's AA


def luminance(color):
    """Relative luminance of a colour such as #fdfdfb, as WCAG 2 defines it."""
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
