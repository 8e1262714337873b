"""Checkpoints: an agent in the midst of its training, in one file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from oda_rl import persistence
from oda_rl._links import refuse_links
from oda_rl._lock import locked
from oda_rl.agents.base import files
from oda_rl.agents.base.course import Course, Snapshot
from oda_rl.agents.base.player import checked_count

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints of a training go, each in the place of the one before, and how often."""

    path: Path
    every: int
    """Steps."""

    @classmethod
    def of(cls, checkpoint: str | Path | None, checkpoint_every: int | None) -> Self | None:
        """Check what ``learn`` was given; None if there are to be none."""
        if checkpoint is None and checkpoint_every is None:
            return None
        if checkpoint is None:
            raise ValueError(
                f"checkpoint_every is {checkpoint_every!r}, and checkpoint is None: it must be the "
                "path of the file to write, which ends in .zip"
            )
        if checkpoint_every is None:
            raise ValueError(
                f"checkpoint is {str(checkpoint)!r}, and checkpoint_every is None: it must be the "
                "number of steps from one checkpoint to the next"
            )
        path = Path(checkpoint)
        if path.suffix != ".zip" or path.is_dir():
            raise ValueError(f"checkpoint is {str(path)!r}: it must be a file that ends in .zip")
        return cls(path, checked_count("checkpoint_every", checkpoint_every))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let no other training write to the file; remove what one that was killed left behind."""
        refuse_links(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        with locked(lock, f"checkpoint {str(self.path)!r}"):
            persistence.sweep(self.path.parent, [self.path.name])
            yield

    def write(self, agent: "Agent", course: Course, seed: int | None) -> None:
        """Write one."""
        env = agent.env
        assert env is not None
        metadata, arrays = Snapshot.of(course, env, seed).to_file()
        files.save_file(agent, self.path, {"training": metadata}, arrays)
        course.taken()
