"""A learner as a C99 header: Watkins' Q(λ) over fixed cells, in single precision.

It is what the online agent does on its fast timescale (``two_timescale/qlearning.py``): steps,
traces, exploration, rest and restart; what moves cells is left out. The power in the step size is
taken without ``math.h``: halving the number of updates until it is in [1, 2) multiplies the result
by a constant each time, and a polynomial does the rest.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from oda_rl.agents.policies.contract import SETTLED_AFTER, SHORT, SMALLEST_TRACE, Trained
from oda_rl.agents.policies.export_c import definition, first_of_equals, observed, returned
from oda_rl.agents.policies.export_tables import Export
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.exporting.c_text import (
    AS_IT_IS,
    FLOAT_SCORE,
    LESS_ORIGIN,
    NEAREST,
    as_comment,
    number,
)

_DEGREE = 10  # then the error is that of rounding, for any exponent in [0, 1]
_MOST_STEPS = 2**32 - 2  # that a count reaches; a restart after so many never comes
_MOST_EPISODES = 2**31 - 2


@runtime_checkable
class Learning(Protocol):
    """Settings of Q(λ), as in :class:`oda_rl.agents.TwoTimescaleConfig`."""

    discount: float
    trace_decay: float
    step_exponent: float
    min_step_size: float
    exploration: float
    exploration_decay: float
    solved_episodes: int
    restart_after: int
    warmup_steps: int


_STRUCT = """\
typedef struct {
    uint64_t random; /* state of the generator */
    float values[ODA_CELLS][ODA_ACTIONS];
    float step_sizes[ODA_CELLS][ODA_ACTIONS]; /* of the latest updates */
    float traces[ODA_CELLS][ODA_ACTIONS];
    uint32_t updates[ODA_CELLS][ODA_ACTIONS];
    uint32_t steps; /* since learning began, the last time from nothing */
    uint32_t all_steps;
    uint32_t first_episodes; /* that ended in the first ODA_FIRST_STEPS steps; at least 1 */
    uint32_t best_at; /* all steps after which no return was greater */
    float first_return; /* mean of those episodes */
    float best_return;
    int32_t cell, action, greedy; /* of the latest oda_act; actions count from 0 */
    float episode_return;
    int32_t streak; /* of episodes that succeed, or minus that of others */
    int32_t resting; /* whether the latest episodes succeeded; then nothing changes */
} oda_learner;

"""
_FUNCTIONS = """\
/* The next 32 random bits. */
static inline uint32_t oda_random(oda_learner *learner)
{
    const uint64_t old = learner->random;
    const uint32_t bits = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t turn = (uint32_t)(old >> 59);
    learner->random = old * UINT64_C(6364136223846793005) + 109u;
    return (bits >> turn) | (bits << ((32u - turn) & 31u));
}

/* The step size of the n-th update, n > 0. */
static inline float oda_step_size(uint32_t n)
{
    float rest = (float)n;
    float size = 1.0f;
    float sum = oda_power[ODA_DEGREE];
    while (rest >= 2.0f) {
        rest *= 0.5f;
        size *= ODA_HALVED;
    }
    rest = 2.0f * rest - 3.0f;
    for (int i = ODA_DEGREE - 1; i >= 0; --i) {
        sum = sum * rest + oda_power[i];
    }
    size *= sum;
    return size < ODA_MIN_STEP_SIZE ? ODA_MIN_STEP_SIZE : size;
}

static inline int32_t oda_cell(const float obs[ODA_FEATURES])
{
NEAREST    return nearest;
}

static inline int32_t oda_best(const oda_learner *learner, int32_t cell)
{
    int32_t best = 0;
    for (int32_t a = 1; a < ODA_ACTIONS; ++a) {
        if (learner->values[cell][a] > learner->values[cell][best]) {
            best = a;
        }
    }
    return best;
}

static inline void oda_clear_traces(oda_learner *learner)
{
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            learner->traces[k][a] = 0.0f;
        }
    }
}

