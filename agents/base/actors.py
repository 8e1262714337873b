"""Actors: processes that play whole episodes while another one learns from them, through Dask."""

import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._types import FloatArray
from oda_rl.agents.base.loops import NO_EPISODE, Progress
from oda_rl.agents.base.memory import CUT, GOES_ON, MARK, REWARD
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments.origins import Origin, origin_of
from oda_rl.agents.environments.spaces import AnyEnv

_INTERRUPT_SECONDS = 0.1  # from one look for Ctrl-C to the next


@dataclass(frozen=True)
class Actors:
    """Processes that play whole episodes, each in an environment of its own.

    They are Dask workers, for environments that take milliseconds a step: see
    ``agent.learn(actors=...)``. As many episodes as there are actors are under way at once, each
    with the policy that was the newest when it was asked for. The agent learns from them in the
    order in which it has asked, whoever plays them, and however long that takes. So the same seed
    and the same number of actors give the same bits, if a reset with a seed makes an environment
    begin anew in all that it has; even if actors are killed, whose episodes others play again.

    Parameters
    ----------
    workers : int
        How many; at least 1.
    address : str, optional
        Of the scheduler of a Dask cluster, ``tcp://host:port``, which should have so many threads,
        and whose workers need this package and the environment. By default so many processes are
        started on this machine; as they import the main module, a script needs
        ``if __name__ == "__main__":``.

    Raises
    ------
    ValueError
        If ``workers`` is no integer of at least 1.
    TypeError
        If ``address`` is no text.

    Examples
    --------
    >>> Actors(4)
    Actors(workers=4, address=None)
    """

    workers: int
    address: str | None = None

    def __post_init__(self) -> None:
        """Check."""
        if type(self.workers) is not int or self.workers < 1:
            raise ValueError(f"workers is {self.workers!r}: it must be an integer of at least 1")
        if not isinstance(self.address, str | None):
            raise TypeError(
                f"address is {self.address!r}: it must be that of a scheduler, such as "
                "'tcp://host:8786', or None"
            )

    @contextmanager
    def at_work(self, modules: Iterable[str]) -> Iterator[Any]:
        """Give a Dask client; processes that were started for it end with it.

        Raises
        ------
        ImportError
            If Dask is not installed, or there is a worker that cannot import one of the modules.
        """
        try:
            from distributed.diagnostics.plugin import WorkerPlugin
        except ImportError as error:
            raise ImportError(
                f"workers is {self.workers}, which needs Dask: pip install 'oda-rl[cluster]'"
            ) from error
        from oda_rl.runs.parallel import dask_client

        class IgnoreInterrupts(WorkerPlugin):
            """Leaves Ctrl-C, which a terminal sends to all processes, to the one that learns."""

            def setup(self, worker: Any) -> None:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        with dask_client(self.workers, self.address) as client:
            if self.address is None:
                client.register_plugin(IgnoreInterrupts())
            for module in modules:  # a worker that cannot read a task would end without a word
                try:
                    client.run(exec, f"import {module}")
                except ImportError as error:
                    raise ImportError(
                        f"workers: an actor cannot import {module!r}: {error}"
                    ) from error
            yield client


@dataclass(frozen=True)
class Episode:
    """What an actor has played, as a memory has it (:mod:`oda_rl.agents.base.memory`)."""

    observations: npt.NDArray[Any]
    """Shape (length + 1, d)."""
    steps: FloatArray
    """Shape (length + 1, 3 or more)."""
    over: bool
    """Whether it has ended; else it has been cut."""

    @property
    def length(self) -> int:
        """Steps."""
        return len(self.steps) - 1

    @property
    def total(self) -> float:
        """The return, added up in the order of the steps."""
        return float(sum(self.steps[:-1, REWARD].tolist()))

    def cut(self, most: int) -> "Episode":
        """Return its first steps, if there are more than that."""
        if self.length <= most:
            return self
        steps = self.steps[: most + 1].copy()
        assert steps[most, MARK] == GOES_ON
        steps[most, :MARK] = self.steps[-1, :MARK]
        steps[most, MARK] = CUT
        return replace(self, observations=self.observations[: most + 1], steps=steps, over=False)


def train_by_actors(learner: Any, client: Any, n_actors: int, run: TrainingRun) -> Progress:
    """Train from where the run is, in new episodes that actors play.

    Episodes are learned from in the order in which they were asked for, and each is asked for when
    a certain other one has been learned from: what is learned does not depend on anybody's speed.
    What goes beyond the last step is left out.

    Parameters
    ----------
    learner
        Learns from the episodes. It has ``begin(n_actors)``, ``task(i, max_steps)``, how the i-th
        actor's next episode is to be played, with a method ``play`` that returns an
        :class:`Episode`; and ``learn(i, episode)``.
    client
        Of Dask.
    """
    learner.begin(n_actors)
    asked: deque[tuple[int, Any]] = deque()

    def ask(i: int) -> None:
        asked.append((i, client.submit(learner.task(i, run.total - run.steps).play, pure=False)))

    for i in range(n_actors):
        ask(i)
    while not run.over:
        i, future = asked.popleft()
        while not _done(future):
            if run.interrupt.requested:
                yield run.steps, NO_EPISODE
        episode = _result(future).cut(run.total - run.steps)
        learner.learn(i, episode)
        run.at(run.steps + episode.length, None)
        if not run.over:
            ask(i)
        row = [episode.total, float(episode.length), float(episode.length)]
        yield run.steps, np.array([row]) if episode.over else NO_EPISODE


def _done(future: Any) -> bool:
    """Wait a little; returns whether an episode has ended."""
    import distributed

    wait: Any = distributed.wait  # which has no types
    with suppress(distributed.CancelledError):
        try:
            wait(future, timeout=_INTERRUPT_SECONDS)
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


def require_copies(env: AnyEnv, actors: Actors, module: str | None) -> Origin:
    """Return the origin of an environment that each actor can have of its own.

    Raises
    ------
    ValueError
        If it is a vector environment, cannot be made anew, or carries running statistics, which
        actors would not share.
    """
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
    """Yield the modules that an environment is made from, those apart that are the main one.

    >>> import gymnasium as gym
    >>> sorted(modules_of(origin_of(gym.make("CartPole-v1"))))
    ['gymnasium.envs.classic_control.cartpole']
    """
    spec = origin.spec
    makers = [None if spec is None else spec.entry_point, *(one.kind for one in origin.wrappers)]
    for maker in makers:
        name = maker.partition(":")[0] if isinstance(maker, str) else _module(maker)
        if name not in ("", "__main__"):
            yield name


def _module(maker: Any) -> str:
    return str(getattr(maker, "__module__", ""))
