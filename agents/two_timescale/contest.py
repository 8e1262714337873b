"""The contest of snapshots: which policy is delivered; compiled.

=============  ==================================================================================
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
"""

import math
from typing import Annotated

from oda_rl._compile import spliced
from oda_rl._state import State, reader
from oda_rl.files.schema import COUNT, FINITE, Span

BOLD, TIMID_SHARE, BOLD_COST, BOLD_MEMORY = 0.9, 0.05, 0.5, 0.1
RETURN_MEMORY = 0.1
TRIAL_EPISODES, RETRIAL, REPLAYS = 10, 0.25, 3
TRIAL_SHARE, TRIAL_PAUSE = 0.2, 0.5  # of all steps; in episodes of the longest length
CHECK_SHARE, CHECK_BELOW = 0.05, 0.5  # of all steps; in standard deviations
FAILURE, FAILURES = 4.0, 3  # standard deviations below the mean; episodes in a row
MAX_LENGTH = 1_000.0  # of an episode, in that pause


class Contest(State):
    """What the returns of episodes say."""

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


contest_of = reader(Contest)


@spliced
def may_be_bold(contest: Contest) -> bool:
    """Whether bold episodes cost little."""
    cost = BOLD_COST * math.sqrt(contest.timid_variance)
    bold: bool = contest.bold_mean >= contest.timid_mean - cost
    return bold


@spliced
def note_return(contest: Contest, episode_return: float, bold: bool) -> None:
    """Update running means and variances of the returns of learning."""
    if bold:
        contest.bold_count += 1
        rate = max(BOLD_MEMORY, 1.0 / contest.bold_count)
        contest.bold_mean += rate * (episode_return - contest.bold_mean)
    else:
        contest.timid_count += 1
        rate = max(BOLD_MEMORY, 1.0 / contest.timid_count)
        surprise = episode_return - contest.timid_mean
        contest.timid_mean += rate * surprise
        contest.timid_variance += rate * (
            surprise * surprise * (1.0 - rate) - contest.timid_variance
        )
    contest.episodes += 1
    rate = max(RETURN_MEMORY, 1.0 / contest.episodes)
    surprise = episode_return - contest.mean_return
    contest.mean_return += rate * surprise
    contest.return_variance += rate * (surprise * surprise * (1.0 - rate) - contest.return_variance)


@spliced
def begin_trial(contest: Contest, steps: int) -> bool:
    """Begin a trial if one is due after so many steps; returns whether there is one."""
    if contest.trial:
        return False
    pause = TRIAL_PAUSE * min(float(contest.longest), MAX_LENGTH)
    rested = steps - contest.last_trial > pause
    deviation = math.sqrt(contest.return_variance)
    low = contest.best_n > 0 and contest.mean_return + CHECK_BELOW * deviation < contest.best_mean
    affordable = contest.check_steps < CHECK_SHARE * steps
    contest.check = contest.failures > 0 or (low and rested and affordable)
    if contest.check:
        if contest.failures == 0:
            variance = (contest.best_squares + contest.return_variance) / contest.best_n
            contest.floor = contest.best_mean - FAILURE * math.sqrt(variance)
        begin_replay(contest, 1)
        return True
    affordable = contest.trial_steps < TRIAL_SHARE * steps
    if contest.episodes <= 3 or not (rested and affordable):
        return False
    promising = contest.mean_return + deviation > contest.best_mean
    contest.begun = 0
    contest.trials += 1
    if 0 < contest.best_n < TRIAL_EPISODES + RETRIAL * contest.trials:
        begin_replay(contest, REPLAYS)
    elif contest.best_n == 0 or promising:
        contest.n, contest.mean, contest.squares = 0, 0.0, 0.0
        contest.quota, contest.replay, contest.trial = TRIAL_EPISODES, False, True
    else:
        return False
    return True


@spliced
def begin_replay(contest: Contest, n_episodes: int) -> None:
    """Let the incumbent play episodes that are added to its record."""
    contest.begun = 0
    contest.n, contest.mean, contest.squares = (
        contest.best_n,
        contest.best_mean,
        contest.best_squares,
    )
    contest.quota, contest.replay, contest.trial = n_episodes, True, True


@spliced
def end_trial_episode(contest: Contest, episode_return: float, steps: int) -> bool:
    """Update the candidate's record; end its trial when it has won or lost.

    Returns whether it takes the place of the incumbent.
    """
    contest.n += 1
    surprise = episode_return - contest.mean
    contest.mean += surprise / contest.n
    contest.squares += surprise * (episode_return - contest.mean)
    error = math.sqrt((contest.squares + contest.return_variance) / contest.n / contest.n)
    score, first = contest.mean - error, contest.best_n == 0
    if contest.check:
        contest.failures = contest.failures + 1 if episode_return < contest.floor else 0
    if contest.replay:
        over = keeps = contest.n >= contest.best_n + contest.quota
    else:
        over = contest.n >= contest.quota
        keeps = over and (first or score > contest.best_score)
        over = over or (not first and contest.mean + error < contest.best_score)
    if keeps:
        contest.best_n, contest.best_score = contest.n, score
        contest.best_mean, contest.best_squares = contest.mean, contest.squares
    if over:
        contest.trial = False
        contest.last_trial = steps
    if contest.failures == FAILURES:  # deliver what learns, until the next trial
        contest.failures = contest.best_n = contest.trial_steps = contest.trials = 0
        contest.best_mean = 0.0
        contest.best_score = -math.inf
    wins = keeps and not contest.replay
    if wins:
        contest.version += 1
    return wins
