"""The fast timescale, and exploration; compiled.

A step of the environment is one call of :func:`advance`, and so is the beginning of a trajectory.
The compiled loop makes these calls through :func:`start` and :func:`learn`, several environments
through :func:`step_together`.

=============  ==================================================================================
warm-up        random steps for means and deviations: now and then a random action, else the first;
               continuous ones are held
exploration    ε-greedy, ε = ε_0 / (1 + t / t_ε); in bold episodes held for 1 to 7 steps. Where
               the world has changed, t begins anew, for α, too
continuous     random actions are uniform in a box 1.5 times as wide, clipped, and always held, for
               1 to 19 steps
centring       while no episode has terminated, values are of rewards less ρ, the running mean of
               rewards, or less ``min_centre`` if that is more: 0 (optimistic values are worth
               more there), or a number below 0 where random rewards are far below it
=============  ==================================================================================

Values are learned in trials, too: by Q-learning's target, as actions are not the learner's. The
cells (:mod:`oda_rl.agents.two_timescale.cells`) see x = (o - origin) / unit, with units that are
powers of 2.

What compiled code cannot do itself it reports as events, bits of one integer.

References
----------
A. Naik, Y. Wan, M. Tomar, R. S. Sutton, "Reward centering", Reinforcement Learning Journal (2024):
equation 4. Without it, values of actions that are not taken fall behind those of a policy that
becomes better, by much more than actions differ.
"""

from typing import Annotated, Any, NamedTuple

from oda_rl._compile import boolean, compiled, integer, spliced
from oda_rl._state import State, reader
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.state import EPISODE_END, UNIFORMS, Counters, EnvState, end_episode
from oda_rl.agents.environments.validation import BAD_SHAPE, LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.policies import joint
from oda_rl.agents.policies.cells import greatest
from oda_rl.agents.policies.joint import N_CELLS, TEMPERATURE, Codebook, Search
from oda_rl.agents.two_timescale import cells
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import COUNT, FINITE, Span

# Phases.
WARMUP, LEARNING = range(2)
# Further events.
WARM = 2  # random play is over
SLOW = 4  # the slow timescale is due
JUDGE = 8  # an episode has ended, in the environment ``state.ended``
LIVE, BEST, CANDIDATE = range(3)  # policies
# Rows of vectors: what the last step led to, running mean and sum of squared deviations, origin and
# inverse units of observations, and two points in the metric.
AFTER, MEAN, SQUARES, ORIGIN, INVERSE_UNITS, POINTS = range(6)

UNIFORMS_PER_STEP = 8  # at most, of act and learn, and for each component of an action:
UNIFORMS_PER_COMPONENT = 4
ROUND = 100  # steps to the next slow step, where cells are few or a birth found no room
CENTRING = 1e-3  # step size of the mean reward
MIN_RATE = 1e-3  # of discounting: where γ is 1, values are sums of 1,000 rewards at first
# With full traces of n > 1 environments in the same cells values diverge: λ is multiplied by
# max(n, MIN_OVERLAP) ** OVERLAP_EXPONENT.
OVERLAP_EXPONENT, MIN_OVERLAP = -0.1, 32
PAIR_EXPONENT = -0.7  # of the visits of a pair: next states may be random
WIDE = 1.5  # random actions are uniform in a box so much wider, and clipped


