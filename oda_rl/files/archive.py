"""Files that hold numbers and can't hold code: arrays and JSON in a zip, written whole or not.

What is written is written where it seems to be: symbolic links are refused, not followed.
"""

import errno
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

MAX_JSON = 1 << 24  # bytes

_METADATA = "metadata.json"
_RANDOM = 8  # letters that mkstemp adds to a name
_SUFFIX = ".npy"
_NAME = re.compile(r"[A-Za-z0-9_]{1,80}\.npy")
_METHODS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_ENCRYPTED = 1  # bit of the flags of a member
_LAST_RECORD = 22  # bytes at a zip's end
_LOCATOR = 20  # bytes before it, in a zip of 64 bits
_MAX_MEMBERS = 5_000
_MAX_DIRECTORY = 1_000_000  # bytes that say what members there are
_MAX_HEADER = 10_000  # bytes of an array's
_MAX_VALUES = 500_000  # in JSON: each takes some hundred bytes of memory
_ALWAYS, _EXPANSION = 1 << 24, 10  # bytes that a file may hold: so many, and so many times its own


class LinkError(OSError):
    """A file or folder that is to be written is a symbolic link; the message says which."""

    def __init__(self, path: Any) -> None:
        super().__init__(errno.ELOOP, "it is a symbolic link", os.fspath(path))

    def __str__(self) -> str:
        return (
            f"{self.filename!r} is a symbolic link, through which another file would be "
            "overwritten: remove it, or write elsewhere"
        )


def refuse_links(*paths: str | os.PathLike[str]) -> None:
    """Raise LinkError if one of the files or folders that are to be written is a symbolic link."""
    for path in paths:
        if os.path.islink(path):
            raise LinkError(path)


def open_unlinked(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as ``os.open`` does, but no symbolic link; an ``opener`` for ``open``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     os.symlink("/etc/hosts", f"{folder}/log")
    ...     open(f"{folder}/log", "w", opener=open_unlinked)
    Traceback (most recent call last):
    oda_rl.files.archive.LinkError: '...log' is a symbolic link, through which another ...
    """
    refuse_links(path)
    # O_NOFOLLOW, where there is one, covers a link that is made between these two lines.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of ``path`` once the block has succeeded.

    Whatever happens, ``path`` holds either all of the new content or what it held before, also
    after a power cut: the content is on the disk before it is given the name. A symbolic link is
    refused (LinkError).
    """
    target = Path(path)
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
    with suppress(OSError):  # the new name is to be on the disk, too, where folders can be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove what :func:`replacing` left behind of files of these names when it was killed."""
    for name in names:
        for path in folder.glob(f".{glob.escape(name)}.{'?' * _RANDOM}"):
            path.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def save_archive(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    arrays: Mapping[str, Array],
    load: Callable[[dict[str, Any], dict[str, Array]], object] | None = None,
) -> None:
    """Write arrays and metadata (anything JSON can hold) to one zip file.

    Arrays are compressed, unless they would become so small that the file might be taken for one
    made to fill the reader's memory.

    ``load`` reads what was written before the file takes its name: what it refuses is not saved.

    Raises
    ------
    ValueError
        If ``load`` refuses it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers.zip"
    >>> save_archive(path, {"kind": "example"}, {"x": np.arange(3)})
    >>> metadata, arrays = load_archive(path)
    >>> metadata["kind"], arrays["x"]
    ('example', array([0, 1, 2]))
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
            said = error.__cause__ or error
            raise ValueError(
                f"{os.fspath(path)!r} is not written, for it could not be loaded: {said}"
            ) from error


def load_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read metadata and arrays that :func:`save_archive` wrote.

    Rows of arrays lie one after the other, whatever the file says: compiled code would be compiled
    anew for others.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidFileError
        If the file is damaged or something else.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {os.fspath(path)!r}")
    try:
        content = Path(path).read_bytes()
        _check_directory(content)
        archive = zipfile.ZipFile(io.BytesIO(content))
        members = _checked_members(archive, len(content))
        metadata = parsed(archive.read(members.pop(_METADATA)), MAX_JSON)
        require(isinstance(metadata, dict), f"{_METADATA} holds no dictionary")
        return metadata, {
            name.removesuffix(_SUFFIX): _array(name, archive.read(info))
            for name, info in members.items()
        }
    except (Exception, RecursionError) as error:
        raise InvalidFileError(
            f"{os.fspath(path)!r} is damaged, or not a file that oda_rl has written: {error}"
        ) from error


def _max_size(file_size: int) -> int:
    """Return how many bytes a file may hold when it is decompressed."""
    return _ALWAYS + _EXPANSION * file_size


def _check_directory(content: bytes) -> None:
    """Check the last record of a zip: ``ZipFile`` reads a directory of any length at once."""
    record = content[-_LAST_RECORD:]
    right = len(record) == _LAST_RECORD and record[:4] == b"PK\5\6" and record[20:] == bytes(2)
    require(right, "it does not end as a zip does")
    require(content[-_LAST_RECORD - _LOCATOR :][:4] != b"PK\6\7", "it is a zip of 64 bits")
    size = int.from_bytes(record[12:16], "little")
    require(size <= _MAX_DIRECTORY, f"its directory has {size:,} bytes")


def _checked_members(archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name, if names and sizes are sound."""
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    require(len(infos) <= _MAX_MEMBERS, f"it has {len(infos)} members")
    for info in infos:
        name = info.filename
        require(name not in members, f"{name!r} is in it twice")
        require(name == _METADATA or _NAME.fullmatch(name), f"{name!r} is no name of a member")
        require(info.compress_type in _METHODS, f"{name!r} is compressed in an unknown way")
        require(not info.flag_bits & _ENCRYPTED, f"{name!r} is encrypted")
        members[name] = info
    require(_METADATA in members, f"{_METADATA} is missing")
    size = members[_METADATA].file_size
    require(size <= MAX_JSON, f"{_METADATA} has {size:,} bytes")
    size, most = sum(info.file_size for info in infos), _max_size(file_size)
    require(size <= most, f"it holds {size:,} bytes: it must be at most {most:,}")
    return members


def _array(name: str, content: bytes) -> Array:
    """Return the array that a member holds."""
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


def parsed(text: bytes | str, max_bytes: int) -> Any:
    """Read JSON that somebody else wrote: of bounded size, with each key once.

    Raises
    ------
    InvalidFileError
        If it is not that.

    Examples
    --------
    >>> parsed('{"a": [1, 2]}', 100)
    {'a': [1, 2]}
    """
    require(len(text) <= max_bytes, f"JSON of {len(text):,} bytes: at most {max_bytes:,}")
    content = text.encode() if isinstance(text, str) else text
    values = sum(map(content.count, (b",", b"[", b"{")))
    require(values <= _MAX_VALUES, f"JSON of some {values:,} values: at most {_MAX_VALUES:,}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        require(len(found) == len(pairs), "a key stands twice in JSON")
        return found

    return json.loads(text, object_pairs_hook=once)
