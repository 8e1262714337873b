"""Episodes of a training, logged as they end."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oda_rl.files.archive import open_unlinked, refuse_links

if TYPE_CHECKING:
    from oda_rl.agents import Agent

LOGS = {"csv": "episodes.csv", "tensorboard": "tensorboard"}
"""What is written to a run folder, a file or a folder, by kind."""

Callback = Callable[["Agent"], None]


@contextmanager
def episode_log(kind: str | None, folder: Path) -> Iterator[Callback | None]:
    """Give a callback for ``learn`` that logs each episode to a run folder.

    Parameters
    ----------
    kind : str or None
        ``csv``: to ``episodes.csv``; ``tensorboard``: to ``tensorboard/``; None: there is none.

    Raises
    ------
    ValueError
        If nothing is installed that writes for TensorBoard.
    """
    if kind is None:
        yield None
        return
    refuse_links(folder / LOGS["tensorboard"])
    shutil.rmtree(folder / LOGS["tensorboard"], ignore_errors=True)  # which would be added to
    with _csv(folder) if kind == "csv" else _tensorboard(folder) as write:
        logged = steps = 0

        def log(agent: "Agent") -> None:
            nonlocal logged, steps
            for gain, length, seconds in agent.episodes.since(logged).tolist():
                steps += int(length)
                write(steps, {"return": gain, "length": length, "seconds": seconds,
                              "cells": agent.n_cells, "epsilon": agent.epsilon})  # fmt: skip
                logged += 1

        yield log


Write = Callable[[int, dict[str, float]], None]


@contextmanager
def _csv(folder: Path) -> Iterator[Write]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOGS["csv"]
    with open(path, "w", encoding="utf-8", buffering=1, opener=open_unlinked) as file:

        def write(steps: int, values: dict[str, float]) -> None:
            if file.tell() == 0:
                file.write(",".join(["steps", *values]) + "\n")
            file.write(
                ",".join([str(steps), *(f"{value:.6g}" for value in values.values())]) + "\n"
            )

        yield write


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Write]:
    writer = _summary_writer()(str(folder / LOGS["tensorboard"]))
    try:

        def write(steps: int, values: dict[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(f"episode/{name}", value, steps)

        yield write
    finally:
        writer.close()


def _summary_writer() -> Any:
    """Return what writes for TensorBoard: of PyTorch, or of tensorboardX."""
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        with suppress(ImportError):
            return import_module(name).SummaryWriter
    raise ValueError(
        "log is 'tensorboard', for which nothing is installed: pip install tensorboardX"
    )
