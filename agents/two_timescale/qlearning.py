"""The fast timescale, exploration, and the contest of snapshots; compiled.

A step of the environment is one call of :func:`learn_step`, which also plans the next action; a
trajectory begins with :func:`enter`. The loop in Python makes these calls through :func:`act`,
:func:`update` and :func:`step`, the compiled loop through :func:`start`, :func:`choose` and
:func:`learn`, several environments through :func:`step_together`.

=============  ==================================================================================
warm-up        random steps for means and deviations: now and then a random action, else the first
exploration    ε-greedy, ε = ε_0 / (1 + t / t_ε); in bold episodes held for 1 to 19 steps
=============  ==================================================================================

Values are learned in trials, too: by Q-learning's target, as actions are not the learner's. The
cells (:mod:`oda_rl.agents.two_timescale.cells`) see x = (o - origin) / unit, with units that are
powers of 2.

What compiled code cannot do itself it reports as events, bits of one integer.
"""

from typing import Annotated, Any, NamedTuple

from oda_rl._compile import compiled, integer, spliced
from oda_rl._state import State, reader
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.state import (
    EPISODE_END,
    UNIFORMS,
    Counters,
    EnvState,
    Observations,
    end_episode,
)
from oda_rl.agents.environments.validation import BAD_SHAPE, LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.policies import joint
from oda_rl.agents.policies.joint import TEMPERATURE, Codebook, Search
from oda_rl.agents.two_timescale.cells import (
    BIRTH,
    BLEND,
    LAST,
    Blend,
    Moments,
    copy,
    evaluate,
    give_birth,
    observe,
)
from oda_rl.agents.two_timescale.cells import (
    update as update_values,
)
from oda_rl.agents.two_timescale.contest import (
    BOLD,
    TIMID_SHARE,
    Contest,
    begin_trial,
    contest_of,
    end_trial_episode,
    may_be_bold,
    note_return,
)
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import COUNT, FINITE, Span

# Phases.
WARMUP, LEARNING = range(2)
# Further events.
WARM = 2  # random play is over
SLOW = 4  # the slow timescale is due
LIVE, BEST, CANDIDATE = range(3)  # policies
# Rows of vectors: what the last step led to, running mean and sum of squared deviations, origin and
# inverse units of observations, and two points in the metric.
AFTER, MEAN, SQUARES, ORIGIN, INVERSE_UNITS, POINTS = range(6)

ROUND = 100  # steps from one slow step in numpy to the next
UNIFORMS_PER_STEP = 8  # at most, of act and learn, and for each component of an action:
UNIFORMS_PER_COMPONENT = 4
ENDLESS = 1_000  # steps beyond twice the longest episode so far, which end a trial as lost
WIDE = 1.5  # random actions are uniform in a box so much wider, and clipped


class OnlineState(Counters):
    """What an online agent counts, and its settings, which do not change."""

    phase: Annotated[int, Span("[0, 1]")]
    """``WARMUP`` or ``LEARNING``."""
    first_action: Annotated[int, Span("[0, actions)")]
    """What random play mostly does."""
    n_features: Annotated[int, Span("[1, inf)")]
    """Components of an observation: points have those of a continuous action, too."""
    seen: Annotated[int, Span(COUNT)]
    """Observations so far, those that episodes begin with among them."""
    observed: Annotated[int, Span(COUNT)]
    """Observations that the codevectors were moved by."""
    next_metric: Annotated[int, Span(COUNT)]
    """Steps at which the metric is learned again."""
    mean_reward: Annotated[float, Span(FINITE)]
    """Mean reward of random play."""
    squared_error: Annotated[float, Span("[0, inf)")]
    """Running mean of δ²."""

    grows: bool
    """Whether cells are born and die; otherwise another partition places them."""
    gamma: Annotated[float, Span("(0, 1]")]
    """Discount factor."""
    trace_decay: Annotated[float, Span("[0, 1]")]
    """λ."""
    slope_rate: Annotated[float, Span("(0, inf)")]
    """Step size of slopes beside that of values, at a distance of √T."""
    step_size: Annotated[float, Span("(0, 1]")]
    """Initial step size a_0 of the values."""
    step_size_steps: Annotated[float, Span("(0, inf)")]
    """Steps after which it has halved, with the exponent 1."""
    step_exponent: Annotated[float, Span("[0, 1]")]
    """a_t = step_size (1 + t / step_size_steps)^-step_exponent."""
    min_step_size: Annotated[float, Span("[0, 1]")]
    """Lower bound of a_t."""
    exploration: Annotated[float, Span("[0, 1]")]
    """Probability of a random decision at the start."""
    exploration_decay: Annotated[float, Span("(0, inf)")]
    """Steps after which it has halved."""
    hold: Annotated[float, Span("[1, inf)")]
    """A random action is held for fewer steps than this."""
    slow_exponent: Annotated[float, Span("[0, 1]")]
    """The n-th sample of a codevector has step size (n + 1)^-slow_exponent."""
    min_slow_step: Annotated[float, Span("[0, 1]")]
    """Lower bound of that step size."""
    observe_every: Annotated[int, Span("[1, inf)")]
    """Steps from one observation that codevectors move by to the next."""
    warmup_steps: Annotated[int, Span(COUNT)]
    """Steps of random play."""


