"""Files of format 4, whose state had numbers instead of names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import check, real, require, whole

Arrays = dict[str, npt.NDArray[Any]]

_OWN = ("last_row", "fresh", "cell", "action", "greedy_action", "episode_length", "held")
_CLOCK = (*_OWN, "number", "undecided", "n_cells", "steps", "steps_since_start", "last_length",
          "next_uniform", "countdown", "observe_every", "learner_active", "phase", "streak",
          "solved_episodes", "restart_after", "warmup_steps", "longest_hold", "drew", "new_steps",
          "needed", "latest")  # fmt: skip
_SETTINGS = ("discount", "trace_decay", "step_exponent", "min_step_size", "exploration",
             "exploration_decay", "solved_return", "episode_return", "last_return", "epsilon",
             "width")  # fmt: skip
_SETTINGS_ROW = 4
_SCHEMA = {
    "clock": whole("clock", "(-inf, inf)"),
    "vectors": real("6, width", "[-inf, inf] or nan"),
    "lanes": whole("lanes, 7", "(-inf, inf)", optional=True),
}
_ROOM = (0, 2, 3, 1, 5)  # rows of the vectors: point, two of scratch, origin, uniforms


def upgraded(old: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return an agent's arrays as format 5 has them."""
    arrays = dict(old)
    check({name: old[name] for name in _SCHEMA if name in old}, _SCHEMA, {})
    clock, vectors = arrays.pop("clock"), arrays.pop("vectors")
    require(len(clock) >= len(_OWN) and vectors.shape[1] >= len(_SETTINGS), "clock is too short")
    require(len(clock) <= len(_CLOCK), f"clock has {len(clock)} numbers")
    arrays["room"] = vectors[list(_ROOM)]
    settings = vectors[_SETTINGS_ROW, : len(_SETTINGS)]
    arrays["state"] = arrays["lane"] = _named({
        **dict(zip(_CLOCK, clock.tolist(), strict=False)),
        **dict(zip(_SETTINGS, settings.tolist(), strict=True)),
    })  # fmt: skip
    if "lanes" in arrays:
        del arrays["lane"]
        own = [clock[: len(_OWN)]] if len(arrays["lanes"]) == 1 else arrays["lanes"]
        each = [dict(zip(_OWN, row.tolist(), strict=True)) for row in own]
        arrays["lanes"] = np.concatenate([
            _named({**values, "number": i}) for i, values in enumerate(each)
        ])  # fmt: skip
    return arrays


def _named(values: Mapping[str, float]) -> npt.NDArray[np.void]:
    kinds = [(name, type(value)) for name, value in values.items()]
    return np.array([tuple(values.values())], dtype=kinds)
