"""Labels of classes, as what is exported knows them."""

from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_INT = 2**31 - 1
_WHOLE = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


def is_text(labels: npt.NDArray[Any]) -> bool:
    """Whether labels are text.

    Examples
    --------
    >>> is_text(np.array(["a", "b"], dtype=object)), is_text(np.array([0, 1]))
    (True, False)
    """
    return all(isinstance(label, str) for label in labels.tolist())


def whole_numbers(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return labels as whole numbers.

    Raises
    ------
    ValueError
        If they are none.

    Examples
    --------
    >>> whole_numbers(np.array([False, True])), whole_numbers(np.array([3.0]))
    (array([0, 1]), array([3]))
    """
    try:
        numbers = np.array([int(label) for label in labels.tolist()], dtype=np.int64)
        whole = bool((numbers == labels).all())
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(
            f"labels are {labels.tolist()!r:.80}: they must be texts or whole numbers to be written"
        )
    return numbers


def numbered(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the number that each label is in C, and what to say of a function that returns it.

    Raises
    ------
    ValueError
        If labels are neither texts nor whole numbers of 32 bits.

    Examples
    --------
    >>> numbered(np.array(["a", "b"]))
    (array([0, 1]), ['and returns the number of a label:', '    0  a', '    1  b'])
    """
    if is_text(labels):
        names = (f"    {i}  {label}" for i, label in enumerate(labels.tolist()))
        return np.arange(len(labels)), ["and returns the number of a label:", *names]
    numbers = whole_numbers(labels)
    if np.abs(numbers).max() > _MOST_INT:
        raise ValueError(f"labels go to {np.abs(numbers).max()}: they must be within 32 bits")
    return numbers, ["and returns a label."]


def narrowest(numbers: Any) -> npt.NDArray[Any]:
    """Return whole numbers of 32 bits in the smallest type that holds them.

    Examples
    --------
    >>> narrowest([0, 300])
    array([  0, 300], dtype=uint16)
    """
    array = np.asarray(numbers)
    return next(array.astype(kind) for kind in _WHOLE if (array.astype(kind) == array).all())
