"""Axes, colours and grids shared by all figures."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from oda_rl._types import Array, ByteArray, FloatArray, IntArray
from oda_rl.files.schema import printable

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
INK = "#222222"  # on pictures, which are as light on a dark page
GRID = 400
_MAX_POINTS = 3000
_TINT = 0.3  # share of a class's colour in the tint of its region

Ranges = tuple[tuple[float, float], tuple[float, float]]


def new_axes(
    width: float = 6.4, height: float = 4.2, columns: int = 1, rows: int = 1
) -> list[Axes]:
    """Return the axes of a new figure, row by row; sizes are in inches."""
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(  # cheaper than a layout engine, which draws everything twice
        left=0.8 / width,
        right=1.0 - (0.2 if columns == 1 else 0.95) / width,
        bottom=0.6 / height,
        top=1.0 - 0.4 / height,
        wspace=0.3,
    )
    return list(figure.subplots(rows, columns, squeeze=False).ravel())


def tint(color: str, share: float = 0.5) -> ByteArray:
    """Return a light version of a colour, with this share of it, as RGB from 0 to 255."""
    rgb = share * np.array(to_rgb(color)) + 1.0 - share
    return np.round(255.0 * rgb).astype(np.uint8)


def bordered(cells: IntArray, picture: ByteArray) -> ByteArray:
    """Draw white lines between cells into a picture, shape (grid, grid, 3), in place."""
    for shift in (1, 2):  # lines of two pixels
        picture[:, shift:][cells[:, shift:] != cells[:, :-shift]] = 255
        picture[shift:][cells[shift:] != cells[:-shift]] = 255
    return picture


def padded_range(values: FloatArray) -> tuple[float, float]:
    """Return minimum and maximum, with a margin of a tenth of their distance."""
    low, high = float(values.min()), float(values.max())
    margin = 0.1 * (high - low) if high > low else max(abs(low), 1.0) * 0.1
    return low - margin, high + margin


def checked(name: str, given: npt.ArrayLike, n_columns: int, more: bool = False) -> FloatArray:
    """Return finite numbers of shape (n, n_columns), or with ``more`` columns; or ValueError."""
    rows = np.asarray(given, dtype=np.float64)
    wide = rows.ndim == 2 and (rows.shape[1] == n_columns or (more and rows.shape[1] > n_columns))
    if not wide or not np.isfinite(rows).all():
        fault = "NaN or infinity" if wide else f"shape {rows.shape}"
        width = f"{n_columns} or more" if more else n_columns
        raise ValueError(f"{name} has {fault}: it must have {width} columns of finite numbers")
    return rows


def window_of(points: FloatArray, codevectors: FloatArray) -> Ranges:
    """Return ranges that show all points and near codevectors; positive if the points are."""
    lowest, highest = points.min(axis=0), points.max(axis=0)
    width = highest - lowest
    near = ((codevectors >= lowest - width) & (codevectors <= highest + width)).all(axis=1)
    ranges = []
    for values in np.concatenate([points, codevectors[near]]).T:
        low, high = padded_range(values)
        smallest = float(values.min())
        ranges.append((max(low, 0.5 * smallest) if smallest >= 0.0 else low, high))
    return ranges[0], ranges[1]


def grid(ranges: Ranges) -> FloatArray:
    """Return grid points, shape (GRID * GRID, 2), row by row upwards."""
    across, up = (np.linspace(low, high, GRID) for low, high in ranges)
    return np.column_stack([np.tile(across, GRID), np.repeat(up, GRID)])


def class_colors(indices: Array) -> Array:
    """Return the colours of classes."""
    return np.asarray(np.array(COLORS)[indices % len(COLORS)])


def draw_regions(ax: Axes, ranges: Ranges, regions: Array, colors: Array) -> None:
    """Tint the plane, with white lines between regions."""
    tints = np.array([tint(str(color), _TINT) for color in colors])
    cells = regions.reshape(GRID, GRID)
    draw_picture(ax, ranges, bordered(cells, tints[cells]))


def draw_picture(ax: Axes, ranges: Ranges, picture: ByteArray) -> None:
    """Show a picture, shape (n, n, 3), rows upwards, below everything else."""
    ax.set(xlim=ranges[0], ylim=ranges[1])
    extent = (*ranges[0], *ranges[1])
    ax.imshow(
        picture, origin="lower", extent=extent, aspect="auto", interpolation="nearest", zorder=0
    )


def draw_points(ax: Axes, points: FloatArray, colors: Array) -> None:
    """Draw at most 3,000 of the points as small dots."""
    rows = np.random.default_rng(0).permutation(len(points))[:_MAX_POINTS]
    ax.scatter(points[rows, 0], points[rows, 1], s=4.0, c=colors[rows], linewidths=0.0, zorder=1)


def draw_codevectors(ax: Axes, codevectors: FloatArray, weights: FloatArray, colors: Array) -> None:
    """Draw discs whose area grows with the weight."""
    x, y = codevectors[:, :2].T
    ax.scatter(x, y, 20.0 + 400.0 * weights, colors, edgecolors="black", linewidths=0.8, zorder=2)


def as_label(name: Any) -> str:
    """Return a name as matplotlib shows it as it is: without formulas and control characters."""
    return printable(str(name)).replace("$", r"\$")


def name_classes(ax: Axes, names: Array) -> None:
    """Draw a legend of the classes above the picture."""
    for i, name in enumerate(names):
        ax.scatter([], [], s=20.0, color=COLORS[i % len(COLORS)], label=as_label(name))
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(names), frameon=False,
              handletextpad=0.1, columnspacing=1.0)  # fmt: skip


def neighbours_apart(cells: IntArray, n_cells: int) -> Array:
    """Return colours, shape (n_cells,), that differ between touching cells, chosen greedily."""
    touching = np.zeros((n_cells, n_cells), dtype=bool)
    touching[cells[1:], cells[:-1]] = touching[cells[:, 1:], cells[:, :-1]] = True
    touching |= touching.T
    chosen = np.full(n_cells, -1)
    for cell in range(n_cells):
        free = np.setdiff1d(np.arange(len(COLORS)), chosen[touching[cell]])
        chosen[cell] = free[0] if len(free) else 0
    return class_colors(chosen)
