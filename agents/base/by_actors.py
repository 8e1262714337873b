"""Training from episodes that actors play elsewhere, while this process learns."""

from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from oda_rl.agents.base.actors import Crew, Episode
from oda_rl.agents.base.course import Course
from oda_rl.agents.base.loops import Progress

_LOOK = 0.1  # seconds from one look for Ctrl-C to the next
_NO_EPISODE = np.empty((0, 3))


def train_by_actors(crew: Crew, course: Course) -> Progress:
    """Train from where the course is, in new episodes.

    They are learned from in the order in which they were asked for, and each is asked for when a
    certain other one has been learned from: what is learned depends on nobody's speed. What goes
    beyond the last step is left out.
    """
    head, client, count = crew.head, crew.client, crew.actors.workers
    head.begin(count)
    asked: deque[tuple[int, Any]] = deque()

    def ask(lane: int) -> None:
        errand = head.errand(lane, course.total - course.steps)
        asked.append((lane, client.submit(errand.play, pure=False)))

    for lane in range(count):
        ask(lane)
    while not course.over:
        lane, future = asked.popleft()
        while not _done(future):
            if course.interrupt.requested:
                yield course.steps, _NO_EPISODE
        episode = _result(future).cut(course.total - course.steps)
        head.learn(lane, episode)
        course.at(course.steps + episode.length, None)
        if not course.over:
            ask(lane)
        row = [episode.total, float(episode.length), float(episode.length)]
        yield course.steps, np.array([row]) if episode.over else _NO_EPISODE


def _done(future: Any) -> bool:
    """Wait a little; returns whether an episode has ended."""
    import distributed

    wait: Any = distributed.wait  # which has no types
    with suppress(distributed.CancelledError):
        try:
            wait(future, timeout=_LOOK)
        except TimeoutError:
            return False
    return True


def _result(future: Any) -> Episode:
    """Return an episode that has ended; what the environment raised is raised here."""
    from distributed import CancelledError, KilledWorker

    try:
        episode: Episode = future.result()
    except KilledWorker as death:
        raise ChildProcessError(
            f"workers: each of {death.allowed_failures + 1} actors that began the same episode "
            "died in it, so the environment ends its process, or needs more memory than there is"
        ) from death
    except CancelledError as loss:
        raise ConnectionError(f"address: the scheduler has been lost: {loss}") from loss
    return episode
