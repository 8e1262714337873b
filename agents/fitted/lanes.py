"""Several environments of a fitted agent: their running trajectories, and the policies they play.

An environment plays an episode to its end with the policy that was the newest when the episode
began: the refits that go on meanwhile would leave no episode whole that says how good a policy is.
Running trajectories are kept apart from the memory, which takes them over when they end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oda_rl._compile import compiled
from oda_rl._state import Raw, reader
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import COMPONENTS, Trajectory, begin
from oda_rl.agents.base.state import (
    EPISODE_END,
    Lane,
    Observations,
    Workspace,
    new_lanes,
    workspace,
)
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitted.moves import Moves
from oda_rl.agents.fitted.played import PlayedPolicies, Tables, Turns
from oda_rl.agents.fitted.records import Record
from oda_rl.agents.fitted.replay import Fitted, choose, load, record, state_of
from oda_rl.agents.policies.cells import CellPolicy

_FIRST_ROWS = 256

running_lane = reader(Lane)


@dataclass(frozen=True, eq=False)
class Playing:
    """A policy that is played, and how."""

    policy: CellPolicy
    record: Record | None
    """To which the returns count; None if they are not those of this policy alone."""
    epsilon: float
    """Probability of a random decision."""
    longest_hold: int
    """Most steps for which one is held."""
    scheme: int
    """Of exploration; ``schemes.NONE`` if there is none, or nothing else."""
    fits: int
    """Number of fits before."""


@compiled
def record_lanes(
    after: Observations,
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    learns: BoolArray,
    ended: FloatArray,
    lanes_raw: Raw,
    own: Observations,
    own_steps: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> int:
    """Remember a step of all environments; returns events.

    ``ended``, shape (n, 2), takes return and length of episodes that end. Nothing is remembered if
    a value is bad.
    """
    state = state_of(raw, 0)
    space = workspace(room)
    for i in range(rewards.shape[0]):
        if learns[i]:
            event = load(after[i], own[i], space)
            if not abs(rewards[i]) <= LARGEST_REWARD:  # NaN too
                event = NOT_FINITE
            if event:
                return event
    events = 0
    for i in range(rewards.shape[0]):
        if not learns[i]:
            continue
        to = Trajectory(own[i], own_steps[i], running_lane(lanes_raw, i))
        found = record(state, to, after[i], rewards[i], terminated[i], truncated[i])
        if found & EPISODE_END:
            ended[i, 0] = state.last_return
            ended[i, 1] = state.last_length
        events |= found
    return events


@compiled
def choose_lanes(
    first: int,
    acts: BoolArray,
    observations: Observations,
    actions: IntArray,
    tables: Tables,
    turns: Turns,
    lanes_raw: Raw,
    own: Observations,
    own_steps: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> tuple[int, int]:
    """Choose actions in the environments that act, each by its policy.

    They have their turns in an order, ``first`` the turn to begin with. Returns an event to attend
    to and the turn to go on with, or 0 and the number of environments.
    """
    n, state, space = acts.shape[0], state_of(raw, 0), workspace(room)
    for t in range(first, n):
        i = turns.order[t]
        if not acts[i]:
            continue
        place, seen, rows = turns.places[i], observations[i], own[i]
        origin = tables.origins[place]
        own_space = Workspace(space.point, space.weights, space.gradient, origin, space.uniforms)
        diagram = tables.diagrams[place, : tables.n_cells[place]]
        agent = Fitted(state, diagram, tables.models[place], own_space)
        state.width = tables.widths[place]
        state.epsilon, state.longest_hold = turns.epsilons[i], turns.holds[i]
        lane = running_lane(lanes_raw, i)
        event = load(seen, rows, own_space)
        if event == 0:
            begin(Trajectory(rows, own_steps[i], lane), seen)
            code = choose(agent, lane)
            if code < 0:
                event = -code
            else:
                actions[i] = code
        if event:
            return event, t
    return 0, n


class RunningTrajectories:
    """What n environments have of their own.

    Parameters
    ----------
    count : int
        Environments.
    interface : Interface
        Of each.
    playing : Playing
        With what all begin.

    Attributes
    ----------
    lanes : list of Lane
        What the running episodes count.
    moves : Moves
        Where their rows have been.
    """

    def __init__(self, count: int, interface: Interface, playing: Playing) -> None:
        self._playing = [playing] * count
        self._played = PlayedPolicies(count, playing.policy)
        for lane in range(count):
            self.play(lane, playing)
        self._raw: Raw = np.zeros(count * Lane.size, dtype=np.uint8)
        self.lanes = new_lanes(self._raw)
        self.moves = Moves(count)
        # A memory (oda_rl.agents.base.memory) for each environment.
        seen, kept = interface.n_features, COMPONENTS + interface.n_components
        self._observations: Observations = np.zeros((count, _FIRST_ROWS, seen), interface.dtype)
        self._steps: FloatArray = np.zeros((count, _FIRST_ROWS, kept))

    def make_room(self) -> None:
        """Double the rows."""
        old, old_steps = self._observations, self._steps
        self._observations = np.concatenate([old, np.zeros_like(old)], axis=1)
        self._steps = np.concatenate([old_steps, np.zeros_like(old_steps)], axis=1)

    def rows(self, lane: int) -> tuple[Observations, FloatArray]:
        """Return the observations and steps of a trajectory so far."""
        n = self.lanes[lane].last_row + 1
        return self._observations[lane, :n], self._steps[lane, :n]

    @property
    def lengths(self) -> list[int]:
        """How many rows each environment's trajectory has so far."""
        return [lane.last_row + 1 for lane in self.lanes]

    def all_rows(self) -> tuple[Observations, FloatArray]:
        """Return those of all trajectories, one after the other."""
        each = [self.rows(lane) for lane in range(len(self.lanes))]
        return np.concatenate([own[0] for own in each]), np.concatenate([own[1] for own in each])

    def forget(self, lane: int) -> None:
        """Begin a trajectory anew."""
        self.lanes[lane].assign({"last_row": -1, "fresh": False, "held": 0})

    @property
    def playing(self) -> Sequence[Playing]:
        """With what each environment plays."""
        return self._playing

    def play(self, lane: int, playing: Playing) -> None:
        """Play in an environment from now on."""
        self._playing[lane] = playing
        self._played.play(lane, playing.policy, playing.epsilon, playing.longest_hold)

    def give_no_credit(self) -> None:
        """Let what is played count for no policy any more."""
        self._playing = [replace(playing, record=None) for playing in self._playing]

    def record(self, step: VectorStep, ended: FloatArray, raw: Raw, room: FloatArray) -> int:
        """Do what :func:`record_lanes` does."""
        made = (step.after, step.rewards, step.terminated, step.truncated, step.learns)
        return record_lanes(*made, ended, *self._arrays, raw, room)

    def choose(
        self,
        first: int,
        step: VectorStep,
        actions: IntArray,
        raw: Raw,
        room: FloatArray,
    ) -> tuple[int, int]:
        """Do what :func:`choose_lanes` does."""
        made = step.acts, step.observations, actions, self._played.tables, self._played.turns
        return choose_lanes(first, *made, *self._arrays, raw, room)

    @property
    def _arrays(self) -> tuple[Raw, Observations, FloatArray]:
        return self._raw, self._observations, self._steps