/* Forget all that was learned; the generator goes on. */
static inline void oda_forget(oda_learner *learner)
{
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            learner->values[k][a] = 0.0f;
            learner->step_sizes[k][a] = 0.0f;
            learner->updates[k][a] = 0;
        }
    }
    oda_clear_traces(learner);
    learner->steps = 0;
    learner->streak = learner->resting = 0;
    learner->episode_return = 0.0f;
}

static inline void oda_init(oda_learner *learner, uint32_t seed)
{
    oda_forget(learner);
    learner->all_steps = learner->first_episodes = learner->best_at = 0;
    learner->first_return = 0.0f;
    learner->best_return = -ODA_LARGEST;
    learner->random = (UINT64_C(109) + seed) * UINT64_C(6364136223846793005) + 109u;
    learner->cell = learner->action = learner->greedy = 0;
}

static inline int oda_greedy(const oda_learner *learner, const float obs[ODA_FEATURES])
{
    return ODA_FIRST_ACTION + (int)oda_best(learner, oda_cell(obs));
}

static inline int oda_act(oda_learner *learner, const float obs[ODA_FEATURES])
{
    learner->cell = oda_cell(obs);
    learner->greedy = learner->action = oda_best(learner, learner->cell);
    if (!learner->resting) {
        const float epsilon
            = ODA_EXPLORATION / (1.0f + (float)learner->steps / ODA_EXPLORATION_DECAY);
        const float uniform = (float)(oda_random(learner) >> 8) / 16777216.0f;
        if (uniform < epsilon) {
            learner->action = (int32_t)(uniform / epsilon * (float)ODA_ACTIONS);
            if (learner->action == ODA_ACTIONS) { /* rounded up */
                learner->action = ODA_ACTIONS - 1;
            }
        }
    }
    return ODA_FIRST_ACTION + (int)learner->action;
}

/* Watkins' update of all values whose traces are not 0, by the error of the latest action. */
static inline void oda_update(oda_learner *learner, float target)
{
    const int32_t cell = learner->cell;
    const int32_t action = learner->action;
    const float error = target - learner->values[cell][action];
    if (learner->updates[cell][action] < UINT32_MAX) {
        ++learner->updates[cell][action];
    }
    learner->step_sizes[cell][action] = oda_step_size(learner->updates[cell][action]);
    if (action != learner->greedy) {
        oda_clear_traces(learner);
    }
    for (int a = 0; a < ODA_ACTIONS; ++a) {
        learner->traces[cell][a] = a == action ? 1.0f : 0.0f;
    }
    for (int k = 0; k < ODA_CELLS; ++k) {
        for (int a = 0; a < ODA_ACTIONS; ++a) {
            float trace = learner->traces[k][a];
            learner->values[k][a] += learner->step_sizes[k][a] * trace * error;
            trace *= ODA_TRACE_DECAY;
            learner->traces[k][a] = trace > ODA_SMALLEST_TRACE ? trace : 0.0f;
        }
    }
}

/* Note the return of the episode that ends among those that others are judged by. */
static inline void oda_compare(oda_learner *learner)
{
    const float found = learner->episode_return;
    if (learner->all_steps <= ODA_FIRST_STEPS || learner->first_episodes == 0) {
        ++learner->first_episodes;
        learner->first_return
            += (found - learner->first_return) / (float)learner->first_episodes;
    }
    if (found > learner->best_return) {
        learner->best_return = found;
        learner->best_at = learner->all_steps;
    }
}

