"""Many runs of one function in parallel: on this machine's cores, resumable."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rich.console import Console
from rich.progress import track

from oda_rl.files.archive import open_unlinked
from oda_rl.runs.results import Origin, code_digest, function_digest, origin, store_rows

Setting = Mapping[str, Any]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """The result of one setting."""

    setting: Setting
    rows: Rows  # rows that the function returned; empty if it failed
    error: str | None  # traceback of a failed run
    seconds: float  # wall-clock time
    made: Origin | None = None  # code and command that made the run
    function: str = ""  # :func:`function_digest` of the function


def run_all(
    function: Callable[..., Rows | dict[str, Any]],
    settings: Iterable[Setting],
    path: str | Path,
    workers: int = -1,
    retry_failed: bool = False,
    *,
    title: str = "runs",
) -> list[Run]:
    """Call ``function(**setting)`` once for each setting, and store the rows that it returns.

    Returns a :class:`Run` for each setting, in the same order. A run that raises, or whose process
    dies, is stored with its error, and the others continue.

    Parameters
    ----------
    function : callable
        Returns one or a list of rows of results: dictionaries of numbers and strings. They must
        depend on its arguments alone.
    settings : iterable of mapping
        Keyword arguments: numbers, strings, None, and lists of these. All must differ.
    path : str or Path
        File of the results, one JSON object per line. Its runs are not repeated while the function,
        what it uses of its module, and the code of this package stay the same.
    workers : int
        Number of processes; -1: one for each core.
    retry_failed : bool
        Whether to repeat the runs that failed the last time.
    title : str
        Title of the progress bar.

    Raises
    ------
    ValueError
        If two settings are equal, the file is not one of results, or ``workers`` is out of range.

    Examples
    --------
    >>> import tempfile
    >>> def square(x):
    ...     return {"y": x * x}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = run_all(square, [{"x": 2}, {"x": 3}], f"{folder}/squares.jsonl", 1)
    >>> [run.rows[0]["y"] for run in runs]
    [4, 9]
    """
    all_settings = list(settings)
    wanted = {_key(setting): setting for setting in all_settings}
    if len(wanted) < len(all_settings):
        n = len(all_settings)
        raise ValueError(f"settings has {n} entries, {len(wanted)} of them different: all must be")
    if workers == 0 or workers < -1:
        raise ValueError(f"workers is {workers}: it must be at least 1, or -1 for all")
    path, digest = Path(path), function_digest(function)
    done = {
        key: run
        for key, run in _read(path).items()
        if key in wanted
        and run.function == digest
        and run.made is not None
        and run.made.code == code_digest()
        and not (retry_failed and run.error is not None)
    }
    pending = [setting for key, setting in wanted.items() if key not in done]
    if pending:
        path.parent.mkdir(parents=True, exist_ok=True)
        made, console = origin(), Console(stderr=True)
        with open(path, "a", encoding="utf-8", opener=open_unlinked) as file:
            results = _execute(function, pending, workers)
            for result in track(results, title, len(wanted), len(done), console=console):
                run = replace(result, made=made, function=digest)
                file.write(json.dumps(asdict(run), default=_plain) + "\n")
                file.flush()
                done[_key(run.setting)] = run
    runs = [done[key] for key in wanted]
    if failed := [run.error.strip() for run in runs if run.error is not None]:
        last = failed[-1].splitlines()[-1]
        said = f"{len(failed)} of {len(runs)} runs failed, the last with {last} (see {path})"
        print(said, file=sys.stderr)
    return runs


def rows_of(runs: Sequence[Run]) -> Rows:
    """Return the rows of all runs, each with its setting and the label of its origin.

    Examples
    --------
    >>> rows_of([Run({"seed": 1}, [{"mean": 5.0}], None, 0.1)])
    [{'seed': 1, 'mean': 5.0}]
    """
    return [
        {**run.setting, **row, **({} if run.made is None else {"made": run.made.label})}
        for run in runs
        for row in run.rows
    ]


def origins_of(runs: Sequence[Run]) -> list[Origin]:
    """Return the distinct origins of the runs, which the labels in their rows name."""
    return list({run.made.label: run.made for run in runs if run.made is not None}.values())


def store_runs(path: str | Path, runs: Sequence[Run], leave_out: Collection[str] = ()) -> Rows:
    """Write the rows of runs, without some columns, to a CSV file; return them."""
    rows = [{key: row[key] for key in row if key not in leave_out} for row in rows_of(runs)]
    key = [name for name in runs[0].setting if name not in leave_out]
    store_rows(path, rows, key, origins_of(runs))
    return rows


def failures(runs: Sequence[Run]) -> list[str]:
    """Return a line for each failed run: its setting, and the last line of its error."""
    return [
        f"{dict(run.setting)}: {run.error.strip().splitlines()[-1]}"
        for run in runs
        if run.error is not None
    ]


def _execute(
    function: Callable[..., Any], pending: Sequence[Setting], workers: int
) -> Iterator[Run]:
    """Yield runs as they end; if a process dies, those under way are repeated one at a time."""
    suspects: list[Setting] = []
    left = {_key(setting): setting for setting in pending}
    while left:
        running: dict[str, Setting] = {}
        try:
            for run in _in_parallel(function, list(left.values()), workers, running):
                key = _key(run.setting)
                del left[key], running[key]
                yield run
        except TerminatedWorkerError:
            suspects += running.values()
            left = {key: setting for key, setting in left.items() if key not in running}
    for setting in suspects:
        started = time.perf_counter()
        try:
            yield from _in_parallel(function, [setting], workers, {})
        except TerminatedWorkerError as death:
            error = f"{type(death).__name__}: the process that made this run died"
            yield Run(setting, [], error, time.perf_counter() - started)


def _in_parallel(
    function: Callable[..., Any],
    settings: Sequence[Setting],
    workers: int,
    running: dict[str, Setting],
) -> Iterator[Run]:
    """Yield runs as they end; settings that are started are added to ``running``."""

    def calls() -> Iterator[Any]:
        for setting in settings:
            running[_key(setting)] = setting
            yield joblib.delayed(attempt)(function, setting)

    # At least two jobs: joblib executes a single one in this process, which a crash would end.
    parallel = joblib.Parallel(
        n_jobs=2 if workers == 1 else workers,
        backend="loky",
        return_as="generator_unordered",
        pre_dispatch=1 if workers == 1 else "n_jobs",
        batch_size=1,
    )
    yield from parallel(calls())


def attempt(function: Callable[..., Any], setting: Setting) -> Run:
    """Make one run; an exception becomes its error."""
    started = time.perf_counter()
    rows: Rows = []
    error = None
    try:
        result = function(**setting)
        rows = [dict(result)] if isinstance(result, Mapping) else list(result)
        json.dumps(rows, default=_plain)
    except Exception:
        rows, error = [], traceback.format_exc()
    return Run(dict(setting), rows, error, time.perf_counter() - started)


def dask_client(workers: int | None, address: str | None) -> Any:
    """Connect to the Dask scheduler at an address, or start ``workers`` processes; or OSError."""
    from distributed import Client

    connect: Any = Client  # untyped
    if address is not None:
        return connect(address)
    return connect(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",  # any port: another cluster may use the default
        # Workers log tasks that their end interrupts; errors of tasks are raised with results.
        silence_logs=logging.CRITICAL,
    )


def _key(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} must be a number, a string or a list of these")


def _read(path: Path) -> dict[str, Run]:
    """Read the last run of each setting from a file; truncate an unfinished last line."""
    if not path.exists():
        return {}
    content = path.read_bytes()
    finished = content[: content.rfind(b"\n") + 1]
    runs = {}
    for number, line in enumerate(finished.decode("utf-8").splitlines(), start=1):
        try:
            run = Run(**json.loads(line))
            if run.made is not None:
                run = replace(run, made=Origin(**cast(Any, run.made)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"path is {str(path)!r}, whose line {number} is not the result of a run: {error}"
            ) from error
        runs[_key(run.setting)] = run
    if len(finished) < len(content):
        with open(path, "r+b", opener=open_unlinked) as file:
            file.truncate(len(finished))
    return runs
