"""Rows of views, by conditions on columns and config keys."""

import json

import pytest

from jestlab.analysis import query, read_only

CONFIGS = {
    "reference": {"seed": 0, "selection": {"rule": "uniform"}, "steps": 10, "flag": False},
    "uniform": {"seed": 0, "selection": {"rule": "uniform", "reference": None}, "steps": 20, "flag": True},
    "independent": {"seed": 0, "selection": {"rule": "independent", "chunks": 4}, "layers": [1, 2]},
    "joint": {"seed": 7, "selection": {"rule": "joint", "chunks": 16}, "steps": 30},
}


@pytest.fixture
def store(study):
    for label, config in CONFIGS.items():
        began = f"2026-11-{len(label):02}"
        study.execute(
            "UPDATE v_runs SET config = ?, started_at = ? WHERE label = ?", (json.dumps(config), began, label)
        )
    return study


def labels(store, where, **options):
    found = query.select(store.url, where=where, columns=["label", "seed"], **options)
    return [f"{label}/{seed}" for label, seed in found.rows]


def test_conditions_select_rows(store):
    for where, wanted in (
        ("selection.rule = 'joint' and seed < 1", ["joint/0"]),
        ("selection.chunks < 16 and seed = 0", ["independent/0"]),
        ("config.seed = 7 and seed = 1", ["joint/1"]),
        ("steps in (10, 30) and seed != 0", ["reference/1", "joint/1"]),
        ("selection.rule like '%n%form' and not flag and seed = 0", ["reference/0"]),
        ("selection.chunks is null and seed = 1", ["reference/1", "uniform/1"]),
        (
            "selection.rule is not null and (label = 'joint' or steps = 20) and seed = 0",
            ["uniform/0", "joint/0"],
        ),
        ("needed and seed = 0", ["reference/0"]),
        ("started_at < '2026-11-06' and seed = 0", ["joint/0"]),
        ('label in ("joint", "uniform") and seed = 0', ["uniform/0", "joint/0"]),
    ):
        assert labels(store, where) == wanted


def test_config_keys_select_rows_of_views_without_them_and_are_columns(store):
    where = "final and selection.rule = 'joint' and name = 'shapes/zero_shot'"
    columns = ["label", "selection.chunks", "value"]
    found = query.select(store.url, "evaluations", where, columns, ["-value"])
    assert found.columns == ["label", "selection.chunks", "value"]
    assert found.rows == [("joint", 16, 0.7), ("joint", 16, 0.6)]
    found = query.select(store.url, columns=["label", "config.*"], where="seed = 0", order_by=["label"])
    assert found.columns[:4] == ["label", "config.seed", "config.selection.rule", "config.steps"]
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert (row["label"], row["config.layers"], row["config.steps"]) == ("independent", "[1, 2]", None)
    some = query.select(store.url, columns=["selection.*"], limit=1)
    assert some.columns == ["selection.rule", "selection.reference", "selection.chunks"]


def test_order_limit_and_types(store):
    first = labels(store, None, order_by=["-steps", "-seed"], limit=3)
    assert first == ["joint/1", "joint/0", "uniform/1"]
    last = labels(store, None, order_by=["steps", "seed"])[-2:]
    assert last == ["independent/0", "independent/1"]  # without steps
    assert labels(store, None, limit=0) == []
    frame = query.frame(
        store.url, where="seed = 0", columns=["label", "started_at", "steps", "selection.rule"]
    )
    assert list(frame["label"]) == ["reference", "uniform", "independent", "joint"]
    assert str(frame["started_at"].dtype).startswith("datetime64")
    assert frame["steps"].sum() == 60
    with_sql = query.frame(store.url, sql="SELECT label, 1 AS x, 2 AS x FROM v_runs WHERE label LIKE 'jo%'")
    assert list(with_sql.columns) == ["label", "x", "x_2"] and len(with_sql) == 2
    assert list(query.frame(store.url).columns) == query.select(store.url).columns