class Running(State):
    """The running episode of one environment, beside its :class:`EnvState`."""

    planned: bool
    """Whether the next action has been chosen."""
    begins: bool
    """Whether nothing has been learned along this trajectory yet."""
    bold: bool
    """Whether random actions are held."""
    trial: Annotated[int, Span(COUNT)]
    """Number of the trial that the episode is part of; 0: of none."""
    value: Annotated[float, Span(FINITE)]
    """Q', by which the last target was made; with several environments Q - Q'."""


class Place(NamedTuple):
    """What the compiled loop reads of a trajectory."""

    env_state: EnvState


class InLoop(NamedTuple):
    """An agent as the compiled loop has it."""

    state: OnlineState
    trajectory: Place
    arrays: tuple[Any, ...]


class Continuous(NamedTuple):
    """What continuous actions, of p components, need besides."""

    search: Search
    """Scratch for greedy actions."""
    bounds: FloatArray
    """Of the box of actions, shape (2, p)."""
    room: Array
    """The environments' next actions, shape (n, p), in the type of the box."""
    given: FloatArray
    """What was done instead, in units, shape (p,)."""


class Online(NamedTuple):
    """An online agent, and one of its environments, in compiled code.

    Where actions are continuous, points are observations with an action behind them, in d
    dimensions together, and there is one value, A = 1.
    """

    state: OnlineState
    contest: Contest
    env_state: EnvState
    running: Running
    live: Codebook
    best: Codebook
    candidate: Codebook
    moments: Moments
    traces: FloatArray
    """Eligibility traces of all environments, shape (n, K, 1 + d + A)."""
    here: Blend
    there: Blend
    values: FloatArray
    """Values of all actions, shape (3, A): here, there, and of the candidate there."""
    points: FloatArray
    """What each environment acts on, shape (n, d)."""
    recent: FloatArray
    """A ring of points, shape (rows, d), with random actions."""
    vectors: FloatArray
    """Rows AFTER to POINTS, shape (7, d)."""
    uniforms: FloatArray
    continuous: Continuous | None


state_of = reader(OnlineState)
env_state_of = reader(EnvState, OnlineState.size)
running_of = reader(Running)


@spliced
def unpack(arrays: tuple[Any, ...], env: int) -> Online:
    """Name the arrays of an agent, as one of its environments sees them."""
    (
        raw, uniforms, raw_contest, raw_running, places, models, frames, heads, statistics,
        covariances, traces, near, weights, offsets, distances, values, vectors, points, recent,
        continuous,
    ) = arrays  # fmt: skip
    return Online(
        state_of(raw, 0), contest_of(raw_contest, 0), env_state_of(raw, env),
        running_of(raw_running, env),
        Codebook(places[0], models[0], frames[0], heads[0]),
        Codebook(places[1], models[1], frames[1], heads[1]),
        Codebook(places[2], models[2], frames[2], heads[2]),
        Moments(statistics, covariances), traces,
        Blend(near[0], weights[0], offsets[0], vectors[POINTS], distances),
        Blend(near[1], weights[1], offsets[1], vectors[POINTS + 1], distances),
        values, points, recent, vectors, uniforms, continuous,
    )  # fmt: skip


