"""Options of tables: columns, rows, digits, order, caption, notes, label, and width."""

import csv
import io
import json

import pytest

from jestlab.analysis import published, tables
from jestlab.analysis.tables import Shape
from jestlab.analysis.tables.explain import explain

ZS, R1 = "shapes/zero_shot", "shapes_retrieval/i2t_r1"


def made(store, name="summary", **options):
    return tables.table(store.url, name, ["study"], baseline="uniform", shape=Shape(**options))


@pytest.fixture(scope="module")
def whole(finished_study):
    return made(finished_study)


@pytest.fixture
def shaped(whole, results):
    return lambda **options: Shape(**options).applied(whole, [results])


def keys(table):
    return [column.key for column in table.columns]


def rows(table):
    return [line.key for line in table.lines]


def text(table, row, column):
    return table.cell(row, table.column_named(column)).text


def test_columns_are_shown_in_the_given_order(shaped):
    for columns, shown in (
        (["score", "delta"], ["run", "score", "delta"]),
        (["delta", "score", "run"], ["run", "delta", "score"]),
        (["scores"], ["run", ZS, R1, "score"]),
        (["delta", "scores"], ["run", "delta", ZS, R1, "score"]),
        (["score", "scores"], ["run", "score", ZS, R1]),
        (["factors,flops"], ["run", "fewer_examples", "fewer_flops", "flops"]),
        (["Δ uniform"], ["run", "delta"]),
    ):
        assert keys(shaped(columns=columns)) == shown


def test_columns_and_rows_of_published_tables():
    """A column may be a group of headings."""
    whole = tables.paper_table("comparison", published.frame(published.paper()))
    table = Shape(columns=("COCO", "mean_delta"), rows=("JEST++ B", "SigLIP B")).applied(whole)
    assert keys(table) == ["method", "coco/i2t_r1", "coco/t2i_r1", "mean_delta"]
    assert rows(table) == ["JEST++ B", "SigLIP B"]


def test_unknown_names_are_errors_with_the_nearest_name(shaped):
    for options, message in (
        ({"columns": ["scor3"]}, "table 'study summary' has no column 'scor3': did you mean 'score'?"),
        ({"rows": ["jiont"]}, "table 'study summary' has no row 'jiont': did you mean 'joint'?"),
        ({"sort": "-delat"}, "table 'study summary' has no column 'delat': did you mean 'delta'?"),
    ):
        with pytest.raises(ValueError) as raised:
            shaped(**options)
        assert str(raised.value).startswith(message)


def test_rows_keep_their_order_and_their_baseline(whole, study):
    some = made(study, rows=["joint", "independent"])
    assert rows(some) == ["joint", "independent"]
    for column in ("delta", "fewer_flops"):
        assert text(some, "joint", column) == text(whole, "joint", column)
    told = explain(study.url, some, "joint", "delta")
    assert (told.baseline, told.runs[0]["against"]) == ("uniform", pytest.approx({"score": 0.4}))
    assert not any(note.startswith("reference:") for note in some.notes)
    alone = made(study, rows=["joint"])
    for table, bold in (
        (whole, True),
        (some, False),
        (alone, False),
    ):  # compared with the runner-up that is shown
        assert table.cell("joint", table.column_named("score")).bold is bold


def test_a_run_means_all_its_points(new_store, stored_run):
    point = [stored_run("joint", [0.3 + f], f"joint f={f}", point={"f": f}) for f in (0.1, 0.2)]
    store = new_store().add(stored_run("uniform", [0.2]), *point, stored_run("other", [0.1]))
    assert rows(made(store, rows=["joint", "uniform"])) == ["joint f=0.1", "joint f=0.2", "uniform"]
    assert rows(made(store, rows=["joint f=0.2,other"])) == ["joint f=0.2", "other"]
    assert rows(made(store, "comparison", rows=["joint"])) == ["joint f=0.1", "joint f=0.2"]


def test_digits_of_scores_and_differences(whole, study):
    two = made(study, digits=2)
    assert text(two, "joint", "score") == "65.00 [1.47, 128.53]"
    assert text(two, "joint", "delta").startswith("+20.00 [")
    assert text(two, "joint", "fewer_examples") == text(whole, "joint", "fewer_examples")
    assert text(made(study, "comparison", digits=0), "joint", ZS) == "65 [1, 129]"


def test_sorting(shaped):
    """A reference stays first; rows that were named stay in their order."""
    assert rows(shaped(sort="-score")) == ["reference", "joint", "uniform", "independent"]
    assert rows(shaped(sort="score"))[1:] == ["uniform", "independent", "joint"]
    assert rows(shaped(sort="run"))[1:] == ["independent", "joint", "uniform"]
    assert rows(shaped(sort="-delta", rows=["uniform", "joint"])) == ["uniform", "joint"]


def test_caption_label_notes_and_width(shaped):
    table = shaped(caption="Ours & theirs.", label="tab:main", notes=False, width="column")
    assert table.notes == ()
    latex = table.latex()
    assert "\\caption{Ours \\& theirs.}\n  \\label{tab:main}" in latex
    assert "\\begin{table}[t]" in latex
    assert "\\parbox" not in latex
    assert "Ours & theirs." in table.markdown()


def test_only_notes_about_shown_columns_are_shown(shaped, whole):
    some = shaped(columns=["score"])
    assert {note.split(":")[0] for note in whole.notes} == {
        "Δ", "FLOPs", "fewer examples, FLOPs", "reference",
    }  # fmt: skip
    assert [note.split(":")[0] for note in some.notes] == ["reference"]


def test_data_has_the_shown_rows_and_columns(study):
    table = made(study, columns=["delta"], rows=["joint", "uniform"], digits=0)
    found = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["label"] for row in found] == ["joint", "uniform"]
    assert float(found[0]["delta_mean"]) == pytest.approx(0.2)  # raw, whatever the digits
    for row in (found[0], json.loads(table.json())["rows"][0]):
        assert {"label", "run", "delta_mean", "delta_low"} <= set(row)
        assert not {"score_mean", "flops"} & set(row)


def test_the_score_of_a_single_metric_is_shown_only_if_named(new_store, stored_run):
    runs = (stored_run(name, [end], metrics=["toy/mse"]) for name, end in (("uniform", 0.2), ("joint", 0.1)))
    spec = {"metrics": {"toy/mse": {"goal": "min", "name": "MSE"}}}
    store = new_store().add(*runs, spec=spec, question="Which is best?")
    whole, some = made(store), made(store, columns=["MSE", "delta"])
    assert keys(whole)[:4] == ["run", "seeds", "toy/mse", "delta"]
    for table in (whole, some, made(store, columns=["scores"])):
        assert "score" not in keys(table) and "score is" not in table.markdown()
        assert "score_mean" in table.csv()
    assert keys(made(store, columns=["score"])) == ["run", "score"]
    assert "score: mean of toy/mse" in made(store, columns=["score"]).notes
    assert explain(store.url, whole, "joint", "score").text == "0.1†"
    assert rows(made(store, sort="score")) == ["joint", "uniform"]
    assert [line.key for line in whole.limited(1).lines] == ["uniform"]
    assert "\\caption{Which is best? Scores" in whole.latex()


def test_a_note_of_several_columns_names_those_that_are_shown(shaped):
    for columns, subject in (
        (["score", "fewer_examples"], "fewer examples"),
        (["factors"], "fewer examples, FLOPs"),
    ):
        notes = [note.partition(": ")[0] for note in shaped(columns=columns).notes if "sooner" in note]
        assert notes == [subject]
