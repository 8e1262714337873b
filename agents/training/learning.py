"""How an agent is trained: its loop, with the log, progress, checkpoints, and Ctrl-C."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.training.checkpoints import Checkpoints
from oda_rl.agents.training.course import Course
from oda_rl.agents.training.files import Savable
from oda_rl.agents.training.interrupts import deferred_interrupt
from oda_rl.agents.training.loops import Progress
from oda_rl.agents.training.training import progress_line


class Trainee(Savable, Protocol):
    """An agent, as training sees it."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""

    @property
    def temperature(self) -> float:
        """Temperature of the current level, if there are any."""

    def _require_env(self) -> AnyEnv:
        """Return the environment."""

    def _train(self, env: AnyEnv, course: Course) -> Progress:
        """Begin, or go on, and train."""


AnyTrainee = TypeVar("AnyTrainee", bound=Trainee)
Callback = Callable[[AnyTrainee], bool | None]


def train(
    agent: AnyTrainee,
    course: Course,
    callback: Callback[AnyTrainee] | None,
    progress_bar: bool,
    checkpoints: Checkpoints | None,
) -> None:
    """Train until the course is over, a callback ends it, or Ctrl-C has been pressed."""
    env = agent._require_env()
    before = agent.training_seconds
    course.one_by_one = callback is not None
    kept: Any = nullcontext() if checkpoints is None else checkpoints.kept()
    line = progress_line(course.total, progress_bar, course.steps)
    with deferred_interrupt() as course.interrupt, kept, line as (report, watch):

        def save() -> None:
            if checkpoints is not None:
                agent.training_seconds = before + watch.seconds
                with watch.stopped():
                    checkpoints.write(agent, course, agent._seed)

        training = agent._train(env, course)
        if not course.resumed:
            save()  # if that cannot be, nobody has to wait to be told
        for steps, finished in training:
            now = before + watch.seconds
            if len(finished):
                share = finished[:, 2] / finished[-1, 2]
                finished[:, 2] = agent.training_seconds + share * (now - agent.training_seconds)
                agent.episodes.append(finished)
                agent.training_seconds = now
            report(agent, steps)
            if course.interrupt.requested and not course.over:
                if course.can_stop:
                    save()
                raise KeyboardInterrupt
            if course.due and not course.over:
                save()
            if len(finished) and callback is not None and callback(agent) is False:
                course.total = course.steps
                break
        agent.training_seconds = before + watch.seconds
        course.at(course.total, course.observation)
        save()
        if course.interrupt.requested:
            raise KeyboardInterrupt
