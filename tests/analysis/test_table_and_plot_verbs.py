"""`jestlab table` and `jestlab plot`: output, files, errors in one line."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from jestlab.analysis import figures
from jestlab.platform.cli import main, results


@pytest.fixture
def jestlab(capsys, study):
    """Runs a verb on the study's store: exit code, standard output, standard error."""

    def run(*args, store=study.url):
        with pytest.raises(SystemExit) as stop:
            main([*args, "--store", store])
        streams = capsys.readouterr()
        return stop.value.code, streams.out, streams.err

    return run


def test_table(jestlab):
    code, out, err = jestlab("table", "study", "--baseline", "uniform")
    assert (code, err) == (0, "")
    assert out.startswith("| run ")
    assert "Δ uniform" in out


def test_table_to_a_file(jestlab, tmp_path):
    path = tmp_path / "new" / "table.json"
    assert jestlab("table", "study", "--format", "json", "--scope", "learner", "--output", str(path))[:2] == (
        0,
        f"{path}\n",
    )
    rows = {row["label"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["joint"]["flops"] == pytest.approx(12e9)


@pytest.mark.parametrize(
    ("kind", "names"),
    [("curves", ["curves"]), ("pareto", ["pareto"]), ("all", ["curves", "pareto", "speedup", "step_costs"])],
)
def test_plot(jestlab, tmp_path, kind, names):
    code, out, _ = jestlab("plot", "study", "--kind", kind, "--output", str(tmp_path / "figures"))
    assert code == 0
    expected = [
        tmp_path / "figures" / f"{name}.{suffix}" for name in names for suffix in ("png", "svg", "pdf")
    ]
    assert out.split() == [str(path) for path in expected]
    assert all(path.stat().st_size > 1000 for path in expected)


def test_every_kind_of_figure_is_offered():
    assert tuple(figures.KINDS) == results.KINDS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kind", "filtering_ratio"], "no run of experiment 'study' varies selection.filtering_ratio"),
        (["--kind", "against"], "figure 'against' needs a config key to draw against: give x"),
        (["--kind", "against", "--x", "no.such"], "no run of experiment 'study' varies no.such"),
        *(
            (options, "no published table 'comparison' in the store: run jestlab published import")
            for options in (["--kind", "published"], ["--kind", "speedup", "--source", "Doe"])
        ),
    ],
)
def test_plot_says_what_a_figure_lacks(jestlab, options, says):
    assert jestlab("plot", "study", *options) == (1, "", f"jestlab: {says}\n")


def test_plot_against_any_key(jestlab, tmp_path, study, stored_run):
    study.add(
        *(
            stored_run(
                "own", [0.1 * width], label=f"own {width}", config={"width": width}, point={"width": width}
            )
            for width in (2, 4)
        ),
        experiment="own",
    )
    code, out, _ = jestlab(
        "plot", "own", "--kind", "against", "--x", "width", "--json", "--output", str(tmp_path)
    )
    assert code == 0
    assert [Path(path).name for path in json.loads(out)] == [
        "against_width.png",
        "against_width.svg",
        "against_width.pdf",
    ]


def test_plot_of_a_diagnosis_needs_one(jestlab):
    code, out, err = jestlab("plot", "study", "--kind", "learnability")
    assert (code, out) == (1, "")
    assert err == "jestlab: experiment 'study' has no run of the program diagnose\n"


def test_json_of_both(jestlab, tmp_path):
    code, out, _ = jestlab("table", "study", "--json")
    assert code == 0
    assert json.loads(out)
    code, out, _ = jestlab("plot", "study", "--json", "--output", str(tmp_path))
    assert [Path(path).name for path in json.loads(out)] == [
        "curves.png",
        "curves.svg",
        "curves.pdf",
        "pareto.png",
        "pareto.svg",
        "pareto.pdf",
        "speedup.png",
        "speedup.svg",
        "speedup.pdf",
        "step_costs.png",
        "step_costs.svg",
        "step_costs.pdf",
    ]


