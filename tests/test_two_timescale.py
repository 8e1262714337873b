"""The online agent: its cells, metric and trials, and that it learns."""

import json
from dataclasses import asdict

import gymnasium as gym
import numpy as np
import oracles
import pytest
from environments import BARTO, Plain, Toy, all_but_one, same

from oda_rl.agents import GridPartition, TwoTimescaleAgent, TwoTimescaleConfig
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.contest import CONSTANT, FAILURES, SNAPSHOT, Contest
from oda_rl.agents.two_timescale.paper import Annealed
from oda_rl.envs.dynamics import compiled_dynamics

MATRIX = ((0.2, 0.0, 0.0, 0.0), (0.0, 0.1, 0.1, 0.0), (0.0, 0.1, 20.0, 1.0), (0.0, 0.0, 1.0, 2.0))


def test_constants_are_read_from_the_environment():
    env, other = (gym.make("CartPole-v1", sutton_barto_reward=True) for _ in range(2))
    for one in (env, other):
        one.unwrapped.gravity, one.unwrapped.force_mag = 15.0, 7.0
        one.unwrapped.kinematics_integrator = "semi-implicit euler"
    assert compiled_dynamics(env) is not None
    changed = TwoTimescaleAgent(env, seed=0).learn(3000)
    same(changed, TwoTimescaleAgent(Plain(other), seed=0).learn(3000))
    usual = TwoTimescaleAgent("CartPole-v1", seed=0).learn(3000)
    assert not np.array_equal(usual.episodes.rows[:20, 1], changed.episodes.rows[:20, 1])
    assert set(changed.episodes.rows[:, 0]) <= {-1.0, 0.0}


def test_changed_environments_take_the_python_loop():
    cartpole = type(gym.make("CartPole-v1").unwrapped)
    assert compiled_dynamics(type("Other", (cartpole,), {})()) is None
    assert compiled_dynamics(gym.make("CartPole-v1", render_mode="rgb_array")) is None
    assert compiled_dynamics(gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))) is None
    assert compiled_dynamics(gym.make("FrozenLake-v1")) is None
    patched = gym.make("CartPole-v1")
    patched.unwrapped.step = patched.unwrapped.step
    assert compiled_dynamics(patched) is None


def test_the_environment_is_left_where_training_took_it():
    env = gym.make(BARTO)
    TwoTimescaleAgent(env, seed=2).learn(1003)
    other = Plain(gym.make(BARTO))
    TwoTimescaleAgent(other, seed=2).learn(1003)
    np.testing.assert_array_equal(env.unwrapped.state, other.unwrapped.state)
    np.testing.assert_array_equal(env.step(1)[0], other.step(1)[0])
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


@pytest.mark.parametrize(
    ("env_id", "steps", "solved"),
    [("CartPole-v1", 50_000, 475), ("MountainCar-v0", 99_000, -150), ("Acrobot-v1", 60_000, -150)],
)
def test_it_learns(env_id, steps, solved):
    def learns(seed):
        agent = TwoTimescaleAgent(env_id, seed=seed).learn(steps)
        return agent.evaluate(20, seed=seed).mean() >= solved  # random play: 20, -200 and -500

    assert all_but_one(learns, range(3))  # by other bits another one may fail


def test_random_play_gives_units_and_then_the_cells_begin():
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, warmup_steps=1000)
    engine = agent._engine
    agent.learn(999)
    assert engine.state.phase == ql.WARMUP
    assert engine.epsilon == 1
    assert (agent.n_cells, agent.metric_, agent.scale_) == (1, None, None)
    agent.learn(1)
    assert engine.state.phase == ql.LEARNING
    standard = engine.latest.std(axis=0)
    assert ((standard > 0.5) & (standard <= 1.0)).all()
    np.testing.assert_allclose(1.0 / agent.recent.std(axis=0), agent.scale_)
    np.testing.assert_array_equal(np.log2(engine.units[1]) % 1.0, 0.0)


def test_a_matrix_gives_the_cells_their_distances():
    agent = TwoTimescaleAgent(BARTO, seed=0, metric=MATRIX).learn(4_000)
    ratio = agent.metric_ / np.array(MATRIX).clip(1e-12)
    np.testing.assert_allclose(agent.metric_, ratio[0, 0] * np.array(MATRIX), atol=1e-9)
    batch = np.random.default_rng(0).uniform(-1, 1, (200, 4)) * (2.4, 2, 0.2, 2)
    for x in batch:
        assert agent.cell(x) == oracles.nearest(agent.codevectors, np.array(MATRIX), x)


