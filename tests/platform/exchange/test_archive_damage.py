"""`jestlab import` of damaged and malicious archives: an error in one short line, and nothing is imported."""

import shutil
import sqlite3
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from archives_support import JOINT, REFERENCE, add, rewrite, sql, take
from rows_support import ROWS

from jestlab.analysis import query
from jestlab.platform.errors import UserError
from jestlab.platform.exchange import archive_read
from jestlab.platform.exchange.archive_read import decode, unpack
from jestlab.platform.exchange.archive_write import TABLES
from jestlab.platform.lab.lab import Lab

BY_NAME = {table.name: table for table in TABLES}


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def decoded(table: str, column: str, value: Any) -> Any:
    row = {
        name: known.isoformat() if hasattr(known, "isoformat") else known
        for name, known in ROWS[table][0].items()
    }
    return decode(BY_NAME[table], row | {column: value})[column]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("run", "seed", 2**63),
        ("run", "seed", 0.5),
        ("run", "seed", "0"),
        ("run", "failures", 2**31),
        ("run", "config", None),
        ("run", "config", b"{}"),
        ("run", "config", "null"),
        ("run", "config", "[1]"),
        ("run", "config", "[" * 100_000),
        ("run", "config", nested(65)),
        ("experiment", "spec", "[]"),
        ("experiment", "question", "\ud800"),
        ("experiment", "updated_at", "2026-01-01 00:00:00+05:00"),
        ("experiment", "updated_at", "2201-01-01 00:00:00"),
        ("experiment", "updated_at", "1969-12-31 00:00:00"),
        ("attempt", "started_at", "yesterday"),
        ("attempt", "started_at", 5),
        ("member", "label", "x" * 10_001),
        ("member", "point", "7"),
        ("evaluation", "value", "1e5"),
        ("evaluation", "value", 10**400),
        ("budget", "chips", 2**31),
        ("note", "text", None),
    ],
)
def test_rejects_values_that_a_column_cannot_have(table, column, value):
    with pytest.raises(UserError, match=rf"damaged: invalid {table}\.{column}"):
        decoded(table, column, value)


@pytest.mark.parametrize(
    ("table", "column", "value", "expected"),
    [
        ("run", "seed", 2**63 - 1, 2**63 - 1),
        ("run", "failures", 2**31 - 1, 2**31 - 1),
        ("run", "config", nested(64), nested(64)),
        ("run", "reason", "x" * 10_001, "x" * 10_000),
        ("member", "label", "x" * 10_000, "x" * 10_000),
        ("note", "text", "a\0" + "x" * 20_000, "a\ufffd" + "x" * 20_000),
        ("evaluation", "value", float("-inf"), float("-inf")),
        ("evaluation", "value", 1, 1.0),
    ],
)
def test_accepts_extreme_values(table, column, value, expected):
    assert decoded(table, column, value) == expected


# ---- archives


@pytest.fixture
def path(archive: bytes, tmp_path: Path) -> Path:
    (tmp_path / "bad.zip").write_bytes(archive)
    return tmp_path / "bad.zip"


def check_refused(lab: Lab, path: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        take(lab, path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500 and str(path) in str(error.value)
    assert {p.name for p in lab.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}
    for view in ("runs", "experiments"):
        assert query.select(lab.store_url, view).rows == []


RUN, OTHER = f"WHERE fingerprint = '{REFERENCE.fingerprint}'", f"WHERE fingerprint = '{JOINT.fingerprint}'"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (sql("UPDATE alembic_version SET version_num = '0000'"), "older than .*: import it with"),
        (sql("UPDATE alembic_version SET version_num = '9999'"), "newer than .*: upgrade jestlab"),
        (sql("DROP TABLE tag"), "no table tag"),
        (sql("ALTER TABLE tag RENAME COLUMN name TO other"), "damaged"),
        (sql(f"UPDATE run SET directory = '../../evil' {RUN}"), "folder"),
        (sql(f"UPDATE run SET directory = 'runs/reference-00000000' {RUN}"), "folder"),
        (sql(f"UPDATE run SET directory = 'runs/..' {RUN}"), "folder"),
        (sql(f"UPDATE run SET fingerprint = 'short' {RUN}"), "invalid fingerprint"),
        (sql(f"UPDATE run SET fingerprint = '{'0' * 64}' {RUN}"), "invalid fingerprint"),
        (sql(f"UPDATE run SET state = 'WON' {RUN}"), "the state 'WON'"),
        (sql(f"UPDATE run SET seed = 'x' {RUN}"), r"invalid run\.seed"),
        (sql(f"""UPDATE run SET config = '{{"steps": 11}}' {RUN}"""), "match its fingerprint"),
        (sql(f"""UPDATE run SET config = '{{"steps": NaN}}' {RUN}"""), "match its fingerprint"),
        *(
            (sql(f"UPDATE run SET program = '{name}' {RUN}"), "match its fingerprint")
            for name in ("toy_programs:other", "train", "command", "nothing of ours")
        ),
        (sql("UPDATE need SET role = 'selection.other'"), "match its fingerprint"),
        (sql("UPDATE need SET needs_id = 5"), "match its fingerprint"),
        (sql("UPDATE experiment SET name = '../evil' WHERE name = 'toy'"), "invalid name of an experiment"),
        (sql("""UPDATE experiment SET spec = '{"name": "toy"}' WHERE name = 'toy'"""), "the spec of toy: "),
        (sql("""UPDATE experiment SET spec = '{"name": "m", "runs": {"a": {}}}'"""), "has the name 'm'"),
        (sql("UPDATE note SET experiment = 'none' WHERE experiment IS NOT NULL"), "unknown experiment"),
        (sql("UPDATE tag SET run_id = 5"), "unknown run"),
        (sql("UPDATE attempt SET log = '../../etc/passwd'"), "the path"),
        (sql("UPDATE attempt SET log = 'reports/toy/table.md'"), "the path"),
        (sql("UPDATE artifact SET uri = '/etc/passwd'"), "the path"),
        (sql("UPDATE artifact SET uri = uri || '/../../x'"), "the path"),
        (sql("UPDATE evaluation SET attempt = 99"), "damaged"),
        (sql("UPDATE metric SET value = 'x'"), r"invalid metric\.value"),
        (sql("UPDATE metric SET name_id = 99"), "damaged"),
        (sql("UPDATE published SET printed = '<b>'"), "is not a number"),
        (lambda folder: (folder / "results.db").write_bytes(b"no database"), "damaged"),
        (lambda folder: (folder / "results.db").unlink(), "not an archive"),
    ],
)
def test_refuses_changed_archives_completely(copy, path, tmp_path, change, match):
    rewrite(path, change, tmp_path / "unpacked")
    check_refused(copy, path, match)