def test_plot_goes_to_the_lab_s_reports(jestlab, tmp_path):
    code, out, _ = jestlab("plot", "study", "--kind", "curves", "--root", str(tmp_path / "lab"))
    assert code == 0
    assert out.split()[0] == str(tmp_path / "lab" / "reports" / "study" / "curves.png")


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


def test_verbs_import_nothing_heavy_before_they_run():
    code = "import sys, jestlab.platform.cli.results; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pandas", "matplotlib", "sqlalchemy", "jax"} & set(modules)


def test_tables_by_name(jestlab, tmp_path):
    code, out, _ = jestlab("table", "speedups", "study")
    assert code == 0
    assert "examples to match" in out
    code, out, _ = jestlab("table", "comparison", "study", "--json")
    assert [row["method"] for row in json.loads(out)["rows"]] == [
        "reference",
        "uniform",
        "independent",
        "joint",
    ]
    code, out, err = jestlab("table", "comparison")
    assert (code, out) == (1, "")
    assert err == (
        "jestlab: the store holds no published results: run jestlab published import, or name an experiment: "
        "jestlab table comparison EXPERIMENT\n"
    )
    assert jestlab("table", "summary")[2] == (
        "jestlab: table 'summary' shows one experiment: name one of study\n"
    )


def test_an_experiment_that_is_called_as_a_table_is_shown_in_it(jestlab, study, stored_run):
    runs = [stored_run(run, [score], seed=seed) for run, score in (("a", 0.1), ("b", 0.4)) for seed in (0, 1)]
    for name in ("comparison", "speedups"):
        study.add(*runs, experiment=name)
        assert jestlab("table", name) == jestlab("table", name, name)
        assert jestlab("table", name, "--baseline", "b") == jestlab("table", name, name, "--baseline", "b")
        assert "| a " in jestlab("table", name)[1]
    with sqlite3.connect(study.path) as connection:
        connection.execute(
            "INSERT INTO v_published (source, table_name, position, method, quantity, value, printed) "
            "VALUES ('Doe', 'comparison', 1, 'CLIP', 'imagenet/zero_shot', 0.6, '60.0')"
        )
    connection.close()
    assert "| CLIP " in jestlab("table", "comparison")[1]
    assert "| a " not in jestlab("table", "comparison")[1]
    assert (
        jestlab("table", "comparison", "--no-published")[1]
        == (jestlab("table", "comparison", "comparison", "--no-published")[1])
    )


def test_claims(jestlab, study, stored_run):
    claims = [{"statement": "Joint learns more", "of": "joint", "above": "uniform", "source": "Figure 3"}]
    study.add(
        *(
            stored_run(run, [0.1, score], label=run, seed=seed)
            for run, score in (("uniform", 0.3), ("joint", 0.5))
            for seed in (0, 1)
        ),
        experiment="own",
        spec={"claims": claims},
    )
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
    for form in ("latex", "csv", "html", "json"):
        assert "Joint learns more" in jestlab("table", "claims", "own", "--format", form)[1]
    for arguments, says in (
        (["claims"], "table 'claims' shows an experiment: name one of own, study"),
        (["claims", "study"], "experiment 'study' makes no claims: write some under `claims` in its spec"),
        (["claims", "owm"], "no experiment 'owm' in the results store: did you mean 'own'?"),
        (["claims", "own", "--baseline", "uniform"], "claims name what they compare with"),
    ):
        code, out, err = jestlab("table", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert says in err


def test_explain(jestlab):
    code, out, _ = jestlab("table", "study", "--explain", "joint", "score")
    assert code == 0
    assert out.startswith("joint · score: 65.0 ± 7.1   (table study summary)\n")
    told = json.loads(jestlab("table", "study", "--explain", "joint", "score", "--json")[1])
    assert [run["value"] for run in told["runs"]] == pytest.approx([0.6, 0.7])
    assert jestlab("table", "study", "--explain", "joint", "scroe")[::2] == (
        1, "jestlab: table 'study summary' has no column 'scroe': did you mean 'score'?\n"
    )  # fmt: skip
