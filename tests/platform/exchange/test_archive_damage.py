"""`jestlab import` of damaged and malicious archives: an error in one short line, and nothing is imported."""

import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archives_support import JOINT, REFERENCE, add, rewrite, take
from rows_support import ROWS

from jestlab.analysis import query
from jestlab.platform.errors import UserError
from jestlab.platform.exchange import archive_check
from jestlab.platform.exchange.archive_write import TABLES
from jestlab.platform.lab.lab import Lab

BY_NAME = {table.name: table for table in TABLES}


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def decoded(place: str, value: Any) -> Any:
    table, column = place.split(".")
    row = {
        name: one.isoformat() if hasattr(one, "isoformat") else one for name, one in ROWS[table][0].items()
    }
    return archive_check.decode(BY_NAME[table], row | {column: value})[column]


INVALID: dict[str, list[Any]] = {
    "run.seed": [2**63, 0.5, "0"],
    "run.failures": [2**31],
    "run.config": [None, b"{}", "null", "[1]", "[" * 100_000, nested(65)],
    "experiment.question": ["\ud800"],
    "experiment.updated_at": ["2026-01-01 00:00+05:00", "2201-01-01 00:00", "1969-12-31 00:00"],
    "attempt.started_at": ["yesterday", 5],
    "member.label": ["x" * 10_001],
    "evaluation.value": ["1e5", 10**400],
}


@pytest.mark.parametrize("place", INVALID)
def test_rejects_values_that_a_column_cannot_have(place):
    for value in INVALID[place]:
        with pytest.raises(UserError, match=rf"damaged: invalid {place}"):
            decoded(place, value)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("run.seed", 2**63 - 1, 2**63 - 1),
        ("run.failures", 2**31 - 1, 2**31 - 1),
        ("run.config", nested(64), nested(64)),
        ("run.reason", "x" * 10_001, "x" * 10_000),
        ("member.label", "x" * 10_000, "x" * 10_000),
        ("note.text", "a\0" + "x" * 20_000, "a\ufffd" + "x" * 20_000),
        ("evaluation.value", float("-inf"), float("-inf")),
        ("evaluation.value", 1, 1.0),
    ],
)
def test_accepts_extreme_values(place, value, expected):
    assert decoded(place, value) == expected


# ---- archives


def check_refused(lab: Lab, path: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        take(lab, path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500 and str(path) in str(error.value)
    assert {p.name for p in lab.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}
    for view in ("runs", "experiments"):
        assert query.select(lab.store_url, view).rows == []


RUN, TOY = f"WHERE fingerprint = '{REFERENCE.fingerprint}'", "WHERE name = 'toy'"
PROGRAMS = ("toy_programs:other", "train", "command", "nothing of ours")
CHANGES = {
    "older than .*: import it with": ["UPDATE alembic_version SET version_num = '0000'"],
    "newer than .*: upgrade jestlab": ["UPDATE alembic_version SET version_num = '9999'"],
    "no table tag": [
        "DROP TABLE tag",
        "ALTER TABLE tag RENAME TO t; CREATE VIEW tag AS SELECT *, load_extension('x') FROM t",
    ],
    "damaged": [
        "ALTER TABLE tag RENAME COLUMN name TO other",
        "UPDATE evaluation SET attempt = 99",
        "UPDATE metric SET name_id = 99",
    ],
    "has the folder": [
        f"UPDATE run SET directory = '{directory}' {RUN}"
        for directory in ("../../evil", "runs/reference-00000000", "runs/..", f"{REFERENCE.directory}/x")
    ],
    "invalid fingerprint": [
        f"UPDATE run SET fingerprint = '{fingerprint}' {RUN}" for fingerprint in ("short", "0" * 64)
    ],
    "has the state 'WON'": [f"UPDATE run SET state = 'WON' {RUN}"],
    r"invalid run\.seed": [f"UPDATE run SET seed = 'x' {RUN}"],
    r"invalid metric\.value": ["UPDATE metric SET value = 'x'"],
    "match its fingerprint": [
        *(f"UPDATE run SET config = '{{\"steps\": {steps}}}' {RUN}" for steps in ("11", "NaN")),
        *(f"UPDATE run SET program = '{name}' {RUN}" for name in PROGRAMS),
        "UPDATE need SET role = 'selection.other'",
        "UPDATE need SET needs_id = 5",
    ],
    "invalid name of an experiment": [f"UPDATE experiment SET name = '../evil' {TOY}"],
    "the spec of toy: ": [f"""UPDATE experiment SET spec = '{{"name": "toy"}}' {TOY}"""],
    "has the name 'm'": ["""UPDATE experiment SET spec = '{"name": "m", "runs": {"a": {}}}'"""],
    "unknown experiment": ["UPDATE note SET experiment = 'none' WHERE experiment IS NOT NULL"],
    "unknown run": ["UPDATE tag SET run_id = 5"],
    "the path": [
        "UPDATE attempt SET log = '../../etc/passwd'",
        "UPDATE attempt SET log = 'reports/toy/table.md'",
        f"UPDATE attempt SET log = '{JOINT.directory}/log.txt'",
        "UPDATE artifact SET uri = '/etc/passwd'",
        "UPDATE artifact SET uri = uri || '/../../x'",
    ],
    "is not a number": ["UPDATE published SET printed = '<b>'"],
}


@pytest.mark.parametrize(("match", "change"), [(key, sql) for key, each in CHANGES.items() for sql in each])
def test_refuses_changed_archives_completely(copy, path, match, change):
    rewrite(path, change)
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
    assert {p.name for p in tmp_path.iterdir()} == {"lab.zip", "copy"}


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
    for name, match in (("hello.txt", "not an archive"), ("results.db", "damaged")):
        with zipfile.ZipFile(path, "w") as other:
            other.writestr(name, "no database")
        check_refused(copy, path, match)
    middle = len(archive) // 3
    path.write_bytes(archive[:middle] + bytes(8) + archive[middle + 8 :])
    check_refused(copy, path, "damaged")


def test_refuses_archives_that_would_fill_the_disk(copy, path, monkeypatch):
    with zipfile.ZipFile(path) as whole, monkeypatch.context() as limits:
        limits.setattr(archive_check, "MOST_FILES", len(whole.namelist()) - 1)
        check_refused(copy, path, "too large")
    add(path, "runs/a/zeros", bytes(20_000_000))
    monkeypatch.setattr(archive_check, "SMALL_BYTES", 1 << 20)
    check_refused(copy, path, "too large")
    monkeypatch.setattr(archive_check, "SMALL_BYTES", 1 << 30)
    free = SimpleNamespace(free=archive_check.RESERVE_BYTES + 1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    check_refused(copy, path, "too little space on the disk")
