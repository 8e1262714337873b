"""Schemes of exploration that take turns by the returns of their episodes."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from oracles import middle_ranks

import oda_rl.envs  # noqa: F401  (registers its environments)
from oda_rl.agents import FittedQAgent, FittedQConfig
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import GOES_ON, REWARD, TERMINAL
from oda_rl.agents.fitted import exploration
from oda_rl.agents.fitting.cells import Experience

N = exploration.NOVELTY  # those that are compared come first
CARTPOLE = "CartPole-v1"


def turns(worth, n=600, seed=0):
    """Draw schemes one after another; ``worth`` says what a scheme's episode returns."""
    rng, noise = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    played, returns = [], []
    for _ in range(n):
        played.append(exploration.draw(played, returns, rng))
        returns.append(worth(played[-1], noise))
    return played, returns


@pytest.mark.parametrize("shift", [0.0, -1e3])
def test_schemes_that_cost_nothing_take_turns_alike(shift):
    played, _ = turns(lambda scheme, noise: shift + noise.normal())
    shares = np.bincount(played[30:], minlength=N) / len(played[30:])
    assert (np.abs(shares - 1.0 / N) < 0.12).all()


def test_the_most_careful_scheme_is_first_and_one_that_costs_much_is_seldom_drawn():
    assert turns(lambda scheme, noise: 100.0 * scheme + noise.normal(), n=30)[0] == [0] * 30
    played, _ = turns(lambda scheme, noise: noise.normal() - 10.0 * (scheme == 1))
    later = np.bincount(played[100:], minlength=N)
    assert 0 < later[1] < 0.12 * later.sum()
    assert later[2] > 0.3 * later.sum()


def test_what_has_become_better_is_found_out():
    def worth(scheme, noise):
        late = next(count) > 300
        return noise.normal() + 10.0 * (scheme == (2 if late else 0))

    count = iter(range(1000))
    played, _ = turns(worth, n=900)
    assert np.mean(np.array(played[100:300]) == 0) > 0.7
    assert np.mean(np.array(played[500:]) == 2) > 0.7


def test_draws_are_those_of_thompson_sampling_on_ranks():
    rng = np.random.default_rng(0)
    for seed in range(50):
        played = rng.integers(N, size=40).tolist()
        returns = rng.integers(-5, 5, size=40).astype(float).tolist()
        ranks, latest = middle_ranks(returns[-30:]), played[-30:]
        normal = np.random.default_rng(seed).standard_normal(N)
        drawn = []
        for scheme in range(N):
            own = [0.5] + [rank for rank, one in zip(ranks, latest, strict=True) if one == scheme]
            drawn.append(sum(own) / len(own) + 0.29 / len(own) ** 0.5 * normal[scheme])
        assert exploration.draw(played, returns, np.random.default_rng(seed)) == np.argmax(drawn)


def test_an_agent_explores_by_schemes_unless_told_how_much():
    agent = FittedQAgent(CARTPOLE, seed=3).learn(15_000)
    engine = agent._engine
    counts = np.bincount(np.array(engine.exploration.schemes) + 1, minlength=N + 1)
    assert len(counts) == N + 1  # states are not numbered
    assert (counts > 0).all()  # all have had a turn, and some episodes were not of a scheme
    assert len(engine.exploration.schemes) == len(engine.exploration.returns)
    fixed = FittedQAgent(CARTPOLE, seed=0, exploration=0.4).learn(3000)
    assert set(fixed._engine.exploration.schemes) == {exploration.NONE}


def test_each_of_several_environments_explores_by_its_own_scheme():
    agent = FittedQAgent(CARTPOLE, seed=0).learn(1000)
    engine = agent._engine
    engine.set_n_envs(2)
    greedy = replace(engine._several.playing[0], epsilon=0.0, longest_hold=1)
    engine._several.playing[:] = greedy, replace(greedy, epsilon=1.0)
    seen, no = np.full((2, 4), 0.02, np.float32), np.zeros(2, np.bool_)
    step = VectorStep(seen, seen, np.zeros(2), no, no, learns=no, acts=~no, begins=no)
    chosen = [engine.advance(step)[0] for _ in range(1000)]  # draws new random numbers, too
    shares = np.mean(chosen, axis=0)
    assert shares[0] in (0.0, 1.0)
    assert 0.3 < shares[1] < 0.7


def trajectories_of(states, actions, n_actions):
    """Episodes in which numbered states follow one another, (m, n + 1), by actions, (m, n)."""
    rows, steps = [], []
    for seen, done in zip(states, actions, strict=True):
        for i, state in enumerate(seen):
            over = i == len(done)
            rows.append([state])
            steps.append((0.0, -5.0, TERMINAL) if over else (done[i], -5.0, GOES_ON))
    return Experience(np.array(rows, dtype=float), np.array(steps), n_actions, numbered=True)


def test_novelty_leads_where_least_was_done():
    # From 0 action 0 leads by 1 and 4, where all was done often, and action 1 by 2, a shorter way,
    # where action 0 was done twice.
    often = [([0, 1, 4, 3], [0, 0, 0]), ([0, 1, 4, 3], [0, 1, 1])] * 20
    seldom = [([0, 2, 3], [1, 1])] * 38 + [([0, 2, 3], [1, 0])] * 2
    episodes = often + seldom
    seen = trajectories_of(*zip(*episodes, strict=True), 2)
    config = FittedQConfig()
    policy = exploration.fit_novelty_policy(seen, None, config, np.random.default_rng(0))
    again = exploration.fit_novelty_policy(seen, policy, config, np.random.default_rng(0))
    assert (seen.steps[:, REWARD] == -5.0).all()  # what was earned stays as it was
    for one in (policy, again):
        _, actions, _ = one.evaluate(np.array([[0.0], [2.0]]))
        assert actions.tolist() == [1, 0]


def test_what_every_step_towards_costs_is_found():
    agent = FittedQAgent(gym.make("oda_rl/DeepSea-v0", size=8, swap=0), seed=0).learn(10_000)
    assert agent.evaluate(5, seed=0).min() > 0.98
    explored = np.array(agent._engine.exploration.schemes)
    assert 0 < np.mean(explored == exploration.NOVELTY) < 0.1


def test_episodes_of_novelty_count_for_no_policy_and_are_saved(reloaded):
    agent = FittedQAgent("FrozenLake-v1", seed=0).learn(1500)
    engine = agent._engine
    for _ in range(300):
        if engine.exploration.scheme == exploration.NOVELTY:
            break
        agent.learn(100)
    assert engine.exploration.scheme == exploration.NOVELTY
    assert engine._playing.policy is engine._novelty
    assert engine._playing.record is None
    loaded = reloaded(agent)
    np.testing.assert_array_equal(loaded._engine._novelty.models, engine._novelty.models)
    agent.learn(1500)
    np.testing.assert_array_equal(loaded.learn(1500).q_values, agent.q_values)
    assert loaded._engine.exploration.schemes == engine.exploration.schemes
