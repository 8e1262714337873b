"""The fast timescale, exploration, and the contest of snapshots; compiled.

A step of the environment is one call of :func:`learn_step`, which also plans the next action; a
trajectory begins with :func:`enter`. The loop in Python makes these calls through :func:`act`,
:func:`update` and :func:`step`, the compiled loop through :func:`start`, :func:`choose` and
:func:`learn`, several environments through :func:`step_together`.

=============  ==================================================================================
warm-up        random steps for means and deviations: now and then a random action, else the first
exploration    ε-greedy, ε = ε_0 / (1 + t / t_ε); in bold episodes held for 1 to 19 steps
bold           nine episodes of ten while their mean return is that of timid ones, less half a
               standard deviation, or more; else one of twenty
trial          a snapshot of the policy plays ten episodes, while its mean return plus a standard
               error reaches the incumbent's score; for at most a fifth of all steps. Given up
               where an episode does not end
contest        score: mean less a standard error; the snapshot of the best score is delivered,
               and evaluated further: 10 episodes and one more for every four trials
check          while returns of learning are below its mean, the incumbent plays an episode now and
               then, for at most a twentieth of all steps; after three in a row that are four
               standard deviations below its mean the world has changed: the contest begins anew
=============  ==================================================================================

Values are learned in trials, too: by Q-learning's target, as actions are not the learner's. The
cells (:mod:`oda_rl.agents.two_timescale.cells`) see x = (o - origin) / unit, with units that are
powers of 2.

What compiled code cannot do itself it reports as events, bits of one integer.
"""

import math
from typing import Annotated, Any, NamedTuple