class OnlineState(Counters):
    """Counters of an online agent, and its settings, which do not change."""

    phase: Annotated[int, Span("[0, 1]")]  # ``WARMUP`` or ``LEARNING``
    first_action: Annotated[int, Span("[0, actions)")]  # the most frequent action of random play
    n_features: Annotated[int, Span("[1, inf)")]  # of observations, without actions
    ended: Annotated[int, Span("[0, env_states)")]  # the environment whose episode has ended last
    seen: Annotated[int, Span(COUNT)]  # observations so far, first ones of episodes included
    observed: Annotated[int, Span(COUNT)]  # observations that the codevectors were moved by
    changed: Annotated[int, Span(COUNT)]  # step when the world last changed
    room: Annotated[int, Span("[1, inf)")]  # maximum number of cells at present
    refused: Annotated[int, Span(COUNT)]  # births since the last slow step that found no room
    next_slow: Annotated[int, Span(COUNT)]  # steps at which the next slow step is due
    next_metric: Annotated[int, Span(COUNT)]  # steps at which the metric is learned again
    mean_reward: Annotated[float, Span(FINITE)]  # mean reward: of random play, then running
    reward_variance: Annotated[float, Span("[0, inf)")]  # variance of rewards in random play
    min_centre: Annotated[float, Span("(-inf, 0]")]  # least number subtracted from rewards
    largest_reward: Annotated[float, Span("[0, inf)")]  # largest absolute reward since random play
    squared_error: Annotated[float, Span("[0, inf)")]  # running mean of δ²

    paper: bool  # whether targets are those of Q-learning; otherwise of Sarsa
    continuing: bool  # whether no episode has terminated: rewards less ``mean_reward`` count
    grows: bool  # whether cells are born and die; otherwise another partition places them
    numbered: bool  # whether each pair of a state and an action has its own step sizes
    # As in TwoTimescaleConfig; slope_rate is that of slopes beside values, at a distance of √T.
    gamma: Annotated[float, Span("(0, 1]")]
    trace_decay: Annotated[float, Span("[0, 1]")]
    slope_rate: Annotated[float, Span("[0, inf)")]
    step_size: Annotated[float, Span("(0, 1]")]
    step_size_steps: Annotated[float, Span("(0, inf)")]
    step_exponent: Annotated[float, Span("[0, 1]")]
    min_step_size: Annotated[float, Span("[0, 1]")]
    exploration: Annotated[float, Span("[0, 1]")]
    exploration_decay: Annotated[float, Span("(0, inf)")]
    hold: Annotated[float, Span("[1, inf)")]
    slow_exponent: Annotated[float, Span("[0, 1]")]
    min_slow_step: Annotated[float, Span("[0, 1]")]
    observe_every: Annotated[int, Span("[1, inf)")]
    warmup_steps: Annotated[int, Span(COUNT)]


class Running(State):
    """The running episode of one environment, beside its :class:`EnvState`."""

    planned: bool  # whether the next action has been chosen
    begins: bool  # whether nothing has been learned along this trajectory yet
    bold: bool  # whether random actions are held
    trial: Annotated[int, Span(COUNT)]  # that the episode is part of; 0: none
    value: Annotated[float, Span(FINITE)]  # Q' of the last target


class Place(NamedTuple):
    """The part of a trajectory that the compiled loop reads."""

    env_state: EnvState


class InLoop(NamedTuple):
    """An agent as the compiled loop has it."""

    state: OnlineState
    trajectory: Place
    arrays: tuple[Any, ...]


class Continuous(NamedTuple):
    """Arrays for continuous actions of p components."""

    search: Search  # scratch for greedy actions
    bounds: FloatArray  # bounds of the box of actions, shape (2, p)
    next_actions: Array  # the environments' next actions, shape (n, p), in the type of the box


class Online(NamedTuple):
    """One of an agent's environments in compiled code.

    Where actions are continuous, points are observations with an action behind them, in d
    dimensions together, and there is one value, A = 1.
    """

    state: OnlineState
    env_state: EnvState
    running: Running
    vectors: FloatArray  # rows AFTER to POINTS, shape (7, d)
    points: FloatArray  # the point each environment acts on, shape (n, d)
    recent: FloatArray  # ring of points with random actions, and gains, shape (rows, d + 1)
    uniforms: FloatArray


class Learner(NamedTuple):
    """The cells that learn: not in :class:`Online`, as large tuples take long to compile."""

    live: Codebook
    moments: cells.Moments
    traces: FloatArray  # eligibility traces of all environments, shape (n, K, 1 + d + A)
    here: cells.Blend
    there: cells.Blend
    values: FloatArray  # of all actions here, there, and of the candidate there: shape (3, A)


state_of = reader(OnlineState)
env_state_of = reader(EnvState, OnlineState.size)
running_of = reader(Running)


@spliced
def read(agent: Online, observation: FloatArray) -> int:
    """Write an observation, in units, to row ``AFTER``; return an event if it is bad."""
    vectors, n = agent.vectors, agent.state.n_features
    if observation.shape[0] != n:
        return BAD_SHAPE
    event = integer(0)
    for i in range(n):
        value = observation[i] - vectors[ORIGIN, i]
        if not abs(value) <= LARGEST:  # NaN too
            event = NOT_FINITE
        vectors[AFTER, i] = value * vectors[INVERSE_UNITS, i]
    return event


