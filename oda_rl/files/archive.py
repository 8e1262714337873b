"""Files of arrays and JSON in a zip: they cannot hold code, and are written atomically."""

import glob
import io
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oda_rl._types import Array
from oda_rl.files.schema import InvalidFileError, require

_MAX_JSON = 1 << 24  # bytes
_METADATA = "metadata.json"
_RANDOM = 8  # letters that mkstemp adds to a name
_SUFFIX = ".npy"
_NAME = re.compile(r"[A-Za-z0-9_]{1,80}\.npy")
_METHODS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_LAST_RECORD = 22  # bytes of a zip's last record
_LOCATOR = 20  # bytes before it in a 64-bit zip
_MAX_HEADER = 10_000  # bytes of an array's header
_MAX_VALUES = 500_000  # in JSON: each takes about a hundred bytes of memory


class LinkError(OSError):
    """A file or folder to be written is a symbolic link."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        reason = f"{os.fspath(path)!r} is a symbolic link"
        super().__init__(
            f"{reason}, through which another file would be overwritten: remove it, or write "
            "elsewhere"
        )
        self.strerror = reason


def refuse_links(*paths: str | os.PathLike[str]) -> None:
    """Raise LinkError if one of the files or folders to be written is a symbolic link."""
    for path in paths:
        if os.path.islink(path):
            raise LinkError(path)


def open_unlinked(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as ``os.open`` does, but refuse symbolic links; an ``opener`` for ``open``."""
    refuse_links(path)
    # O_NOFOLLOW, where it exists, covers a link made between these two lines.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once the block has succeeded.

    ``path`` holds either the old or all of the new content, even after a power cut: the content
    is on the disk before it gets the name. A symbolic link is refused (LinkError), and a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"out is {str(target)!r}, which is a folder: it must be a file")
    refuse_links(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(name, "wb", opener=lambda *_: descriptor) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    with suppress(OSError):  # put the name on the disk, too, where folders can be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files that a killed :func:`replacing` of these names left behind."""
    for name in names:
        for path in folder.glob(f".{glob.escape(name)}.{'?' * _RANDOM}"):
            path.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def save_archive(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    arrays: Mapping[str, Array],
    load: Callable[[dict[str, Any], dict[str, Array]], object] | None = None,
) -> None:
    """Write arrays and metadata (anything JSON can hold) to one zip file.

    Arrays are compressed, unless they become so small that :func:`load_archive` would refuse them
    as a zip bomb. ``load`` reads the file before it gets its name: ValueError if it refuses it.
    """
    text = json.dumps(metadata, indent=1)
    with replacing(path) as file:
        for method in _METHODS:
            file.seek(0)
            file.truncate()
            with zipfile.ZipFile(file, "w", method) as archive:
                archive.writestr(_METADATA, text)
                for name, array in arrays.items():
                    with archive.open(f"{name}{_SUFFIX}", "w") as entry:
                        np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
                size = sum(info.file_size for info in archive.infolist())
            if size <= _max_size(file.tell()):
                break
        if load is None:
            return
        file.flush()
        try:
            load(*load_archive(file.name))
        except InvalidFileError as error:
            raise ValueError(
                f"{os.fspath(path)!r} was not written, because it could not be loaded: "
                f"{error.__cause__ or error}"
            ) from error


def load_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read metadata and arrays that :func:`save_archive` wrote; or InvalidFileError.

    Arrays are in C order: compiled code is specialised to it.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {os.fspath(path)!r}")
    try:
        content = Path(path).read_bytes()
        record = content[-_LAST_RECORD:]  # the directory's size is in it: ZipFile reads all at once
        valid = len(record) == _LAST_RECORD and record[:4] == b"PK\5\6" and record[20:] == bytes(2)
        require(valid, "it does not end as a zip does")
        require(content[-_LAST_RECORD - _LOCATOR :][:4] != b"PK\6\7", "it is a 64-bit zip")
        size = int.from_bytes(record[12:16], "little")
        require(size <= 1_000_000, f"its directory has {size:,} bytes")
        archive = zipfile.ZipFile(io.BytesIO(content))
        members = _checked_members(archive, len(content))
        metadata = parsed(archive.read(members.pop(_METADATA)))
        require(isinstance(metadata, dict), f"{_METADATA} must hold a dictionary")
        return metadata, {
            name.removesuffix(_SUFFIX): _array(name, archive.read(info))
            for name, info in members.items()
        }
    except (Exception, RecursionError) as error:
        raise InvalidFileError(
            f"{os.fspath(path)!r} is damaged, or was not written by oda_rl: {error}"
        ) from error


def _max_size(file_size: int) -> int:
    """Return the maximum number of bytes in a file after decompression."""
    return (1 << 24) + 10 * file_size


def _checked_members(archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name, after checking names and sizes."""
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    require(len(infos) <= 5_000, f"it has {len(infos)} members")
    for info in infos:
        name = info.filename
        require(name not in members, f"its member {name!r} is repeated")
        require(name == _METADATA or _NAME.fullmatch(name), f"{name!r} cannot name a member")
        require(info.compress_type in _METHODS, f"{name!r} has an unknown compression")
        require(not info.flag_bits & 1, f"{name!r} is encrypted")
        members[name] = info
    require(_METADATA in members, f"{_METADATA} is missing")
    size = members[_METADATA].file_size
    require(size <= _MAX_JSON, f"{_METADATA} has {size:,} bytes")
    size, max_size = sum(info.file_size for info in infos), _max_size(file_size)
    require(size <= max_size, f"it holds {size:,} bytes: it must be at most {max_size:,}")
    return members


def _array(name: str, content: bytes) -> Array:
    entry = io.BytesIO(content)
    version = np.lib.format.read_magic(entry)
    require(version == (1, 0), f"{name} has version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(entry, max_header_size=_MAX_HEADER)
    require(not dtype.hasobject, f"{name} holds objects")
    require(all(type(n) is int and n >= 0 for n in shape), f"{name} has shape {shape}")
    size = entry.tell() + math.prod(shape) * dtype.itemsize
    require(size == len(content), f"{name} has shape {shape} but {len(content):,} bytes")
    values = np.frombuffer(content, dtype, offset=entry.tell())
    return np.array(values.reshape(shape, order="F" if fortran else "C"), order="C")


def parsed(text: bytes | str) -> Any:
    """Read JSON from an untrusted file; InvalidFileError if it is too large or repeats a key."""
    require(len(text) <= _MAX_JSON, f"JSON of {len(text):,} bytes: at most {_MAX_JSON:,}")
    content = text.encode() if isinstance(text, str) else text
    values = sum(map(content.count, (b",", b"[", b"{")))
    require(values <= _MAX_VALUES, f"JSON of about {values:,} values: at most {_MAX_VALUES:,}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        require(len(members) == len(pairs), "JSON repeats a key")
        return members

    return json.loads(text, object_pairs_hook=unique)
