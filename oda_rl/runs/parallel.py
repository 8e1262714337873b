"""Many runs of one function: on this machine's cores or on a cluster, resumable, nothing lost.

:func:`run_all` calls a function once for each setting and appends every result to a file as soon as
that run ends. Started again with the same file it makes only the runs that are not there yet, or
that other code of this package made. A run that raises, or whose process dies, is recorded with its
error, and the others go on.

Processes are joblib's: its own pool, or through it a Dask cluster. (joblib's backend for Ray can't
hand over results one by one.)
"""

import json
import logging
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import joblib
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from oda_rl.files.archive import open_unlinked
from oda_rl.runs.results import Origin, code_digest, origin, store_rows

Setting = Mapping[str, Any]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Execution:
    """Where runs are executed."""

    workers: int = -1
    """Processes; -1: one for each core, or all that the cluster has."""

    backend: Literal["loky", "dask"] = "loky"
    """loky: processes of this machine. dask: a cluster, by way of joblib."""

    address: str | None = None
    """Of the cluster's scheduler; None: one that is started on this machine."""

    retry_failed: bool = False
    """Make those runs again that failed the last time."""

    def __post_init__(self) -> None:
        """Check the combination."""
        if self.workers == 0 or self.workers < -1:
            raise ValueError(f"workers is {self.workers}: it must be at least 1, or -1 for all")
        if self.address is not None and self.backend == "loky":
            raise ValueError(f"address is {self.address!r}: it needs backend dask")


@dataclass(frozen=True)
class Run:
    """What became of one setting."""

    setting: Setting
    rows: Rows
    """What the function returned; empty if it failed."""
    error: str | None
    """Traceback of a run that failed."""
    seconds: float
    """Wall time."""
    made: Origin | None = None
    """What made it."""


def run_all(
    function: Callable[..., Rows | dict[str, Any]],
    settings: Iterable[Setting],
    path: str | Path,
    execution: Execution | None = None,
    *,
    title: str = "runs",
) -> list[Run]:
    """Call ``function(**setting)`` once for each setting, and keep the rows that it returns.

    Parameters
    ----------
    function : callable
        Returns a row of results, or a list of rows: dictionaries of numbers and text. What it
        returns must depend on its arguments alone.
    settings : iterable of mapping
        Keyword arguments: numbers, text, None, and lists of those. All different.
    path : str or Path
        File of the results, a JSON object a line. What is there is not run again if the code of
        this package (:func:`oda_rl.runs.results.code_digest`) is still the same.
    execution : Execution, optional
        Where; by default on all cores.
    title : str
        Of the progress bar.

    Returns
    -------
    list of Run
        One for each setting, in their order.

    Raises
    ------
    ValueError
        If two settings are the same, or the file holds something else.
    ImportError
        If the backend is not installed.

    Examples
    --------
    >>> import tempfile
    >>> def square(x):
    ...     return {"y": x * x}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = run_all(square, [{"x": 2}, {"x": 3}], f"{folder}/squares.jsonl", Execution(1))
    >>> [run.rows[0]["y"] for run in runs]
    [4, 9]
    """
    all_settings = list(settings)
    wanted = {_key(setting): setting for setting in all_settings}
    if len(wanted) < len(all_settings):
        raise ValueError(
            f"settings has {len(all_settings)} entries of which {len(wanted)} differ: all must"
        )
    execution, path = execution or Execution(), Path(path)
    done = {
        key: run
        for key, run in _read(path).items()
        if key in wanted
        and run.made is not None
        and run.made.code == code_digest()
        and not (execution.retry_failed and run.error is not None)
    }
    pending = [setting for key, setting in wanted.items() if key not in done]
    if pending:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = origin()
        with (
            open(path, "a", encoding="utf-8", opener=open_unlinked) as file,
            _bar(title, len(wanted)) as advance,
        ):
            advance(done.values())
            for unsigned in _execute(function, pending, execution):
                run = replace(unsigned, made=made)
                file.write(json.dumps(asdict(run), default=_plain) + "\n")
                file.flush()
                done[_key(run.setting)] = run
                advance([run])
    return [done[key] for key in wanted]


