"""A world of numbered states: how often each action led where, and values by dynamic programming.

Transitions are edges: one for each state, action and next state that has been seen, in two linked
lists, of the pair that it comes from and of the state that it enters. Ends enter no state.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled
from oda_rl._types import FloatArray, IntArray

NO = -1  # edge or state that there is not
MOST = 64  # visits of a pair that are told apart


class Edges(NamedTuple):
    """What was counted; S states, A actions, room for E edges."""

    counts: FloatArray
    """Visits of each pair, shape (S, A)."""
    rewards: FloatArray
    """Sums of its rewards,"""
    squares: FloatArray
    """and of their squares."""
    leaving: IntArray
    """First edge that leaves a pair, shape (S, A)."""
    entering: IntArray
    """First edge that enters a state, shape (S,)."""
    weights: FloatArray
    """Times that an edge was taken, shape (E,)."""
    ends: IntArray
    """State and action that it leaves, state that it enters, next edge that leaves the same pair,
    next that enters the same state, shape (5, E)."""
    news: FloatArray
    """Visits, by how many the pair had had before, and those that led where none of these had
    led, shape (2, MOST + 1)."""
    size: IntArray
    """Number of edges, shape (1,)."""


class View(NamedTuple):
    """How values are judged where little is known: optimism, or pessimism."""

    doubt: FloatArray
    """Weight of the unknown in a pair's value by its visits, shape (MOST + 1,); 1 without any."""
    unknown: float
    """Value of the unknown."""
    errors: float
    """Standard errors of a pair's value that are added to it."""
    discount: float


