"""Several environments of a fitted agent: their running trajectories, and the policies they play.

An environment plays an episode to its end with the policy that was the newest when the episode
began: the refits that go on meanwhile would leave no episode whole that says how good a policy is.
Running trajectories are kept apart from the memory, which takes them over when they end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled
from oda_rl._state import Raw, reader
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.engine.contests import Record
from oda_rl.agents.engine.lanes import VectorStep
from oda_rl.agents.engine.memory import COMPONENTS, Trajectory, begin
from oda_rl.agents.engine.state import EPISODE_END, Lane, Observations, new_lanes, workspace
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitted.replay import choose, load, opened, record, state_of
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.eights.columns import by_eights

_FIRST_ROWS = 256
_ARRANGED = 128  # policies

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


class Arranged:
    """Diagrams as :func:`by_eights` has them, of the policies that were asked for last."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CellPolicy, FloatArray]] = {}

    def columns_of(self, policy: CellPolicy) -> FloatArray:
        """Return those of a policy's diagram, which is not changed."""
        known, columns = self._known.get(id(policy), (None, None))
        if known is not policy or columns is None:  # copies have other identities
            if len(self._known) >= _ARRANGED:
                del self._known[next(iter(self._known))]
            columns = by_eights(policy.diagram)
            self._known[id(policy)] = policy, columns
        return columns


class Players(NamedTuple):
    """Environments in which one policy is played."""

    policy: CellPolicy
    columns: FloatArray
    """Of its diagram, as :func:`by_eights` has them."""
    lanes: IntArray
    """Which they are, shape (m,)."""
    epsilons: FloatArray
    """How each explores, shape (m,),"""
    holds: IntArray
    """and how long, shape (m,)."""

    def those(self, which: BoolArray) -> "Players":
        """Return some of them."""
        policy, columns, lanes, epsilons, holds = self
        return Players(policy, columns, lanes[which], epsilons[which], holds[which])


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
    lanes: IntArray,
    epsilons: FloatArray,
    holds: IntArray,
    observations: Observations,
    actions: IntArray,
    columns: FloatArray,
    models: FloatArray,
    lanes_raw: Raw,
    own: Observations,
    own_steps: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> tuple[int, int]:
    """Choose actions in the environments ``lanes``, from the first-th on, by one policy.

    ``epsilons`` and ``holds``, as many: how each explores.

    Returns an event to attend to and how far it came, or 0 and the number of lanes.
    """
    agent = opened(columns, models, raw, room)
    event = 0
    i = first
    while i < lanes.shape[0] and event == 0:
        k = lanes[i]
        agent.state.epsilon, agent.state.longest_hold = epsilons[i], holds[i]
        lane = running_lane(lanes_raw, k)
        event = load(observations[k], own[k], agent.room)
        if event == 0:
            begin(Trajectory(own[k], own_steps[k], lane), observations[k])
            code = choose(agent, lane)
            if code < 0:
                event = -code
            else:
                actions[k] = code
                i += 1
    return event, i


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
    """

    def __init__(self, count: int, interface: Interface, playing: Playing) -> None:
        self.playing = [playing] * count
        self._arranged = Arranged()
        self._raw: Raw = np.zeros(count * Lane.size, dtype=np.uint8)
        self.lanes = new_lanes(self._raw)
        # A memory (oda_rl.agents.engine.memory) for each environment.
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

    def forget(self, lane: int) -> None:
        """Begin a trajectory anew."""
        self.lanes[lane].assign({"last_row": -1, "fresh": False, "held": 0})

    def play(self, lane: int, playing: Playing) -> None:
        """Play in an environment from now on."""
        self.playing = [*self.playing[:lane], playing, *self.playing[lane + 1 :]]

    def give_no_credit(self) -> None:
        """Let what is played count for no policy any more."""
        self.playing = [replace(playing, record=None) for playing in self.playing]

    @property
    def playing(self) -> Sequence[Playing]:
        """With what each environment plays."""
        return self._playing

    @playing.setter
    def playing(self, playing: Sequence[Playing]) -> None:
        self._playing = tuple(playing)
        self._players: list[Players] | None = None

    def players(self, acts: BoolArray) -> list[Players]:
        """Return who plays which policy, of the environments that act."""
        if self._players is None:
            self._players = self._grouped()
        if acts.all():
            return self._players
        acting = [own.those(acts[own.lanes]) for own in self._players]
        return sorted((own for own in acting if len(own.lanes)), key=lambda own: own.lanes[0])

    def _grouped(self) -> list[Players]:
        lanes: dict[int, list[int]] = {}
        for lane, playing in enumerate(self._playing):
            lanes.setdefault(id(playing.policy), []).append(lane)
        return [
            Players(
                self._playing[own[0]].policy,
                self._arranged.columns_of(self._playing[own[0]].policy),
                np.array(own),
                np.array([self._playing[lane].epsilon for lane in own]),
                np.array([self._playing[lane].longest_hold for lane in own]),
            )
            for own in lanes.values()
        ]

    def record(self, step: VectorStep, ended: FloatArray, raw: Raw, room: FloatArray) -> int:
        """Do what :func:`record_lanes` does."""
        made = (step.after, step.rewards, step.terminated, step.truncated, step.learns)
        return record_lanes(*made, ended, *self._arrays, raw, room)

    def choose(
        self,
        first: int,
        players: Players,
        observations: Observations,
        actions: IntArray,
        raw: Raw,
        room: FloatArray,
    ) -> tuple[int, int]:
        """Do what :func:`choose_lanes` does."""
        policy, columns, lanes, epsilons, holds = players
        made = observations, actions, columns, policy.models
        return choose_lanes(first, lanes, epsilons, holds, *made, *self._arrays, raw, room)

    @property
    def _arrays(self) -> tuple[Raw, Observations, FloatArray]:
        return self._raw, self._observations, self._steps