def test_finds_the_store_by_default(store, monkeypatch, tmp_path):
    monkeypatch.setenv("JESTLAB_STORE", store.url)
    assert len(query.frame()) == 8
    monkeypatch.delenv("JESTLAB_STORE")
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"lab/results\.db"):
        query.frame()
    (tmp_path / "lab").mkdir()
    store.path.rename(tmp_path / "lab" / "results.db")
    assert len(query.frame()) == 8


def test_errors_name_the_place_and_the_nearest_name(store):
    for options, message in (
        ({"view": "evaluation"}, "no view 'evaluation': did you mean 'evaluations'"),
        ({"where": "sede < 3"}, "where: character 1: no column or config key 'sede'.*did you mean 'seed'"),
        ({"where": "seed = 1 and selection.rul = 'x'"}, "character 14: .*did you mean 'selection.rule'"),
        ({"columns": ["nothing.*"]}, "no config key 'nothing.\\*'"),
        ({"order_by": ["sede"]}, "no column or config key 'sede'.*did you mean 'seed'"),
        ({"experiment": "studi"}, "did you mean 'study'"),
        ({"where": "seed = '3'"}, "character 1: 'seed' holds number, not text: write text in quotes"),
        ({"where": "selection.rule = 3"}, "holds text, not number: write text in quotes"),
        ({"where": "label"}, "'label' holds text, not number"),
        ({"where": "layers = 2"}, "'layers' holds list, not number"),
        ({"where": "seed = label"}, "'seed' holds number, not text"),
        ({"where": "label = joint"}, "no column or config key 'joint'.*text is written in quotes"),
        ({"limit": -1}, "limit -1"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            query.frame(store.url, **options)
        assert "\n" not in str(error.value)


def test_rejects_sql_that_is_invalid_or_writes(store):
    for sql in ("SELECT lable FROM v_runs", "SELECT 1; SELECT 2"):
        with pytest.raises(ValueError, match="query: ") as error:
            query.frame(store.url, sql=sql)
        assert "\n" not in str(error.value)
    for sql in ("DELETE FROM runs", "delete from v_runs", "DROP VIEW v_runs", "CREATE TABLE t (x)"):
        with pytest.raises(ValueError, match="queries are read-only: expected one SELECT"):
            query.frame(store.url, sql=sql)
    assert len(query.frame(store.url)) == 8
    with pytest.raises(ValueError, match="either SQL, or a view"):
        query.frame(store.url, sql="SELECT 1", where="seed = 0")


COUNT = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT MAX(i) FROM n"


def test_the_time_limit_is_for_one_query(study):
    with pytest.raises(ValueError, match=r"took longer than 0\.05 s"):
        query.ask(study.url, COUNT.format(10**9), query.Limits(rows=1, most_bytes=1_000, seconds=0.05))
    assert query.ask(study.url, COUNT.format(10**5)).rows == [(100_000,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM attempt",
        'SELECT token FROM "attempt"',
        "SELECT TOKEN FROM ATTEMPT",
        "TABLE attempt",
        "SELECT a FROM public.attempt AS a",
        "SELECT to_jsonb(a) FROM attempt AS a",
        "WITH a AS (SELECT * FROM/**/attempt) SELECT token FROM a",
        r'SELECT token FROM U&"\0061ttempt"',
        r"SELECT * FROM attempt WHERE E'\'' <> ' --'",
        "SELECT query_to_xml('SELECT * FROM att' || 'empt', true, false, '')",
        "SELECT table_to_xml('att' || 'empt', true, false, '')",
        "SELECT schema_to_xml('public', true, false, '')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(token) FROM att' || 'empt')",
        "SELECT set_config('role', 'none', true)",
        "SELECT histogram_bounds, most_common_vals FROM pg_stats",
        "SELECT * FROM connectby('att' || 'empt', 'token', 'id', '1', 1) AS t (a text)",
        "SELECT * FROM XPATH_TABLE('id', 'token', 'a' || 't') AS t (a text)",
    ],
)
def test_sql_on_postgresql_cannot_name_the_secrets_of_jobs(sql):
    with pytest.raises(ValueError, match=r"secrets of jobs|prohibited"):
        read_only.refuse_secret(sql)
