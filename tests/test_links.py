"""Nothing is written through a symbolic link: it is refused by name, and its target stays."""

import matplotlib.pyplot as plt
import pytest

from oda_rl.agents import TwoTimescaleAgent, export_policy
from oda_rl.agents.base.files import OF_AGENT
from oda_rl.agents.videos import write_video
from oda_rl.command.cli import main
from oda_rl.command.comparison import FILES as COMPARED
from oda_rl.command.reporting import save_figure
from oda_rl.files.archive import LinkError, write_text
from oda_rl.runs.parallel import run_all


@pytest.fixture(scope="module")
def agent():
    return TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)


def refused(folder, name, write):
    """Whether writing refuses a link of that name and leaves alone what that points to."""
    folder.mkdir(exist_ok=True)
    for target in (folder.parent / "precious", folder.parent / "nowhere"):
        link = folder / name
        link.symlink_to(target)
        if target.name == "precious":
            target.write_bytes(b"what somebody needs")
        with pytest.raises(LinkError, match=f"'[^']*{name}' is a symbolic link") as raised:
            write()
        assert raised.value.strerror == f"{str(link)!r} is a symbolic link"
        assert link.readlink() == target
        link.unlink()
    assert (folder.parent / "precious").read_bytes() == b"what somebody needs"
    assert not (folder.parent / "nowhere").exists()


def square(x):
    return {"y": x * x}


WRITTEN = {
    **{name: lambda folder, agent: agent.save(folder) for name in OF_AGENT},
    "file.zip": lambda folder, agent: agent.save(folder / "file.zip"),
    ".d.zip.lock": lambda folder, _: learn(folder / "d.zip"),
    "out.h": lambda folder, agent: export_policy(agent, folder / "out.h"),
    "figure.png": lambda folder, _: save_figure(plt.figure().gca(), folder / "figure.png"),
    "runs.jsonl": lambda folder, _: run_all(square, [{"x": 2}], folder / "runs.jsonl", 1),
    "episode-episode-1.mp4": lambda folder, agent: write_video(agent, folder, 2, 0),
    "text": lambda folder, _: write_text(folder / "text", "new"),
}


def learn(checkpoint):
    agent = TwoTimescaleAgent("CartPole-v1", seed=0)
    try:
        agent.learn(100, checkpoint=checkpoint, checkpoint_every=50)
    finally:
        assert agent.num_timesteps == 0  # refused before the first step


@pytest.mark.parametrize("name", WRITTEN)
def test_links_are_refused(name, agent, tmp_path):
    refused(tmp_path / "run", name, lambda: WRITTEN[name](tmp_path / "run", agent))
    plt.close("all")


@pytest.mark.parametrize("name", [*OF_AGENT, "checkpoint.zip", "tensorboard", ".lock"])
def test_a_training_refuses_links_in_its_folder(name, tmp_path, capsys):
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    precious.mkdir()
    (precious / "file").write_text("what somebody needs")
    target = precious if name == "tensorboard" else precious / "file"
    (run / name).symlink_to(target)
    options = ["--algo", "two-timescale", "--log", "tensorboard", "--out", str(run)]
    assert main(["train", *options]) == 2
    said = capsys.readouterr()
    assert f"{str(run / name)!r} is a symbolic link" in said.err
    assert len(said.err.splitlines()) == 1
    assert [path.name for path in run.iterdir()] == [name]
    assert (run / name).readlink() == target
    assert [path.name for path in precious.iterdir()] == ["file"]
    assert (precious / "file").read_text() == "what somebody needs"


@pytest.mark.parametrize("name", ["report.html", *COMPARED])
def test_commands_refuse_links_before_they_play(name, agent, tmp_path, capsys):
    run, link = tmp_path / "run", tmp_path / "run" / name
    agent.save(run)
    link.symlink_to(tmp_path / "nowhere")
    assert main(["compare", "--out", str(run)] if name in COMPARED else ["report", str(run)]) == 2
    assert f"{str(link)!r} is a symbolic link" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    assert not (run / "runs.jsonl").exists()


def test_a_run_folder_may_be_a_link(agent, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    agent.save(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--episodes", "1"]) == 0
    assert (tmp_path / "disk" / "report.html").exists()
    assert (tmp_path / "disk" / "agent.zip").exists()