@pytest.mark.parametrize(
    "name",
    [
        "../../evil", "/tmp/evil", "runs/../../evil/x", "evil.db", "runs/evil", "runs/evil/",
        "runs/evil/.spool", "runs/.evil/x", "runs/a\\b/x", "runs/a\x1b[2J/x", "runs/" + "d/" * 100 + "x",
        "runs/a/" + "x" * 2_000,
    ],
)  # fmt: skip
def test_refuses_unexpected_names(copy, path, tmp_path, name):
    add(path, name)
    check_refused(copy, path, "unexpected file")
    assert {p.name for p in tmp_path.iterdir()} == {"bad.zip", "copy"}


def test_refuses_files_with_the_same_name(copy, path):
    add(path, "runs/a/b")
    add(path, "runs/a/b/c")
    check_refused(copy, path, "two files have the same name")
    with pytest.warns(UserWarning, match="Duplicate"):
        add(path, "runs/a/b")
    check_refused(copy, path, "damaged")


def test_refuses_truncated_archives_and_other_files(copy, path, archive):
    for share in (0.0, 0.01, 0.5, 0.99):
        path.write_bytes(archive[: int(len(archive) * share)])
        check_refused(copy, path, "damaged, or not an archive")
    with zipfile.ZipFile(path, "w") as other:
        other.writestr("hello.txt", "hello")
    check_refused(copy, path, "not an archive")
    middle = len(archive) // 3
    path.write_bytes(archive[:middle] + bytes(8) + archive[middle + 8 :])
    check_refused(copy, path, "damaged")


def test_refuses_a_store_that_runs_code_when_it_is_read(copy, path, tmp_path):
    def change(folder: Path) -> None:
        connection = sqlite3.connect(folder / "results.db")
        connection.executescript(
            "ALTER TABLE tag RENAME TO t; CREATE VIEW tag AS SELECT *, load_extension('x') FROM t"
        )
        connection.close()

    rewrite(path, change, tmp_path / "unpacked")
    check_refused(copy, path, "no table tag")


# ---- sizes

Usage = namedtuple("Usage", "total used free")


def test_refuses_archives_that_would_fill_the_disk(copy, path, monkeypatch):
    monkeypatch.setattr(archive_read, "SMALL_BYTES", 1 << 20)
    add(path, "runs/a/zeros", bytes(20_000_000))
    assert path.stat().st_size < 100_000
    check_refused(copy, path, "too large")
    monkeypatch.setattr(archive_read, "SMALL_BYTES", 1 << 30)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: Usage(1 << 40, 0, archive_read.RESERVE_BYTES + 1_000_000)
    )
    check_refused(copy, path, "too little space on the disk")


def test_refuses_archives_with_many_files(path, tmp_path, monkeypatch):
    with zipfile.ZipFile(path) as whole:
        count = len(whole.namelist())
    monkeypatch.setattr(archive_read, "MOST_FILES", count)
    (tmp_path / "out").mkdir()
    unpack(path, tmp_path / "out")
    add(path, "runs/a/b")
    with pytest.raises(UserError, match="too large"):
        unpack(path, tmp_path / "out")
