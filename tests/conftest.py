"""Fixtures, and fresh compilation where sources have changed."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen

ROOT = Path(__file__).parent.parent


def pytest_configure() -> None:
    # numba's cache of a function does not notice that a function it calls has changed in another
    # file: if any source is newer than any cached code, compile all anew.
    folders = [ROOT / name for name in ("oda_rl", "agents", "envs")]
    sources = [path.stat().st_mtime for folder in folders for path in folder.glob("*.py")]
    cached = [path for folder in folders for path in (folder / "__pycache__").glob("*.nb?")]
    if cached and min(path.stat().st_mtime for path in cached) < max(sources):
        for path in cached:
            path.unlink()


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT
