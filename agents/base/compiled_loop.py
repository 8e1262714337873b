"""Agent and environment in one compiled loop: for training, and for greedy episodes.

There is one of each. What differs from agent to agent and from environment to environment are a
few small functions, whose names stand in the loops; copies are made with the right ones in their
place.
"""

import hashlib
import marshal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import bound_copy, compiled, spliced
from oda_rl._types import FloatArray
from oda_rl.agents.base.state import EPISODE_END, UNIFORMS
from oda_rl.agents.policies.contract import InLoops
from oda_rl.envs.dynamics import Compiled


class Rule(NamedTuple):
    """What an agent does in the loop; functions that are spliced into it."""

    name: str
    unpack: Callable[..., Any]
    """(arrays, 0) to a NamedTuple with ``state``, ``trajectory`` and whatever the others need."""
    start: Callable[..., int]
    """(agent, observation) to events: an episode begins there, or goes on."""
    choose: Callable[..., int]
    """(agent) to an action from 0; negative: random numbers are used up."""
    learn: Callable[..., int]
    """(agent, observation, reward, terminated, truncated) to events."""


_Functions = tuple[Callable[..., Any], Callable[..., Any], bool]
"""Step and look of dynamics; whether actions are chosen by their numbers."""


def _unbound(*arguments: Any) -> Any:
    raise NotImplementedError


# Names that stand in the loops, and sizes, which are constants there: loops over them are unrolled.
n_state = n_features = 0
unpack = start = choose = learn = decide = step = look = advance = _unbound


def _train(
    environment: tuple[Any, ...],
    max_episode_steps: int,
    starts: FloatArray,
    budget: int,
    episodes: FloatArray,
    arrays: tuple[Any, ...],
) -> tuple[int, int, int]:
    """Train until the budget or the room for episodes is used up, or an event needs attention.

    ``environment`` is (parameters, choices, position, observation); the last two, the state and
    what is seen in it, are advanced. ``starts``, shape (n ≤ room, n_state + d), says where the next
    episodes begin; finished ones are written to ``episodes``, shape (room, 3), as (return, length,
    steps taken in this call).

    Returns
    -------
    events, steps taken, episodes written
    """
    parameters, choices, position, observation = environment
    agent = unpack(arrays, 0)
    state, env_state = agent.state, agent.trajectory.env_state
    taken, written = 0, 0
    events = start(agent, observation)
    while not events:
        action = choose(agent)
        if action < 0:
            events = UNIFORMS
            break
        reward, terminated = advance(parameters, choices, position, action)
        look(parameters, position, observation)
        taken += 1
        truncated = env_state.episode_length + 1 >= max_episode_steps
        events = learn(agent, observation, reward, terminated, truncated)
        ended = events & EPISODE_END
        if ended:
            events -= EPISODE_END
            episodes[written, 0] = state.last_return
            episodes[written, 1] = state.last_length
            episodes[written, 2] = taken
            for j in range(n_state):
                position[j] = starts[written, j]
            for j in range(n_features):
                observation[j] = starts[written, n_state + j]
            written += 1
        if taken == budget or written == starts.shape[0]:
            break
        if ended and not events:
            events = start(agent, observation)
    return events, taken, written