@spliced
def note(agent: Online, came_by: int) -> None:
    """Write the observation to the ring, and update means and deviations (Welford's recursion).

    It ``came_by`` an action from the row before, or not at all: -1. Components of actions are noted
    as uniform ones, so that the metric does not depend on what is done.
    """
    state, vectors = agent.state, agent.vectors
    row = state.seen % agent.recent.shape[0]
    state.seen += 1
    for i in range(state.n_features):
        value = vectors[AFTER, i]
        agent.recent[row, i] = value
        if state.phase == LEARNING:
            surprise = value - vectors[MEAN, i]
            vectors[MEAN, i] += surprise / state.seen
            vectors[SQUARES, i] += surprise * (value - vectors[MEAN, i])
    for i in range(state.n_features, vectors.shape[1]):
        agent.recent[row, i] = 2.0 * draw(state, agent.uniforms) - 1.0
        vectors[SQUARES, i] = state.seen / 3.0
    agent.recent[row, vectors.shape[1]] = came_by


@spliced
def draw(state: OnlineState, uniforms: FloatArray) -> float:
    """Return the next random number; :func:`short_of_uniforms` has made sure that there is one."""
    i = state.next_uniform
    state.next_uniform = i + 1
    uniform: float = uniforms[i]
    return uniform


@spliced
def short_of_uniforms(agent: Online) -> bool:
    """Whether there may be too few random numbers for the next step."""
    state = agent.state
    components = agent.points.shape[1] - state.n_features
    needed = UNIFORMS_PER_STEP + UNIFORMS_PER_COMPONENT * components
    short: bool = state.next_uniform + needed > agent.uniforms.shape[0]
    return short


@compiled
def random_action(
    state: OnlineState,
    uniforms: FloatArray,
    n_actions: int,
    point: FloatArray,
    continuous: Continuous | None,
) -> int:
    """Draw an action; a continuous one is written to the point."""
    if continuous is None:
        return min(integer(draw(state, uniforms) * n_actions), n_actions - 1)
    for i in range(state.n_features, point.shape[0]):
        unit = WIDE * (2.0 * draw(state, uniforms) - 1.0)
        point[i] = min(max(unit, -1.0), 1.0)
    return integer(0)


@compiled
def aim(policy: Codebook, point: FloatArray, continuous: Continuous | None) -> None:
    """Write the greedy continuous action to the point; other actions are told by their values."""
    if continuous is not None:
        first = point.shape[0] - continuous.next_actions.shape[1]
        joint.choose(policy, continuous.search, point, point[first:])


@compiled
def perform(point: FloatArray, env: int, continuous: Continuous | None) -> None:
    """Write what an environment does next."""
    if continuous is not None:
        low, high, actions = continuous.bounds[0], continuous.bounds[1], continuous.next_actions
        first = point.shape[0] - low.shape[0]
        for c in range(low.shape[0]):
            unit = point[first + c]
            action = 0.5 * ((1.0 - unit) * low[c] + (1.0 + unit) * high[c])
            actions[env, c] = min(max(action, low[c]), high[c])


@spliced
def epsilon_of(state: OnlineState) -> float:
    """Return the present probability of a random decision."""
    epsilon = 1.0
    if state.phase == LEARNING:
        elapsed = state.steps - state.changed
        epsilon = state.exploration / (1.0 + elapsed / state.exploration_decay)
    return epsilon


@spliced
def step_size_of(state: OnlineState) -> float:
    """Return a_t = max(a_min, a_0 (1 + t/τ)^-p), the step size of the fast timescale."""
    elapsed = state.steps - state.changed
    size: float = state.step_size * (1.0 + elapsed / state.step_size_steps) ** -state.step_exponent
    return max(size, state.min_step_size)


@spliced
def mean_value(state: OnlineState) -> float:
    """Return c / (1 - γ) for the centre c of rewards: values begin there, centred ones lack it."""
    centre = max(state.mean_reward, state.min_centre)
    return centre * (1.0 / max(1.0 - state.gamma, MIN_RATE))


@spliced
def plan(agent: Online, learner: Learner, continuous: Continuous | None, point: FloatArray) -> None:
    """Choose the learner's action at a point, and evaluate the cells that learn (``there``).

    A cell is born there if all are far, and there is room. In a trial the greedy action is taken.
    """
    state, env_state, running = agent.state, agent.env_state, agent.running
    live, there, values, explores = learner.live, learner.there, learner.values[1], False
    if not running.trial and env_state.held > 0:
        explores = True
        env_state.held -= 1
        for i in range(state.n_features, point.shape[0]):
            point[i] = agent.points[env_state.number, i]
    elif not running.trial and draw(state, agent.uniforms) < epsilon_of(state):
        explores = True
        env_state.action = random_action(state, agent.uniforms, values.shape[0], point, continuous)
        if running.bold:
            env_state.held = integer(state.hold ** draw(state, agent.uniforms)) - 1
    else:
        aim(live, point, continuous)
    distance = cells.evaluate(live, point, there, values)
    if state.grows and distance > cells.BIRTH / cells.BLEND * live.head[TEMPERATURE]:
        if live.head[N_CELLS] >= state.room:
            state.refused += 1
            state.next_slow = min(state.next_slow, state.steps + ROUND)
        else:
            cells.give_birth(live, learner.moments, there, values, state.steps)
            cells.evaluate(live, point, there, values)
    if not explores:
        env_state.action = greatest(learner.values, 1)


