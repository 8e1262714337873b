"""Actors: Dask workers that play episodes, from which an agent learns in its own process."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.loops import NO_EPISODE, Progress
from oda_rl.agents.base.memory import CUT, MARK, REWARD
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments.origins import Origin, origin_of
from oda_rl.agents.environments.spaces import AnyEnv


@dataclass(frozen=True)
class Actors:
    """Processes that play episodes, each in its own environment: ``agent.learn(actors=...)``.

    They are Dask workers, for environments that take milliseconds a step. Each episode is played
    with the newest policy at the time of its request; the agent learns from episodes in the order
    of the requests. So the same seed and number of actors give the same bits, even if actors are
    killed, provided that a seeded reset restarts everything in the environment.

    Parameters
    ----------
    workers : int
        Number of actors, at least 1.
    address : str, optional
        Address of the scheduler of a Dask cluster, ``tcp://host:port``, which should have as many
        threads, and whose workers need this package and the environment. By default, processes are
        started on this machine; they import the main module, so a script needs
        ``if __name__ == "__main__":``.

    Raises
    ------
    ValueError
        If ``workers`` is no integer of at least 1.

    Examples
    --------
    >>> Actors(4)
    Actors(workers=4, address=None)
    """

    workers: int
    address: str | None = None

    def __post_init__(self) -> None:
        if type(self.workers) is not int or self.workers < 1:
            raise ValueError(f"workers is {self.workers!r}: it must be an integer of at least 1")
        if not isinstance(self.address, str | None):
            raise TypeError(
                f"address is {self.address!r}: it must be that of a scheduler, such as "
                "'tcp://host:8786', or None"
            )

    @contextmanager
    def at_work(self, modules: Iterable[str]) -> Iterator[Any]:
        """Give a Dask client, and end the processes that were started for it; or ImportError."""
        try:
            from distributed.diagnostics.plugin import WorkerPlugin
        except ImportError as error:
            raise ImportError(
                f"workers is {self.workers}, which needs Dask: pip install 'oda-rl[cluster]'"
            ) from error
        from oda_rl.runs.parallel import dask_client

        class IgnoreInterrupts(WorkerPlugin):
            """Leaves Ctrl-C, which a terminal sends to all processes, to the learner."""

            def setup(self, worker: Any) -> None:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        with dask_client(self.workers, self.address) as client:
            if self.address is None:
                client.register_plugin(IgnoreInterrupts())
            for module in modules:  # a worker that cannot read a task would end without an error
                try:
                    client.run(exec, f"import {module}")
                except ImportError as error:
                    raise ImportError(
                        f"workers: an actor cannot import {module!r}: {error}"
                    ) from error
            yield client


_here = threading.local()  # of an actor: the training's name, its environment and what plays in it


def kept_here(name: str, set_up: Callable[[], tuple[gym.Env[Any, Any], Any]]) -> tuple[Any, Any]:
    """Return what ``set_up`` has made in this thread for the training ``name``."""
    if getattr(_here, "name", None) != name:
        if hasattr(_here, "made"):
            _here.made[0].close()
        _here.name, _here.made = name, set_up()
    made: tuple[Any, Any] = _here.made
    return made


@dataclass(frozen=True)
class Episode:
    """An actor's episode as rows of a memory (:mod:`oda_rl.agents.base.memory`)."""

    observations: Array  # shape (length + 1, d)
    steps: FloatArray  # shape (length + 1, 3 or more)
    over: bool  # whether it has ended; False if it has been cut

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.steps) - 1

    @property
    def total(self) -> float:
        """Return, added up in the order of the steps."""
        return float(sum(self.steps[:-1, REWARD].tolist()))

    def cut(self, max_steps: int) -> "Episode":
        """Return its first ``max_steps`` steps, or all."""
        if self.length <= max_steps:
            return self
        steps, observations = self.steps[: max_steps + 1].copy(), self.observations[: max_steps + 1]
        steps[max_steps, :MARK] = self.steps[-1, :MARK]
        steps[max_steps, MARK] = CUT
        return replace(self, observations=observations, steps=steps, over=False)


def train_by_actors(learner: Any, client: Any, n_actors: int, run: TrainingRun) -> Progress:
    """Train from where the run is, on new episodes that the actors of a Dask client play.

    A learner has ``begin(n_actors)``; ``task(i, max_steps)`` for the i-th actor, whose method
    ``play`` returns an :class:`Episode`; and ``learn(i, episode)``.
    """
    learner.begin(n_actors)
    requests: deque[tuple[int, Any]] = deque()

    def request(i: int) -> None:
        play = learner.task(i, run.total - run.steps).play
        requests.append((i, client.submit(play, pure=False)))

    for i in range(n_actors):
        request(i)
    while not run.over:
        i, future = requests.popleft()
        while (found := result_of(future)) is None:
            if run.interrupt.requested:
                yield run.steps, NO_EPISODE
        episode = found.cut(run.total - run.steps)
        learner.learn(i, episode)
        run.at(run.steps + episode.length, None)
        if not run.over:
            request(i)
        row = [episode.total, float(episode.length), float(episode.length)]
        yield run.steps, np.array([row]) if episode.over else NO_EPISODE


def result_of(future: Any) -> Any:
    """Wait a little; return the task's result, None if there is none yet; or raise its error."""
    import distributed
    from distributed import CancelledError, KilledWorker

    wait: Any = distributed.wait  # it has no types
    try:
        wait(future, timeout=0.1)  # then look for Ctrl-C
    except TimeoutError:
        return None
    except CancelledError:
        pass  # so that the result says why
    try:
        return future.result()
    except KilledWorker as death:
        raise ChildProcessError(
            f"workers: an episode killed {death.allowed_failures + 1} actors: the environment ends "
            "its process, or runs out of memory"
        ) from death
    except CancelledError as loss:
        raise ConnectionError(f"address: the scheduler has been lost: {loss}") from loss


def require_copies(env: AnyEnv, actors: Actors, module: str | None) -> Origin:
    """Return the origin of an environment from which actors make their own; or ValueError."""
    origin = origin_of(env, module)
    obstacle = origin.obstacle
    if isinstance(env, VectorEnv):
        obstacle = f"{env}: it must be a single one"
    if obstacle is None:
        for layer in origin.wrappers:
            if layer.statistics is not None:
                what = f"{origin.id} wrapped by {layer.name}"
                obstacle = f"{what}, whose running statistics would differ between its copies"
    if obstacle is not None:
        raise ValueError(
            f"workers is {actors.workers}, and each needs a copy of the environment, which is "
            f"{obstacle}"
        )
    return origin


def modules_of(origin: Origin) -> Iterator[str]:
    """Yield the modules that an environment is made from, except the main module."""
    entry_point = None if origin.spec is None else origin.spec.entry_point
    for maker in filter(None, (entry_point, *(layer.kind for layer in origin.wrappers))):
        name = maker.partition(":")[0] if isinstance(maker, str) else str(maker.__module__)
        if name != "__main__":
            yield name