def test_a_matrix_may_leave_components_out():
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, metric=np.diag([0, 0, 20.0, 1.0])).learn(5000)
    assert agent.n_cells > 2
    x = agent.recent.mean(axis=0)
    moved = x + np.outer(np.linspace(-1, 1, 9), (5.0, 3.0, 0.0, 0.0))
    assert (agent.cell(moved) == agent.cell(x)).all()


def test_slow_steps_are_the_papers_recursions():
    # A cell divides at its critical temperature, twice the greatest variance, and not above it.
    rng = np.random.default_rng(0)
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(600)
    engine = agent._engine
    codevectors, values = engine.live.places.T, engine.values[ql.LIVE]
    for factor, expected in ((1.02, 1), (0.98, 2)):
        engine.live.head[:] = 1, 0.0
        points = rng.normal(size=(400, 4)) * (1.0, 0.5, 0.25, 0.1)
        covariance = np.cov(points.T, ddof=0)
        engine.covariances[0], engine.statistics[1, 0] = covariance, 400.0
        critical = 2.0 * np.linalg.eigvalsh(covariance)[-1]
        engine.live.head[1] = 4.0 * factor * critical
        before = codevectors[0].copy(), values[0].copy()
        engine._split()
        assert engine.n_cells == expected
    shift = codevectors[1] - before[0]
    axis = np.linalg.eigh(covariance)[1][:, -1]
    assert abs(shift @ axis) == pytest.approx(0.7 * np.sqrt(critical / 2.0))
    np.testing.assert_allclose(codevectors[:2].mean(axis=0), before[0], atol=1e-12)
    np.testing.assert_allclose(values[:2].mean(axis=0), before[1])


def test_the_metric_is_that_of_the_gradients_of_q():
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(6000)
    engine = agent._engine
    transform = engine.transforms[ql.LIVE]
    points = (engine.latest[:50] - engine.means[ql.LIVE]) @ transform.T
    gradients = engine.gradients(points)
    policy = agent.learning_policy
    inverse = np.linalg.inv(transform * engine.units[1])
    for point, gradient in zip(points[:20], gradients[:20], strict=True):
        for i in range(4):  # by central differences; neighbours may change within them
            ends = [point + sign * 1e-6 * np.eye(4)[i] for sign in (-1, 1)]
            low, high = policy.values(np.array(ends) @ inverse.T + policy.origin)
            np.testing.assert_allclose((high - low) / 2e-6, gradient[:, i], rtol=1e-3, atol=1e-3)
    # Cells and values stay in place when the metric changes.
    engine.metric = np.diag([4.0, 0.1, 0.2, 1.0])
    engine._measure()
    after = agent.learning_policy
    np.testing.assert_allclose(after.codevectors, policy.codevectors, atol=1e-9)
    np.testing.assert_allclose(after.q_values, policy.q_values, atol=1e-9)
    np.testing.assert_allclose(after.models[:, 1:5], policy.models[:, 1:5], atol=1e-6)  # slopes


def mapped(seed):
    """CartPole with observations mapped by a matrix of condition 100."""
    one, other = np.linalg.qr(np.random.default_rng(seed).normal(size=(2, 4, 4)))[0]
    matrix = one * np.logspace(0.0, -2.0, 4) @ other / [1.0, 0.5, 0.1, 1.0]
    space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    return gym.wrappers.TransformObservation(gym.make("CartPole-v1"), matrix.__matmul__, space)


def test_mixtures_of_components_are_whitened(reloaded):
    agent = TwoTimescaleAgent(mapped(1), seed=1).learn(25_000)
    other = reloaded(agent, env=mapped(1)).learn(10_000)
    agent.learn(10_000)
    assert agent.evaluate(10, seed=1).mean() > 400  # 82 in standard deviations
    same(agent, other)
    covariance, whitening = agent._engine.covariance, agent._engine._whitening
    np.testing.assert_allclose(whitening @ covariance @ whitening.T, np.eye(4), atol=1e-6)
    plain = TwoTimescaleAgent("CartPole-v1", seed=1).learn(1_000)
    assert plain._engine._whitening is None