@spliced
def learn_values(
    agent: Online, learner: Learner, reward: float, terminated: bool, action: int
) -> None:
    """Fast timescale: target, traces and values of the action that has been done."""
    state, env_state, running = agent.state, agent.env_state, agent.running
    live, here = learner.live, learner.here
    values, next_values = learner.values[0], learner.values[1]
    state.largest_reward = max(state.largest_reward, abs(reward))
    if state.continuing:
        if terminated:  # the whole return counts from now on
            value, d = mean_value(state), live.places.shape[0]
            for k in range(integer(live.head[N_CELLS])):
                for a in range(d, d + values.shape[0]):
                    live.models[k, a] += value
            state.continuing = False
        else:
            state.mean_reward += CENTRING * (reward - state.mean_reward)
            reward -= max(state.mean_reward, state.min_centre)
    cells.evaluate(live, agent.points[env_state.number], here, values)
    future = next_values[greatest(learner.values, 1) if state.paper else env_state.action]
    if state.gamma < 1.0:  # slopes extrapolate without bound far from all cells
        bound = 2.0 * state.largest_reward / (1.0 - state.gamma)
        future = min(max(future, -bound), bound)
    error = reward - values[action]
    if not terminated:
        error += state.gamma * future
    together = agent.points.shape[0] > 1
    change = running.value if together else values[action] - running.value
    if running.begins:
        change = 0.0
    decay = state.gamma * state.trace_decay
    if together:
        decay *= max(agent.points.shape[0], MIN_OVERLAP) ** OVERLAP_EXPONENT
    step_size = step_size_of(state)
    if state.numbered:
        visits = live.models[here.near[0], live.places.shape[0] + values.shape[0] + action]
        step_size = max(state.min_step_size, (visits + 1.0) ** PAIR_EXPONENT)
    cells.update(
        live, learner.traces[env_state.number], here, action, error, change,
        step_size, state.slope_rate, decay, env_state.episode_length,
    )  # fmt: skip
    rate = max(1e-4, 1.0 / (state.steps - state.warmup_steps))
    state.squared_error += rate * (error * error - state.squared_error)
    running.value = future
    if together:  # what this step has changed, without the steps of other environments
        cells.evaluate(live, agent.vectors[AFTER], learner.there, next_values)
        running.value = next_values[env_state.action] - future