from oda_rl._compile import compiled, integer, spliced
from oda_rl._state import State, reader
from oda_rl._types import FloatArray, IntArray
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
from oda_rl.agents.two_timescale.cells import (
    BIRTH,
    BLEND,
    LAST,
    TEMPERATURE,
    Blend,
    Policy,
    copy,
    evaluate,
    give_birth,
    observe,
)
from oda_rl.agents.two_timescale.cells import (
    update as update_values,
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
UNIFORMS_PER_STEP = 8  # at most, of act and learn
BOLD, TIMID_SHARE, BOLD_COST, BOLD_MEMORY = 0.9, 0.05, 0.5, 0.1
RETURN_MEMORY = 0.1
TRIAL_EPISODES, RETRIAL, REPLAYS = 10, 0.25, 3
TRIAL_SHARE, TRIAL_PAUSE = 0.2, 0.5  # of all steps; in episodes of the longest length
CHECK_SHARE, CHECK_BELOW = 0.05, 0.5  # of all steps; in standard deviations
FAILURE, FAILURES = 4.0, 3  # standard deviations below the mean; episodes in a row
MAX_LENGTH = 1_000.0  # of an episode, in that pause
ENDLESS = 1_000  # steps beyond twice the longest episode so far, which end a trial as lost


class OnlineState(Counters):
    """What an online agent counts, and its settings, which do not change."""

    phase: Annotated[int, Span("[0, 1]")]
    """``WARMUP`` or ``LEARNING``."""
    first_action: Annotated[int, Span("[0, actions)")]
    """What random play mostly does."""
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

    episodes: Annotated[int, Span(COUNT)]
    """Episodes of learning that have ended."""
    mean_return: Annotated[float, Span(FINITE)]
    """Running mean of their returns."""
    return_variance: Annotated[float, Span("[0, inf)")]
    """Running variance of their returns."""
    longest: Annotated[int, Span(COUNT)]
    """Length of the longest episode."""
    bold_mean: Annotated[float, Span(FINITE)]
    """Running mean of the returns of bold episodes."""
    bold_count: Annotated[int, Span(COUNT)]
    """Bold episodes."""
    timid_mean: Annotated[float, Span(FINITE)]
    """Running mean of the returns of timid episodes."""
    timid_variance: Annotated[float, Span("[0, inf)")]
    """Running variance of their returns."""
    timid_count: Annotated[int, Span(COUNT)]
    """Timid episodes."""

    trial: bool
    """Whether a trial is under way."""
    replay: bool
    """Whether it is the incumbent's."""
    check: bool
    """Whether it is a single episode of the incumbent's, to see whether the world has changed."""
    trials: Annotated[int, Span(COUNT)]
    """Trials so far."""
    trial_steps: Annotated[int, Span(COUNT)]
    """Steps of all trials."""
    check_steps: Annotated[int, Span(COUNT)]
    """Steps of all checks."""
    failures: Annotated[int, Span("[0, 3]")]
    """Checks in a row whose return was below ``floor``."""
    floor: Annotated[float, Span(FINITE)]
    """Four standard deviations below the incumbent's mean return."""
    last_trial: Annotated[int, Span(COUNT)]
    """Steps when the last one ended."""
    begun: Annotated[int, Span(COUNT)]
    """Episodes of the trial that have begun."""
    quota: Annotated[int, Span(COUNT)]
    """Episodes that end it."""
    n: Annotated[int, Span(COUNT)]
    """Episodes that the candidate has played."""
    mean: Annotated[float, Span(FINITE)]
    """Their mean return."""
    squares: Annotated[float, Span("[0, inf)")]
    """Sum of squared deviations from it."""
    best_n: Annotated[int, Span(COUNT)]
    """Episodes that the incumbent has played; 0: there is none."""
    best_mean: Annotated[float, Span(FINITE)]
    """Their mean return."""
    best_squares: Annotated[float, Span("[0, inf)")]
    """Sum of squared deviations from it."""
    best_score: Annotated[float, Span("[-inf, inf)")]
    """Mean less a standard error; minus infinity where there is none."""
    version: Annotated[int, Span(COUNT)]
    """How often the policy that is delivered has changed."""

    grows: bool
    """Whether cells are born and die; otherwise another partition places them."""
    gamma: Annotated[float, Span("(0, 1]")]
    """Discount factor."""
    trace_decay: Annotated[float, Span("[0, 1]")]
    """λ."""
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


class Online(NamedTuple):
    """An online agent, and one of its environments, in compiled code."""

    state: OnlineState
    env_state: EnvState
    running: Running
    live: Policy
    best: Policy
    candidate: Policy
    moments: FloatArray
    """Mass, sample count, step of birth, ancestor, covariance of each cell, shape (K, 4 + d²)."""
    traces: FloatArray
    """Eligibility traces of all environments, shape (n, K, 1 + d + A)."""
    here: Blend
    there: Blend
    values: FloatArray
    """Values of all actions, shape (3, A): here, there, and of the candidate there."""
    points: FloatArray
    """What each environment acts on, shape (n, d)."""
    recent: FloatArray
    """A ring of observations, shape (rows, d)."""
    vectors: FloatArray
    """Rows AFTER to POINTS, shape (7, d)."""
    uniforms: FloatArray


state_of = reader(OnlineState)
env_state_of = reader(EnvState, OnlineState.size)
running_of = reader(Running)


@spliced
def unpack(arrays: tuple[Any, ...], env: int) -> Online:
    """Name the arrays of an agent, as one of its environments sees them."""
    (
        cells, frames, heads, moments, traces, near, parts, values, vectors, points, recent,
        uniforms, raw, raw_running,
    ) = arrays  # fmt: skip
    return Online(
        state_of(raw, 0), env_state_of(raw, env), running_of(raw_running, env),
        Policy(cells[0], frames[0], heads[0]), Policy(cells[1], frames[1], heads[1]),
        Policy(cells[2], frames[2], heads[2]), moments, traces,
        Blend(near[0], parts[0], vectors[POINTS]), Blend(near[1], parts[1], vectors[POINTS + 1]),
        values, points, recent, vectors, uniforms,
    )  # fmt: skip


@spliced
def read(agent: Online, observation: Observations) -> int:
    """Write an observation, in units, to row ``AFTER``; return an event if it is bad."""
    vectors = agent.vectors
    if observation.shape[0] != vectors.shape[1]:
        return BAD_SHAPE
    event = integer(0)
    for i in range(vectors.shape[1]):
        value = observation[i] - vectors[ORIGIN, i]
        if not abs(value) <= LARGEST:  # NaN too
            event = NOT_FINITE
        vectors[AFTER, i] = value * vectors[INVERSE_UNITS, i]
    return event


@spliced
def note(agent: Online) -> None:
    """Write the observation to the ring, and update means and deviations (Welford's recursion)."""
    state, vectors = agent.state, agent.vectors
    row = state.seen % agent.recent.shape[0]
    state.seen += 1
    for i in range(vectors.shape[1]):
        value = vectors[AFTER, i]
        agent.recent[row, i] = value
        if state.phase == LEARNING:
            surprise = value - vectors[MEAN, i]
            vectors[MEAN, i] += surprise / state.seen
            vectors[SQUARES, i] += surprise * (value - vectors[MEAN, i])


@spliced
def meet(agent: Online, point: FloatArray) -> None:
    """Evaluate the cells that learn at a point (``there``); a cell is born if all are far."""
    state, live, values = agent.state, agent.live, agent.values[1]
    distance = evaluate(live, point, agent.there, values)
    if state.grows and distance > BIRTH / BLEND * live.head[TEMPERATURE]:
        error, step = state.squared_error, state.steps
        if give_birth(live, agent.moments, agent.traces, agent.there, values, error, step):
            evaluate(live, point, agent.there, values)


@spliced
def draw(agent: Online) -> float:
    """Return the next random number; :func:`short_of_uniforms` has made sure that there is one."""
    i = agent.state.next_uniform
    agent.state.next_uniform = i + 1
    uniform: float = agent.uniforms[i]
    return uniform


@spliced
def short_of_uniforms(arrays: tuple[Any, ...]) -> bool:
    """Whether there may be too few random numbers for the next step."""
    short: bool = state_of(arrays[-2], 0).next_uniform + UNIFORMS_PER_STEP > arrays[-3].shape[0]
    return short


@spliced
def random_action(agent: Online) -> int:
    """Draw an action."""
    n_actions = agent.values.shape[1]
    action: int = min(integer(draw(agent) * n_actions), n_actions - 1)
    return action


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


@compiled
def enter(observation: Observations, arrays: tuple[Any, ...], env: int) -> int:
    """Go on from an observation; returns an event if it is bad.

    Where the last step led there, its action is planned already; otherwise a trajectory begins.
    """
    agent = unpack(arrays, env)
    event = read(agent, observation)
    if event:
        return event
    state, env_state, running = agent.state, agent.env_state, agent.running
    point, after = agent.points[env], agent.vectors[AFTER]
    same = running.planned > 0
    for i in range(after.shape[0]):
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
        if state.trial and state.begun < state.quota:
            state.begun += 1
            running.trial = state.trials
    note(agent)
    if state.phase == WARMUP:
        env_state.action = random_action(agent)
        return 0
    meet(agent, point)
    if running.trial:
        evaluate(agent.candidate, point, agent.there, agent.values[2])
        env_state.action = greedy(agent.values[2])
    elif draw(agent) < epsilon_of(state):
        if running.bold:
            env_state.held = integer(state.hold ** draw(agent)) - 1
        env_state.action = random_action(agent)
    else:
        env_state.action = greedy(agent.values[1])
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
    if state.phase == WARMUP:
        state.mean_reward += (reward - state.mean_reward) / state.steps
        if draw(agent) < 0.1:
            env_state.action = random_action(agent)
        else:
            env_state.action = state.first_action
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
        if state.steps % ROUND == 0:
            events = SLOW
    for i in range(agent.points.shape[1]):
        agent.points[env, i] = agent.vectors[AFTER, i]
    running.begins = False
    if terminated or truncated:
        judge_episode(
            state, env_state, running, agent.live, agent.best, agent.candidate, draw(agent)
        )
        events |= EPISODE_END
    return events


@spliced
def learn_values(agent: Online, reward: float, terminated: bool) -> None:
    """Fast timescale: birth, the next action, target, traces and values."""
    state, env_state, running, live = agent.state, agent.env_state, agent.running, agent.live
    point, after = agent.points[env_state.number], agent.vectors[AFTER]
    values, next_values = agent.values[0], agent.values[1]
    meet(agent, after)
    action, best = env_state.action, greedy(next_values)
    next_action = best
    if running.trial:
        if state.check:
            state.check_steps += 1
        else:
            state.trial_steps += 1
        evaluate(agent.candidate, after, agent.here, agent.values[2])
        next_action = greedy(agent.values[2])
        if env_state.episode_length > 2 * state.longest + ENDLESS:
            running.trial, state.trial, state.last_trial = 0, False, state.steps
    elif env_state.held > 0:
        env_state.held -= 1
        next_action = action
    elif draw(agent) < epsilon_of(state):
        next_action = random_action(agent)
        if running.bold:
            env_state.held = integer(state.hold ** draw(agent)) - 1
    evaluate(live, point, agent.here, values)
    future = next_values[best if running.trial else next_action]
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
        step_size_of(state), decay, env_state.episode_length,
    )  # fmt: skip
    rate = max(1e-4, 1.0 / (state.steps - state.warmup_steps))
    state.squared_error += rate * (error * error - state.squared_error)
    running.value = future
    if together:  # what this step has changed, without the steps of other environments
        evaluate(live, after, agent.there, next_values)
        running.value = next_values[best if running.trial else next_action] - future
    env_state.action = next_action


