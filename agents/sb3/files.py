"""The part of a file that a model of Stable-Baselines3 adds to its agent."""

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from oda_rl.files.schema import conforms, require

AnyPath = str | Path | io.BufferedIOBase

_BOUNDS = ("sb3_low", "sb3_high")  # of observations
_SAVED: dict[str, Any] = {
    "seed": int | None, "verbose": int, "tensorboard_log": str | None, "stats_window_size": int,
    "num_timesteps": int, "episodes": int,
}  # fmt: skip


def check_saved(
    saved: Any, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Raise InvalidFileError unless this part of a file is valid."""
    require(isinstance(saved, dict) and saved.keys() <= _SAVED.keys(), f"sb3 is {saved!r:.80}")
    for name, value in saved.items():
        valid = conforms(value, _SAVED[name]) and (type(value) is not int or value >= 0)
        require(valid, f"sb3.{name} is {value!r}")
    require(saved.get("stats_window_size", 1) >= 1, "sb3.stats_window_size is 0")
    require((saved.get("seed") or 0) < 2**32, f"sb3.seed is {saved.get('seed')}")
    bounds = [name for name in _BOUNDS if name in arrays]
    require(len(bounds) in (0, len(_BOUNDS)), f"{bounds} is present without the other bound")
    if bounds:
        shape = tuple(metadata["interface"]["observation_shape"])
        low, high = (arrays[name] for name in bounds)
        valid = low.shape == high.shape == shape and low.dtype == high.dtype
        require(valid and low.dtype.kind in "fiu", f"{bounds} must be numbers of shape {shape}")
        require((low <= high).all(), "sb3_low is above sb3_high")


@contextmanager
def as_file(path: AnyPath) -> Iterator[Path]:
    """Yield the path of a file that may be open, or named without its suffix."""
    if isinstance(path, io.BufferedIOBase):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.zip")
            if path.seekable():
                path.seek(0)  # it may just have been written
            file.write_bytes(path.read())
            yield file
        return
    file, zipped = Path(path), Path(f"{path}.zip")
    yield zipped if zipped.exists() and not file.exists() else file
