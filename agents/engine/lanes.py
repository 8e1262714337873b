"""Several environments at once: what each has of its own, and the online agent's steps in them.

Each environment is a lane: it has a trajectory, traces and a part of the ring of its own, while all
learn the same table. Compiled code enters a lane by copying its slots into the clock, so that what
it calls need not know that there are others.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, inlined
from oda_rl.agents.engine.memory import LAST_ROW
from oda_rl.agents.engine.trials import LONGEST_TRIAL
from oda_rl.agents.partitions.schedule import INTERPRETED, KIND, observe_compiled
from oda_rl.agents.two_timescale.qlearning import (
    EPISODE_END,
    EPISODE_LENGTH,
    EPISODE_RETURN,
    GRADIENT,
    LANE,
    LAST_LENGTH,
    LAST_RETURN,
    N_CELLS,
    N_OWN,
    OBSERVE,
    POINT,
    RESHAPE,
    SETTINGS,
    UNDECIDED,
    WEIGHTS,
    act,
    choose,
    explore,
    learn_from,
    load_point,
)
from oda_rl.diagram import assign

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class VectorStep(NamedTuple):
    """A step of n environments, as compiled code takes it; not all of them need have made one."""

    after: npt.NDArray[Any]
    """What the step led to: shape (n, d), of float32 or float64, as are the observations."""
    observations: npt.NDArray[Any]
    """What to act on next: another where an episode has begun since. Shape (n, d)."""
    rewards: FloatArray
    """Shape (n,), as all of the following."""
    terminated: BoolArray
    truncated: BoolArray
    learns: BoolArray
    """Which environments have made a step."""
    acts: BoolArray
    """Which ones need an action."""
    begins: BoolArray
    """Which of those begin an episode."""


class Lanes(NamedTuple):
    """What compiled code exchanges when it goes from one environment to the next."""

    clocks: IntArray
    """The first slots of the clock, shape (n, N_OWN)."""
    returns: FloatArray
    """Return of each running episode so far, shape (n,)."""

    @classmethod
    def of(cls, count: int) -> "Lanes":
        """Make so many, in none of which anything has happened."""
        clocks = np.zeros((count, N_OWN), dtype=np.int64)
        clocks[:, LAST_ROW] = -1
        return cls(clocks, np.zeros(count))

    def begin_episodes(self) -> None:
        """Set the counters of all episodes to 0."""
        self.clocks[:, EPISODE_LENGTH] = 0
        self.returns[:] = 0.0


@inlined
def enter(
    lane: int, clocks: IntArray, returns: FloatArray, clock: IntArray, vectors: FloatArray
) -> None:
    """Take over what a lane has of its own."""
    for slot in range(N_OWN):
        clock[slot] = clocks[lane, slot]
    vectors[SETTINGS, EPISODE_RETURN] = returns[lane]
    clock[LANE] = lane


@inlined
def leave(
    lane: int, clocks: IntArray, returns: FloatArray, clock: IntArray, vectors: FloatArray
) -> None:
    """Give back what :func:`enter` took over."""
    for slot in range(N_OWN):
        clocks[lane, slot] = clock[slot]
    returns[lane] = vectors[SETTINGS, EPISODE_RETURN]
    clock[LANE] = 0


@inlined
def outlasted(lane: int, clocks: IntArray) -> bool:
    """Whether most other episodes have been running for longer than this lane's, which ends.

    Of several episodes that began together those that fail are the first to end: they say little
    about a policy of which most others still go on.
    """
    longer = 0
    for other in range(clocks.shape[0]):
        if clocks[other, EPISODE_LENGTH] > clocks[lane, EPISODE_LENGTH]:
            longer += 1
    return bool(2 * longer >= clocks.shape[0])


@compiled
def step_lanes(
    first: int,
    learned: bool,
    after: FloatArray,
    observations: FloatArray,
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    learns: BoolArray,
    acts: BoolArray,
    begins: BoolArray,
    actions: IntArray,
    ended: FloatArray,
    counts: IntArray,
    diagrams: FloatArray,
    greedy: IntArray,
    clocks: IntArray,
    returns: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    diagram: FloatArray,
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    ring: FloatArray,
    ring_steps: FloatArray,
) -> tuple[int, int]:
    """Learn from a step of all environments, and choose the next actions, one lane after the other.

    Parameters
    ----------
    first, learned
        The lane to begin with, and whether that has learned already: so it goes on after events.
    after, observations, rewards, terminated, truncated, learns, acts, begins
        Of a :class:`VectorStep`.
    actions : ndarray, shape (n,)
        Written to.
    ended : ndarray, shape (n, 2)
        Return and length of an episode that ends are written here.
    counts, diagrams, greedy
        Of :class:`oda_rl.agents.engine.trials.Played`.
    clocks, returns
        Of :class:`Lanes`.
    ring, ring_steps : ndarray, shape (n, rows, d) and (n, rows, 3)
        A ring of transitions for each lane.

    Returns
    -------
    events, lane
        Events to attend to, and in which lane; or 0 and n.
    """
    point, d = vectors[POINT], diagram.shape[1] - 1
    n = rewards.shape[0]
    for lane in range(first, n):
        enter(lane, clocks, returns, clock, vectors)
        own, own_steps = ring[lane], ring_steps[lane]
        events = 0
        if learns[lane] and not (lane == first and learned):
            events = load_point(after[lane], vectors, d)
            if events == 0:
                clocks[lane, EPISODE_LENGTH] += 1
                ends = terminated[lane] or truncated[lane]
                clock[UNDECIDED] = ends and outlasted(lane, clocks)
                events = learn_from(
                    table,
                    clock,
                    vectors,
                    own,
                    own_steps,
                    point,
                    assign(diagram, clock[N_CELLS], point),
                    rewards[lane],
                    terminated[lane],
                    truncated[lane],
                )
            if events & OBSERVE and schedule[KIND] != INTERPRETED:
                events -= OBSERVE
                if observe_compiled(
                    diagram,
                    cells,
                    metric,
                    schedule,
                    som,
                    clock[N_CELLS],
                    point,
                    vectors[WEIGHTS],
                    vectors[GRADIENT],
                ):
                    events |= RESHAPE
            if events & EPISODE_END:
                events -= EPISODE_END
                ended[lane, 0] = vectors[SETTINGS, LAST_RETURN]
                ended[lane, 1] = clock[LAST_LENGTH]
        if events == 0 and acts[lane]:
            if begins[lane] or (lane == first and learned):  # events may have moved the cells
                action = act(observations[lane], diagram, table, clock, vectors, own, own_steps)
            elif counts[lane] == 0 or clock[EPISODE_LENGTH] > LONGEST_TRIAL:
                action = choose(table, clock, vectors)
            else:
                best = greedy[lane, assign(diagrams[lane], counts[lane], point)]
                action = explore(best, table.shape[2], clock, vectors)
            if action < 0:
                events = -action
            else:
                actions[lane] = action
        leave(lane, clocks, returns, clock, vectors)
        if events:
            return events, lane
    return 0, n