@compiled
def judge_episode(
    state: OnlineState,
    env_state: EnvState,
    running: Running,
    live: Policy,
    best: Policy,
    candidate: Policy,
    uniform: float,
) -> None:
    """Note the return of the episode that ends, and what follows from it."""
    episode_return = env_state.episode_return
    state.longest = max(state.longest, env_state.episode_length)
    if state.phase == LEARNING:
        if running.trial == 0:
            note_return(state, episode_return, running.bold > 0)
            if begin_trial(state):
                copy(candidate, best if state.replay else live)
        elif (
            running.trial == state.trials
            and state.trial
            and end_trial_episode(state, episode_return)
        ):
            copy(best, candidate)
        free = state.bold_mean >= state.timid_mean - BOLD_COST * math.sqrt(state.timid_variance)
        running.bold = uniform < (BOLD if free else TIMID_SHARE)
    running.planned = False
    end_episode(state, env_state)


@spliced
def note_return(state: OnlineState, episode_return: float, bold: bool) -> None:
    """Update running means and variances of the returns of learning."""
    if bold:
        state.bold_count += 1
        rate = max(BOLD_MEMORY, 1.0 / state.bold_count)
        state.bold_mean += rate * (episode_return - state.bold_mean)
    else:
        state.timid_count += 1
        rate = max(BOLD_MEMORY, 1.0 / state.timid_count)
        surprise = episode_return - state.timid_mean
        state.timid_mean += rate * surprise
        state.timid_variance += rate * (surprise * surprise * (1.0 - rate) - state.timid_variance)
    state.episodes += 1
    rate = max(RETURN_MEMORY, 1.0 / state.episodes)
    surprise = episode_return - state.mean_return
    state.mean_return += rate * surprise
    state.return_variance += rate * (surprise * surprise * (1.0 - rate) - state.return_variance)