def test_no_target_is_greater_than_rewards_allow():
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(1_000)
    agent._engine.values[ql.LIVE] = 1e6
    assert agent.learn(1)._engine.running[0].value == pytest.approx(200.0)  # 2 · 1 / (1 - 0.99)


def test_what_is_delivered_is_the_snapshot_that_did_best():
    scores = []

    def note(agent):
        contest = agent._engine.contest
        if not scores or scores[-1][0] != contest.version:
            scores.append((contest.version, contest.best.n, contest.best_score))

    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(60_000, callback=note)
    confirmed = [score for _, n, score in scores if n > 0]
    assert len(confirmed) >= 2
    assert confirmed == sorted(confirmed)
    assert agent._engine.contest.trial_steps <= 0.3 * 60_000 + 5 * 500
    assert agent.evaluate(20, seed=0).mean() >= 475.0


def begun(longest, n_constants=0, returns=(1.0, 2.0, 3.0, 4.0)):
    """A contest whose learner has had some returns, in episodes of at most so many steps."""
    contest = Contest(n_constants)
    contest.longest = longest
    for episode_return in returns:
        contest.note_learning(episode_return, bold=False)
    return contest


def play(contest, steps, snapshot, constants=(0.0,)):
    """Play the trial that is due, with one return of each policy, and return its kind."""
    kind = contest.begin(steps)
    while trial := contest.next_episode():
        returns = {SNAPSHOT: snapshot, CONSTANT: constants[contest.constant]}
        delivered = snapshot if contest.delivered < 0 else constants[contest.delivered]
        contest.note_trial(trial, returns.get(kind, delivered), 10, steps)
    return kind


def test_constant_actions_contend_but_do_not_starve_snapshots():
    contest = begun(1000, n_constants=2)  # of so long episodes a policy is judged by five
    assert play(contest, 1000, 2.0, [2.0, 9.0]) == SNAPSHOT  # the first one wins
    assert (contest.best.n, contest.best.mean, contest.delivered) == (5, 2.0, -1)
    kinds = [play(contest, steps, 2.0, [2.0, 9.0]) for steps in range(2000, 4000, 1000)]
    assert kinds == [CONSTANT, CONSTANT]  # each is tried
    assert contest.delivered == -1  # by one episode, which may have been luck
    for steps in range(4000, 20_000, 1000):
        play(contest, steps, 2.0, [2.0, 9.0])
    assert (contest.best.mean, contest.delivered) == (9.0, 1)
    for _ in range(20):
        contest.note_learning(8.9, bold=False)
    kinds = [play(contest, steps, 8.9, [2.0, 9.0]) for steps in range(20_000, 40_000, 1000)]
    assert kinds.count(SNAPSHOT) >= 5
    assert contest.delivered == 1


def test_a_policy_is_judged_by_more_episodes_as_steps_grow_but_by_few_if_clearly_better():
    counts = []
    for steps in (1000, 60_000, 100_000, 10**6):
        contest = begun(500)
        play(contest, steps, 2.0)
        counts.append(contest.best.n)
    assert counts == [5, 6, 10, 40]
    contest = begun(100)
    play(contest, 20_000, 2.0)
    assert contest.best.n == 10
    play(contest, 20_100, 50.0)
    assert (contest.best.n, contest.best.mean) == (5, 50.0)
    overtaken = [contest.note_learning(60.0, bold=True) for _ in range(60)]  # needs no trial
    assert (overtaken[0], any(overtaken), contest.best.mean > 50.0) == (False, True, True)


def test_a_lucky_record_does_not_keep_a_better_snapshot_out():
    contest = begun(100, returns=(2.0, 18.0, 10.0, 6.0, 14.0))
    play(contest, 20_000, 10.0)  # what returns 4 is delivered after ten episodes of 10
    lucky = contest.version
    for steps in range(21_000, 61_000, 1000):
        kind = contest.begin(steps)
        while trial := contest.next_episode():
            worse = kind != SNAPSHOT and contest.version == lucky
            contest.note_trial(trial, 4.0 if worse else 5.0, 10, steps)
            assert contest.failures < FAILURES
    assert contest.version > lucky
    assert contest.best.mean == pytest.approx(5.0)


