"""Labels of classes, as what is exported knows them."""

from typing import Any

import numpy as np
import numpy.typing as npt


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
