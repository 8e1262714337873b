"""Reports as files: they follow from the policy in them, and are verified."""

import json
import re
import shlex
from html import unescape

import numpy as np
import pytest

from oda_rl import InvalidFileError
from oda_rl.agents import TwoTimescaleAgent, load_agent
from oda_rl.command.cli import main, parse
from oda_rl.command.training import command_of, options_of_run
from oda_rl.files.archive import parsed
from oda_rl.reporting.content import report_of, verify
from oda_rl.reporting.page import as_html

TRAINING = [
    *("train", "--algo", "two-timescale", "--partition", "som", "--map-shape", "3", "2"),
    *("--env-id", "CartPole-v1", "--env-kwargs", '{"max_episode_steps": 400}'),
    *("--seed", "3", "--total-timesteps", "1500", "--n-eval-episodes", "1"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a report."""
    folder = tmp_path_factory.mktemp("run")
    assert main([*TRAINING, "--out", str(folder)]) == 0
    assert main(["report", str(folder), "--episodes", "5"]) == 0
    return folder


@pytest.fixture
def text(run):
    return (run / "report.html").read_text(encoding="utf-8")


def shown(text, name):
    return unescape(re.search(f" id={name}>(.*?)</dd>", text)[1])


def numbers(text):
    """Return the page's JSON, and the text before and after it."""
    before, inside = text.split('id="report">')
    inside, after = inside.split("</script>", 1)
    return before + 'id="report">', json.loads(inside), "</script>" + after


def changed(text, **fields):
    before, report, after = numbers(text)
    return before + json.dumps({**report, **fields}) + after


def test_a_report_is_one_small_file_without_requests(text):
    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)


def test_its_policy_is_the_json_export(run, text):
    assert main(["export", str(run), "--format", "json"]) == 0
    assert numbers(text)[1]["policy"] == (run / "policy.json").read_text(encoding="utf-8")


def test_its_returns_are_the_agents(run, text):
    agent = load_agent(run)
    told = numbers(text)[1]
    assert told["seed"] == 3  # that of the training
    np.testing.assert_array_equal(told["returns"], agent.evaluate(5, seed=3))
    assert "of 5 fresh episodes" in shown(text, "score")
    assert report_of(agent, 1, 3).score == f"{told['returns'][0]:g} in one fresh episode"


@pytest.mark.usefixtures("without_figures")
def test_the_command_on_the_card_makes_it_again(run, text, tmp_path):
    command = shlex.split(shown(text, "command"))
    assert command[:2] == ["oda-rl", "train"]
    assert command_of(parse(command[1:])) == shlex.join(command)
    assert main([*command[1:], "--n-eval-episodes", "1", "--out", str(tmp_path)]) == 0
    again = report_of(load_agent(tmp_path), episodes=1)
    assert again.digest == shown(text, "digest")


def test_a_report_without_a_command(tmp_path):
    TwoTimescaleAgent("CartPole-v1").learn(1_500).save(tmp_path)  # without a seed
    assert options_of_run(tmp_path) is None
    assert main(["report", str(tmp_path), "--episodes", "1"]) == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "id=command" not in text
    assert "1,500 steps<" in text


def test_a_true_report_is_verified(run, text, capsys):
    assert main(["report", "--verify", str(run / "report.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "environment: CartPole-v1, at most 400 steps"
    assert f"return: {shown(text, 'score')}" in lines
    assert "learned from*: 1,500 steps" in lines
    assert lines[-1] == "the card is true"


def lying(text):
    """Return false reports, and the complaints about them."""
    policy = json.loads(numbers(text)[1]["policy"])
    policy["values"] = [row[::-1] for row in policy["values"]]
    reversed_actions = json.dumps(policy)
    return [
        (text.replace(shown(text, "score"), "mean 401"), "the page says 'return: mean 401'"),
        (text.replace("for CartPole-v1", "for Acrobot-v1"), "says 'A policy for Acrobot-v1'"),
        (text.replace("at most 400 steps", "at most 500 steps"), "'environment: CartPole-v1, at m"),
        (text.replace("<dd>1,500 steps", "<dd>150 steps"), "says 'learned from*: 150 steps'"),
        (text.replace("<dt>seed of the first reset</dt><dd>3</dd>", ""), "says '': its data makes"),
        (text.replace("<dl id=", "<p>mean 500</p><dl hidden id="), "says 'mean 500': its data ma"),
        (text.replace("</svg>", "</svg><style>dd { display: none }</style>"), " of its own"),
        (text.replace("<figure", "<figure style='position: fixed'", 1), "or styles of its own"),
        (text.replace("</html>", "<link rel=stylesheet href=data:,x>"), "or styles of its own"),
        (changed(text, returns=[401.0] * 5), "played again, "),
        (changed(text, policy=reversed_actions), "the page says 'digest of the policy: "),
        (changed(text, policy=reversed_actions), "episodes have another return: mean "),
        (changed(text, versions={"numpy": "1.0"}, seed=8), "made with numpy 1.0"),
    ]


@pytest.mark.parametrize("i", range(13))
def test_false_reports_are_detected(i, text, tmp_path, capsys):
    lie, complaint = lying(text)[i]
    (tmp_path / "report.html").write_text(lie, encoding="utf-8")
    assert main(["report", "--verify", str(tmp_path / "report.html")]) == 1
    out = capsys.readouterr().out
    assert complaint in out
    assert out.splitlines()[-1] == "the card is not true"


def test_other_versions_are_remarked(text, tmp_path):
    path = tmp_path / "report.html"
    installed = re.search(r"<dt>played with\*</dt><dd>(.*?)</dd>", text)[1]
    lie = changed(text, versions={"numpy": "1.0"}).replace(f"<dd>{installed}", "<dd>numpy 1.0", 2)
    path.write_text(
        lie.replace("learned with*</dt><dd>numpy 1.0", f"learned with*</dt><dd>{installed}"),
        encoding="utf-8",
    )
    verdict = verify(path)
    assert verdict.true
    assert verdict.remarks == ("made with numpy 1.0: other versions are installed",)


def without(text, name):
    before, report, after = numbers(text)
    del report[name]
    return before + json.dumps(report) + after


DAMAGED = {
    "no report": (lambda text: "<html>hello</html>", "it was not written by oda-rl report"),
    "nothing": (lambda text: "", "it was not written by"),
    "no text": (lambda text: b"\xff\xfe\x00", "decode"),
    "cut": (lambda text: text[: text.index('"returns"')], "is damaged"),
    "twice": (lambda text: text + '<p id="report">', "is repeated"),
    "another kind": (lambda text: changed(text, format="x"), "it is not an oda_rl report"),
    "a later version": (lambda text: changed(text, version=2), "version is 2: it must be 1"),
    "no returns": (lambda text: changed(text, returns=[]), "returns has 0 numbers"),
    "two names": (lambda text: changed(text, env_id="x"), "env_spec.id is 'CartPole-v1'"),
    "no numbers": (lambda text: changed(text, returns=["x"]), "returns"),
    "no seed": (lambda text: changed(text, seed=-1), "seed is -1"),
    "no field": (lambda text: without(text, "interface"), "'interface' is missing"),
    "no policy": (lambda text: changed(text, policy="[]"), "the policy is not a JSON object"),
    "of another kind": (lambda text: changed(text, policy="{}"), "format is None: not"),
    "deep": (lambda text: changed(text, policy="[" * 9_999 + "]" * 9_999), "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_invalid_reports_are_refused(name, text, tmp_path, capsys):
    damage, complaint = DAMAGED[name]
    path, content = tmp_path / "report.html", damage(text)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidFileError):
        verify(path)
    assert main(["report", "--verify", str(path)]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1


def test_a_policy_of_other_spaces_is_refused(text, tmp_path):
    interface = numbers(text)[1]["interface"]
    more = {**interface, "n_actions": 3, "action_names": ["left", "rest", "right"]}
    path = tmp_path / "report.html"
    path.write_text(changed(text, interface=more), encoding="utf-8")
    with pytest.raises(InvalidFileError, match="has 4 components and 2 actions"):
        verify(path)


def test_no_module_is_imported_for_a_report(text, tmp_path):
    path = tmp_path / "report.html"
    spec = {**numbers(text)[1]["env_spec"], "id": "Evil-v0", "module": "evil"}
    path.write_text(changed(text, env_id="Evil-v0", env_spec=spec), encoding="utf-8")
    with pytest.raises(ValueError, match="the module 'evil' would be imported.*--trust-env"):
        verify(path)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["{empty}/none"], "it must be a run folder"), (["{empty}"], "agent.zip"),
     (["{run}/agent.zip"], "it must be a run folder"),
     (["{run}", "--episodes", "0"], "episodes is 0"),
     (["{run}", "--verify"], "which is a folder: --verify takes a report"),
     (["{empty}/none.html", "--verify"], "none.html")],
)  # fmt: skip
def test_errors_of_the_command(arguments, complaint, run, tmp_path, capsys):
    given = [word.format(run=run, empty=tmp_path) for word in arguments]
    assert main(["report", *given]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1


def test_an_untrained_agent_has_no_report(tmp_path, capsys):
    TwoTimescaleAgent("CartPole-v1", seed=0).save(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert "has learned nothing yet" in capsys.readouterr().err


def test_figures_of_very_many_points_become_pictures():
    from oda_rl.plotting import new_axes

    few, many = new_axes()[0], new_axes()[0]
    few.plot(np.arange(5.0), ".")
    for i in range(10):
        many.plot(np.sin(np.arange(2000.0) + i), ".")
    assert as_html(few.figure, "<few>").startswith('<svg role="img" aria-label="&lt;few&gt;"')
    found = as_html(many.figure, "many")
    assert found.startswith('<svg role="img" aria-label="many"')
    assert "data:image/png;base64," in found
    for color in ("#000000", "#595959", "#ededed"):  # of a light page alone
        assert color not in found
    assert len(found) < 300_000


def test_json_of_a_report_ends_no_script(text):
    inside = text.split('id="report">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert parsed(inside)["format"] == "oda_rl report"