def test_returns_are_judged_without_the_luck_of_their_starts():
    rng, contest = np.random.default_rng(0), Contest(0, 3)
    for slopes, largest in (((50.0, 20.0, 0.0), 0.4), ((0.0, 0.0, 0.0), 1.1)):
        starts = rng.normal(size=(500, 3))
        returns = starts @ slopes + 10.0 * rng.normal(size=500)
        judged = [contest.without_luck(*one, 0) for one in zip(returns, starts, strict=True)]
        assert np.std(judged[200:]) < largest * np.std(returns)
        assert np.mean(judged[200:]) == pytest.approx(0.0, abs=15.0)  # 5 standard errors


def test_algorithm_1_splits_at_critical_temperatures():
    rng = np.random.default_rng(0)
    centres = np.array([[-5.0, 0.0], [5.0, 0.0], [0.0, 8.0]])
    cells = Annealed(
        TwoTimescaleConfig(max_cells=16, cooling=0.5, observe_every=1, min_slow_step=0.0)
    )
    cells.prepare(2, rng)
    cells.start(np.repeat(centres, 10, axis=0))
    counts = []
    for _ in range(60):
        samples = centres[rng.integers(3, size=100)] + 0.1 * rng.normal(size=(100, 2))
        before, temperature = cells.codevectors, cells.temperature
        lineage = cells.observe(samples)
        assert lineage.shape == (len(cells.codevectors), len(before))
        np.testing.assert_array_equal(lineage.sum(axis=1), 1.0)
        gaps = np.linalg.norm(cells.codevectors - lineage @ before, axis=1)
        assert cells.temperature == temperature or gaps.max() < 3.0  # children are near parents
        counts.append(len(cells.codevectors))
    assert counts[0] == 1
    assert max(counts) <= 16
    assert cells.temperature == temperature  # there are no more levels: codevectors converge
    gaps = np.linalg.norm(centres[:, None] - cells.codevectors, axis=2).min(axis=1)
    assert (gaps < 0.3).all()


def test_algorithm_2_is_one_step_q_learning_in_hard_cells(reloaded):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0, paper=True, max_cells=32).learn(8000)
    engine = agent._engine
    assert 2 <= engine.n_cells <= 32
    assert not engine.slopes.any()
    assert (engine.contest.trials, agent.timescale_ratio) == (0, 0.0)
    assert (agent.config.trace_decay, agent.config.hold) == (0.0, 1)
    temperatures = [level.temperature for level in agent.history]
    assert agent.temperature == agent.partition.temperature <= temperatures[-1]
    assert (np.diff(temperatures) <= 0.0).all()
    point = agent.recent[-1]  # in the cell that is nearest by Euclidean distance
    gaps = ((agent.learning_policy.codevectors - point) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        agent.learning_policy.values(point[None])[0], engine.values[ql.LIVE, gaps.argmin()]
    )
    back = reloaded(agent, "CartPole-v1")
    np.testing.assert_array_equal(back.partition.codevectors, agent.partition.codevectors)
    assert np.isfinite(back.learn(500).q_values).all()
    with pytest.raises(TypeError, match="paper is a setting of partition='oda'"):
        TwoTimescaleAgent("CartPole-v1", paper=True, partition="grid")


def test_two_timescales_and_their_ratio():
    free = {"min_slow_step": 0.0, "min_step_size": 0.0}
    for config, ratio in (
        ({}, 0.01), ({"step_exponent": 0.0}, 0.0002 / 0.3), (free, 2 / 50_000 / 0.3),
        ({**free, "step_exponent": 0.6}, 0.0)
    ):  # fmt: skip
        agent = TwoTimescaleAgent("CartPole-v1", **config)
        assert agent.timescale_ratio == pytest.approx(ratio)
        assert f"tends to {ratio:.3g}" in str(agent)
    for config, ratio in (
        ({"slow_exponent": 0.0}, 50.0),
        ({"min_step_size": 0.0}, np.inf),
        ({**free, "step_exponent": 0.0, "slow_exponent": 0.0}, 1 / 0.3),
        ({"paper": True, "slow_exponent": 0.5}, np.inf),
    ):
        with pytest.warns(UserWarning, match="theory asks for 0"):
            assert TwoTimescaleAgent("CartPole-v1", **config).timescale_ratio == ratio
    assert "tends to" not in str(TwoTimescaleAgent("CartPole-v1", partition="grid"))
    agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(5_000)
    slow = 1.0 / (agent._engine.statistics[1, : agent._engine.n_cells] + 1.0)
    assert f"{np.median(slow) * 1.1 / 0.3:.3g} in the median of cells, tends" in str(agent)


