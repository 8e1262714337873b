"""Rows of running trajectories from fit to fit: what is known of them is known at the next one."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from oda_rl.agents import FittedQAgent
from oda_rl.agents.fitted import engine as fitted_engine
from oda_rl.agents.fitted.moves import Moves
from oda_rl.agents.fitting.placed import NOWHERE, Placed, Since


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_found_where_they_were(seed):
    rng, count = np.random.default_rng(seed), 5
    moves, n_rows = Moves(count), 0
    running, over, last = [[] for _ in range(count)], [], []  # a number for each row
    for _ in range(30):
        n_over = len(over)
        for _ in range(rng.integers(20)):
            lane = int(rng.integers(count))
            if rng.random() < 0.3:  # an episode ends, perhaps one that has not begun
                moves.end(lane, len(running[lane]), len(over))
                over += running[lane]
                running[lane] = []
            else:
                more = int(rng.integers(4))
                running[lane] += range(n_rows, n_rows + more)
                n_rows += more
        ended = moves.of_ended(n_over, len(over))
        found = moves.of_running(len(over), [len(rows) for rows in running])
        now = over + [row for rows in running for row in rows]
        was = {row: i for i, row in enumerate(last)}
        np.testing.assert_array_equal(
            np.concatenate([ended, found]), [was.get(row, NOWHERE) for row in now[n_over:]]
        )
        last = now
        if rng.random() < 0.1:  # all but the running ones is forgotten
            moves.forget()
            over, last = [], []


@pytest.mark.parametrize("most", [None, 1500, 60])
def test_what_is_known_of_rows_is_what_would_be_found_out(monkeypatch, most):
    assign, fit = Placed.assign, fitted_engine.fit_advantages
    known, policies, moved = {}, [], 0

    def assigned(placed, seen, since):
        found = assign(placed, seen, since)
        nothing = Since(since.settled, np.empty(0, dtype=np.int64))
        expected = assign(Placed(placed.at, placed.fine, anew=False), seen, nothing)
        parts = [(*own.coarse, own.near, own.weights, *own.moments) for own in (found, expected)]
        for one, other in zip(*parts, strict=True):
            np.testing.assert_array_equal(one, other)
        return found

    def fitted(seen, placed, since, values, *others):
        nonlocal moved
        names = [row.tobytes() for row in seen.observations]  # no state comes twice
        if values is not None:
            by_policy = policies[-1].evaluate(seen.observations)[2]
            expected = [known.get(*own) for own in zip(names, by_policy, strict=True)]
            np.testing.assert_array_equal(values, expected)
        moved += (since.were != NOWHERE).sum()
        found = fit(seen, placed, since, values, *others)
        known.clear()
        known.update(zip(names, found.values.tolist(), strict=True))
        policies.append(found.policy)
        return found

    monkeypatch.setattr(Placed, "assign", assigned)
    monkeypatch.setattr(fitted_engine, "fit_advantages", fitted)

    def forget(agent):
        engine, steps = agent._engine, agent.num_timesteps
        ended = any(known for _, known, _ in engine._running.moves._ended)
        if not forgotten and steps > 2500 and ended:  # since the last fit
            engine._forget(1000)
            forgotten.append(steps)

    forgotten = []
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 8)
    agent = FittedQAgent(envs, seed=0, max_transitions=most, confirm_episodes=0)
    agent.learn(5000, callback=forget)
    assert forgotten
    assert len(policies) == len(agent.history) > 10
    assert moved > 1000