def rows_of(runs: Sequence[Run]) -> Rows:
    """Return the rows of all runs, each with the setting it belongs to and the label of its origin.

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
    """Return the origins of the runs, each once: what the labels in their rows stand for."""
    return list({run.made.label: run.made for run in runs if run.made is not None}.values())


def store_runs(path: str | Path, runs: Sequence[Run], leave_out: Collection[str] = ()) -> Rows:
    """Write the rows of runs to a CSV file, where they replace those of the same settings.

    Parameters
    ----------
    path : str or Path
        As :func:`oda_rl.runs.results.store_rows` has it.
    runs : sequence of Run
        Of one call of :func:`run_all`.
    leave_out : collection of str
        Names of what is not written.

    Returns
    -------
    list of dict
        The rows that were written.
    """
    rows = [
        {name: value for name, value in row.items() if name not in leave_out}
        for row in rows_of(runs)
    ]
    key = [name for name in runs[0].setting if name not in leave_out]
    store_rows(path, rows, key, origins_of(runs))
    return rows


def failures(runs: Sequence[Run]) -> list[str]:
    """Return a line for each run that failed: its setting, and the last line of its error."""
    return [
        f"{dict(run.setting)}: {run.error.strip().splitlines()[-1]}"
        for run in runs
        if run.error is not None
    ]


def _execute(
    function: Callable[..., Any], pending: Sequence[Setting], execution: Execution
) -> Iterator[Run]:
    """Yield runs as they end, each setting's once.

    If a process dies the pool is lost, and it is unknown which run it was: the runs that were under
    way are repeated one at a time at the end.
    """
    with _backend(function, execution) as deaths:
        aside: list[Setting] = []
        left = {_key(setting): setting for setting in pending}
        while left:
            begun: dict[str, Setting] = {}
            try:
                for run in _in_parallel(function, list(left.values()), execution, begun):
                    key = _key(run.setting)
                    left.pop(key)
                    begun.pop(key)
                    yield run
            except deaths:
                for key, setting in begun.items():
                    aside.append(setting)
                    left.pop(key)
        for setting in aside:
            started = time.perf_counter()
            try:
                yield from _in_parallel(function, [setting], execution, {})
            except deaths as death:
                error = f"{type(death).__name__}: the process that made this run died"
                yield Run(setting, [], error, time.perf_counter() - started)


def _in_parallel(
    function: Callable[..., Any],
    settings: Sequence[Setting],
    execution: Execution,
    begun: dict[str, Setting],
) -> Iterator[Run]:
    """Yield runs as they end; ``begun`` gets those that have been handed out."""

    def calls() -> Iterator[Any]:
        for setting in settings:
            begun[_key(setting)] = setting
            yield joblib.delayed(attempt)(function, setting)

    # Two at least: joblib makes a single one in this process, which it could take down.
    alone = execution.backend == "loky" and execution.workers == 1
    parallel = joblib.Parallel(
        n_jobs=2 if alone else execution.workers,
        return_as="generator_unordered",
        pre_dispatch=1 if alone else "n_jobs",
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


@contextmanager
def _backend(
    function: Callable[..., Any], execution: Execution
) -> Iterator[tuple[type[BaseException], ...]]:
    """Make joblib use a backend; yields the exceptions that say that a process has died."""
    if execution.backend == "loky":
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        with joblib.parallel_config(backend="loky"):
            yield (TerminatedWorkerError,)
        return
    from distributed import KilledWorker
    from distributed.diagnostics.plugin import WorkerPlugin

    class Files(WorkerPlugin):
        """Files beside what a worker imports, also if it begins later."""

        def __init__(self, files: Mapping[str, bytes]) -> None:
            self.files = files

        def setup(self, worker: Any) -> None:
            for place, content in self.files.items():
                path = Path(worker.local_directory) / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    n_workers = None if execution.workers == -1 else execution.workers
    with dask_client(n_workers, execution.address) as client:
        files = _files_beside(function)
        if files:
            contents = {place: file.read_bytes() for place, file in files.items()}
            client.register_plugin(Files(contents), name=str(uuid4()))
        with joblib.parallel_config(backend="dask"):
            yield (KilledWorker,)


def dask_client(workers: int | None, address: str | None) -> Any:
    """Connect to a Dask cluster, or start one of processes on this machine, which ends with it.

    Parameters
    ----------
    workers : int or None
        Processes that are started; None: one for each core.
    address : str or None
        Of a scheduler; None starts one.

    Raises
    ------
    OSError
        If no scheduler answers there.
    """
    from distributed import Client

    connect: Any = Client  # which has no types
    if address is not None:
        return connect(address)
    return connect(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",  # any port: another cluster may have the usual one
        # Workers tell of tasks in whose midst they end, and of a scheduler that has ended before
        # them; what goes wrong with a task is raised where its result is waited for.
        silence_logs=logging.CRITICAL,
    )


def _files_beside(function: Callable[..., Any]) -> dict[str, Path]:
    """Return the files of loaded modules that lie where a script's do, by their places there.

    Workers elsewhere need them, but not what is installed, this package among it.
    """
    script = getattr(sys.modules.get(function.__module__), "__file__", None)
    if script is None:
        return {}
    folder = Path(script).resolve().parents[function.__module__.count(".")]
    if folder == Path(sysconfig.get_path("purelib")).resolve():
        return {}
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.partition(".")[0] in ("__main__", "oda_rl"):
            continue
        stem = name.replace(".", "/")
        for place in (f"{stem}.py", f"{stem}/__init__.py"):
            if Path(file).resolve() == folder / place:
                found[place] = folder / place
    return found


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[Iterable[Run]], None]]:
    """Show how many runs are done, how many failed, and how long the rest may take."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}{task.fields[failed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    n_failed = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, failed="")

        def advance(runs: Iterable[Run]) -> None:
            nonlocal n_failed
            for run in runs:
                n_failed += run.error is not None
                failed = f", {n_failed} failed" if n_failed else ""
                progress.update(task, advance=1, failed=failed)

        yield advance


def _key(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays, and tuples in them, as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} is neither number nor text, nor a list of those")


def _read(path: Path) -> dict[str, Run]:
    """Read the runs in a file, the last of each setting; cut off a line that was not finished."""
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    runs = {}
    for number, line in enumerate(whole.decode("utf-8").splitlines(), start=1):
        try:
            found = json.loads(line)
            made = found.pop("made", None)
            run = Run(**found, made=None if made is None else Origin(**made))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"path is {str(path)!r}, whose line {number} is not the result of a run: {error}"
            ) from error
        runs[_key(run.setting)] = run
    if len(whole) < len(content):
        with open(path, "r+b", opener=open_unlinked) as file:
            file.truncate(len(whole))
    return runs
