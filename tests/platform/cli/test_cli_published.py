"""`jestlab published`: in, out, away, and which numbers cannot be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jestlab.analysis import published
from jestlab.platform.cli import cli, main
from jestlab.platform.errors import UserError

MINE = """source,table,method,quantity,printed,unit,baseline
Doe et al. 2025,small,SigLIP,imagenet/zero_shot,70.3,percent,yes
Doe et al. 2025,small,SigLIP,birds/10_shot,60.0,percent,yes
Doe et al. 2025,small,JEST++,imagenet/zero_shot,71.0,percent,
Doe et al. 2025,small,JEST++,birds/10_shot,60.5,percent,
Doe et al. 2025,small,JEST++,mean_delta,+{},percent,
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The command line in a folder of its own; its lab is not made yet."""
    monkeypatch.chdir(tmp_path)
    for name in ("JESTLAB_ROOT", "JESTLAB_STORE"):
        monkeypatch.delenv(name, raising=False)

    def called(*arguments, code=0):
        result = CliRunner().invoke(cli, ["published", *arguments])
        if isinstance(result.exception, UserError | ValueError):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    return called


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(MINE.format("0.6"), encoding="utf-8-sig")
    return path


def test_in_out_and_in_again(call, mine):
    assert call("list") == "no published results yet: jestlab published import\n"
    assert not Path("lab").exists()  # looking makes nothing
    assert call("import").startswith("Evans et al. 2024: cells new 233, changed 0, unchanged 0")
    assert json.loads(call("import", str(mine), "--json")) == {
        "new": 5,
        "unchanged": 0,
        "changed": [],
        "left": [],
    }
    assert call("export", "--output", "all.csv") == "all.csv: 238 cells\n"
    assert call("export") == Path("all.csv").read_text(encoding="utf-8")
    said = json.loads(call("import", "all.csv", "--json"))
    assert (said["new"], said["unchanged"], said["changed"]) == (0, 238, [])
    exported = published.parse(call("export", "--source", published.PAPER).encode(), "x")
    assert sorted(exported, key=repr) == sorted(published.paper(), key=repr)
    assert json.loads(call("export", "--json"))[0]["source"] == "Doe et al. 2025"


def test_what_changes_is_said(call, mine):
    call("import", str(mine))
    mine.write_text(MINE.format("0.7"))
    assert "small, row 2, mean_delta: printed +0.6 → +0.7, value 0.006 → 0.007" in call("import", str(mine))
    mine.write_text("\n".join(MINE.format("0.7").splitlines()[:-1]))
    said = call("import", str(mine))
    assert "not in the import and are kept: 1 (small, row 2, mean_delta, …); to delete them" in said
    assert [key["quantity"] for key in json.loads(call("import", str(mine), "--json"))["left"]] == [
        "mean_delta"
    ]


def test_tables_as_they_are_printed(call):
    call("import")
    lines = call("list", "--table", "comparison").splitlines()
    assert lines[0] == "comparison (Evans et al. 2024)"
    assert lines[1].split()[:5] == ["ROW", "METHOD", "VARIANT", "examples_seen", "flops_per_iteration"]
    assert lines[2].split() == ["1", "CLIP", "B", "13B", "100", "32", "−11.8", "68.3", "52.4", "33.1"]
    assert " ".join(lines[7].split()) == "6 SigLIP (baseline) B 40B 100 100 0.0 70.3 76.7 65.2 47.4"
    assert len(lines) == 2 + 13
    assert call("list").count(" (Evans et al. 2024)") == 5
    cells = json.loads(call("list", "--table", "laion", "--json"))
    assert len(cells) == 18 and cells[0]["value"] == 12.8e9
    with pytest.raises(UserError, match="no published table 'laoin' in the store: did you mean 'laion'"):
        call("list", "--table", "laoin")


def test_away(call, mine):
    call("import", str(mine))
    with pytest.raises(UserError, match="nothing published by 'Doe' in the store"):
        call("remove", "Doe")
    assert call("remove", "Doe et al. 2025") == "Doe et al. 2025: 5 cells removed\n"
    assert json.loads(call("list", "--json")) == []


def test_lint_without_a_store_and_with_one(call, mine):
    of_the_paper = call("lint", code=1)
    assert of_the_paper.splitlines()[-1] == "derived cells confirmed: 67; findings: 3"
    assert not Path("lab").exists()
    assert call("lint", str(mine)) == "derived cells confirmed: 1; findings: 0\n"
    mine.write_text(MINE.format("1.6"))
    assert "+1.6 cannot be right" in call("lint", str(mine), code=1)
    call("import", str(mine))
    assert "+1.6 cannot be right" in (of_the_store := call("lint", code=1))
    assert "Evans" not in of_the_store and "JEST++ L" not in of_the_store


def test_all_that_is_calculated_again(call):
    lines = call("lint", "--all", code=1).splitlines()
    assert lines[0].split() == ["TABLE", "ROW", "OF", "CELL", "PRINTED", "CALCULATED", "POSSIBLE", "VERDICT"]
    table = lines[1 : lines.index("")]
    assert len(table) == 70 and sum(line.endswith("confirmed") for line in table) == 67
    assert sum(line.endswith("CANNOT BE") for line in table) == 2
    flexi = "comparison 8 Flexi-JEST++ B, 4B flops_per_iteration 110 111 110 to 112 confirmed"
    assert flexi in [" ".join(line.split()) for line in table]
    said = json.loads(call("lint", "--all", "--json", code=1))
    assert (said["confirmed"], said["findings"], len(said["cells"])) == (67, 3, 70)
    wrong = json.loads(call("lint", "--json", code=1))["cells"]
    assert [cell["expected"] for cell in wrong] == ["+0.9", "+0.9", "80.4"]
    assert wrong[2]["others"][0]["table"] == "longer_training"


def test_mistakes_are_one_line_and_change_nothing(call, mine, capsys):
    bad = mine.with_name("bad.csv")
    bad.write_text(MINE.format("many"))
    for arguments, said in (
        (["import", str(mine), str(bad)], "bad.csv, line 6, column printed: '+many' is not a number"),
        (
            ["import", str(mine), str(mine)],
            "mine.csv both contain small, row 1, imagenet/zero_shot: remove",
        ),
        (["import", "none.csv"], "cannot read none.csv: No such file or directory"),
        (["lint", str(bad)], "bad.csv, line 6, column printed"),
        (["list", "--source", "Doe"], "no published source 'Doe' in the store: there are none"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["published", *arguments])
        assert stop.value.code == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not Path("lab").exists()


@pytest.mark.parametrize("verb", ["import", "list", "export", "remove", "lint"])
def test_help_has_an_example(verb):
    shown = CliRunner().invoke(cli, ["published", verb, "--help"]).output
    assert "Example" in shown and "--json" in shown and f"jestlab published {verb}" in shown


def test_the_file_that_the_help_shows_can_be_imported(call):
    lines = CliRunner().invoke(cli, ["published", "import", "--help"]).output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("source,table"))
    Path("shown.csv").write_text("\n".join(line.strip() for line in lines[start : start + 4]))
    assert json.loads(call("import", "shown.csv", "--json"))["new"] == 3


def test_tables_and_figures_of_published_rows_alone(call, tmp_path):
    call("import")
    for words, said in (
        (["table", "comparison"], "| JEST++"),
        (["table", "specialists", "--format", "latex"], "\\toprule"),
        (["table", "comparison", "--explain", "JEST++ L", "Mean Δ"], "+1.8 cannot be right"),
    ):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        assert said in result.output
    result = CliRunner().invoke(cli, ["plot", "--kind", "published"])
    assert result.exit_code == 0, result.output
    drawn = [Path(line) for line in result.output.split()]
    assert [path.name for path in drawn] == ["published.png", "published.svg", "published.pdf"]
    assert all(path.stat().st_size > 1000 for path in drawn)
    result = CliRunner().invoke(cli, ["plot"])
    assert "missing EXPERIMENT: only --kind published" in str(result.exception)
