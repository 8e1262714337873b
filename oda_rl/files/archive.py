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
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oda_rl._types import Array
from oda_rl.files.schema import Header, InvalidFileError, require


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


_METADATA = "metadata.json"
_RANDOM = 8  # letters that mkstemp adds to a name
_SUFFIX = ".npy"
_NAME = re.compile(r"[A-Za-z0-9_]{1,80}\.npy")
_METHODS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
_ENCRYPTED = 1  # bit of the flags of a member
_LAST_RECORD = 22  # bytes at a zip's end
_MOST_MEMBERS = 5_000
_MOST_DIRECTORY = 1_000_000  # bytes that say what members there are
_MOST_HEADER = 10_000
_BEFORE_HEADER = 10  # bytes: magic, version, and the length of the header
_SMALL = 1 << 16  # bytes of a member that is read as soon as its header
_PART = 1 << 20  # bytes that are read at once
MOST_JSON = 1 << 24  # bytes
_MOST_VALUES = 500_000  # in JSON: each takes some hundred bytes of memory
_DEEPEST = 100
_ALWAYS, _EXPANSION = 1 << 24, 10  # bytes that a file may hold: so many, and so many times its own


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of ``path`` once the block has succeeded.

    Whatever happens, ``path`` holds either all of the new content or what it held before, also
    where the machine goes off: the content is on the disk before it is given the name. A symbolic
    link is neither followed nor replaced, but refused (LinkError).
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
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    _sync_folder(target.parent)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove what :func:`replacing` left behind of files of these names when it was killed."""
    for name in names:
        for path in folder.glob(f".{glob.escape(name)}.{'?' * _RANDOM}"):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let a new name be on the disk, too, where folders can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    load: Callable[[dict[str, Any], "Archive"], object] | None = None,
) -> None:
    """Write arrays and metadata (anything JSON can hold) to one zip file.

    Arrays are compressed, unless that would make so little of them that a file might be taken for
    one that is to fill the memory of whoever reads it.

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
        for how in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            file.seek(0)
            file.truncate()
            with zipfile.ZipFile(file, "w", how) as archive:
                archive.writestr(_METADATA, text)
                for name, array in arrays.items():
                    with archive.open(f"{name}{_SUFFIX}", "w") as entry:
                        np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
                whole = sum(info.file_size for info in archive.infolist())
            if whole <= max_bytes(file.tell()):
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


def max_bytes(file_size: int) -> int:
    """How many bytes a file may hold when it is decompressed."""
    return _ALWAYS + _EXPANSION * file_size


