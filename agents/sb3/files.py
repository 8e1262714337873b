"""What a file has of a model of Stable-Baselines3 beside the agent, and where it may be."""

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from oda_rl.files.schema import conforms, require

AnyPath = str | Path | io.BufferedIOBase

_BOUNDS = ("sb3_low", "sb3_high")  # of observations, of whatever shape and type these are
_SAVED: dict[str, Any] = {
    "seed": int | None, "verbose": int, "tensorboard_log": str | None, "stats_window_size": int,
    "num_timesteps": int, "episodes": int,
}  # fmt: skip


def check_saved(
    saved: Any, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Raise InvalidFileError unless what a file has beside the agent is right."""
    require(isinstance(saved, dict) and saved.keys() <= _SAVED.keys(), f"sb3 is {saved!r:.80}")
    for name, value in saved.items():
        right = conforms(value, _SAVED[name]) and (type(value) is not int or value >= 0)
        require(right, f"sb3.{name} is {value!r}")
    require(saved.get("stats_window_size", 1) >= 1, "sb3.stats_window_size is 0")
    require((saved.get("seed") or 0) < 2**32, f"sb3.seed is {saved.get('seed')}")
    bounds = [name for name in _BOUNDS if name in arrays]
    require(len(bounds) in (0, len(_BOUNDS)), f"{bounds} is there without the other bound")
    if bounds:
        shape = tuple(metadata["interface"]["observation_shape"])
        kinds = {(arrays[name].dtype, arrays[name].shape) for name in bounds}
        right = len(kinds) == 1 and next(iter(kinds))[1] == shape
        require(right and next(iter(kinds))[0].kind in "fiu", f"{bounds} are not of shape {shape}")
        low, high = (arrays[name] for name in bounds)
        require((low <= high).all(), "sb3_low is above sb3_high")


@contextmanager
def as_file(path: AnyPath) -> Iterator[Path]:
    """Give the name of a file that may have been left without its suffix, or is open already."""
    if isinstance(path, io.BufferedIOBase):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.zip")
            file.write_bytes(path.read())
            yield file
        return
    file, zipped = Path(path), Path(f"{path}.zip")
    yield zipped if zipped.exists() and not file.exists() else file