@spliced
def read(agent: Online, observation: Observations) -> int:
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
def note(agent: Online) -> None:
    """Write the observation to the ring, and update means and deviations (Welford's recursion).

    Actions are noted as uniform ones, so that the metric does not depend on what is done.
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


@spliced
def draw(state: OnlineState, uniforms: FloatArray) -> float:
    """Return the next random number; :func:`short_of_uniforms` has made sure that there is one."""
    i = state.next_uniform
    state.next_uniform = i + 1
    uniform: float = uniforms[i]
    return uniform


@spliced
def short_of_uniforms(arrays: tuple[Any, ...]) -> bool:
    """Whether there may be too few random numbers for the next step."""
    state, uniforms, points = state_of(arrays[0], 0), arrays[1], arrays[-3]
    components = points.shape[1] - state.n_features
    needed = UNIFORMS_PER_STEP + UNIFORMS_PER_COMPONENT * components
    short: bool = state.next_uniform + needed > uniforms.shape[0]
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
        first = point.shape[0] - continuous.given.shape[0]
        joint.choose(policy, continuous.search, point, point[first:])


@compiled
def perform(point: FloatArray, env: int, continuous: Continuous | None) -> None:
    """Write what an environment does next."""
    if continuous is not None:
        low, high, room = continuous.bounds[0], continuous.bounds[1], continuous.room
        first = point.shape[0] - low.shape[0]
        for c in range(low.shape[0]):
            unit = point[first + c]
            action = 0.5 * ((1.0 - unit) * low[c] + (1.0 + unit) * high[c])
            room[env, c] = min(max(action, low[c]), high[c])


@compiled
def differs(
    env_state: EnvState, action: int, point: FloatArray, continuous: Continuous | None
) -> bool:
    """Note the action that was done; returns whether it is another than was planned."""
    if continuous is None:
        other: bool = env_state.action != action
        env_state.action = action
        return other
    changed, first = False, point.shape[0] - continuous.given.shape[0]
    for c in range(continuous.given.shape[0]):
        changed = changed or point[first + c] != continuous.given[c]
        point[first + c] = continuous.given[c]
    return changed


@spliced
def greedy(values: FloatArray) -> int:
    """Return the action of greatest value, the first of equals."""
    best = integer(0)
    for a in range(1, values.shape[0]):
        if values[a] > values[best]:
            best = a
    return best


@spliced
def epsilon_of(state: OnlineState) -> float:
    """Return the present probability of a random decision."""
    epsilon = 1.0
    if state.phase == LEARNING:
        epsilon = state.exploration / (1.0 + state.steps / state.exploration_decay)
    return epsilon


@spliced
def step_size_of(state: OnlineState) -> float:
    """Return a_t = max(a_min, a_0 (1 + t/τ)^-p), the step size of the fast timescale."""
    size: float = (
        state.step_size * (1.0 + state.steps / state.step_size_steps) ** -state.step_exponent
    )
    return max(size, state.min_step_size)


@spliced
def plan(agent: Online, point: FloatArray) -> None:
    """Choose the learner's action at a point, and evaluate the cells that learn (``there``).

    A cell is born there if all are far. In a trial the greedy action is taken.
    """
    state, env_state, running, live = agent.state, agent.env_state, agent.running, agent.live
    values, n_actions, explores = agent.values[1], agent.values.shape[1], False
    if not running.trial and env_state.held > 0:
        explores = True
        env_state.held -= 1
        for i in range(state.n_features, point.shape[0]):
            point[i] = agent.points[env_state.number, i]
    elif not running.trial and draw(state, agent.uniforms) < epsilon_of(state):
        explores = True
        env_state.action = random_action(state, agent.uniforms, n_actions, point, agent.continuous)
        if running.bold:
            env_state.held = integer(state.hold ** draw(state, agent.uniforms)) - 1
    else:
        aim(live, point, agent.continuous)
    distance = evaluate(live, point, agent.there, values)
    if state.grows and distance > BIRTH / BLEND * live.head[TEMPERATURE]:
        error, step = state.squared_error, state.steps
        if give_birth(live, agent.moments, agent.traces, agent.there, values, error, step):
            evaluate(live, point, agent.there, values)
    if not explores:
        env_state.action = greedy(values)


@spliced
def follow_candidate(agent: Online, point: FloatArray) -> None:
    """Choose the action of the snapshot that plays."""
    values = agent.values[2]
    aim(agent.candidate, point, agent.continuous)
    evaluate(agent.candidate, point, agent.here, values)
    agent.env_state.action = greedy(values)


@compiled
def enter(observation: Observations, arrays: tuple[Any, ...], env: int) -> int:
    """Go on from an observation; returns an event if it is bad.

    Where the last step led there, its action is planned already; otherwise a trajectory begins.
    """
    agent = unpack(arrays, env)
    event = read(agent, observation)
    if event:
        return event
    state, contest, env_state, running = agent.state, agent.contest, agent.env_state, agent.running
    point, after = agent.points[env], agent.vectors[AFTER]
    same = running.planned > 0
    for i in range(state.n_features):
        same = same and point[i] == after[i]
        point[i] = after[i]
    if same:
        return 0
    agent.traces[env] = 0.0
    agent.traces[env, :, LAST] = -1.0
    env_state.held = 0
    running.planned = running.begins = True
    if env_state.episode_length == 0:
        running.trial = 0
        if contest.trial and contest.begun < contest.quota:
            contest.begun += 1
            running.trial = contest.trials
    note(agent)
    if state.phase == WARMUP:
        env_state.action = random_action(
            state, agent.uniforms, agent.values.shape[1], point, agent.continuous
        )
    else:
        plan(agent, point)
        if running.trial:
            follow_candidate(agent, point)
    perform(point, env, agent.continuous)
    return 0


@compiled
def learn_step(
    observation: Observations,
    reward: float,
    terminated: bool,
    truncated: bool,
    arrays: tuple[Any, ...],
    env: int,
) -> int:
    """Learn from what the planned action led to, and plan the next; returns events.

    A bad value changes nothing.
    """
    agent = unpack(arrays, env)
    state, env_state, running = agent.state, agent.env_state, agent.running
    event = read(agent, observation)
    if event:
        return event
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    state.steps += 1
    env_state.episode_length += 1
    env_state.episode_return += reward
    events = integer(0)
    note(agent)
    point, after = agent.points[env], agent.vectors[AFTER]
    if state.phase == WARMUP:
        state.mean_reward += (reward - state.mean_reward) / state.steps
        env_state.action = state.first_action
        for i in range(state.n_features, after.shape[0]):
            after[i] = point[i]
        if draw(state, agent.uniforms) < 0.1:
            env_state.action = random_action(
                state, agent.uniforms, agent.values.shape[1], after, agent.continuous
            )
        if state.steps >= state.warmup_steps:
            events = WARM
    else:
        learn_values(agent, reward, terminated)
        if state.grows and state.steps % state.observe_every == 0:
            state.observed += 1
            observe(
                agent.live, agent.moments, agent.there, state.observed,
                state.slow_exponent, state.min_slow_step,
            )  # fmt: skip
        if running.trial:
            follow_candidate(agent, after)
        if state.steps % ROUND == 0:
            events = SLOW
    for i in range(after.shape[0]):
        point[i] = after[i]
    perform(point, env, agent.continuous)
    running.begins = False
    if terminated or truncated:
        bold = after.shape[0] > state.n_features  # continuous actions are always held
        judge_episode(
            state, agent.contest, env_state, running, agent.live, agent.best, agent.candidate,
            -1.0 if bold else draw(state, agent.uniforms),
        )  # fmt: skip
        events |= EPISODE_END
    return events


@spliced
def learn_values(agent: Online, reward: float, terminated: bool) -> None:
    """Fast timescale: the next action, birth, target, traces and values."""
    state, contest, env_state, running = agent.state, agent.contest, agent.env_state, agent.running
    point, after = agent.points[env_state.number], agent.vectors[AFTER]
    live, values, next_values = agent.live, agent.values[0], agent.values[1]
    action = env_state.action
    plan(agent, after)
    if running.trial:
        if contest.check:
            contest.check_steps += 1
        else:
            contest.trial_steps += 1
        if env_state.episode_length > 2 * contest.longest + ENDLESS:
            running.trial, contest.trial, contest.last_trial = 0, False, state.steps
    evaluate(live, point, agent.here, values)
    future = next_values[env_state.action]
    error = reward - values[action]
    if not terminated:
        error += state.gamma * future
    together = agent.points.shape[0] > 1
    change = running.value if together else values[action] - running.value
    if running.begins:
        change = 0.0
    decay = state.gamma * state.trace_decay
    update_values(
        live, agent.traces[env_state.number], agent.here, action, error, change,
        step_size_of(state), state.slope_rate, decay, env_state.episode_length,
    )  # fmt: skip
    rate = max(1e-4, 1.0 / (state.steps - state.warmup_steps))
    state.squared_error += rate * (error * error - state.squared_error)
    running.value = future
    if together:  # what this step has changed, without the steps of other environments
        evaluate(live, after, agent.there, next_values)
        running.value = next_values[env_state.action] - future


@compiled
def judge_episode(
    state: OnlineState,
    contest: Contest,
    env_state: EnvState,
    running: Running,
    live: Codebook,
    best: Codebook,
    candidate: Codebook,
    uniform: float,
) -> None:
    """Note the return of the episode that ends, and what follows from it."""
    episode_return = env_state.episode_return
    contest.longest = max(contest.longest, env_state.episode_length)
    if state.phase == LEARNING:
        if running.trial == 0:
            note_return(contest, episode_return, running.bold > 0)
            if begin_trial(contest, state.steps):
                copy(candidate, best if contest.replay else live)
        elif (
            running.trial == contest.trials
            and contest.trial
            and end_trial_episode(contest, episode_return, state.steps)
        ):
            copy(best, candidate)
        running.bold = uniform < (BOLD if may_be_bold(contest) else TIMID_SHARE)
    running.planned = False
    end_episode(state, env_state)


@spliced
def in_loop(arrays: tuple[Any, ...], env: int) -> InLoop:
    """Name what the compiled loop reads."""
    raw = arrays[0]
    return InLoop(state_of(raw, 0), Place(env_state_of(raw, env)), arrays)


@spliced
def start(agent: InLoop, observation: Observations) -> int:
    """Go on from an observation; returns events."""
    if short_of_uniforms(agent.arrays):
        return UNIFORMS
    return enter(observation, agent.arrays, 0)


@spliced
def choose(agent: InLoop) -> int:
    """Return the planned action, or minus the event that prevents it."""
    if short_of_uniforms(agent.arrays):
        return -UNIFORMS
    return agent.trajectory.env_state.action


@spliced
def learn(
    agent: InLoop, observation: Observations, reward: float, terminated: bool, truncated: bool
) -> int:
    """Learn from what the action led to; returns events."""
    return learn_step(observation, reward, terminated, truncated, agent.arrays, 0)


RULE = Rule("online", in_loop, start, choose, learn)


@compiled
def act(observation: Observations, arrays: tuple[Any, ...]) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    agent = in_loop(arrays, 0)
    event = start(agent, observation)
    return -event if event else choose(agent)


@compiled
def update(
    observation: Observations,
    action: int,
    reward: float,
    next_observation: Observations,
    terminated: bool,
    truncated: bool,
    arrays: tuple[Any, ...],
) -> int:
    """Learn from one transition; returns events."""
    event = enter(observation, arrays, 0)
    if event:
        return event
    if differs(env_state_of(arrays[0], 0), action, arrays[-3][0], arrays[-1]):
        running_of(arrays[3], 0).begins = True  # what the planned action was worth says nothing
    return learn_step(next_observation, reward, terminated, truncated, arrays, 0)


@compiled
def step(
    next_observation: Observations,
    reward: float,
    terminated: bool,
    truncated: bool,
    arrays: tuple[Any, ...],
) -> int:
    """Learn from the last action's outcome and return the next action.

    Negative: minus the events to attend to first; then :func:`act` chooses.
    """
    events = learn_step(next_observation, reward, terminated, truncated, arrays, 0)
    return -events if events else choose(in_loop(arrays, 0))


@compiled
def step_together(
    first: int,
    learned: bool,
    taken: tuple[Any, ...],
    actions: IntArray,
    ended: FloatArray,
    arrays: tuple[Any, ...],
) -> tuple[int, int, bool]:
    """Learn from a step of all environments, and choose the next actions, one after the other.

    Parameters
    ----------
    first, learned
        The environment to begin with, and whether its step has been learned from already: so it
        goes on after events.
    taken
        A :class:`~oda_rl.agents.base.engine.VectorStep`.
    actions : ndarray, shape (n,)
        Written to.
    ended : ndarray, shape (n, 2)
        Return and length of an episode that ends are written here.

    Returns
    -------
    events, env, learned
        Events to attend to, in which environment, and whether its step has been learned from; or
        0, n and False.
    """
    after, observations, rewards, terminated, truncated, learns, acts, _ = taken
    n, state = rewards.shape[0], state_of(arrays[0], 0)
    for i in range(first, n):
        resumed = learned and i == first
        if short_of_uniforms(arrays):
            return UNIFORMS, i, resumed
        if learns[i] and not resumed:
            events = learn_step(after[i], rewards[i], terminated[i], truncated[i], arrays, i)
            if events & EPISODE_END:
                events -= EPISODE_END
                ended[i, 0], ended[i, 1] = state.last_return, state.last_length
            if events:
                return events, i, True
        if acts[i]:  # with the checks of start and choose, so that one environment has their bits
            if short_of_uniforms(arrays):
                return UNIFORMS, i, True
            events = enter(observations[i], arrays, i)
            if events == 0 and short_of_uniforms(arrays):
                events = UNIFORMS
            if events:
                return events, i, True
            actions[i] = env_state_of(arrays[0], i).action
    return 0, n, False
