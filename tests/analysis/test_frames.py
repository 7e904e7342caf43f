"""Reading results: the frames, the errors when there is nothing to read, and that nothing is written."""

import sqlite3

import pytest

from jestlab.analysis import connection
from jestlab.analysis.results import Snapshot, opened
from jestlab.analysis.results import experiments as experiments_in
from jestlab.analysis.results import read as read_frames


def test_read_returns_runs_in_the_order_of_the_study(study, stored_run):
    study.add(stored_run("uniform", [0.9]), experiment="other")
    read = study.read()
    assert (read.experiment, read.question) == ("study", "Is it faster?")
    assert read.labels == ["reference", "uniform", "independent", "joint"]
    assert len(read.runs) == len(read.costs) == 8
    assert len(read.scores) == 2 * 2 + 6 * 4
    assert read.scores[read.metrics].notna().all(axis=None)
    assert read.metrics == ["shapes/zero_shot", "shapes_retrieval/i2t_r1"]
    assert read.scores["final"].sum() == 8
    assert read.progress() == "8 COMPLETED"
    assert read.reference_labels == ["reference"]
    assert read.competitors == ["uniform", "independent", "joint"]
    assert study.read("other").labels == ["uniform"]
    assert experiments_in(study.url) == ["other", "study"]


def test_a_run_that_completed_without_an_evaluation_is_not_compared(study, stored_run):
    """Cached embeddings, for example. Their progress is reported until they have completed."""
    study.add(stored_run("cache", [], needed=1))
    study.add(stored_run("slow", [], state="RUNNING"), stored_run("slow", [], seed=1))
    read = study.read()
    assert read.labels == ["reference", "slow", "uniform", "independent", "joint"]
    assert set(read.costs["label"]) == set(read.labels)
    assert list(read.runs.index) == list(range(10))
    assert read.progress() == "9 COMPLETED, 1 RUNNING"
    with pytest.raises(ValueError, match="has no run 'cache'"):
        read.baseline("cache")


def test_resolves_names_of_runs_and_labels_and_keeps_only_some(read_runs, stored_run):
    read = read_runs(
        stored_run("uniform", [0.1]),
        stored_run("joint", [0.2], label="joint f=0.5"),
        stored_run("joint", [0.3], label="joint f=0.8"),
        stored_run("easy", [0.1], label="easy f=0.8"),
        stored_run("waiting", [], label="waiting", state="PENDING"),
    )
    assert read.label_of("joint f=0.8") == "joint f=0.8"
    assert read.label_of("easy") == "easy f=0.8"
    assert read.baseline() == "uniform"
    several = r"run 'joint' of 'study' has several points: name one of joint f=0\.5, joint f=0\.8"
    with pytest.raises(ValueError, match=several):
        read.label_of("joint")
    with pytest.raises(ValueError, match="has no run 'unifrom': did you mean 'uniform'"):
        read.baseline("unifrom")
    some = read.only(["joint f=0.8", "uniform", "waiting"])
    assert some.labels == ["uniform", "joint f=0.8", "waiting"]
    assert list(some.scores["label"]) == ["uniform", "joint f=0.8"]
    assert sorted(some.costs["label"]) == sorted(some.labels)
    assert list(some.scores.index) == [0, 1]
    assert read.only(["joint"]).labels == ["joint f=0.5", "joint f=0.8"]
    with pytest.raises(ValueError, match="none of waiting has been evaluated yet"):
        read.only(["waiting"])


def test_metrics_over_steps(study):
    with opened(study.url) as store:
        loss = store.metrics("study", ["loss", "bias"])
        assert store.metrics("study", ["bias", "temperature"]).empty
    uniform = loss[(loss["label"] == "uniform") & (loss["seed"] == 0)]
    assert list(uniform["value"]) == [1, 1 / 2, 1 / 3, 1 / 4]


def test_an_experiment_that_is_unknown_or_has_no_evaluation_is_an_error(study, new_store, stored_run):
    for name, message in (
        ("stody", "no experiment 'stody' in the results store: did you mean 'study'"),
        ("xyz", "no experiment 'xyz' in the results store: known: study"),
        ("study' OR '1'='1", "no experiment \"study' OR '1'='1\""),
    ):
        with pytest.raises(ValueError, match=message):
            study.read(name)
    store = new_store()
    with pytest.raises(ValueError, match=r"no experiment .study.*none exist"):
        store.read()
    store.add(stored_run("uniform", [], state="RUNNING"), stored_run("joint", [], state="PENDING"))
    with pytest.raises(ValueError, match="'study' has no evaluation yet: 1 RUNNING, 1 PENDING"):
        store.read()