def test_random_transitions_between_numbered_states_are_learned():
    def way(seed):  # from random play to the optimum, by exact values
        rng, states = np.random.default_rng(seed), np.arange(16)
        chances, rewards = rng.dirichlet(np.full(16, 0.3), (16, 4)), rng.normal(size=(16, 4))
        env = gym.make("FrozenLake-v1", max_episode_steps=100)
        env.unwrapped.initial_state_distrib = np.full(16, 1 / 16)
        env.unwrapped.P = [
            [[(p, t, r, False) for t, p in enumerate(row)] for row, r in zip(*both, strict=True)]
            for both in zip(chances, rewards, strict=True)
        ]
        agent = TwoTimescaleAgent(env, seed=seed, gamma=0.9).learn(20_000)
        actions, best = agent.policy.act(states[:, None]), np.zeros(16)
        for _ in range(300):
            best = (rewards + 0.9 * chances @ best).max(axis=1)
        played, random = (
            np.linalg.solve(np.eye(16) - 0.9 * of(chances), of(rewards)).mean()
            for of in (lambda x: x[states, actions], lambda x: x.mean(axis=1))
        )
        return (played - random) / (best.mean() - random)

    assert np.mean([way(seed) for seed in range(3)]) > 0.95


def test_what_equal_snapshots_deliver_are_the_latest_values():
    env = Toy(lambda rng: int(rng.integers(2)), length=1)
    env.observation_space = gym.spaces.Discrete(2)
    agent = TwoTimescaleAgent(env, seed=0, gamma=0.9, min_slow_step=1.0).learn(4_000)  # no warning
    np.testing.assert_allclose(agent.q_values, 1.0, atol=1e-3)


def test_discrete_observations_have_a_hard_cell_each():
    env = gym.make("CliffWalking-v1", max_episode_steps=200)
    agent = TwoTimescaleAgent(env, seed=0).learn(20_000)
    assert (agent.n_cells, agent.cell(36)) == (48, 36)
    assert agent.evaluate(1, seed=0)[0] >= -20.0  # the path that keeps away from the cliff has 17


def test_few_states_do_not_cool_for_ever():
    # Cells cannot split where nothing varies: colder ones would be told apart by rounding alone.
    space = gym.spaces.Box(0.0, 1.0, (16,))
    lake = gym.make("FrozenLake-v1", is_slippery=False)
    env = gym.wrappers.TransformObservation(lake, lambda o: np.eye(16, dtype=np.float32)[o], space)
    agent = TwoTimescaleAgent(env, seed=0).learn(15_000)
    assert agent.temperature > 1e-6
    assert agent.n_cells < 100
    assert agent.evaluate(5, seed=0).mean() == 1.0


def test_a_trial_that_does_not_end_is_lost():
    # Without a limit of steps, a greedy policy may go round for ever.
    agent = TwoTimescaleAgent("CliffWalking-v1", seed=0).learn(20_000)
    contest = agent._engine.contest
    assert contest.trials > 1
    assert contest.trial_steps < 10_000


class Ramp(Plain):
    """Pays its place on a line, on which an action moves it; may end once, after some steps."""

    def __init__(self, last=None):
        super().__init__(Toy(n_features=1, reward=0.0, length=None))
        self.last, self.place, self.total = last, 5, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.t = 5, 0
        return np.array([5.0]), {}

    def step(self, action):
        self.place = min(max(self.place + 2 * int(action) - 1, 0), 10)
        self.t, self.total = self.t + 1, self.total + 1
        ends = self.total == self.last
        return np.array([float(self.place)]), 10.0 + self.place, ends, self.t == 50, {}


@pytest.mark.parametrize("last", [None, 3_000])
def test_values_of_a_world_that_goes_on_keep_up_with_its_mean_reward(last):
    # Random play has about 11 a step, the best policy 20: all values rise, of rare states, too.
    agent = TwoTimescaleAgent(Ramp(last), seed=3, gamma=0.98).learn(5_000)
    rewards = np.minimum(np.array([[0], [5], [10]]) + np.arange(1, 1_000), 10) + 10.0
    expected = (rewards * 0.98 ** np.arange(999)).sum(axis=1)
    found = agent.learning_policy.values(np.array([[0.0], [5.0], [10.0]])).max(axis=1)
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_a_large_cost_of_each_step_changes_no_decision():
    found = []
    for offset in (-1e3, -1e6):
        env = gym.wrappers.TransformReward(Ramp(), lambda reward, offset=offset: reward + offset)
        agent = TwoTimescaleAgent(env, seed=0, gamma=0.98).learn(3_000)
        found.append(agent.learning_policy.act(np.arange(11.0)[:, None]))
        assert (agent.policy.act(np.arange(5.0, 11.0)[:, None]) == 1).all()  # it begins at 5
    np.testing.assert_array_equal(*found)