def empty(n_states: int, n_actions: int, n_edges: int) -> Edges:
    """Return room for counts."""
    pairs = (n_states, n_actions)
    return Edges(
        np.zeros(pairs), np.zeros(pairs), np.zeros(pairs), np.full(pairs, NO),
        np.full(n_states, NO), np.zeros(n_edges), np.full((5, n_edges), NO),
        np.zeros((2, MOST + 1)), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def grown(edges: Edges, n_states: int, n_edges: int) -> Edges:
    """Return the same counts with more room."""
    new = empty(max(n_states, len(edges.entering)), edges.counts.shape[1],
                max(n_edges, len(edges.weights)))  # fmt: skip
    for old, more in zip(edges, new, strict=True):
        more[tuple(slice(n) for n in old.shape)] = old
    return new


@compiled
def count(edges: Edges, state: int, action: int, reward: float, after: int) -> None:
    """Note a step; ``after`` is NO where it ended the episode. There must be room for an edge."""
    visits = min(int(edges.counts[state, action]), MOST)
    edges.counts[state, action] += 1.0
    edges.rewards[state, action] += reward
    edges.squares[state, action] += reward * reward
    edges.news[0, visits] += 1.0
    edge = edges.leaving[state, action]
    while edge != NO:
        if edges.ends[2, edge] == after:
            edges.weights[edge] += 1.0
            return
        edge = edges.ends[3, edge]
    edges.news[1, visits] += 1.0
    edge = edges.size[0]
    edges.size[0] += 1
    edges.weights[edge] = 1.0
    edges.ends[0, edge], edges.ends[1, edge], edges.ends[2, edge] = state, action, after
    edges.ends[3, edge] = edges.leaving[state, action]
    edges.leaving[state, action] = edge
    if after != NO:
        edges.ends[4, edge] = edges.entering[after]
        edges.entering[after] = edge


@compiled
def pair_value(edges: Edges, view: View, values: FloatArray, state: int, action: int) -> float:
    """Return the value of an action in a state, from the values of the next states."""
    n = edges.counts[state, action]
    if n == 0.0:
        return view.unknown
    mean, square = 0.0, 0.0
    edge = edges.leaving[state, action]
    while edge != NO:
        after = edges.ends[2, edge]
        if after != NO:
            mean += edges.weights[edge] * values[after]
            square += edges.weights[edge] * values[after] * values[after]
        edge = edges.ends[3, edge]
    mean, square = mean / n, square / n
    reward: float = edges.rewards[state, action] / n
    variance = max(edges.squares[state, action] / n - reward * reward, 0.0)
    variance += view.discount * view.discount * max(square - mean * mean, 0.0)
    value: float = reward + view.discount * mean
    if view.errors > 0.0:  # nothing is better than the unknown, or that would not be looked for
        value = min(value + view.errors * math.sqrt(variance / n), view.unknown)
    visits = min(int(n), MOST)
    doubt: float = view.doubt[visits] * visits / n
    return (1.0 - doubt) * value + doubt * view.unknown


@compiled
def state_value(edges: Edges, view: View, values: FloatArray, state: int, bold: bool) -> float:
    """Return the value of the best action; ``bold``: untried ones are among them."""
    best: float = -np.inf
    for action in range(edges.counts.shape[1]):
        if bold or edges.counts[state, action] > 0.0:
            best = max(best, pair_value(edges, view, values, state, action))
    return view.unknown if best == -np.inf else best


@compiled
def sweep(
    edges: Edges, view: View, values: FloatArray, n: int, bold: bool, close: float, most: int
) -> int:
    """Improve the values of the first n states, in place, to and fro, until they are ``close``.

    Gauss-Seidel sweeps. Returns their number, at most ``most``.
    """
    for k in range(most):
        change = 0.0
        for i in range(n):
            state = i if k % 2 == 1 else n - 1 - i
            value = state_value(edges, view, values, state, bold)
            change = max(change, abs(value - values[state]))
            values[state] = value
        if change <= close:
            return k + 1
    return most


@compiled
def spread(
    edges: Edges, view: View, values: FloatArray, queue: IntArray, waits: IntArray,
    state: int, close: float, most: int,
) -> None:  # fmt: skip
    """Improve the value of a state, bold, and of all that this changes, as far as ``most`` goes.

    Parameters
    ----------
    edges, view, values
        Of the world.
    queue : ndarray
        Room for the states, shape (S,).
    waits : ndarray
        1 for states in the queue, shape (S,); all 0.
    state : int
        The one.
    close : float
        Smaller changes are not passed on.
    most : int
        Values to improve, at most.
    """
    room = len(queue)
    queue[0], waits[state], begin, length = state, 1, 0, 1
    for _ in range(most):
        if length == 0:
            return
        one = queue[begin]
        begin, length = (begin + 1) % room, length - 1
        waits[one] = 0
        value = state_value(edges, view, values, one, True)
        change = abs(value - values[one])
        values[one] = value
        if change <= close:
            continue
        edge = edges.entering[one]
        while edge != NO:
            before = edges.ends[0, edge]
            if waits[before] == 0:
                waits[before] = 1
                queue[(begin + length) % room] = before
                length += 1
            edge = edges.ends[4, edge]
    while length > 0:
        waits[queue[begin]] = 0
        begin, length = (begin + 1) % room, length - 1


@compiled
def pair_values(edges: Edges, view: View, values: FloatArray, n: int, out: FloatArray) -> None:
    """Write the values of all pairs of the first n states, shape (n, A)."""
    for state in range(n):
        for action in range(edges.counts.shape[1]):
            out[state, action] = pair_value(edges, view, values, state, action)


@compiled
def boldest(edges: Edges, view: View, values: FloatArray, state: int, close: float) -> int:
    """Return the action of greatest value in a state; of equals the one least tried."""
    best, greatest, least = 0, -np.inf, np.inf
    for action in range(edges.counts.shape[1]):
        value, tried = pair_value(edges, view, values, state, action), edges.counts[state, action]
        if value > greatest + close or (value > greatest - close and tried < least):
            best, greatest, least = action, max(value, greatest), tried
    return best


@compiled
def play(
    edges: Edges, actions: IntArray, worst: float, steps: int, values: FloatArray, room: FloatArray
) -> None:
    """Write what a policy returns in so many steps from each state, on average, and its variance.

    Where rewards depend on where a step leads, the variance is one of rewards that do not.

    Parameters
    ----------
    edges : Edges
        The world.
    actions : ndarray
        Of the policy, shape (n,).
    worst : float
        Reward of each step where a pair is unknown.
    steps : int
        Of the episodes, at most.
    values, room : ndarray
        Means and variances of returns, shape (2, n), and room for more.
    """
    n = len(actions)
    for state in range(n):
        values[0, state], values[1, state] = 0.0, 0.0
    for t in range(steps):
        changed = False
        for state in range(n):
            visits = edges.counts[state, actions[state]]
            if visits == 0.0:
                room[0, state], room[1, state] = worst * (t + 1), 0.0
            else:
                reward = edges.rewards[state, actions[state]] / visits
                mean, square = 0.0, 0.0
                edge = edges.leaving[state, actions[state]]
                while edge != NO:
                    after = edges.ends[2, edge]
                    if after != NO:
                        weight, value = edges.weights[edge], values[0, after]
                        mean += weight * value
                        square += weight * (values[1, after] + value * value)
                    edge = edges.ends[3, edge]
                mean, square = mean / visits, square / visits
                varies = edges.squares[state, actions[state]] / visits - reward * reward
                room[0, state] = reward + mean
                room[1, state] = max(varies, 0.0) + max(square - mean * mean, 0.0)
            changed = changed or room[0, state] != values[0, state]
            changed = changed or room[1, state] != values[1, state]
        for state in range(n):
            values[0, state], values[1, state] = room[0, state], room[1, state]
        if not changed:
            return