@spliced
def begin_trial(state: OnlineState) -> bool:
    """Begin a trial if one is due; returns whether there is one."""
    if state.trial:
        return False
    pause = TRIAL_PAUSE * min(float(state.longest), MAX_LENGTH)
    rested = state.steps - state.last_trial > pause
    deviation = math.sqrt(state.return_variance)
    low = state.best_n > 0 and state.mean_return + CHECK_BELOW * deviation < state.best_mean
    affordable = state.check_steps < CHECK_SHARE * state.steps
    state.check = state.failures > 0 or (low and rested and affordable)
    if state.check:
        if state.failures == 0:
            variance = (state.best_squares + state.return_variance) / state.best_n
            state.floor = state.best_mean - FAILURE * math.sqrt(variance)
        begin_replay(state, 1)
        return True
    affordable = state.trial_steps < TRIAL_SHARE * state.steps
    if state.episodes <= 3 or not (rested and affordable):
        return False
    promising = state.mean_return + deviation > state.best_mean
    state.begun = 0
    state.trials += 1
    if 0 < state.best_n < TRIAL_EPISODES + RETRIAL * state.trials:
        begin_replay(state, REPLAYS)
    elif state.best_n == 0 or promising:
        state.n, state.mean, state.squares = 0, 0.0, 0.0
        state.quota, state.replay, state.trial = TRIAL_EPISODES, False, True
    else:
        return False
    return True


@spliced
def begin_replay(state: OnlineState, n_episodes: int) -> None:
    """Let the incumbent play episodes that are added to its record."""
    state.begun = 0
    state.n, state.mean, state.squares = state.best_n, state.best_mean, state.best_squares
    state.quota, state.replay, state.trial = n_episodes, True, True


@spliced
def end_trial_episode(state: OnlineState, episode_return: float) -> bool:
    """Update the candidate's record; end its trial when it has won or lost.

    Returns whether it takes the place of the incumbent.
    """
    state.n += 1
    surprise = episode_return - state.mean
    state.mean += surprise / state.n
    state.squares += surprise * (episode_return - state.mean)
    error = math.sqrt((state.squares + state.return_variance) / state.n / state.n)
    score, first = state.mean - error, state.best_n == 0
    if state.check:
        state.failures = state.failures + 1 if episode_return < state.floor else 0
    if state.replay:
        over = keeps = state.n >= state.best_n + state.quota
    else:
        over = state.n >= state.quota
        keeps = over and (first or score > state.best_score)
        over = over or (not first and state.mean + error < state.best_score)
    if keeps:
        state.best_n, state.best_score = state.n, score
        state.best_mean, state.best_squares = state.mean, state.squares
    if over:
        state.trial = False
        state.last_trial = state.steps
    if state.failures == FAILURES:  # deliver what learns, until the next trial
        state.failures = state.best_n = state.trial_steps = state.trials = 0
        state.best_mean = 0.0
        state.best_score = -math.inf
    wins = keeps and not state.replay
    if wins:
        state.version += 1
    return wins


@spliced
def in_loop(arrays: tuple[Any, ...], env: int) -> InLoop:
    """Name what the compiled loop reads."""
    raw = arrays[-2]
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
    env_state = env_state_of(arrays[-2], 0)
    if env_state.action != action:  # than was planned: what that was worth says nothing
        env_state.action = action
        running_of(arrays[-1], 0).begins = True
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
    n, state = rewards.shape[0], state_of(arrays[-2], 0)
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
            actions[i] = env_state_of(arrays[-2], i).action
    return 0, n, False