@compiled
def advance(
    observation: FloatArray, reward: float, terminated: bool, truncated: bool,
    arrays: tuple[Any, ...], env: int, learns: bool,
) -> int:  # fmt: skip
    """Go on from an observation: return the next action there, or minus events to attend to first.

    Either it ``learns`` from what the last action led to, or a trajectory begins, unless the last
    step led there: then the action is planned already. One function does both, because what a
    function calls is compiled anew for each caller. A bad value changes nothing.
    """
    (
        raw, uniforms, raw_running, places, models, frames, heads, mixtures, statistics,
        covariances, traces, near, weights, offsets, distances, values, vectors, points, starts,
        recent, continuous,
    ) = arrays  # fmt: skip
    state, env_state = state_of(raw, 0), env_state_of(raw, env)
    running = running_of(raw_running, env)
    agent = Online(state, env_state, running, vectors, points, recent, uniforms)
    if not learns and short_of_uniforms(agent):
        return -UNIFORMS
    event = read(agent, observation)
    if event:
        return -event
    point, after, action = points[env], vectors[AFTER], env_state.action
    if learns:
        if not abs(reward) <= LARGEST_REWARD:  # NaN too
            return -NOT_FINITE
        state.steps += 1
        env_state.episode_length += 1
        env_state.episode_return += reward
    else:
        same = running.planned > 0
        for i in range(state.n_features):
            same = same and point[i] == after[i]
        if same:
            return action
        if env_state.episode_length == 0:
            for i in range(state.n_features):
                starts[env, i] = after[i]
        traces[env] = 0.0
        traces[env, :, cells.LAST] = -1.0
        env_state.held = 0
        running.planned = running.begins = True
    note(agent, action if learns and points.shape[0] == 1 else integer(-1))
    events = integer(0)
    if state.phase == WARMUP:
        if learns:
            change = reward - state.mean_reward
            state.mean_reward += change / state.steps
            change *= reward - state.mean_reward
            state.reward_variance += (change - state.reward_variance) / state.steps
            state.continuing = state.continuing and not terminated
            env_state.action = state.first_action
            for i in range(state.n_features, after.shape[0]):
                after[i] = point[i]
        if not learns or draw(state, uniforms) < 0.1:
            env_state.action = random_action(state, uniforms, values.shape[1], after, continuous)
        if learns and state.steps >= state.warmup_steps:
            events = WARM
    else:
        live = Codebook(places[LIVE], models[LIVE], frames[LIVE], heads[LIVE], mixtures[LIVE])
        moments = cells.Moments(statistics, covariances)
        here = cells.Blend(near[0], weights[0], offsets[0], vectors[POINTS], distances)
        there = cells.Blend(near[1], weights[1], offsets[1], vectors[POINTS + 1], distances)
        learner = Learner(live, moments, traces, here, there, values)
        plan(agent, learner, continuous, after)
        if learns:
            learn_values(agent, learner, reward, terminated, action)
            if state.grows and state.steps % state.observe_every == 0:
                state.observed += 1
                cells.observe(
                    live, moments, there, state.observed, state.slow_exponent, state.min_slow_step
                )
            if state.steps >= state.next_slow:
                events = SLOW
        if running.trial:
            k = CANDIDATE
            policy = Codebook(places[k], models[k], frames[k], heads[k], mixtures[k])
            aim(policy, after, continuous)
            cells.evaluate(policy, after, here, values[2])
            env_state.action = greatest(values, 2)
    for i in range(after.shape[0]):
        point[i] = after[i]
    perform(point, env, continuous)
    if learns:
        running.begins = False
        if terminated or truncated:
            running.planned = False
            end_episode(state, env_state)
            state.ended = env
            events |= EPISODE_END | JUDGE
    if short_of_uniforms(agent):
        events |= UNIFORMS
    return -events if events else env_state.action


@spliced
def in_loop(arrays: tuple[Any, ...], env: int) -> InLoop:
    """Name what the compiled loop reads."""
    raw = arrays[0]
    return InLoop(state_of(raw, 0), Place(env_state_of(raw, env)), arrays)


@spliced
def start(agent: InLoop, observation: FloatArray) -> int:
    """Go on from an observation; returns events."""
    no = boolean(False)  # literals would have the function compiled once more
    return max(-advance(observation, 0.0, no, no, agent.arrays, integer(0), no), 0)


@spliced
def choose(agent: InLoop) -> int:
    """Return the planned action."""
    return agent.trajectory.env_state.action


@spliced
def learn(
    agent: InLoop, observation: FloatArray, reward: float, terminated: bool, truncated: bool
) -> int:
    """Learn from what the action led to; returns events."""
    env, yes = integer(0), boolean(True)
    over = boolean(terminated)  # False itself where episodes never terminate
    return max(-advance(observation, reward, over, truncated, agent.arrays, env, yes), 0)


RULE = Rule("online", in_loop, start, choose, learn)


@compiled
def step_together(
    first: int, learned: bool, after: FloatArray, observations: FloatArray, rewards: FloatArray,
    flags: BoolArray, actions: IntArray, arrays: tuple[Any, ...],
) -> tuple[int, int, bool]:  # fmt: skip
    """Learn from a step of all environments, and choose the next actions, one after the other.

    After events it goes on with the environment ``first``, whose step may have been ``learned``
    from. ``flags``, shape (4, n), are ``terminated``, ``truncated``, ``learns`` and ``acts`` of a
    :class:`~oda_rl.agents.base.engine.VectorStep`; ``actions``, shape (n,), are written to. Returns
    events to attend to, in which environment, and whether its step has been learned from; or 0, n
    and False.
    """
    no = boolean(False)
    for i in range(first, rewards.shape[0]):
        if flags[2, i] and not (learned and i == first):
            code = advance(after[i], rewards[i], flags[0, i], flags[1, i], arrays, i, flags[2, i])
            if code < 0:
                return -code, i, True
        if flags[3, i]:
            code = advance(observations[i], 0.0, no, no, arrays, i, no)
            if code < 0:
                return -code, i, True
            actions[i] = code
    return 0, rewards.shape[0], False