/* Rest while episodes succeed, and start from nothing if learning is stuck. */
static inline void oda_end_episode(oda_learner *learner)
{
    float gained;
    int solved;
    const int was_learning = !learner->resting;
    oda_compare(learner);
    gained = learner->best_return - learner->first_return;
    solved = gained > 0.0f
        && learner->episode_return >= learner->best_return - ODA_SHORT * gained;
    if (solved) { /* longer streaks than those asked for say no more */
        learner->streak = learner->streak < 0 ? 1
            : learner->streak + (learner->streak < ODA_SOLVED_EPISODES);
    } else {
        learner->streak = learner->streak > 0 ? -1
            : learner->streak - (learner->streak > -ODA_SOLVED_EPISODES);
    }
    learner->resting = ODA_SOLVED_EPISODES > 0 && learner->streak >= ODA_SOLVED_EPISODES
        && (!was_learning || learner->all_steps - learner->best_at >= ODA_SETTLED_AFTER);
    learner->episode_return = 0.0f;
    oda_clear_traces(learner);
    if (was_learning && !solved && learner->streak <= -ODA_SOLVED_EPISODES
        && learner->steps > ODA_RESTART_AFTER) {
        oda_forget(learner);
    }
}

static inline int oda_learn(oda_learner *learner, const float obs[ODA_FEATURES], float reward,
    int terminated, int truncated)
{
    const int learned = reward - reward == 0.0f; /* it is a number, and finite */
    if (learned) {
        if (learner->steps < ODA_MOST_STEPS) {
            ++learner->steps;
        }
        if (learner->all_steps < ODA_MOST_STEPS) {
            ++learner->all_steps;
        }
        learner->episode_return += reward;
        if (!learner->resting) {
            const int32_t next = oda_cell(obs);
            const float value = learner->values[next][oda_best(learner, next)];
            oda_update(learner, terminated ? reward : reward + ODA_DISCOUNT * value);
        }
    } else {
        oda_clear_traces(learner);
    }
    if (terminated || truncated) {
        oda_end_episode(learner);
    }
    return learned;
}

"""


def learner_header(export: Export, agent: Trained) -> str:
    """Return a C99 header with a struct that learns, and functions that let it.

    Raises
    ------
    ValueError
        If the agent has no Q-table over cells, or its certificate is asked for.

    Examples
    --------
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.agents.policies.export_tables import export_of
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> print(learner_header(export_of(agent), agent).splitlines()[0])
    /* A learner over cells that oda_rl has placed, for C99: Watkins' Q(lambda), from nothing.
    """
    settings = _settings(agent)
    if export.certificate is not None:
        raise ValueError("certificate is given: it must be None where learn is True")
    found = export.search_tables()
    tables = found.in_floats()
    power = _power(settings.step_exponent)
    arrays = {"oda_diagram": tables.scores, "oda_origin": tables.origin, "oda_power": power}
    present = {name: array for name, array in arrays.items() if array is not None}
    begin = AS_IT_IS if tables.origin is None else LESS_ORIGIN
    nearest = NEAREST.replace("ONE_SCORE", FLOAT_SCORE).replace("SCORE", "float")
    constants = _constants(export, settings)
    if tables.tie > 0:
        nearest = first_of_equals(nearest)
        constants["TIE"] = number(tables.tie)
    parts = [
        as_comment(_about(export, sum(array.nbytes for array in present.values()))),
        "#ifndef ODA_LEARNER_H\n#define ODA_LEARNER_H\n\n#include <stdint.h>\n\n",
        *(f"#define ODA_{name} {value}\n" for name, value in constants.items()),
        "\n",
        *(definition(name, array, found) for name, array in present.items()),
        _STRUCT,
        _FUNCTIONS.replace("NEAREST", begin + nearest),
        "#endif\n",
    ]
    return "".join(parts)


def _settings(agent: Trained) -> Learning:
    settings = getattr(agent, "config", None)
    if not (isinstance(agent.policy, TablePolicy) and isinstance(settings, Learning)):
        raise ValueError(
            f"learn is True: it must be False for a {type(agent).__name__}, whose policy is no "
            "Q-table over cells that goes on learning with every step; TwoTimescaleAgent's is"
        )
    return settings


def _power(exponent: float) -> npt.NDArray[np.float32]:
    """Return coefficients of m to minus a power, m = (3 + x) / 2 in [1, 2], the lowest first."""
    interpolated = np.polynomial.Chebyshev.interpolate(
        lambda x: ((3.0 + x) / 2.0) ** -exponent, _DEGREE
    )
    return interpolated.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)


def _constants(export: Export, settings: Learning) -> dict[str, str]:
    """Return the definitions of all constants."""
    restart = settings.restart_after
    return {
        "FEATURES": str(len(export.cells.origin)),
        "CELLS": str(len(export.cells.diagram)),
        "ACTIONS": str(len(export.action_names)),
        "FIRST_ACTION": f"({export.first_action})",
        "DISCOUNT": number(settings.discount),
        "TRACE_DECAY": f"{number(settings.discount * settings.trace_decay)} /* times discount */",
        "SMALLEST_TRACE": number(SMALLEST_TRACE),
        "MIN_STEP_SIZE": number(settings.min_step_size),
        "HALVED": f"{number(2.0**-settings.step_exponent)} /* step size at twice the updates */",
        "DEGREE": str(_DEGREE),
        "EXPLORATION": f"{number(settings.exploration)} /* probability at first */",
        "EXPLORATION_DECAY": f"{number(settings.exploration_decay)} /* steps that halve it */",
        "LARGEST": "3.4e38f",
        "SHORT": f"{number(SHORT)} /* share of what was gained that a success may lack */",
        "SETTLED_AFTER": f"UINT32_C({SETTLED_AFTER})",
        "FIRST_STEPS": f"UINT32_C({min(settings.warmup_steps, _MOST_STEPS)})",
        "SOLVED_EPISODES": str(min(settings.solved_episodes, _MOST_EPISODES)),
        "MOST_STEPS": f"UINT32_C({_MOST_STEPS})",
        "RESTART_AFTER": f"UINT32_C({min(restart, _MOST_STEPS) if restart else _MOST_STEPS})",
    }


