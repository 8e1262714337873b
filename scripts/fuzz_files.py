"""Change files at random, load them, and use what was loaded: nothing may crash or hang.

Every class that saves is trained a little and saved. Its file is changed, if not in its bytes, with
valid checksums. Loaded objects predict, act, learn on, explain, export and are saved. Cases run in
child processes, so that a crash is seen; memory is measured on Linux alone. A case is

refused        with :class:`oda_rl.InvalidFileError`, as it should be
harmless       it loads, and each use ends, perhaps with an exception of Python
wrong          refused with another exception
costly         loading took more than a second, or 100 MB beyond the size of the file
crashed, hung  the process died, or loading or using took too long

    python scripts/fuzz_files.py --cases 200              # of each class
    python scripts/fuzz_files.py --only infex
    NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=checked python scripts/fuzz_files.py --cases 20
"""

import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common.experiment import Experiment, Selection, chosen, say, start
from common.file_changes import SavedFile, changed
from common.fuzz_subjects import MAKERS, Subject, subject
from common.summaries import Column, Row, Rows, Table, Text
from numba import config

from oda_rl import InvalidFileError

EXPERIMENT = Experiment("fuzz_files", timed=True)
BATCH = 500  # cases in a child process
THOROUGHLY = 16  # cases, of which one does what takes long, too
Case = Callable[[], bytes]  # makes a file
SECONDS, PATIENCE = 60, 600  # of the processor and of the clock, for loading and using a file
MEMORY = Path("/dev/shm")  # files that nobody waits for until they are on a disk
LOADING = 1.0, 100.0  # most seconds of the processor, and most MB beyond the size of the file
_MMAP_THRESHOLD = -3  # what mallopt calls it
_subject: Subject  # of a child process
_cases: Sequence[Case]
OUTCOMES = ("refused", "harmless", "wrong", "costly", "crashed", "hung")


class Outcome(NamedTuple):
    """The outcome of a case."""

    name: str
    said: str
    seconds: float = 0.0  # Processor seconds of loading
    megabytes: float = 0.0  # Growth of the process by loading, beyond the size of the file


def outcomes(subject: Subject, cases: Sequence[Case]) -> Iterator[Outcome]:
    """Write files one after another, load and use them, in a child process, or one more each crash.

    A crash may be the fault of an earlier case in the same process.
    """
    pool = None
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for number in range(len(cases)):
            if pool is None:
                begin = subject, cases, folder
                pool = ProcessPoolExecutor(1, get_context("fork"), _begin, begin)
            begun = time.perf_counter()
            try:
                yield pool.submit(_outcome, number).result()
            except BrokenProcessPool as death:
                hung = time.perf_counter() - begun >= min(SECONDS, PATIENCE)
                yield Outcome("hung" if hung else "crashed", str(death))
                pool = None
        if pool is not None:
            pool.shutdown()


def _begin(subject: Subject, cases: Sequence[Case], folder: str) -> None:
    """Prepare a child process."""
    global _subject, _cases
    _subject, _cases, tempfile.tempdir = subject, cases, folder
    # Large blocks go back to Linux when they are freed: what the next case takes is seen.
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 17)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _outcome(number: int) -> Outcome:
    file = Path(tempfile.gettempdir()) / "changed.zip"
    file.write_bytes(_cases[number]())
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # kills, whatever compiled code does
    signal.alarm(PATIENCE)
    Path("/proc/self/clear_refs").write_text("5")  # the most memory so far is what there is now
    began, before, loaded, said = time.process_time(), _max_megabytes(), None, ""
    try:
        loaded = _subject.load(file)
        name = "harmless"
    except InvalidFileError as error:
        name, said = "refused", str(error)
    except BaseException as error:
        name, said = "wrong", f"{type(error).__name__}: {error}"
    took = time.process_time() - began
    grown = max(_max_megabytes() - before - file.stat().st_size / 1e6, 0.0)
    if name != "wrong" and (took > LOADING[0] or grown > LOADING[1]):
        name, said = "costly", f"{took:.2f} s, {grown:.0f} MB {said}"
    if name == "harmless":
        _subject.use(loaded, number % THOROUGHLY == 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    return Outcome(name, said[:1000], round(took, 4), round(grown, 2))


def _max_megabytes() -> float:
    """Most memory that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def attack(own: Subject, cases: int, seed: int) -> Row:
    """Try cases of a class; return counts of outcomes, and the maximum costs of loading."""
    counts: Counter[str] = Counter()
    seconds = megabytes = 0.0
    own.use(own.load(own.file), True)  # children find all that is compiled
    saved, number = SavedFile(own.file), list(MAKERS).index(own.name)

    def case(k: int) -> tuple[str, bytes]:  # which makes the file of a number anew
        return changed(saved, np.random.default_rng([seed, number, k]))

    for begin in range(0, cases, BATCH):
        batch = range(begin, min(begin + BATCH, cases))
        contents = [lambda k=k: case(k)[1] for k in batch]
        for k, (result, said, *cost) in zip(batch, outcomes(own, contents), strict=True):
            counts[result] += 1
            seconds, megabytes = max(seconds, cost[0]), max(megabytes, cost[1])
            if result not in ("refused", "harmless"):
                about = f"{own.name} case {k} of seed {seed} ({case(k)[0]})"
                print(f"{about}: {result}: {said}", flush=True)
    return {**{name: counts[name] for name in OUTCOMES}, "load_s": seconds, "load_mb": megabytes}


def run(name: str, cases: int, seed: int, checked: bool) -> Row:
    assert checked == bool(config.BOUNDSCHECK), "set NUMBA_BOUNDSCHECK for the workers, too"
    with tempfile.TemporaryDirectory() as folder:
        return attack(subject(name, Path(folder)), cases, seed)


def _sum(*names: str) -> Text:
    return lambda own: f"{sum(int(own.column(name).sum()) for name in names):,}"


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("indices checked", lambda own: "yes" if str(own[0]["checked"]) == "True" else "no"),
        Column("kinds of file", lambda own: str(len(own.values("name")))),
        Column("cases", _sum(*OUTCOMES)),
        *(Column(name, _sum(name)) for name in OUTCOMES),
        Column("max seconds", lambda own: f"{own.column('load_s').max():.2f}"),
        Column("max MB", lambda own: f"{own.column('load_mb').max():.0f}"),
    ]
    return {"fuzz": Table("changed files", columns, rows.groups("checked"))}


@dataclass(frozen=True)
class Options(Selection):
    seeds: int = 1  # Blocks of cases of each class
    cases: int = 5000  # Cases of a block


def main(options: Options) -> None:
    settings = [
        {"name": name, "cases": options.cases, "seed": seed, "checked": bool(config.BOUNDSCHECK)}
        for seed in EXPERIMENT.seeds(options)
        for name in chosen(options.only, MAKERS)
    ]  # fmt: skip
    rows = EXPERIMENT.run(run, settings, options)
    say(*tables(rows).values())
    escaped = sum(int(rows.column(name).sum()) for name in OUTCOMES[2:])
    sys.exit(int(escaped > 0))


if __name__ == "__main__":
    start(main, Options, __doc__)
