"""``python -m oda_rl`` is the command ``oda-rl``."""

from oda_rl.command.cli import run

if __name__ == "__main__":
    run()
