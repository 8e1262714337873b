"""The contest of snapshots and constant actions: which policy is delivered.

=============  ==================================================================================
bold           nine episodes of ten while their mean return is that of timid ones, less half a
               standard deviation, or more; else one of twenty
n(t)           5 to 40: as many of the longest episodes as fit into a twentieth of t steps
snapshot       where returns of learning, plus a standard deviation, reach the incumbent's mean,
               and else each eighth time: the policy as it is plays n(t) episodes, while its mean
               return plus a standard error reaches the incumbent's score, or until it is clearly
               better: after five its score exceeds the incumbent's mean by a standard deviation. At
               most 30 % of all steps are for snapshots and replays. Given up where an episode does
               not end
constant       each discrete action (of more than 17, 17 evenly spaced ones), or of a box nothing,
               the middle, the lowest and the highest, plays one episode, and more while its mean
               return plus a standard error exceeds that score; for at most a tenth of all steps.
               It wins after n(t) episodes at the earliest
luck           not counted of a return is what its episode's start explains by linear regression
               over about a hundred episodes, once that is a quarter of the variance (its mean is 0)
score          mean return less a standard error: the highest one wins, if its mean return is the
               greatest, too, and is delivered. Of two with equal returns only, the later one wins
overtaken      where returns of learning less three standard errors exceed the incumbent's mean,
               what learns is delivered: trials in many environments at once are few
replay         after a snapshot that has lost, the incumbent plays three episodes, and more until it
               has n(t). Its mean forgets what is older than about n(t) episodes: those that it won
               by were lucky, and the world may change
check          while returns of learning are below its mean, the incumbent plays an episode now and
               then, for at most a twentieth of all steps
change         after five episodes of the incumbent in a row that are four standard deviations
               below its mean the world has changed: the contest begins anew
=============  ==================================================================================
"""

import math
from typing import Annotated

import numpy as np

from oda_rl._state import State
from oda_rl._types import FloatArray
from oda_rl.files.schema import COUNT, FINITE, Span

BOLD, TIMID_SHARE, BOLD_COST, RETURN_MEMORY = 0.9, 0.05, 0.5, 0.1  # shares; deviations; an episode
EPISODE_SHARE, MIN_EPISODES, MAX_EPISODES = 0.05, 5, 40  # of all steps; bounds of n(t)
SURE = 3.0  # standard errors
REPLAYS, LEARNING_EPISODES = 3, 10  # the latter about as many as the running mean remembers
TRIAL_SHARE, CONSTANT_SHARE, CHECK_SHARE = 0.3, 0.1, 0.05  # of all steps
STUBBORN = 8  # every eighth trial without prospects takes place
TRIAL_PAUSE, MAX_LENGTH = 0.5, 1_000.0  # in episodes of the longest length, which is at most that
CHECK_BELOW, FAILURE, FAILURES = 0.5, 4.0, 5  # deviations below the mean; episodes in a row
ENDLESS = 1_000  # steps beyond twice the longest episode so far, which end a trial as lost
MAX_CONSTANTS = 17  # evenly spaced actions: each takes an episode at least
LUCK_SHARE, LUCK_MEMORY, LUCK_RIDGE, LUCK_EPISODES = 0.25, 0.01, 0.01, 10  # for each feature
NONE, SNAPSHOT, CONSTANT, REPLAY, CHECK = range(5)  # what is tried


class Returns(State):
    """Returns of some episodes."""

    n: Annotated[int, Span(COUNT)]  # number of episodes
    mean: Annotated[float, Span(FINITE)]  # their (running) mean return
    variance: Annotated[float, Span("[0, inf)")]  # their (running) variance

    def note(self, episode_return: float, memory: float = 0.0) -> None:
        """Count one more, as at least this share of the running mean."""
        self.n += 1
        rate = max(memory, 1.0 / self.n)
        surprise = episode_return - self.mean
        self.mean += rate * surprise
        self.variance += rate * (surprise * surprise * (1.0 - rate) - self.variance)


