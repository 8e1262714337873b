"""Kill trainings with SIGKILL at random moments, resume them, and compare them bit by bit.

Each training runs in its own process and writes checkpoints: the online agent with each partition,
compiled and in Python, the fitted agent, the one with continuous actions, and the model agent. The
process is killed while it imports, learns or writes; another resumes, and may be killed, too. The
final file must equal that of an uninterrupted training, except for times.

    python scripts/kill_trainings.py --kills 200
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common.experiment import CONSOLE, FIRST_SEEDS, Experiment, chosen, say, start
from common.summaries import Column, Row, Rows, Table
from common.trainings import CASES, COMMAND, content
from rich.progress import Progress

from oda_rl.files.archive import load_archive

EXPERIMENT = Experiment("kill_trainings")
_MAX_KILLS = 3  # of one training
_EARLIEST = 0.8  # of the time that imports take


def ended(name: str, file: Path) -> float:
    """Train or resume to the end; return the seconds."""
    begun = time.perf_counter()
    subprocess.run([*COMMAND, name, str(file), "long"], check=True)
    return time.perf_counter() - begun


def killed(name: str, file: Path, seconds: float) -> bool:
    """Train or resume, and kill the process after some seconds; return whether it still ran."""
    process = subprocess.Popen([*COMMAND, name, str(file), "long"])
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    assert code == 0, f"{name} failed"
    return False


def steps_in(file: Path) -> int:
    return int(load_archive(file)[0]["training"]["steps"]) if file.exists() else -1


def disturbed(
    name: str, times: tuple[float, float], ends: Any, most: int, rng: np.random.Generator,
    folder: Path,
) -> list[Row]:  # fmt: skip
    """Kill a training up to ``most`` times, finish and compare it; return a row per kill.

    ``times`` are seconds of a process that has nothing left to do, and of one that trains from the
    beginning; ``ends`` is the content of the file of an uninterrupted training.
    """
    rows = list[Row]()
    file = folder / "killed.zip"
    for path in folder.glob("*killed.zip*"):
        path.unlink()
    for _ in range(int(rng.integers(1, most + 1))):
        moment = float(rng.uniform(_EARLIEST * times[0], times[1]))
        if not killed(name, file, moment):
            break
        rows.append({"case": name, "seconds": moment, "steps": steps_in(file)})
    ended(name, file)
    same = content(CASES[name].load(file), folder / "content.zip") == ends
    left = len(list(folder.glob(".*")))  # of files that were being written
    return [{**row, "same": same and left == 0} for row in rows]


def tables(rows: Rows) -> dict[str, Table]:
    def between(group: Rows) -> str:
        steps = group.column("steps")
        found = steps[steps >= 0]
        return f"{found.min():,} to {found.max():,}" if len(found) else "-"

    columns = [
        Column("kills with the same bits in the end",
               lambda group: f"{int(group.column('same').sum())} of {len(group)}"),
        Column("before the first checkpoint",
               lambda group: str(int((group.column("steps") < 0).sum()))),
        Column("steps in the checkpoint that was left", between),
    ]  # fmt: skip
    return {"kills": Table("trainings that were killed", columns, [rows])}


@dataclass(frozen=True)
class Options:
    kills: int = 200  # Number of kills
    only: tuple[str, ...] = ()  # Names of the trainings; all by default


def main(options: Options) -> None:
    names, rng = chosen(options.only, CASES), np.random.default_rng(FIRST_SEEDS[EXPERIMENT.name])
    rows: list[Row] = []
    with TemporaryDirectory() as place, Progress(console=CONSOLE) as line:
        folder = Path(place)
        task = line.add_task("undisturbed", total=len(names))
        undisturbed = []
        for name in names:
            file = folder / f"{name}.zip"
            ended(name, file)  # which compiles, if that has to be
            file.unlink()
            seconds, idle = (ended(name, file) for _ in range(2))
            ends = content(CASES[name].load(file), folder / "content.zip")
            undisturbed.append((name, (idle, seconds), ends))
            line.advance(task)
        kills = line.add_task("kills", total=options.kills)
        for training in cycle(undisturbed):
            most = min(_MAX_KILLS, options.kills - len(rows))
            rows += disturbed(*training, most, rng, folder)
            line.update(kills, completed=len(rows))
            if len(rows) == options.kills:
                break
    stored = EXPERIMENT.write([{"kill": k, **row} for k, row in enumerate(rows)], ())
    say(*tables(stored).values())
    if not all(row["same"] for row in rows):
        sys.exit("a training has ended with other bits")


if __name__ == "__main__":
    start(main, Options, __doc__)
