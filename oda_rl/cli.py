"""The command ``oda-rl``."""

from oda_rl.command.cli import main as main
from oda_rl.command.cli import run as run