class Contest(State):
    """The present trial, beside the returns of episodes."""

    kind: Annotated[int, Span("[0, 4]")]  # NONE, SNAPSHOT, CONSTANT, REPLAY or CHECK
    previous: Annotated[int, Span("[0, 4]")]  # kind of the last trial
    lost: bool  # whether the last snapshot or replay was a snapshot that has not won
    constant: Annotated[int, Span("[0, constants)")]  # number of the latest constant action
    trials: Annotated[int, Span(COUNT)]  # trials so far
    begun: Annotated[int, Span(COUNT)]  # episodes of the trial that have begun
    played: Annotated[int, Span(COUNT)]  # episodes of the trial that have ended
    quota: Annotated[int, Span(COUNT)]  # episodes that end it
    last_trial: Annotated[int, Span(COUNT)]  # steps to the end of the last one
    longest: Annotated[int, Span(COUNT)]  # length of the longest episode
    trial_steps: Annotated[int, Span(COUNT)]  # steps of snapshots and replays
    constant_steps: Annotated[int, Span(COUNT)]  # steps of constant actions
    check_steps: Annotated[int, Span(COUNT)]  # steps of checks
    failures: Annotated[int, Span("[0, 4]")]  # incumbent's episodes in a row below ``floor``
    floor: Annotated[float, Span(FINITE)]  # four deviations below the incumbent's mean
    delivered: Annotated[int, Span("[-1, constants)")]  # number of the delivered one, or -1
    best_score: Annotated[float, Span("[-inf, inf)")]  # its mean less a standard error
    version: Annotated[int, Span(COUNT)]  # number of times that the delivered policy has changed

    def __init__(self, n_actions: int, n_features: int = 1) -> None:
        """Begin, with a few of the actions as constant candidates."""
        super().__init__(np.zeros(self.size, dtype=np.uint8))
        n = min(n_actions, MAX_CONSTANTS)
        self.actions = np.linspace(0, n_actions - 1, n).astype(int).tolist()
        self.raw_returns = np.zeros((5 + n) * Returns.size, dtype=np.uint8)
        self.returns = Returns.each(self.raw_returns)
        self.learning, self.bold, self.timid, self.snapshot, self.best = self.returns[:5]
        self.constants = self.returns[5:]
        # Mean products of starts, less their mean, and returns; that mean, and how many there are.
        self.luck: FloatArray = np.zeros((n_features + 2, n_features + 1))
        self.best_score, self.delivered = -math.inf, -1

    @property
    def may_be_bold(self) -> bool:
        """Whether bold episodes cost little."""
        cost = BOLD_COST * math.sqrt(self.timid.variance)
        return self.bold.mean >= self.timid.mean - cost

    def without_luck(self, episode_return: float, start: FloatArray, trial: int) -> float:
        """Return what is left of a return without luck, and learn from it what luck is."""
        d, products, mean, n = len(start), self.luck[:-1], self.luck[-1, :-1], self.luck[-1, -1]
        offset, explained = start - mean, 0.0
        if n >= LUCK_EPISODES * d:
            ridge = LUCK_RIDGE * products.diagonal()[:d] + np.finfo(float).tiny
            slopes = np.linalg.solve(products[:d, :d] + np.diag(ridge), products[d, :d])
            if slopes @ products[d, :d] >= LUCK_SHARE * products[d, d]:
                explained = float(slopes @ offset)
        record = self._candidate if trial else self.learning
        both = np.append(offset, episode_return - record.mean)
        self.luck[-1, -1] = n = n + 1.0
        mean += offset / n
        products += max(LUCK_MEMORY, 1.0 / n) * (np.outer(both, both) - products)
        return episode_return - explained

    @property
    def _candidate(self) -> Returns:
        if self.kind == CONSTANT:
            return self.constants[self.constant]
        return self.snapshot if self.kind == SNAPSHOT else self.best

    def note_learning(self, episode_return: float, bold: bool) -> bool:
        """Note an episode; return whether what learns is delivered, as it overtakes the best."""
        best, learning = self.best, self.learning
        (self.bold if bold else self.timid).note(episode_return, RETURN_MEMORY)
        learning.note(episode_return, RETURN_MEMORY)
        error = math.sqrt(RETURN_MEMORY * learning.variance)
        known = best.n > 0 and learning.n > LEARNING_EPISODES
        surely = learning.mean - SURE * error > best.mean  # it is asked after each episode
        if self.kind in (REPLAY, CHECK) or not (known and surely):
            return False
        best.restore(learning.record)
        best.n, self.delivered = LEARNING_EPISODES, -1
        self.best_score = learning.mean - error
        self.version += 1
        return True

    def begin(self, elapsed: int) -> int:
        """Begin a trial if one is due after ``elapsed`` steps of the contest; return its kind."""
        learning, best = self.learning, self.best
        if self.kind:
            return NONE
        rested = elapsed - self.last_trial > TRIAL_PAUSE * min(self.longest, MAX_LENGTH)
        deviation = math.sqrt(learning.variance)
        low = best.n > 0 and learning.mean + CHECK_BELOW * deviation < best.mean
        if self.failures or (low and rested and self.check_steps < CHECK_SHARE * elapsed):
            self.kind, self.quota = CHECK, 1
        elif not rested or learning.n <= 3:
            return NONE
        elif self._has_rival(elapsed):
            self.kind, self.quota = CONSTANT, 1
        elif self.trial_steps >= TRIAL_SHARE * elapsed:
            return NONE
        elif best.n and (self.lost or best.n < self._due(elapsed)):
            self.kind, self.quota = REPLAY, REPLAYS
        elif best.n and learning.mean + deviation <= best.mean and self.trials % STUBBORN:
            self.trials += 1  # not promising; exploration may hide what a policy is worth, though
            return NONE
        else:
            self.kind, self.quota = SNAPSHOT, self._due(elapsed)
            self.snapshot.n, self.snapshot.mean = 0, 0.0  # so that equal returns have their mean
        if self.kind in (REPLAY, CHECK) and not self.failures:
            self.floor = best.mean - FAILURE * math.sqrt(best.n) * self._error(best)
        self.begun = self.played = 0
        self.trials += 1
        return self.kind

    def _due(self, elapsed: int) -> int:
        """Return n(t), the number of episodes that a policy is judged by."""
        share = EPISODE_SHARE * elapsed / max(self.longest, 1)
        return int(min(max(share, MIN_EPISODES), MAX_EPISODES))

    def _has_rival(self, elapsed: int) -> bool:
        """Choose the constant action that could be best, if one could be better than the best."""
        affordable = self.constant_steps < CONSTANT_SHARE * elapsed
        if self.best.n == 0 or not (self.constants and affordable):
            return False
        tried = all(one.n for one in self.constants)
        if tried and self.previous == CONSTANT:  # snapshots have their turn
            return False
        bounds = [one.mean + self._error(one) if one.n else math.inf for one in self.constants]
        if self.delivered >= 0:
            bounds[self.delivered] = -math.inf
        self.constant = int(np.argmax(bounds))
        return bounds[self.constant] > self.best_score

    def _error(self, record: Returns) -> float:
        """Return the standard error of a mean return."""
        return math.sqrt(record.variance * record.n + self.learning.variance) / record.n

    def next_episode(self) -> int:
        """Return the number of the trial that the next episode is part of; 0: of none."""
        if self.kind == NONE or self.begun == self.quota:
            return 0
        self.begun += 1
        return self.trials

    def note_trial(self, trial: int, episode_return: float, length: int, elapsed: int) -> bool:
        """Note an episode of a trial, and end the trial when it has won or lost.

        Returns whether another policy is delivered from now on.
        """
        if self.kind == NONE or trial != self.trials:
            return False  # it was over before this episode was
        self._count_steps(length)
        kind = self.kind
        contends = kind in (SNAPSHOT, CONSTANT)
        candidate = self._candidate
        if not contends:  # of the incumbent, older episodes are forgotten
            candidate.n = min(candidate.n, self._due(elapsed) - 1)
        candidate.note(episode_return)
        self.played += 1
        error = self._error(candidate)
        score, over = candidate.mean - error, self.played == self.quota
        if kind == SNAPSHOT and self.best.n and candidate.n >= MIN_EPISODES:
            over = over or score > self.best.mean + math.sqrt(self.best.variance)
        wins = contends and over and score > self.best_score
        if self.best.n and candidate.mean <= self.best.mean:
            same = candidate.mean == self.best.mean and candidate.variance == self.best.variance
            # The score may have risen because learning varies less; values are better after more.
            wins = same and over and kind == SNAPSHOT and candidate.variance == 0.0
        if kind == CONSTANT and candidate.n < self._due(elapsed):
            wins = False  # with more episodes, perhaps
        if not contends:
            self.failures = self.failures + 1 if episode_return < self.floor else 0
        if over or (contends and candidate.mean + error < self.best_score):
            self.end(elapsed)
        if kind in (SNAPSHOT, REPLAY):
            self.lost = kind == SNAPSHOT and not wins
        if wins:
            self.best.restore(candidate.record)
            self.delivered = self.constant if kind == CONSTANT else -1
            self.version += 1
        if wins or not contends:
            self.best_score = score
        return wins

    def begin_anew(self) -> None:
        """Deliver what learns, until the next trial: the world has changed."""
        for record in (self.best, *self.constants):
            record.n = 0
        self.failures = self.trials = self.last_trial = 0
        self.trial_steps = self.constant_steps = self.check_steps = 0
        self.best_score, self.delivered = -math.inf, -1

    def give_up(self, episode_return: float, length: int, elapsed: int) -> None:
        """End the trial, whose running episode is too long, as lost."""
        if self.kind == CONSTANT:
            self.constants[self.constant].note(episode_return)
        self._count_steps(length)
        self.end(elapsed)

    def end(self, elapsed: int) -> None:
        self.previous, self.kind, self.last_trial = self.kind, NONE, elapsed

    def _count_steps(self, length: int) -> None:
        if self.kind == CHECK:
            self.check_steps += length
        elif self.kind == CONSTANT:
            self.constant_steps += length
        else:
            self.trial_steps += length