def _play(
    environment: tuple[Any, ...],
    max_episode_steps: int,
    starts: FloatArray,
    budget: int,
    floor: float,
    arrays: tuple[Any, ...],
    returns: FloatArray,
    seen: FloatArray,
) -> tuple[int, int, float]:
    """Play greedily, an episode from each start, as long as the budget lasts.

    Nothing is learned. What is acted on is written to ``seen``, as far as there is room. An episode
    whose rewards add up to less than ``floor`` is given up: its return is minus infinity.

    Returns
    -------
    episodes that have ended, steps taken, greatest reward
    """
    parameters, choices, position, observation = environment
    taken, ended, greatest = 0, 0, -np.inf
    for episode in range(starts.shape[0]):
        for j in range(n_state):
            position[j] = starts[episode, j]
        for j in range(n_features):
            observation[j] = starts[episode, n_state + j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            if taken == budget:
                return ended, taken, greatest
            if taken < seen.shape[0]:
                for j in range(n_features):
                    seen[taken, j] = observation[j]
            action = decide(arrays, observation)
            reward, terminated = advance(parameters, choices, position, action)
            look(parameters, position, observation)
            length += 1
            taken += 1
            total += reward
            if reward > greatest:
                greatest = reward
            if total < floor:
                total = -np.inf
                break
        returns[episode] = total
        ended += 1
    return ended, taken, greatest


def _numbered(
    parameters: FloatArray, choices: npt.NDArray[Any], position: FloatArray, number: int
) -> tuple[float, bool]:
    outcome: tuple[float, bool] = step(parameters, position, number)
    return outcome


def _chosen(
    parameters: FloatArray, choices: npt.NDArray[Any], position: FloatArray, number: int
) -> tuple[float, bool]:
    outcome: tuple[float, bool] = step(parameters, position, choices[number])
    return outcome


def train_loop(rule: Rule, environment: Compiled) -> Callable[..., tuple[int, int, int]]:
    """Return the compiled loop that trains an agent with a rule in an environment."""
    return _bound(_train, rule.name, _functions(environment), environment.sizes, rule)


def _functions(environment: Compiled) -> _Functions:
    dynamics = environment.dynamics
    return dynamics.step, dynamics.look, environment.choices is not None


@cache
def _bound(
    loop: FunctionType,
    name: str,
    functions: _Functions,
    sizes: tuple[int, int, int],
    hooks: Rule | Callable[..., int],
) -> Callable[..., Any]:
    """Compile a loop with functions in place of their names.

    Compiled code is kept on disk by the name of a function, and is stale when this package has
    changed: so the name tells the files of the functions, which may be a user's, as they are.
    """
    step, look, boxed = functions
    own: dict[str, Any] = {"decide": hooks}
    if isinstance(hooks, Rule):
        own = hooks._asdict()
    advance = spliced(bound_copy(_chosen if boxed else _numbered, "", step=step))
    parts = step, look, *(part for part in own.values() if callable(part))
    digest = hashlib.sha256(b"".join(sorted({_source(part) for part in parts}))).hexdigest()[:12]
    sized = "_".join(map(str, sizes))
    label = f"_{name}_{step.__name__}_{sized}_{digest}"
    names: dict[str, Any] = {"advance": advance, "look": look}
    names |= {"n_state": sizes[0], "n_features": sizes[1]}
    bound: Callable[..., Any] = compiled(bound_copy(loop, label, **own | names))
    return bound


def _source(function: Any) -> bytes:
    """Return the file of a function, or its code if it was not read from one."""
    code = getattr(function, "py_func", function).__code__
    file = Path(code.co_filename)
    if not file.is_file():
        return marshal.dumps(code)
    return str(file).encode() + file.read_bytes()


def environment_arrays(environment: Compiled, observation: FloatArray) -> tuple[Any, ...]:
    """Return an environment as the loops take it, at the observation that it last returned."""
    choices = np.zeros(0) if environment.choices is None else environment.choices
    seen = np.array(observation, dtype=np.float64).ravel()
    return environment.dynamics.parameters, choices, environment.read_state(), seen


def play_compiled(
    environment: Compiled, policy: InLoops, observation: FloatArray, n_episodes: int
) -> FloatArray:
    """Play episodes greedily in an environment that has been reset to where ``observation`` is.

    Returns the returns, shape (n_episodes,).
    """
    own = environment_arrays(environment, observation)
    later = environment.starts(environment.env.np_random, n_episodes - 1)
    starts = np.concatenate([np.concatenate(own[2:])[None], later])
    return play_from(environment, policy, starts)[0]


class Played(NamedTuple):
    """Episodes that were played greedily."""

    returns: FloatArray
    """Of those that have ended, shape (n,)."""
    steps: int
    """Taken, also in one that has not."""
    greatest: float
    """Reward."""


def play_from(
    environment: Compiled,
    policy: InLoops,
    starts: FloatArray,
    budget: int = 2**62,
    seen: FloatArray | None = None,
    floor: float = -np.inf,
) -> Played:
    """Play an episode from each of the starts, as :meth:`Compiled.starts` returns them.

    No more than ``budget`` steps are taken. Observations that are acted on are written to ``seen``,
    shape (m, d), as far as there is room. An episode is given up, and returns minus infinity, when
    its rewards add up to less than ``floor``.
    """
    loop = _bound(_play, policy.kind, _functions(environment), environment.sizes, policy.decide)
    n_state, n_features, _ = environment.sizes
    choices = np.zeros(0) if environment.choices is None else environment.choices
    scratch = environment.dynamics.parameters, choices, np.zeros(n_state), np.zeros(n_features)
    returns, room = np.empty(len(starts)), np.empty((0, n_features)) if seen is None else seen
    longest = environment.max_episode_steps
    ended, taken, greatest = loop(
        scratch, longest, starts, budget, floor, policy.arrays, returns, room
    )
    return Played(returns[:ended], taken, greatest)