def test_it_learns_from_random_actions_that_are_not_its_own():
    env, rng = Ramp(), np.random.default_rng(3)
    agent = TwoTimescaleAgent(env, seed=3, gamma=0.98)
    observation, _ = env.reset(seed=3)
    for _ in range(3_000):
        agent.act(observation)
        action = int(rng.integers(2))
        after, reward, terminated, truncated, _ = env.step(action)
        agent.update(observation, action, reward, after, terminated, truncated)
        observation = env.reset()[0] if terminated or truncated else after
    assert (agent.policy.act(np.arange(11.0)[:, None]) == 1).all()


@pytest.mark.parametrize("unit", [1e-158, 1e-155, 1e-140])
def test_what_is_learned_is_finite_beside_a_component_of_tiny_numbers(unit, tmp_path):
    space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    env = gym.wrappers.TransformObservation(
        gym.make("CartPole-v1"), lambda o: o * np.array([unit, 1.0, 1.0, 1.0]), space
    )
    agent = TwoTimescaleAgent(env, seed=0).learn(6000)
    for name in ("q_values", "codevectors", "metric_", "scale_"):
        assert np.isfinite(getattr(agent, name)).all(), name
    assert agent.n_cells > 4
    agent.save(tmp_path / "agent.zip")
    TwoTimescaleAgent.load(tmp_path / "agent.zip", env=env).learn(100)


def test_config_is_checked_and_defaults_know_no_environment():
    first, other = (
        asdict(TwoTimescaleAgent(env_id, gamma=0.9).config) for env_id in (BARTO, "Acrobot-v1")
    )
    assert first == other == asdict(TwoTimescaleConfig(gamma=0.9))
    assert TwoTimescaleConfig().metric == "learned"
    assert TwoTimescaleConfig(metric=np.eye(2)).metric == ((1.0, 0.0), (0.0, 1.0))
    with pytest.raises(AttributeError):
        TwoTimescaleConfig().gamma = 0.5
    for task, bins, hold in ((BARTO, None, 8), ("Pendulum-v1", None, 20), ("Pendulum-v1", 5, 20)):
        assert TwoTimescaleAgent(task, action_bins=bins)._engine.state.hold == hold
        assert TwoTimescaleAgent(task, action_bins=bins, hold=3)._engine.state.hold == 3


def test_settings_of_a_partition_are_its_own(tmp_path):
    named = TwoTimescaleAgent(BARTO, partition="grid", bins=[2, 2, 4, 2], gamma=0.9)
    given = TwoTimescaleAgent(BARTO, partition=GridPartition(bins=(2, 2, 4, 2)), gamma=0.9)
    for agent in (named, given):
        assert (agent.config.gamma, agent.partition.settings.bins) == (0.9, (2, 2, 4, 2))
        agent.save(tmp_path)
        known = json.loads((tmp_path / "config.json").read_text())
        assert known["partition"] == "grid"
        settings = asdict(agent.config) | asdict(agent.partition.settings)
        assert known["config"] == json.loads(json.dumps(settings))
        loaded = TwoTimescaleAgent.load(tmp_path)
        assert loaded.config == agent.config
        assert loaded.partition.settings == agent.partition.settings
    with pytest.raises(TypeError, match="map_shape is a setting of partition='som'"):
        TwoTimescaleAgent(BARTO, partition="grid", map_shape=(5, 5))
    with pytest.raises(TypeError, match="bins is a setting of partition='grid'"):
        TwoTimescaleAgent(BARTO, bins=3)


def test_a_threshold_changes_nothing():
    plain, other = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    other.spec.reward_threshold = other.unwrapped.spec.reward_threshold = None
    agents = [TwoTimescaleAgent(env, seed=1).learn(4_000) for env in (plain, other)]
    assert (agents[0].solved_return, agents[1].solved_return) == (475.0, None)
    same(*agents)
