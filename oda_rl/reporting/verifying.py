"""Whether the score on a report's card is true: its policy is played again."""

from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from oda_rl.agents.base.files import present_versions
from oda_rl.files.archive import MOST_JSON, parsed
from oda_rl.files.schema import InvalidFileError, reading, require
from oda_rl.reporting.content import Report

_MOST_BYTES = 1 << 26
_SAME = 1e-9  # relative: sums of rewards that were added in another order


@dataclass(frozen=True)
class Verdict:
    """What has been found of a report."""

    claimed: str
    """The score on the card."""
    faults: tuple[str, ...]
    """What is not true; none if all is."""
    remarks: tuple[str, ...]
    """What may explain that, or is to be known beside it."""

    @property
    def true(self) -> bool:
        """Whether the score on the card is true."""
        return not self.faults

    def __str__(self) -> str:
        found = "true" if self.true else "not true"
        lines = [f"the card says: {self.claimed}", *self.faults, *self.remarks]
        return "\n".join([*lines, f"the score on the card is {found}"])


def verify(path: Path, trusting: bool = False) -> Verdict:
    """Play the policy in a report again, and compare.

    What the page shows has to follow from its numbers, these from the policy. How the policy was
    learned cannot be seen from it, and is not verified.

    Parameters
    ----------
    path : Path
        A file that ``oda-rl report`` wrote.
    trusting : bool
        Whether modules are imported that the file names.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidFileError
        If it is no report, or a damaged one.
    ValueError
        If its environment cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.reporting.content import report_of
    >>> from oda_rl.reporting.page import write_page
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_page(agent, report_of(agent, episodes=3), Path(folder) / "report.html")
    ...     verify(page).true
    True
    """
    if path.is_dir():
        raise ValueError(f"run is {str(path)!r}, which is a folder: --verify takes a report")
    with reading(path):
        parts = _parts_of(path)
        report = Report.from_json(parsed(parts["report"], MOST_JSON))
        replaying = report.replaying(trusting)
    claimed = parts.get("score", "nothing").strip()
    faults = []
    if claimed != report.score:
        faults.append(f"the returns in the file say: {report.score}")
    if parts.get("digest", "").strip() != report.digest:
        faults.append(f"the policy in the file has the digest {report.digest}: the card another")
    played = replaying.evaluate(len(report.returns), seed=report.seed)
    differ = ~np.isclose(played, report.returns, rtol=_SAME, atol=0.0)
    if differ.any():
        faults.append(
            f"played again, {differ.sum()} of {len(played)} episodes return something else: mean "
            f"{played.mean():.4g}, not {np.mean(report.returns):.4g}"
        )
    return Verdict(claimed, tuple(faults), tuple(_remarks(report, bool(differ.any()))))


def _remarks(report: Report, differs: bool) -> list[str]:
    now = present_versions()
    others = [f"{name} {one}" for name, one in report.versions.items() if now.get(name) != one]
    if not others:
        return []
    why = ", which may be why" if differs else ""
    return [f"it was made with {', '.join(others)}: here are others{why}"]


class _Parts(HTMLParser):
    """Collects the text of elements with an id that are of interest, of each the only one."""

    _WANTED = ("report", "score", "digest")

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._open: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id") or ""
        if name in self._WANTED:
            require(name not in self.found, f"{name} stands in it twice")
            self.found[name] = ""
            self._open = tag, name

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None and self._open[0] == tag:
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.found[self._open[1]] += data


def _parts_of(path: Path) -> dict[str, str]:
    """Return texts of a report's elements by their ids, or raise InvalidFileError."""
    size = path.stat().st_size
    require(size <= _MOST_BYTES, f"it has {size:,} bytes: no report has more than {_MOST_BYTES:,}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidFileError("it is no text, and so no report") from None
    parser = _Parts()
    parser.feed(text)
    parser.close()
    require("report" in parser.found, "it is no report of oda-rl report")
    return parser.found
