"""The command ``oda-rl``: its options, what it prints, and the folders that it writes."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.command.cli import main as main
    from oda_rl.command.cli import run as run

__getattr__, __dir__ = offer(
    __name__,
    {
        "main": "cli",
        "run": "cli",
    },
)
