"""What the fitted agent does where the world is no longer the one that it remembers."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Plain

from oda_rl import InvalidFileError
from oda_rl.agents import CodevectorAgent, FittedQAgent
from oda_rl.agents.base.memory import GOES_ON, MARK, TERMINAL
from oda_rl.agents.fitted.changes import steps_that_agree
from oda_rl.agents.fitting.cells import Experience, TakenActions


def pushed(n, swapped_from, noise=0.0, length=10, continuous=False, seed=0):
    """A puck on ice, pushed to and fro; from a step on pushes are swapped."""
    rng = np.random.default_rng(seed)
    observations, rows = [], []
    taken = np.zeros((0, 1))
    for step in range(n):
        if step % length == 0:
            place = rng.uniform(-1.0, 1.0, size=2)
        push = rng.uniform(-1.0, 1.0) if continuous else 2.0 * rng.integers(2) - 1.0
        observations.append(place)
        rows.append([0.0 if continuous else (push + 1.0) / 2.0, 1.0, GOES_ON])
        taken = np.append(taken, [[push]], axis=0)
        sign = 1.0 if step < swapped_from else -1.0
        speed = place[1] + 0.2 * sign * push + noise * rng.normal()
        place = np.array([place[0] + 0.1 * speed, speed])
        if step % length == length - 1 or step == n - 1:
            observations.append(place)
            rows.append([-1.0, 0.0, TERMINAL])
            taken = np.append(taken, [[0.0]], axis=0)
    actions = TakenActions(taken, np.array([[-1.0], [1.0]])) if continuous else None
    return Experience(np.array(observations), np.array(rows), 2, taken=actions)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.08])
def test_steps_from_before_a_change_are_told_and_others_are_not(noise):
    # Ages of 100, 150, 225 and so on are tried; taken is the one before the first at which most of
    # those nearest among older steps are from before the change, as some are earlier.
    expected = {0.0: 337, 0.02: 337, 0.08: 757}
    assert steps_that_agree(pushed(3000, 1600, noise), 100) == expected[noise]
    assert steps_that_agree(pushed(2000, 1700, noise), 300) == 300
    assert steps_that_agree(pushed(2000, 2000, noise), 300) == 0


@pytest.mark.parametrize(("scale", "shift"), [(2.0**60, 0.0), (2.0**-60, 0.0), (1.0, 1e3)])
def test_units_of_observations_and_rewards_do_not_matter(scale, shift):
    for swapped_from in (1700, 2000):
        seen = pushed(2000, swapped_from, 0.02)
        steps = seen.steps.copy()
        steps[:, 1] = scale * steps[:, 1] + shift
        other = seen._replace(observations=scale * seen.observations + shift, steps=steps)
        assert steps_that_agree(other, 300) == steps_that_agree(seen, 300)


def test_continuous_actions_and_what_pays_otherwise_contradict_too():
    assert steps_that_agree(pushed(4000, 3600, continuous=True), 400) == 400
    assert steps_that_agree(pushed(4000, 4000, continuous=True), 400) == 0
    seen = pushed(2000, 2000)
    late = np.arange(len(seen.steps)) > 0.85 * len(seen.steps)
    seen.steps[:, 1] = np.where(late, -1.0, 1.0) * seen.observations[:, 0]
    assert steps_that_agree(seen, 250) == 250


def test_what_is_hidden_or_too_little_contradicts_nothing():
    assert [steps_that_agree(pushed(n, n // 2), 1) for n in (1, 5, 150)] == [0] * 3
    hidden, still = pushed(2000, 0), pushed(2000, 1000)
    # A coin that is not seen decides where each step goes, before as after.
    coins = np.random.default_rng(0).integers(2, size=len(hidden.steps))
    hidden.observations[:, 1] += 0.5 * coins
    still.observations[:] = 7.0  # nothing happens
    assert [steps_that_agree(seen, 300) for seen in (hidden, still)] == [0, 0]


def swapped(env):
    """Swap the meanings of its actions."""
    env.unwrapped.force_mag *= -1.0


def forgetful(env, before=3_000, after=7_000, **options):
    """An agent in whose cart-pole actions are swapped after some steps."""
    agent = FittedQAgent(env, seed=1, **options).learn(before)
    assert agent.evaluate(5, seed=1).mean() > 300.0
    swapped(agent.env)
    return agent.learn(after)


def mean_return(agent):
    """Of greedy episodes where actions are swapped."""
    env = Plain(gym.make("CartPole-v1"))
    swapped(env)
    return agent.evaluate(5, env=env, seed=100).mean()


def test_after_a_change_it_learns_anew_in_the_compiled_loop_as_in_the_other():
    envs = "CartPole-v1", Plain(gym.make("CartPole-v1"))
    fused, stepwise = (forgetful(env, exploration=0.4) for env in envs)
    for agent in (fused, stepwise):
        assert mean_return(agent) > 450.0
        assert 3_000 <= agent._engine._forgotten < 4_500
    np.testing.assert_array_equal(fused.episodes.rows[:, :2], stepwise.episodes.rows[:, :2])
    np.testing.assert_array_equal(fused.q_values, stepwise.q_values)
    # All that is remembered is of the new world: action 1 pushes to the left.
    engine = fused._engine
    rows = np.flatnonzero(engine.seen.steps[:, MARK] == GOES_ON)
    speed = np.diff(engine.seen.observations[:, 1])[rows]
    assert (speed[engine.seen.steps[rows, 0] == 1.0] < 0.0).mean() > 0.99


def test_a_policy_under_review_is_saved(reloaded):
    def stop(agent):
        return agent._engine._under_review is None

    env = Plain(gym.make("CartPole-v1"))
    agent = FittedQAgent(env, seed=0).learn(3_000)
    swapped(env)
    agent.learn(4_000, callback=stop)
    assert agent._engine._under_review is not None
    loaded = reloaded(agent, env)
    assert loaded._engine._under_review == agent._engine._under_review
    arrays = agent._engine.state_arrays()
    for wrong in ([0.0, 1.0], [1e6, 1.0], [1.5, 1.0]):
        with pytest.raises(InvalidFileError, match="under_review"):
            agent._engine.restore({**arrays, "under_review": np.array(wrong)})
    with pytest.raises(InvalidFileError, match="forgotten"):
        agent._engine.restore({**arrays, "forgotten": np.array(10**6)})
    loaded.learn(1_500)
    assert loaded._engine._under_review is None
    assert loaded._engine._forgotten >= 3_000
    again = reloaded(loaded, env)
    assert again._engine._forgotten == loaded._engine._forgotten


def test_in_several_environments_what_began_before_counts_for_nobody():
    envs = gym.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    agent = FittedQAgent(envs, seed=0).learn(6_000)
    for env in envs.envs:
        swapped(env)
    agent.learn(4_000)
    assert agent._engine._forgotten >= 6_000
    assert all(record.mean < 501.0 for record in agent._engine.records)
    agent.learn(6_000)
    assert mean_return(agent) > 400.0


def test_nothing_is_forgotten_where_nothing_changes():
    for kind, env_id in ((FittedQAgent, "CartPole-v1"), (CodevectorAgent, "Pendulum-v1")):
        agent = kind(env_id, seed=3).learn(4_000)
        assert agent._engine._forgotten == 0
        assert len(agent._engine.memory.steps) > 4_000
