"""Random changes of a saved file: of its bytes, its zip, its arrays and its JSON.

Those of arrays and JSON get checksums that are valid. ``fuzz_files.py`` loads what comes out.
"""

import copy
import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import getitem
from typing import Any, TypeVar

import numpy as np

from common.saved_files import METADATA, Member, Place, SavedFile, deflated, npy, stored, zipped

Rng = np.random.Generator
T = TypeVar("T")
NUMBERS = (-1, 1, 2, 3, 5, 63, 255, 4096, 65_536, 10**6, 10**9, 2**31, 2**40, 2**62, 2**63 - 1,
           -2, -(2**31), -(2**63))  # fmt: skip
REALS = (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e9, 1e19, -1e300, 1e308, 5e-324, 2.5)
WORDS = ("", "evil:Env-v0", "../../x", "*/ int x; /*", "TwoTimescaleAgent", "a" * 5000)
NAMES = ("/etc/x.npy", "../x.npy", "x/y.npy", "x", "é.npy")


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
    """Drop, repeat, rename or add members, or change how they are kept."""
    members = [stored(name, content) for name, content in file.members.items()]
    at = int(rng.integers(len(members)))
    name, content = members[at][:2]
    how = int(rng.integers(7))
    if how == 0:
        del members[at]
    elif how == 1:
        members.append(members[at])
    elif how == 2:
        members[at] = members[at]._replace(name=_one(NAMES, rng))
    elif how == 3:
        members.append(stored("surplus.npy", content))
    elif how == 4:
        members[at] = stored(name, content[: int(rng.integers(len(content)))])
    elif how == 5:
        members[at] = deflated(name, content + bytes(_large(1, 10**7, rng)))
    else:
        members[at] = members[int(rng.integers(len(members)))]._replace(name=name)
    return zipped(members)


def changed_array(file: SavedFile, rng: Rng) -> bytes:
    """Change one number of an array, or its shape or type."""
    name = _one(file.names, rng)
    array = np.array(file.arrays[name])
    how = rng.random()
    if how < 0.75 and array.size:
        _change_number(array, rng)
    elif how < 0.85:
        dtype = _one(("f4", "i4", "i8", "f8", "?", ">f8", "c16", "U3"), rng)
        with np.errstate(invalid="ignore", over="ignore"):
            array = array.astype(dtype) if array.dtype.names is None else array.view("u1")
    elif how < 0.95:
        array = _reshaped(array, rng)
    elif array.dtype.names is None:
        array = array.astype(object) if rng.random() < 0.5 else np.asfortranarray(array)
    return file.with_array(name, array)


def _change_number(array: np.ndarray, rng: Rng) -> None:
    flat = array.reshape(-1)
    at = int(rng.integers(len(flat)))
    if array.dtype.names:
        _put(flat[_one(array.dtype.names, rng)], at, rng)
    else:
        _put(flat, at, rng)


def _put(flat: np.ndarray, at: int, rng: Rng) -> None:
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


def _reshaped(array: np.ndarray, rng: Rng) -> np.ndarray:
    how = int(rng.integers(5))
    if how == 0 and array.ndim and len(array):
        return array[:-1]
    if how == 1 and array.ndim:
        return np.concatenate([array, array])
    if how == 2:
        return array[None]
    if how == 3:
        return array.reshape(-1)
    return array[:0] if array.ndim else array.reshape(1)


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
        deep: Any = []
        for _ in range(_one((50, 500), rng)):
            deep = [deep]
        holder[key] = deep
    else:
        holder[key] = _other(holder[key], metadata, file.places, rng)
    return file.with_metadata(metadata)


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


def changed_bomb(file: SavedFile, rng: Rng) -> bytes:
    """Put in much that compresses to little: JSON of many values, a long array, many members."""
    how = int(rng.integers(4))
    if how == 0:
        empty = _one((b"[], ", b"{}, "), rng)
        return file.with_members(
            _with_surplus(file, b"[", empty * _large(10**4, 10**7, rng), b"1]")
        )
    if how == 1:
        return file.with_members(_with_surplus(file, b'"', b"x" * _large(10**6, 10**8, rng), b'"'))
    if how == 2:
        name = _one(file.names, rng)
        array = np.atleast_1d(file.arrays[name])
        times = _large(10**6, 10**8, rng) // max(array.nbytes, 1)
        many = np.concatenate([array] * min(max(times, 2), 10**6))
        return file.with_members(deflated(f"{name}.npy", npy(many)))
    more = npy(np.zeros(1))
    count = _large(10**3, 20_000, rng)
    return file.with_members(*(stored(f"surplus{i}.npy", more) for i in range(count)))


def _with_surplus(file: SavedFile, *value: bytes) -> Member:
    """Return the JSON with a value more, of which the text is given in parts."""
    text = json.dumps(file.metadata())[:-1].encode()
    return deflated(METADATA, b"".join([text, b', "surplus": ', *value, b"}"]))


def _one(options: Sequence[T], rng: Rng) -> T:
    """Draw one of them: what ``rng.choice`` makes an array of first."""
    return options[int(rng.integers(len(options)))]


def _large(least: int, most: int, rng: Rng) -> int:
    """Draw a number of any order of magnitude."""
    return int(least * (most / least) ** rng.random())


CHANGES: dict[str, Callable[[SavedFile, Rng], bytes]] = {
    "bytes": changed_bytes, "zip": changed_zip, "array": changed_array, "json": changed_json,
    "bomb": changed_bomb,
}  # fmt: skip
SHARES = (0.1, 0.1, 0.534, 0.265, 0.001)  # bombs take long to make
_KINDS, _ENDS = tuple(CHANGES), np.cumsum(SHARES[:-1])


def changed(file: SavedFile, rng: Rng) -> tuple[str, bytes]:
    """Return what was changed, and the changed file."""
    kind = _KINDS[int(np.searchsorted(_ENDS, rng.random(), side="right"))]
    return kind, CHANGES[kind](file, rng)
