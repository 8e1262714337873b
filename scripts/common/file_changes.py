"""Random changes of a saved file: of its bytes, its zip, its arrays and its JSON.

Changes of zip, arrays and JSON have valid checksums. ``fuzz_files.py`` loads the changed files.
"""

import copy
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Rng = np.random.Generator
Place = tuple[str | int, ...]
T = TypeVar("T")
METADATA = "metadata.json"
NUMBERS = (-1, 1, 2, 3, 5, 63, 255, 4096, 65_536, 10**6, 10**9, 2**31, 2**40, 2**62, 2**63 - 1,
           -2, -(2**31), -(2**63))  # fmt: skip
REALS = (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e9, 1e19, -1e300, 1e308, 5e-324, 2.5)
WORDS = ("", "evil:Env-v0", "../../x", "*/ int x; /*", "TwoTimescaleAgent", "a" * 5000)
NAMES = ("/etc/x.npy", "../x.npy", "x/y.npy", "x", "é.npy")
TYPES = ("f4", "i4", "i8", "f8", "?", ">f8", "c16", "U3")


def zipped(members: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of members, whatever their names are and how often they stand there."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand there twice
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Return the member of an array, which may hold objects: these must be refused."""
    entry = io.BytesIO()
    np.lib.format.write_array(entry, array, allow_pickle=True)
    return entry.getvalue()


class SavedFile:
    """A file: its bytes, its members by name, and the places of values in its JSON."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}
        self.names = sorted(self.members.keys() - {METADATA})
        self.places = list(_places(self.metadata()))

    def metadata(self) -> Any:
        return json.loads(self.members[METADATA])

    def with_member(self, name: str, content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
        """Return the file with a member more, or another in the place of one of that name."""
        return zipped({**self.members, name: content}.items(), method)


def _places(value: Any, before: Place = ()) -> Iterator[Place]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*before, key)
        if isinstance(value[key], dict | list):
            yield from _places(value[key], (*before, key))


def changed_bytes(file: SavedFile, rng: Rng) -> bytes:
    """Change some bytes."""
    whole = bytearray(file.content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(whole)))
        if rng.random() < 0.2:
            del whole[at : at + int(rng.integers(1, 200))]
        else:
            whole[at] = int(rng.integers(256))
    return bytes(whole)


def changed_zip(file: SavedFile, rng: Rng) -> bytes:
    """Drop, repeat, rename, add, cut or swap members, or add much that compresses to little."""
    members = list(file.members.items())
    at = int(rng.integers(len(members)))
    name, content = members[at]
    how = int(rng.integers(7))
    if how == 0:
        del members[at]
    elif how == 1:
        members.append(members[at])
    elif how == 2:
        members[at] = _one(NAMES, rng), content
    elif how == 3:
        members.append(("surplus.npy", content))
    elif how == 4:
        members[at] = name, content[: int(rng.integers(len(content)))]
    elif how == 5:
        members[at] = name, content + bytes(int(10 ** rng.uniform(0.0, 7.5)))
    else:
        members[at] = name, _one(members, rng)[1]
    return zipped(members, _one((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), rng))


def changed_array(file: SavedFile, rng: Rng) -> bytes:
    """Change one number of an array, or its shape or type."""
    name = _one(file.names, rng)
    array = np.load(io.BytesIO(file.members[name]))
    plain, how = array.dtype.names is None, rng.random()
    if how < 0.75 and array.size:
        flat = array.reshape(-1)
        _change(flat if plain else flat[_one(array.dtype.names, rng)], rng)
    elif how < 0.85 and plain:
        with np.errstate(invalid="ignore", over="ignore"):
            array = array.astype(_one((*TYPES, object), rng))
    else:
        flat = array.reshape(-1)
        array = _one((flat[:-1], np.concatenate([flat, flat]), array[None], flat, flat[:0]), rng)
    return file.with_member(name, npy(array))


def _change(flat: np.ndarray, rng: Rng) -> None:
    at = int(rng.integers(len(flat)))
    with np.errstate(all="ignore"):
        if flat.dtype.kind in "iu":
            near = rng.random() < 0.3
            value = int(flat[at]) + _one(NUMBERS[:8], rng) if near else _one(NUMBERS, rng)
            info = np.iinfo(flat.dtype)
            flat[at] = min(max(value, info.min), info.max)
        elif flat.dtype.kind == "f":
            flat[at] = _one(REALS, rng) if rng.random() < 0.7 else flat[at] + rng.integers(-3, 4)
        elif flat.dtype.kind == "b":
            flat[at] = not flat[at]
        else:
            flat[at] = _one(("", "x", "99"), rng)


def changed_json(file: SavedFile, rng: Rng) -> bytes:
    """Change one value in the JSON, or add or drop a key."""
    metadata = file.metadata()
    holder, key = _drawn(metadata, file.places, rng)
    how = rng.random()
    if how < 0.1:
        del holder[key]
    elif how < 0.2 and isinstance(holder, dict):
        holder["surplus"] = 1
    elif how < 0.25:
        holder[key] = reduce(lambda deep, _: [deep], range(_one((50, 500), rng)), [])
    else:
        holder[key] = _other(holder[key], metadata, file.places, rng)
    return file.with_member(METADATA, json.dumps(metadata).encode())


def _drawn(metadata: Any, places: Sequence[Place], rng: Rng) -> tuple[Any, Any]:
    """Draw a value: returns the dictionary or list that it is in, and its key there."""
    *before, last = _one(places, rng)
    return reduce(getitem, before, metadata), last


def _other(value: Any, metadata: Any, places: Sequence[Place], rng: Rng) -> Any:
    if rng.random() < 0.2:
        holder, key = _drawn(metadata, places, rng)
        return copy.deepcopy(holder[key])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and rng.random() < 0.8:
        return value + _one((-1, 1, 2), rng) if rng.random() < 0.5 else _one(NUMBERS, rng)
    if isinstance(value, float) and rng.random() < 0.8:
        return _one(REALS, rng)
    return _one((None, True, 0, -1, 10**30, 0.5, [], {}, [1, 2], *WORDS), rng)


def _one(options: Sequence[T], rng: Rng) -> T:
    """Draw one of them, whatever they are: ``rng.choice`` makes an array of them first."""
    return options[int(rng.integers(len(options)))]


CHANGES: dict[str, Callable[[SavedFile, Rng], bytes]] = {
    "bytes": changed_bytes, "zip": changed_zip, "array": changed_array, "json": changed_json
}  # fmt: skip
SHARES = (0.1, 0.1, 0.53, 0.27)


def changed(file: SavedFile, rng: Rng) -> tuple[str, bytes]:
    """Return what was changed, and the changed file."""
    kind = str(rng.choice(tuple(CHANGES), p=SHARES))
    return kind, CHANGES[kind](file, rng)
