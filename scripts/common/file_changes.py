"""Random changes of a saved file: of its bytes, its zip, its arrays and its JSON.

Those of arrays and JSON get checksums that are valid. ``fuzz_files.py`` loads what comes out.
"""

import copy
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
NUMBERS = (-1, 1, 2, 3, 5, 63, 255, 4096, 65_536, 10**6, 10**9, 2**31, 2**40, 2**62, 2**63 - 1,
           -2, -(2**31), -(2**63))  # fmt: skip
REALS = (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e9, 1e19, -1e300, 1e308, 5e-324, 2.5)
WORDS = ("", "evil:Env-v0", "../../x", "*/ int x; /*", "TwoTimescaleAgent", "a" * 5000)


def contents(file: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the JSON and the arrays of a file."""
    with zipfile.ZipFile(file) as archive:
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
            if name.endswith(".npy")
        }
        return json.loads(archive.read("metadata.json")), arrays


def written(metadata: Any, arrays: dict[str, np.ndarray]) -> bytes:
    """Return a file of JSON and arrays, with valid checksums."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", json.dumps(metadata))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array, allow_pickle=True)
    return whole.getvalue()


def changed_bytes(file: Path, rng: Rng) -> bytes:
    """Change some bytes."""
    whole = bytearray(file.read_bytes())
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(whole)))
        if rng.random() < 0.2:
            del whole[at : at + int(rng.integers(1, 200))]
        else:
            whole[at] = int(rng.integers(256))
    return bytes(whole)


def changed_zip(file: Path, rng: Rng) -> bytes:
    """Drop, repeat, rename or add members, or change how they are kept."""
    with zipfile.ZipFile(file) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = int(rng.integers(len(members)))
    name, content = members[at]
    how = int(rng.integers(7))
    if how == 0:
        del members[at]
    elif how == 1:
        members.append((name, content))
    elif how == 2:
        members[at] = (
            str(rng.choice(["/etc/x.npy", "../x.npy", "x/y.npy", "x", "é.npy"])),
            content,
        )
    elif how == 3:
        members.append(("surplus.npy", content))
    elif how == 4:
        members[at] = (name, content[: int(rng.integers(len(content)))])
    elif how == 5:
        members[at] = (name, content + bytes(int(rng.integers(1, 10**7))))
    else:
        other = members[int(rng.integers(len(members)))][1]
        members[at] = (name, other)
    whole = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of what stands twice
        for own, text in members:
            archive.writestr(own, text)
    return whole.getvalue()


def changed_array(file: Path, rng: Rng) -> bytes:
    """Change one number of an array, or its shape or type."""
    metadata, arrays = contents(file)
    name = str(rng.choice(sorted(arrays)))
    array = np.array(arrays[name])
    how = rng.random()
    if how < 0.75 and array.size:
        _change_number(array, rng)
    elif how < 0.85:
        dtype = str(rng.choice(["f4", "i4", "i8", "f8", "?", ">f8", "c16", "U3"]))
        with np.errstate(invalid="ignore", over="ignore"):
            array = array.astype(dtype) if array.dtype.names is None else array.view("u1")
    elif how < 0.95:
        array = _reshaped(array, rng)
    elif array.dtype.names is None:
        array = array.astype(object) if rng.random() < 0.5 else np.asfortranarray(array)
    arrays[name] = array
    return written(metadata, arrays)


def _change_number(array: np.ndarray, rng: Rng) -> None:
    flat = array.reshape(-1)
    at = int(rng.integers(len(flat)))
    if array.dtype.names:
        field = str(rng.choice(array.dtype.names))
        _put(flat[field], at, rng)
    else:
        _put(flat, at, rng)


def _put(flat: np.ndarray, at: int, rng: Rng) -> None:
    with np.errstate(all="ignore"):
        if flat.dtype.kind in "iu":
            change = int(rng.choice(NUMBERS[:8])) if rng.random() < 0.3 else None
            value = int(flat[at]) + change if change is not None else int(rng.choice(NUMBERS))
            info = np.iinfo(flat.dtype)
            flat[at] = min(max(value, info.min), info.max)
        elif flat.dtype.kind == "f":
            flat[at] = rng.choice(REALS) if rng.random() < 0.7 else flat[at] + rng.integers(-3, 4)
        elif flat.dtype.kind == "b":
            flat[at] = not flat[at]
        else:
            flat[at] = str(rng.choice(["", "x", "99"]))


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


def changed_json(file: Path, rng: Rng) -> bytes:
    """Change one value in the JSON, or add or drop a key."""
    metadata, arrays = contents(file)
    places = list(_places(metadata))
    holder, key = places[int(rng.integers(len(places)))]
    how = rng.random()
    if how < 0.1:
        del holder[key]
    elif how < 0.2 and isinstance(holder, dict):
        holder["surplus"] = 1
    elif how < 0.25:
        deep: Any = []
        for _ in range(int(rng.choice([50, 500]))):
            deep = [deep]
        holder[key] = deep
    else:
        holder[key] = _other(holder[key], places, rng)
    return written(metadata, arrays)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _other(value: Any, places: list[tuple[Any, Any]], rng: Rng) -> Any:
    if rng.random() < 0.2:
        holder, key = places[int(rng.integers(len(places)))]
        return copy.deepcopy(holder[key])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and rng.random() < 0.8:
        return (
            value + int(rng.choice([-1, 1, 2])) if rng.random() < 0.5 else int(rng.choice(NUMBERS))
        )
    if isinstance(value, float) and rng.random() < 0.8:
        return float(rng.choice(REALS))
    options: tuple[Any, ...] = (None, True, 0, -1, 10**30, 0.5, [], {}, [1, 2], *WORDS)
    return options[int(rng.integers(len(options)))]


def changed_bomb(file: Path, rng: Rng) -> bytes:
    """Put in much that compresses to little: JSON of many values, a long array, many members."""
    metadata, arrays = contents(file)
    how = int(rng.integers(4))
    name = str(rng.choice(sorted(arrays)))
    if how == 0:
        metadata["surplus"] = [[] if rng.random() < 0.5 else {}] * int(rng.integers(10**4, 10**7))
    elif how == 1:
        metadata["surplus"] = "x" * int(rng.integers(10**6, 10**8))
    elif how == 2:
        array = arrays[name] if arrays[name].ndim else arrays[name][None]
        times = int(rng.integers(10**6, 10**8)) // max(array.nbytes, 1)
        arrays[name] = np.concatenate([array] * max(times, 2))
    else:
        arrays |= {f"surplus{i}": np.zeros(1) for i in range(int(rng.integers(10**3, 20_000)))}
    return written(metadata, arrays)


CHANGES: dict[str, Callable[[Path, Rng], bytes]] = {
    "bytes": changed_bytes, "zip": changed_zip, "array": changed_array, "json": changed_json,
    "bomb": changed_bomb,
}  # fmt: skip
SHARES = (0.1, 0.1, 0.53, 0.265, 0.005)  # bombs take long to make
