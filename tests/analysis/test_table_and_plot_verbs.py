"""`jestlab table` and `jestlab plot`: output, files, and errors of one line."""

import json
from pathlib import Path

import pytest

from jestlab.analysis import figures
from jestlab.platform.cli import main
from jestlab.platform.spec.options import FIGURES

pytestmark = pytest.mark.usefixtures("drawings")


@pytest.fixture
def jestlab(capsys, study):
    """A function that runs a command on the study's store: exit code, standard output, standard error."""

    def run(*args, store=study.url):
        with pytest.raises(SystemExit) as stop:
            main([*args, "--store", store])
        return stop.value.code, *capsys.readouterr()

    return run


def test_table(jestlab, tmp_path):
    code, out, err = jestlab("table", "study", "--baseline", "uniform")
    assert (code, err) == (0, "")
    assert out.startswith("| run ")
    assert "Δ uniform" in out
    path = tmp_path / "new" / "table.json"
    options = ("--format", "json", "--scope", "learner", "--output", str(path))
    assert jestlab("table", "study", *options)[:2] == (0, f"{path}\n")
    rows = {row["label"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["joint"]["flops"] == pytest.approx(12e9)
    shape = "--columns score,delta --rows joint,uniform --digits 2 --sort -score --caption Mine. --no-notes"
    lines = jestlab("table", "study", *shape.split())[1].splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["run", "score", "Δ uniform"]
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["joint", "uniform"]
    assert lines[5:] == ["Mine."]
    # Other tables, by name.
    assert "examples to match" in jestlab("table", "speedups", "study")[1]
    rows = json.loads(jestlab("table", "comparison", "study", "--json")[1])["rows"]
    assert [row["method"] for row in rows] == ["reference", "uniform", "independent", "joint"]


def test_claims_and_explanations(jestlab, study, stored_runs):
    claims = [{"statement": "Joint learns more", "of": "joint", "above": "uniform", "source": "Figure 3"}]
    runs = [*stored_runs("uniform", [0.1, 0.3], [0.1, 0.3]), *stored_runs("joint", [0.1, 0.5], [0.1, 0.5])]
    study.add(*runs, experiment="own", spec={"claims": claims})
    code, out, err = jestlab("table", "claims", "own")
    assert (code, err) == (0, "")
    row = next(line for line in out.splitlines() if line.startswith("| Joint"))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "Joint learns more", "Figure 3", "above 0", "+20.0 [+20.0, +20.0]", "holds", "under 0.001", "2 of 2",
        "2", "",
    ]  # fmt: skip
    told = json.loads(jestlab("table", "claims", "own", "--explain", "Joint", "difference", "--json")[1])
    assert [(run["label"], run["value"], run["inputs"]["weight"]) for run in told["runs"]] == [
        ("joint", 0.5, 1.0), ("joint", 0.5, 1.0), ("uniform", -0.3, -1.0), ("uniform", -0.3, -1.0),
    ]  # fmt: skip


def test_plot(jestlab, tmp_path, study, stored_run):
    names = ["curves", "pareto", "speedup", "step_costs"]
    suffixes = ("png", "svg", "pdf")
    code, out, _ = jestlab("plot", "study", "--kind", "all", "--output", str(tmp_path))
    assert code == 0
    assert out.split() == [str(tmp_path / f"{name}.{suffix}") for name in names for suffix in suffixes]
    assert all(Path(path).is_file() for path in out.split())
    smooth = ("--kind", "curves", "--metric", "loss", "--smooth", "5")
    assert jestlab("plot", "study", *smooth, "--output", str(tmp_path))[0] == 0
    wide = [
        stored_run("own", [0.1], label=f"own {width}", config={"width": width}, point={"width": width})
        for width in (2, 4)
    ]
    study.add(*wide, experiment="own")
    at = ("--root", str(tmp_path / "lab"), "--json")
    code, out, _ = jestlab("plot", "own", "--kind", "against", "--x", "width", *at)
    folder = tmp_path / "lab" / "reports" / "own"
    assert json.loads(out) == [str(folder / f"against_width.{suffix}") for suffix in suffixes]
    assert set(figures.KINDS) == set(FIGURES)


def test_invalid_options_name_the_flag_and_a_figure_what_it_lacks(jestlab):
    for command, code, message in (
        ("table study --digits many", 2, "--digits: must be"),
        (
            "plot study --kind curves --metric loss --smooth 1",
            2,
            "--smooth: must be greater than",
        ),
        ("plot study --kind against", 2, "--x: is missing"),
        ("plot study --kind speedup --trajectories", 2, "--trajectories: not an option of this kind"),
        ("plot study --width 3", 2, "--width: must be a length with its unit"),
        ("plot study --kind against --x no.such", 1, "no run of experiment 'study' varies no.such\n"),
        ("plot study --kind published", 1, "no published table 'comparison' in the store: run jestlab"),
        ("table xyz", 1, "no table and no experiment 'xyz': experiments: study; tables: summary, speedups, "),
        ("table comparison", 1, "no published results for comparison: run jestlab published import"),
        ("table claims", 1, "table 'claims' shows an experiment: name one of study"),
        (
            "table claims study",
            1,
            "experiment 'study' makes no claims: write some under `claims` in its spec",
        ),
        ("table claims study --baseline uniform", 1, "claims name their runs and measures"),
    ):
        found = jestlab(*command.split())
        assert found[:2] == (code, "") and found[2].startswith(f"jestlab: {message}")
        assert found[2].count("\n") == 1 or code == 2


UNKNOWN = {
    "table": "no table and no experiment 'stody': did you mean 'study'?",
    "plot": "no experiment 'stody' in the results store: did you mean 'study'?",
}


@pytest.mark.parametrize("verb", UNKNOWN)
def test_errors_are_one_line(jestlab, tmp_path, verb):
    assert jestlab(verb, "stody") == (1, "", f"jestlab: {UNKNOWN[verb]}\n")
    code, _, err = jestlab(verb, "study", "--baseline", "unifrm")
    assert (code, err) == (1, "jestlab: experiment 'study' has no run 'unifrm': did you mean 'uniform'?\n")
    code, _, err = jestlab(verb, "study", store=f"sqlite:///{tmp_path}/none.db")
    assert (code, err.count("\n")) == (1, 1)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "file").write_text("")
    code, _, err = jestlab(verb, "study", "--output", str(tmp_path / "file" / "below"))
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot write" in err
