"""Files that hold numbers and can't hold code: arrays and JSON in a zip, written whole or not."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oda_rl._types import Array

_METADATA = "metadata.json"


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of ``path`` once the block has succeeded.

    Whatever happens, ``path`` holds either all of the new content or what it held before.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def save_archive(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> None:
    """Write arrays and metadata (anything JSON can hold) to one zip file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers.zip"
    >>> save_archive(path, {"kind": "example"}, {"x": np.arange(3)})
    >>> metadata, arrays = load_archive(path)
    >>> metadata["kind"], arrays["x"]
    ('example', array([0, 1, 2]))
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA, json.dumps(metadata, indent=1))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


def load_archive(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what :func:`save_archive` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged or something else.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {os.fspath(path)!r}")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # before anything in it is believed
            if damaged is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
            metadata = json.loads(archive.read(_METADATA))
            arrays = {}
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as entry:
                        arrays[name[: -len(".npy")]] = np.lib.format.read_array(
                            entry, allow_pickle=False
                        )
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        OSError,
        EOFError,
        RuntimeError,
    ) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged, or not a file that oda_rl has written: {error}"
        ) from error
    if not isinstance(metadata, dict):
        raise ValueError(f"{os.fspath(path)!r} is not a file that oda_rl has written")
    return metadata, arrays
