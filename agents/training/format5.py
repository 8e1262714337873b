"""Files of format 5, whose online agents went by the environment's reward threshold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import require
from oda_rl.agents.engine.episodes import EpisodeLog

KIND = "TwoTimescaleAgent"


def upgraded(
    metadata: Mapping[str, Any], old: Mapping[str, npt.NDArray[Any]], log: EpisodeLog
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return metadata and arrays of an online agent as format 6 has them.

    What returns are compared with is taken from the log of episodes, the first of which was played
    at random; how long ago the best one was, the log does not say exactly: it counts as long ago.
    """
    config, arrays = metadata["config"], dict(old)
    require(isinstance(config, dict), f"config is {config!r}: it must be an object")
    state = arrays["state"]
    names = state.dtype.names or ()
    require(state.shape == (1,) and "solved_return" in names, "state is none of an online agent")
    values = {name: state[name][0] for name in names if name != "solved_return"}
    values["restart_after"] = config.get(
        "restart_after", 0
    )  # it was 0 where there was no threshold
    values["best_return"] = log.best_return
    if log.count:
        values |= {"random_return": float(log.curve[0, 0]), "random_episodes": 1}
    kinds = [(name, np.asarray(value).dtype) for name, value in values.items()]
    arrays["state"] = np.array([tuple(values.values())], dtype=kinds)
    moved = {name: value for name, value in config.items() if name != "solved_return"}
    return {**metadata, "config": moved, "solved_return": config.get("solved_return")}, arrays
