"""Axes and colours that all figures share."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from oda_rl._types import ByteArray, FloatArray, IntArray

# Okabe and Ito's colours, which people with colour-blindness can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def new_axes(
    width: float = 6.4, height: float = 4.2, columns: int = 1, rows: int = 1
) -> list[Axes]:
    """Axes beside one another in a new figure that no window shows.

    The margins, in inches, are fixed: a layout engine would draw everything twice.
    """
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=0.8 / width,
        right=1.0 - (0.2 if columns == 1 else 0.8) / width,
        bottom=0.6 / height,
        top=1.0 - 0.4 / height,
        wspace=0.3,
    )
    return list(figure.subplots(rows, columns, squeeze=False).ravel())


def tint(color: str) -> ByteArray:
    """Return a light version of a colour, as RGB from 0 to 255."""
    rgb = 0.5 * np.array(to_rgb(color)) + 0.5
    return np.round(255.0 * rgb).astype(np.uint8)


def bordered(cells: IntArray, colors: ByteArray) -> ByteArray:
    """Draw white lines between cells into a picture, shape (grid, grid, 3)."""
    picture = colors
    for shift in (1, 2):  # lines of two pixels
        picture[:, shift:][cells[:, shift:] != cells[:, :-shift]] = 255
        picture[shift:][cells[shift:] != cells[:-shift]] = 255
    return picture


def padded_range(values: FloatArray) -> tuple[float, float]:
    """Least and greatest value, with a tenth of their distance on either side."""
    low, high = float(values.min()), float(values.max())
    margin = 0.1 * (high - low) if high > low else max(abs(low), 1.0) * 0.1
    return low - margin, high + margin
