"""Learned worlds as arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.imagination import WorldArrays
from oda_rl.agents.worlds.laws import FORMS
from oda_rl.agents.worlds.learning import Chosen, Learned

Arrays = dict[str, npt.NDArray[Any]]


def prefixed(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return arrays with longer names."""
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def part(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    """Return those whose name begins so, without that."""
    begin = f"{prefix}_"
    return {
        name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)
    }


def to_arrays(learned: Learned) -> Arrays:
    """Return a learned world as arrays."""
    world, chosen = learned.arrays, learned.chosen
    own = {k: a for k, a in world._asdict().items() if k not in world._field_defaults}
    names = [form.name for form in FORMS]
    return {
        **prefixed("world", {name: np.asarray(a) for name, a in own.items()}),
        "form": np.array([names.index(chosen.form.name), chosen.n]),
        "errors": np.array([chosen.errors[name] for name in names]),
        "terms": chosen.terms,
        "residuals": chosen.residuals,
    }


def from_arrays(arrays: Arrays) -> Learned:
    """Make a learned world of what :func:`to_arrays` returned."""
    fields = part(arrays, "world")
    world = WorldArrays(bool(fields.pop("boxed")), **{k: np.array(a) for k, a in fields.items()})
    form, n = arrays["form"].tolist()
    errors = {one.name: error for one, error in zip(FORMS, arrays["errors"].tolist(), strict=True)}
    chosen = Chosen(FORMS[form], n, errors, arrays["terms"], arrays["residuals"])
    return Learned(world, Coordinates.of_frame(world.frame, world.circles), chosen)
