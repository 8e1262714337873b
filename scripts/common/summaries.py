"""Rows of results: selecting and summarizing them, tables, and the axes of figures.

A table consists of columns and of the rows that each line summarizes; it is written in Markdown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.runs.results import markdown_table

Row = dict[str, Any]


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

    def count_seeds(self) -> str:
        return str(len(self.groups("seed")))

    def mean_and_least(self, digits: int = 0, key: str = "mean") -> str:
        values = self.column(key)
        return f"{values.mean():.{digits}f} ({values.min():.{digits}f})"

    def share_from(self, level: float) -> str:
        """Return the share of mean returns from a level on."""
        return f"{np.mean(self.column('mean') >= level):.2f}"

    def solved_and_mean(self, digits: int = 0) -> str:
        """Return the share of seeds solved, and the mean return."""
        return f"{self.column('solved').mean():.2f} ({self.column('mean').mean():.{digits}f})"


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
    once: bool = False  # Whether to leave it empty while the first column stays the same


@dataclass(frozen=True)
class Table:
    """A table; ``str`` gives Markdown."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Rows]  # The rows of each line; a line without rows is left out
    note: str = ""

    def __str__(self) -> str:
        texts = [[one.text(group) for one in self.columns] for group in self.lines if group]
        lines = [
            ["" if one.once and i and line[0] == texts[i - 1][0] else text
             for one, text in zip(self.columns, line, strict=True)]
            for i, line in enumerate(texts)
        ]  # fmt: skip
        table = markdown_table([one.head for one in self.columns], lines)
        return f"{table}\n\n{self.note}" if self.note else table


def draw_quartiles(ax: Any, rows: Rows, marker: str = "o", **looks: Any) -> None:
    """Draw median and quartiles of mean returns over steps."""
    if rows:
        quartiles = [np.percentile(at.column("mean"), (25, 50, 75)) for at in rows.by_steps()]
        steps = sorted(rows.values("steps"))
        low, middle, high = np.transpose(quartiles)
        filled = {"markersize": 4} if marker == "o" else {"markersize": 7, "fillstyle": "none"}
        ax.plot(steps, middle, marker=marker, **filled, **looks)
        ax.fill_between(steps, low, high, color=looks["color"], alpha=0.2)
        ax.spines[["top", "right"]].set_visible(False)