class Archive(Mapping[str, Array]):
    """The arrays of a file; each is read when it is asked for first.

    Before that its header is, which has to agree with the size of the member that it is in. Rows
    lie one after the other, whatever the file says: others would be compiled for anew.

    Parameters
    ----------
    path : path
        The file. It is read once.

    Attributes
    ----------
    metadata : dict
        What was JSON in it.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidFileError
        If it is damaged, or another file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {os.fspath(path)!r}")
        self._read: dict[str, Array] = {}
        self._headers: dict[str, Header] = {}
        try:
            self._zip = opened(path)
            self._members = self._checked_members()
            for name in self._members:
                self._headers[name] = self._header(name)
            self.metadata = parsed(self._zip.read(_METADATA), MOST_JSON)
            require(isinstance(self.metadata, dict), f"{_METADATA} holds no dictionary")
        except (Exception, RecursionError) as error:
            raise InvalidFileError(
                f"{os.fspath(path)!r} is damaged, or not a file that oda_rl has written: {error}"
            ) from error

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the arrays' members by name, if names and sizes are sound."""
        found: dict[str, zipfile.ZipInfo] = {}
        infos = self._zip.infolist()
        require(len(infos) <= _MOST_MEMBERS, f"it has {len(infos)} members")
        for info in infos:
            name = info.filename
            require(name not in found, f"{name!r} is in it twice")
            sound = name == _METADATA or _NAME.fullmatch(name)
            require(sound, f"{name!r} is no name of a member")
            require(info.compress_type in _METHODS, f"{name!r} is compressed in an unknown way")
            require(not info.flag_bits & _ENCRYPTED, f"{name!r} is encrypted")
            found[name] = info
        require(_METADATA in found, f"{_METADATA} is missing")
        size = found.pop(_METADATA).file_size
        require(size <= MOST_JSON, f"{_METADATA} has {size:,} bytes")
        assert self._zip.fp is not None
        most = max_bytes(self._zip.fp.seek(0, io.SEEK_END))
        whole = sum(info.file_size for info in infos)
        require(whole <= most, f"it holds {whole:,} bytes: it must be at most {most:,}")
        return {name.removesuffix(_SUFFIX): info for name, info in found.items()}

    def _header(self, name: str) -> Header:
        """Return dtype and shape, if they are those of as many bytes as the member has.

        Its checksum is right then: nothing in a file is believed before.
        """
        info = self._members[name]
        with self._zip.open(info) as entry:
            text = entry.read(_BEFORE_HEADER)
            begins = _BEFORE_HEADER + int.from_bytes(text[-2:], "little")
            shape, fortran, dtype = _array_header(text + entry.read(begins - _BEFORE_HEADER))
            require(not dtype.hasobject, f"{name} holds objects")
            require(all(type(n) is int and n >= 0 for n in shape), f"{name} has shape {shape}")
            size = begins + math.prod(shape) * dtype.itemsize
            said = f"{name} has shape {shape} but {info.file_size:,} bytes"
            require(size == info.file_size, said)
            if info.file_size <= _SMALL:  # to open a member takes longer
                content = np.frombuffer(bytearray(entry.read()), dtype)
                array = content.reshape(shape, order="F" if fortran else "C")
                self._read[name] = np.asarray(array, order="C")
            while entry.read(_PART):  # to its end, where its checksum is looked at
                pass
        return dtype, shape

    def header(self, name: str) -> Header:
        """Dtype and shape of an array."""
        return self._headers[name]

    def __getitem__(self, name: str) -> Array:
        """Return an array."""
        if name not in self._read:
            with self._zip.open(self._members[name]) as entry:
                array = np.lib.format.read_array(
                    entry, allow_pickle=False, max_header_size=_MOST_HEADER
                )
            self._read[name] = np.asarray(array, order="C")
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the file's order."""
        return iter(self._members)

    def __len__(self) -> int:
        """Return how many arrays there are."""
        return len(self._members)


def opened(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Read a zip that somebody else wrote, if its directory, which is read at once, is short.

    Raises
    ------
    InvalidFileError
        If its last record, by which the directory is found, says that it is longer.
    """
    content = Path(path).read_bytes()
    record = content[-_LAST_RECORD:]
    whole = len(record) == _LAST_RECORD and record[:4] == b"PK\5\6" and record[20:] == bytes(2)
    require(whole, "it does not end as a zip does")
    size = int.from_bytes(record[12:16], "little")
    require(size <= _MOST_DIRECTORY, f"its directory has {size:,} bytes")
    return zipfile.ZipFile(io.BytesIO(content))


@lru_cache(maxsize=256)
def _array_header(text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype that the beginning of an array's member says."""
    header = io.BytesIO(text)
    version = np.lib.format.read_magic(header)
    require(version == (1, 0), f"an array has version {version}")
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = np.lib.format.read_array_header_1_0(
        header, max_header_size=_MOST_HEADER
    )
    return found


def parsed(text: bytes | str, most: int) -> Any:
    """Read JSON that somebody else wrote: of bounded size and depth, with each key once.

    Raises
    ------
    InvalidFileError
        If it is not that.

    Examples
    --------
    >>> parsed('{"a": [1, 2]}', 100)
    {'a': [1, 2]}
    """
    require(len(text) <= most, f"JSON of {len(text):,} bytes: it must have at most {most:,}")
    content = text.encode() if isinstance(text, str) else text
    values = sum(map(content.count, (b",", b"[", b"{")))
    require(values <= _MOST_VALUES, f"JSON of some {values:,} values: at most {_MOST_VALUES:,}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        require(len(found) == len(pairs), "a key stands twice in JSON")
        return found

    value = json.loads(text, object_pairs_hook=once)
    require(_depth_of(value, _DEEPEST) <= _DEEPEST, f"JSON is nested deeper than {_DEEPEST}")
    return value


def _depth_of(value: Any, most: int) -> int:
    """Return how deep lists and dictionaries are nested; more than ``most`` is not told apart."""
    level, depth = [value], 0
    while level and depth <= most:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def load_archive(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], Archive]:
    """Read what :func:`save_archive` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidFileError
        If the file is damaged or something else.
    """
    archive = Archive(path)
    return archive.metadata, archive
