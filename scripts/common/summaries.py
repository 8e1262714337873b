"""What rows of results say: choosing and summarizing them, tables, and the axes of figures.

A table is described by its columns and the rows that each line stands for, and written in Markdown,
for the terminal as for the page that quotes it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.runs.results import markdown_table

Row = dict[str, Any]

_MARKS = 7  # below an axis, at most


class Rows(list[Row]):
    """Rows of results, and how to choose among them."""

    def where(self, **wanted: Any) -> "Rows":
        """Return the rows that have these values."""
        return Rows(row for row in self if all(row[key] == wanted[key] for key in wanted))

    def groups(self, *keys: str) -> list["Rows"]:
        """Return rows that agree in some columns together, in the order of their first ones."""
        found: dict[tuple[Any, ...], Rows] = {}
        for row in self:
            found.setdefault(tuple(row[key] for key in keys), Rows()).append(row)
        return list(found.values())

    def by_steps(self) -> list["Rows"]:
        """Return the rows of each number of steps, the least first."""
        return sorted(self.groups("steps"), key=lambda own: own[0]["steps"])

    def values(self, key: str) -> list[Any]:
        return list(dict.fromkeys(row[key] for row in self))

    def column(self, key: str) -> FloatArray:
        """Return one figure of all rows."""
        return np.array([row[key] for row in self])


Text = Callable[[Rows], str]


def the(key: str, form: str = "") -> Text:
    """Make a text of what all rows of a line have in common."""
    return lambda own: f"{own[0][key]:{form}}"


def of(summary: Callable[[FloatArray], Any], key: str, form: str) -> Text:
    """Make a text of one figure's mean, median or the like."""
    return lambda own: f"{summary(own.column(key)):{form}}"


def among(text: Text, **wanted: Any) -> Text:
    """Make a text of those rows of a line that have these values, if any have."""
    return lambda own: text(at) if (at := own.where(**wanted)) else ""


def count(own: Rows) -> str:
    return str(len(own))


@dataclass(frozen=True)
class Column:
    """What each line of a table says of the rows it stands for."""

    head: str
    text: Text
    once: bool = False
    """Not said again while the first column stays the same."""


@dataclass(frozen=True)
class Table:
    """A table; ``str`` gives Markdown."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Rows]
    """What each line stands for."""
    note: str = ""

    def __str__(self) -> str:
        """Return it in Markdown, without the title."""
        texts = [[one.text(own) for one in self.columns] for own in self.lines]
        lines = [
            ["" if one.once and i and line[0] == texts[i - 1][0] else text
             for one, text in zip(self.columns, line, strict=True)]
            for i, line in enumerate(texts)
        ]  # fmt: skip
        table = markdown_table([one.head for one in self.columns], lines)
        return f"{table}\n\n{self.note}" if self.note else table


def draw_quartiles(ax: Any, rows: Rows, **looks: Any) -> None:
    """Draw median and quartiles of the mean returns over steps."""
    if rows:
        quartiles = [np.percentile(at.column("mean"), (25, 50, 75)) for at in rows.by_steps()]
        steps = sorted(rows.values("steps"))
        low, middle, high = np.transpose(quartiles)
        ax.plot(steps, middle, "o-", markersize=4, **looks)
        ax.fill_between(steps, low, high, color=looks["color"], alpha=0.2)


def mark_steps(ax: Any, steps: Iterable[int]) -> None:
    """Write numbers of steps below a logarithmic axis, as far as there is room."""
    every = sorted(steps)
    apart = (every[-1] / every[0]) ** (1 / _MARKS)
    shown = every[:1]
    for n in every[1:]:
        if n >= 0.999 * apart * shown[-1]:
            shown.append(n)
    ax.set(xscale="log")
    ax.set_xticks(shown, [f"{n / 1000:g}k" for n in shown])
    ax.minorticks_off()


def open_axes(*axes: Any) -> None:
    """Leave out the upper and the right side of the frames."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