def test_rejects_what_is_not_a_store(tmp_path):
    path = tmp_path / "none" / "results.db"
    with pytest.raises(FileNotFoundError, match=f"no store at {path}"):
        read_frames(f"sqlite:///{path}", "study")
    assert list(tmp_path.iterdir()) == []  # it isn't created
    (tmp_path / "text.db").write_text("a diary, not a database, and long enough to be mistaken for one" * 20)
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE cats (name)")
    connection.close()
    for url, message in (
        (f"sqlite:///{tmp_path / 'text.db'}", r"cannot read .*text\.db: file is not a database"),
        (f"sqlite:///{tmp_path / 'other.db'}", r"other\.db: it is not a results store"),
        ("results.db", r"'results\.db' is not a database URL"),
    ):
        with pytest.raises(ValueError, match=message):
            read_frames(url, "study")


def test_reading_a_store_in_wal_mode_leaves_no_files(study):
    with sqlite3.connect(study.path) as writing:
        writing.execute("PRAGMA journal_mode = WAL")
    writing.close()
    before = {path: path.read_bytes() for path in study.path.parent.iterdir()}
    study.read()
    assert {path: path.read_bytes() for path in study.path.parent.iterdir()} == before


def test_reads_a_file_that_replaces_another(study, stored_run, new_store):
    other = new_store().add(stored_run("uniform", [0.9]), experiment="other")
    assert experiments_in(study.url) == ["study"]
    other.path.replace(study.path)
    assert experiments_in(study.url) == ["other"]


def test_a_connection_is_read_only_and_paths_may_have_special_characters(study):
    with pytest.raises(ValueError, match="not authorized"), connection.connect(study.url) as reading:
        reading.exec_driver_sql("DELETE FROM v_runs")
    odd = study.path.with_name("100% of #1.db")
    study.path.rename(odd)
    assert experiments_in(f"sqlite:///{odd}") == ["study"]


def test_reads_everything_in_one_transaction(study, monkeypatch):
    with sqlite3.connect(study.path) as writing:
        writing.execute("PRAGMA journal_mode = WAL")
    before = study.read()
    read_one = Snapshot.select

    def read_one_while_a_worker_writes(*args, **kwargs):
        frame = read_one(*args, **kwargs)
        with writing:
            writing.execute("DELETE FROM v_evaluations WHERE seed = 1")
        return frame

    monkeypatch.setattr(Snapshot, "select", read_one_while_a_worker_writes)
    assert len(study.read().scores) == len(before.scores)
    assert len(study.read().scores) < len(before.scores)
    writing.close()


RETRIEVAL = [f"coco/{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
OF_IMAGES = ["birds/10_shot", "coco/i2t_r1", "imagenet/zero_shot"]


def test_the_metrics_of_a_score(read_runs, stored_run):
    """By default all but recall at higher ranks; a study may choose them."""
    for evaluated, chosen, headline in (
        (["shapes/zero_shot", "shapes/10_shot", *RETRIEVAL], [],
         ["coco/i2t_r1", "coco/t2i_r1", "shapes/10_shot", "shapes/zero_shot"]),
        (["coco/i2t_r1", "flickr/i2t_r5", "flickr/i2t_r10"], [],  # without recall at 1
         ["coco/i2t_r1", "flickr/i2t_r10", "flickr/i2t_r5"]),
        (["own/rouge_r1", "own/rouge_r2", "own/my_i2t_r5", "own/my_i2t_r1"], [],  # a user's names
         ["own/my_i2t_r1", "own/my_i2t_r5", "own/rouge_r1", "own/rouge_r2"]),
        (OF_IMAGES, ["imagenet/zero_shot", "coco/i2t_r1", "flickr/i2t_r1"], OF_IMAGES[1:]),
        (OF_IMAGES, ["own/score"], OF_IMAGES),
    ):  # fmt: skip
        spec = {"score": chosen} if chosen else {}
        read = read_runs(stored_run("uniform", [0.1], metrics=evaluated), spec=spec)
        assert read.metrics == headline
        assert read.evaluated == sorted(evaluated)
