"""Rows of results: selecting and summarizing them, tables, and the axes of figures.

A table consists of columns and of the rows that each line summarizes; it is written in Markdown.
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
    """Rows of results."""

    def where(self, **wanted: Any) -> "Rows":
        """Return the rows with these values."""
        return Rows(row for row in self if all(row[key] == wanted[key] for key in wanted))

    def groups(self, *keys: str) -> list["Rows"]:
        """Group rows by some columns, in the order of first appearance."""
        found: dict[tuple[Any, ...], Rows] = {}
        for row in self:
            found.setdefault(tuple(row[key] for key in keys), Rows()).append(row)
        return list(found.values())

    def by_steps(self) -> list["Rows"]:
        """Group rows by the number of steps, in increasing order."""
        return sorted(self.groups("steps"), key=lambda group: group[0]["steps"])

    def values(self, key: str) -> list[Any]:
        return list(dict.fromkeys(row[key] for row in self))

    def column(self, key: str) -> FloatArray:
        """Return one column."""
        return np.array([row[key] for row in self])


Text = Callable[[Rows], str]


def the(key: str, form: str = "") -> Text:
    """Return the text of a value that all rows of a line share."""
    return lambda group: f"{group[0][key]:{form}}"


def of(summary: Callable[[FloatArray], Any], key: str, form: str) -> Text:
    """Return the text of a column's mean, median or similar."""
    return lambda group: f"{summary(group.column(key)):{form}}"


def among(text: Text, **wanted: Any) -> Text:
    """Restrict a text to the rows with these values, if there are any."""
    return lambda group: text(at) if (at := group.where(**wanted)) else ""


def count(group: Rows) -> str:
    return str(len(group))


@dataclass(frozen=True)
class Column:
    """A column of a table: the text of each line's rows."""

    head: str
    text: Text
    once: bool = False
    """Whether to leave it empty while the first column stays the same."""


@dataclass(frozen=True)
class Table:
    """A table; ``str`` gives Markdown."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Rows]
    """The rows of each line."""
    note: str = ""

    def __str__(self) -> str:
        texts = [[one.text(group) for one in self.columns] for group in self.lines]
        lines = [
            ["" if one.once and i and line[0] == texts[i - 1][0] else text
             for one, text in zip(self.columns, line, strict=True)]
            for i, line in enumerate(texts)
        ]  # fmt: skip
        table = markdown_table([one.head for one in self.columns], lines)
        return f"{table}\n\n{self.note}" if self.note else table


def draw_quartiles(ax: Any, rows: Rows, **looks: Any) -> None:
    """Draw median and quartiles of mean returns over steps."""
    if rows:
        quartiles = [np.percentile(at.column("mean"), (25, 50, 75)) for at in rows.by_steps()]
        steps = sorted(rows.values("steps"))
        low, middle, high = np.transpose(quartiles)
        ax.plot(steps, middle, "o-", markersize=4, **looks)
        ax.fill_between(steps, low, high, color=looks["color"], alpha=0.2)


def mark_steps(ax: Any, steps: Iterable[int]) -> None:
    """Label a logarithmic axis with numbers of steps, as far as there is room."""
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
    """Remove the upper and right spines."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
