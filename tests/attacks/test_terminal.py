"""What a file says reaches no terminal, figure or header as an order."""

import io
from functools import reduce
from operator import getitem

import numpy as np
import pytest

from oda_rl import ODAClassifier
from oda_rl.agents import load_agent
from oda_rl.command.cli import _Console, _show_warning, main
from oda_rl.exporting import export_c
from oda_rl.files.schema import printable
from oda_rl.plotting.axes import as_label

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202edegnahc\u2066"


def set_in(*keys):
    """Return a change of metadata that puts the hostile text somewhere."""

    def change(metadata):
        reduce(getitem, keys[:-1], metadata)[keys[-1]] = HOSTILE

    return change


@pytest.mark.parametrize(
    "keys",
    [*[(key,) for key in ("kind", "env_id", "training_seconds", HOSTILE)],
     *[("env_spec", key) for key in ("id", "module", "max_episode_steps", HOSTILE)],
     ("env_spec", "kwargs", HOSTILE), ("env_spec", "kwargs", "gravity"), ("config", HOSTILE),
     ("config", "gamma"), ("interface", "dtype"), ("versions", HOSTILE), ("rngs", "env")],
)  # fmt: skip
def test_errors_escape_what_a_file_says(keys, small_agent, changed, capfd):
    path = changed(small_agent, set_in(*keys))
    assert main(["evaluate", str(path), "--episodes", "1"]) == 2
    output = capfd.readouterr()
    assert output.err.startswith("oda-rl: ")
    assert printable(output.err[:-1]) == output.err[:-1]
    assert output.err.count("\n") == 1


def test_faults_of_environments_are_escaped(small_agent, changed, capfd):
    path = changed(
        small_agent, lambda metadata: metadata["env_spec"].update(fault=f"which {HOSTILE[12:]}")
    )
    assert main(["evaluate", str(path)]) == 2
    error = capfd.readouterr().err[:-1]
    assert "which" in error
    assert printable(error) == error


@pytest.mark.parametrize("sign", ["\u202e", "\u200b", "\x9b", "\ufeff"])
def test_names_show_what_they_are(sign, small_agent, changed):
    names = [f"a{sign}", "b", "c", "d"]
    path = changed(small_agent, lambda metadata: metadata["interface"].update(names=names))
    with pytest.raises(ValueError, match="names is bad"):
        load_agent(path)
    with pytest.raises(ValueError, match="it must be a string of 1 to 80 printable characters"):
        load_agent(small_agent).names = names


def test_warnings_are_escaped(capsys):
    shown = set()
    for _ in range(2):
        _show_warning(shown, UserWarning(f"\x1b[33mWARN: one {HOSTILE}\ntwo\x1b[0m"))
    assert capsys.readouterr().err == f"warning: one {printable(HOSTILE)}\ntwo\n"


def test_tables_and_lines_are_escaped_and_are_no_markup():
    from rich.table import Table

    console, table = _Console(), Table("component", title=HOSTILE)
    console.file = io.StringIO()
    table.add_row(f"[red]{HOSTILE}[/x]")
    console.print(table)
    console.print(f"files in m/[/x]: {HOSTILE}\nend")
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "files in m/[/x]: \\x1b]0;owned" in text
    assert text.endswith("\nend\n")


def test_headers_and_figures_escape_names(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(0)
    points = pd.DataFrame(rng.normal(size=(60, 2)), columns=[f"a*/{HOSTILE}", "b\n#include"])
    labels = np.where(points.iloc[:, 0] > 0.0, HOSTILE, "other$")
    model = ODAClassifier(2, random_state=0).fit(points, labels)
    text = export_c(model, tmp_path / "model.h").read_text(encoding="utf-8")
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert "#include" not in [line.split(" ")[0] for line in text.splitlines() if "obs[" in line]
    assert as_label("$\\frac{\x1b") == "\\$\\frac{\\x1b"
