"""A saved file taken apart once, and put together with other members in a few microseconds.

``zipfile`` and compression take longer than everything else that is done with a changed file: here
members that stay are compressed once, and new ones stored as they are, which files may be, too.
"""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Place = tuple[str | int, ...]
METADATA = "metadata.json"
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION, _UTF8, _FIRST_DAY = 20, 1 << 11, 33  # deflating; names; 1 January 1980


class Member(NamedTuple):
    """A member as it lies in a zip."""

    name: str
    content: bytes
    """Perhaps deflated."""
    method: int
    checksum: int
    size: int
    """Of what comes out."""


def stored(name: str, content: bytes) -> Member:
    """Return a member that is not compressed."""
    return Member(name, content, zipfile.ZIP_STORED, zlib.crc32(content), len(content))


def deflated(name: str, content: bytes) -> Member:
    """Return a member that is compressed, as fast as that goes."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    compressed = deflate.compress(content) + deflate.flush()
    return Member(name, compressed, zipfile.ZIP_DEFLATED, zlib.crc32(content), len(content))


def zipped(members: Iterable[Member]) -> bytes:
    """Return a zip of members, whatever their names are and how often they stand there."""
    parts, directory, begins, count = [], [], 0, 0
    for name, content, method, checksum, size in members:
        written = name.encode()
        how = (_VERSION, 0 if name.isascii() else _UTF8, method, 0, _FIRST_DAY)
        sizes = (checksum, len(content), size, len(written), 0)
        parts += [_LOCAL.pack(b"PK\3\4", *how, *sizes), written, content]
        directory += [
            _CENTRAL.pack(b"PK\1\2", _VERSION, *how, *sizes, 0, 0, 0, 0, begins),
            written,
        ]
        begins += _LOCAL.size + len(written) + len(content)
        count += 1
    last = b"".join(directory)
    end = _END.pack(b"PK\5\6", 0, 0, count, count, len(last), begins, 0)
    return b"".join([*parts, last, end])


class SavedFile:
    """What a file has: ``content``, its bytes; ``members`` and ``arrays`` by their names.

    ``places`` are the keys that lead to each value of its JSON.

    Parameters
    ----------
    path : Path
        Of a file that ``save`` has written.
    """

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}
        self.arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(content))
            for name, content in self.members.items()
            if name != METADATA
        }
        self.names = sorted(self.arrays)
        self.places = list(_places(self.metadata()))
        self._members = {name: deflated(name, text) for name, text in self.members.items()}

    def metadata(self) -> Any:
        """Return the JSON, each time another."""
        return json.loads(self.members[METADATA])

    def with_members(self, *others: Member) -> bytes:
        """Return the file with others in the places of those of the same name, or at its end."""
        return zipped({**self._members, **{one.name: one for one in others}}.values())

    def with_metadata(self, metadata: Any) -> bytes:
        """Return the file with other JSON."""
        return self.with_members(stored(METADATA, json.dumps(metadata).encode()))

    def with_array(self, name: str, array: npt.NDArray[Any]) -> bytes:
        """Return the file with another array, which may hold objects."""
        return self.with_members(stored(f"{name}.npy", npy(array)))


def _places(value: Any, before: Place = ()) -> Iterator[Place]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*before, key)
        if isinstance(value[key], dict | list):
            yield from _places(value[key], (*before, key))


def npy(array: npt.NDArray[Any]) -> bytes:
    """Return what the member of an array holds."""
    entry = io.BytesIO()
    np.lib.format.write_array(entry, array, allow_pickle=True)
    return entry.getvalue()
