"""What a file has of a fitted agent."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.base.memory import GOES_ON, MARK, check_steps
from oda_rl.agents.base.memory import SCHEMA as MEMORY
from oda_rl.agents.base.state import ROOM, Lane
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.fitted import replay, schemes
from oda_rl.agents.fitting import placed
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.files.schema import Member, check, flags, prefixed, real, require, whole

SCHEMA: dict[str, Member] = {
    "room": real("5, width", "[-inf, inf] or nan"),
    "state": Member(replay.FittedState, "1"),
    "lane": Member(Lane, "1"),
    "returns": real("returns"),
    "lengths": whole("lengths", "[1, inf)"),
    "explored": whole("returns", "[-1, schemes)"),
    "scheme": whole("", "[-1, schemes)"),
    "whole": flags(),
    "latest": flags("records"),
    "confirming": flags("records"),
    "confirmed": whole(),
    "record_n": whole("records", "[1, inf)"),
    "record_mean": real("records"),
    "record_m2": real("records", "[0, inf)"),
    **MEMORY,
    "metric": real("d, d", optional=True),
    "scale": real("d", "[0, inf)", optional=True),
    "_values": real("values", optional=True),
    "placed_at": whole(optional=True),
    "forgotten": whole(),
    "doubted": real("2", optional=True),
}
"""What a file has of a fitted agent.

And policy0, the newest, and one for each record; curious, if there is one that looks for what is
new; placed_cells, if there are some that the next fit may keep.
"""


def check_contents(
    arrays: Mapping[str, npt.NDArray[Any]],
    interface: Interface,
    config: FittedQConfig,
    width: int,
    policy: Mapping[str, Member],
) -> None:
    """Raise InvalidFileError unless arrays are those of an agent.

    ``width`` is that of the room of compiled code; ``policy`` what a policy of its kind has.
    """
    n_records = arrays["record_n"].size
    require(n_records <= config.kept_policies, f"record_n has {n_records} records")
    n_actions = interface.n_actions
    curious = any(name.startswith("curious_") for name in arrays)
    sizes = {
        "d": interface.n_features, "p": interface.n_components, "A": n_actions,
        "actions": n_actions, "width": width, "uniforms": width,
        "schemes": schemes.NOVELTY + curious, "records": n_records, "lanes": 1, "cells": 65_536,
        "rows": len(arrays["memory_steps"]),
    }  # fmt: skip
    of_policies: set[str] = set()
    for name in [f"policy{i}" for i in range(n_records + 1)] + ["curious"] * curious:
        sizes["K"] = sum(arrays[f"{name}_codevectors"].shape[:1])
        require(sizes["K"] >= 1, f"{name} has no cells")
        members = prefixed(f"{name}_", policy)
        check({k: arrays[k] for k in members if k in arrays}, members, sizes)
        of_policies |= members.keys()
    if any(name.startswith("placed_cells_") for name in arrays):
        members = prefixed("placed_cells_", placed.SCHEMA)
        check({k: arrays[k] for k in members if k in arrays}, members, sizes)
        require(max(sizes["C"], sizes["F"]) <= 65_535, "placed_cells_ are more than 65,535")
        require("placed_at" in arrays, "placed_at is missing")
        at, most = int(arrays["placed_at"]), int(arrays["state"][0]["steps"])
        require(at <= most, f"placed_at is {at}, of {most} steps")
        of_policies |= members.keys()
    single = interface.dtype == "float32"
    seen = Member(np.float32 if single else float, MEMORY["memory_observations"].shape)
    rest = {**SCHEMA, "memory_observations": seen}
    check({k: arrays[k] for k in arrays if k not in of_policies}, rest, sizes)
    for member, row in zip(ROOM.items(), arrays["room"], strict=True):
        member[1].check(f"room, row {member[0]}", row, sizes)
    _check_memory(arrays, sizes, n_actions)
    for name, most in (("returns", schemes.RECENT_RETURNS), ("lengths", schemes.RECENT_LENGTHS)):
        require(sizes[name] <= most, f"{name} has {sizes[name]}: there are {most} at most")
    for name in ("latest", "confirming"):
        require(int(arrays[name].sum()) <= 1, f"{name} marks several records")
    steps = int(arrays["state"][0]["steps"])
    require(int(arrays.get("forgotten", 0)) <= steps, f"forgotten is more than the {steps} steps")
    if "doubted" in arrays:
        require(bool(arrays["confirming"].any()), "doubted is of no policy that is played again")
        n, most = float(arrays["doubted"][0]), int(arrays["record_n"][arrays["confirming"]][0])
        require(n == int(n) and 1 <= n <= most, f"doubted[0] is {n}: from 1 to {most} episodes")
    scheme = int(arrays.get("scheme", schemes.NONE))
    fixed = config.exploration is not None
    require(not fixed or scheme == schemes.NONE, f"scheme is {scheme}, where exploration is set")
    looks = interface.n_values > 0 and not fixed
    require(looks or not curious, "curious_codevectors are of no policy that looks for what is new")


def _check_memory(
    arrays: Mapping[str, npt.NDArray[Any]], sizes: Mapping[str, int], n_actions: int
) -> None:
    """Raise InvalidFileError unless what is remembered belongs together."""
    steps, rows = arrays["memory_steps"], int(arrays["lane"]["last_row"][0]) + 1
    require(len(steps) == rows + 1, f"memory_steps has {len(steps)} rows, not {rows + 1}")
    check_steps("memory_steps", steps, n_actions)
    ends = int((steps[: max(rows - 1, 0), MARK] != GOES_ON).sum())
    kept = len(arrays["memory_keys"])
    require(kept <= ends, f"memory_keys has {kept} keys for {ends} trajectories")
    require(sizes.get("values", 0) <= rows, "_values has more than memory_steps has")
