"""Learned worlds as arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.worlds.coordinates import HIGH, LEVELS, LOW, SCALE, Coordinates, WorldArrays
from oda_rl.agents.worlds.laws import FORMS, n_reward_features
from oda_rl.agents.worlds.learning import Chosen, Learned
from oda_rl.files.schema import Member, check, flags, prefixed, real, require, whole, within

Arrays = dict[str, npt.NDArray[Any]]
N_LAWS = 4  # of an agent's world


SCHEMA: dict[str, Member] = {
    "world_boxed": flags(),
    "world_frame": real("4+levels, d", "(-inf, inf) or nan"),
    "world_circles": whole("circles, 2", "[0, d)"),
    "world_laws": real("E, C, F, d"),
    "world_waves": Member(np.float32, "E, 2*d+1, waves"),
    "world_codevectors": real("E, d, K"),
    "world_locals": real("E, locals, C, 1+d, d"),
    "world_widths": real("E", "(0, inf)"),
    "world_residuals": real("residuals, d"),
    "world_rewards": real("R"),
    "world_hinges": real("hinges, d"),
    "world_bounds": real("4", "[-inf, inf)"),
    "world_walls": real("walls, 3"),
    "world_terms": whole("terms, 2", "[0, d]"),
    "world_hazards": real("E, terms+1"),
    "world_last": real("ends, d+1"),
    "form": whole("2"),
    "errors": real("forms", "(-inf, inf) or nan"),
    "min_error": real("1"),
    "terms": whole("chosen_terms, 2", "[0, d]"),
    "residuals": real("chosen_residuals, d"),
}
"""Members of a file, in the order in which sizes follow from one another."""


def to_arrays(learned: Learned) -> Arrays:
    """Return a learned world as arrays."""
    world, chosen = learned.arrays, learned.chosen
    own = {k: a for k, a in world._asdict().items() if k not in world._field_defaults}
    names = [form.name for form in FORMS]
    return {
        **prefixed("world_", {name: np.asarray(a) for name, a in own.items()}),
        "form": np.array([names.index(chosen.form.name), chosen.n]),
        "errors": np.array([chosen.errors.get(name, np.nan) for name in names]),
        "min_error": np.array([chosen.least]),
        "terms": chosen.terms,
        "residuals": chosen.residuals,
    }


def _check(arrays: Mapping[str, npt.NDArray[Any]], boxed: bool, n_codes: int, d: int) -> None:
    """Raise InvalidFileError unless a world has d components and ``n_codes`` codes."""
    sizes = {"d": d, "C": n_codes, "E": N_LAWS, "forms": len(FORMS)}
    check(arrays, SCHEMA, sizes)
    frame, circles = arrays["world_frame"], arrays["world_circles"]
    mean_to_high, scale = frame[:LEVELS], frame[SCALE]
    ordered = (frame[LOW] <= frame[HIGH]).all() and (scale > 0.0).all()
    require(ordered and np.isfinite(mean_to_high).all(), "frame has no scale, or no bounds")
    apart = len(np.unique(circles)) == circles.size
    require(apart, "circles has a component twice")
    n_products = d * (d + 1) // 2
    require(sizes["F"] in (1 + d, 1 + d + n_products), f"laws have {sizes['F']} features")
    require(sizes["locals"] in (0, sizes["K"]), f"locals has laws of {sizes['locals']} cells")
    require(sizes["locals"] == 0 or sizes["K"] >= 3, "locals blends three cells: there are fewer")
    most = n_reward_features(d, n_codes, boxed, sizes["hinges"], len(circles))
    require(sizes["R"] in (n_codes, most), f"rewards has {sizes['R']} weights: {most} at most")
    least, greatest, _, far = arrays["world_bounds"].tolist()
    right = -np.inf < least <= greatest and far >= 0.0
    require(right, f"bounds is {arrays['world_bounds'].tolist()}")
    component, sign, _ = arrays["world_walls"].T
    known = np.isin(component, np.arange(d)).all() and np.isin(sign, (-1.0, 1.0)).all()
    require(known, "walls has a component, or a sign, that there is not")
    require(bool(arrays["world_boxed"]) == boxed, "boxed is not what the actions are")
    form = int(arrays["form"][0])
    require(form < len(FORMS), f"form is {form}: there are {len(FORMS)}")


def from_arrays(arrays: Arrays, boxed: bool, n_codes: int, d: int) -> Learned:
    """Restore what :func:`to_arrays` returned, or raise InvalidFileError."""
    _check(arrays, boxed, n_codes, d)
    fields = within(arrays, "world_")
    world = WorldArrays(bool(fields.pop("boxed")), **{k: np.array(a) for k, a in fields.items()})
    form, n = arrays["form"].tolist()
    pairs = zip(FORMS, arrays["errors"].tolist(), strict=True)
    errors = {one.name: error for one, error in pairs if not np.isnan(error)}
    least = float(arrays["min_error"][0])
    chosen = Chosen(FORMS[form], n, errors, arrays["terms"], arrays["residuals"], least)
    return Learned(world, Coordinates.of_frame(world.frame, world.circles), chosen)