def _about(export: Export, table_bytes: int) -> list[str]:
    """Return what a reader has to know."""
    cells, actions = len(export.cells.diagram), len(export.action_names)
    return [
        "A learner over cells that oda_rl has placed, for C99: Watkins' Q(lambda), from nothing.",
        "",
        f"Environment: {export.env_id or 'not known'}",
        f"Cells: {cells}, which stay where they are; the nearest one is learned in",
        f"State: {16 * cells * actions + 56} bytes, an oda_learner, which the caller owns",
        f"Tables: {table_bytes} bytes, constant, single precision",
        "",
        "    oda_learner learner;",
        "    oda_init(&learner, seed);             any 32 bits; nothing is learned yet",
        "    action = oda_act(&learner, obs);      explores; then do the action, and",
        "    oda_learn(&learner, next_obs, reward, terminated, truncated);",
        "    action = oda_greedy(&learner, obs);   the best that is known; changes nothing",
        "",
        "oda_learn follows each oda_act, with the observation that the action led to. After an",
        "episode's end, terminated (failed or arrived: nothing comes after it) or truncated (cut",
        "off), oda_act goes on with the first observation of the next one. Of a reward that is not",
        "finite nothing is learned, and oda_learn returns 0, else 1. An observation that is not a",
        "number belongs to some cell. Who does another action than oda_act's says so in",
        "learner.action, counted from 0, before oda_learn.",
        "",
        "An observation, flattened, is",
        *observed(export),
        *returned(export),
        "",
        "The score of cell k is oda_diagram[k][0] + sum over j of oda_diagram[k][1 + j] x[j];",
        "x is obs, less oda_origin if that is there. The nearest cell has the least score.",
        "An action is random with the probability",
        "ODA_EXPLORATION / (1 + steps / ODA_EXPLORATION_DECAY). The n-th update of a value has",
        "the step size n to minus a power, but at least ODA_MIN_STEP_SIZE. An episode succeeds if",
        "its return, the sum of rewards, keeps what the best so far has gained over the mean of",
        "the first ones, but for a share of ODA_SHORT. After ODA_SOLVED_EPISODES in a row that",
        "succeed, ODA_SETTLED_AFTER steps or more after the best, learning rests until one falls",
        "short; if as many in a row fall short after more than",
        "ODA_RESTART_AFTER steps, it starts from nothing. Random numbers are PCG32 (O'Neill",
        "2014), stream 54.",
    ]
