"""`jestlab import` of damaged and malicious archives: an error in one short line, and nothing is imported."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from archives_support import Change, add, head, members, put, rewrite, take
from rows_support import ROWS

from jestlab.analysis import query
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.archive import TABLES, decode, decode_curve, encode
from jestlab.platform.lab.lab import Lab

# ---- values of columns


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def decoded(table: str, column: str, value: Any) -> Any:
    row = {name: encode(known) for name, known in ROWS[table][0].items()}
    return decode(TABLES[table], row | {column: value})[column]


def test_rejects_values_that_a_column_cannot_have():
    accepted = []
    for table, column, value, match in [
        ("run", "seed", 2**63, "damaged: 9223372036854775808 for run.seed"),
        ("run", "seed", -(2**63) - 1, "for run.seed"),
        ("run", "seed", 10**400, "damaged: 10.* for run.seed"),
        ("run", "seed", "0", "damaged: '0' for run.seed"),
        ("run", "failures", 2**31, "damaged: 2147483648 for run.failures"),
        ("run", "step", True, "damaged: True for run.step"),
        ("run", "config", None, "damaged: None for run.config"),
        ("run", "config", "null", "damaged: .* for run.config"),
        ("run", "config", "[1]", "damaged: .* for run.config"),
        ("run", "config", "[" * 100_000, "damaged: .* for run.config"),
        ("run", "config", nested(65), "damaged: .* for run.config"),
        ("run", "config", {"a": 1}, "damaged: a mapping for run.config"),
        ("experiment", "spec", "[]", "damaged: .* for experiment.spec"),
        ("experiment", "question", "\ud800", "damaged: .* for experiment.question"),
        ("experiment", "updated_at", "2026-01-01T00:00:00+05:00", "for experiment.updated_at"),
        ("experiment", "updated_at", "2201-01-01T00:00:00", "for experiment.updated_at"),
        ("experiment", "updated_at", "1969-12-31T00:00:00", "for experiment.updated_at"),
        ("member", "label", "x" * 10_001, "damaged: .* for member.label"),
        ("member", "point", "7", "damaged: '7' for member.point"),
        ("attempt", "versions", "[]", "damaged: .* for attempt.versions"),
        ("attempt", "started_at", "yesterday", "damaged: 'yesterday'"),
        ("evaluation", "value", {}, "damaged: a mapping for evaluation.value"),
        ("evaluation", "value", "1e5", "damaged: '1e5' for evaluation.value"),
        ("evaluation", "value", 10**400, "damaged: 10.* for evaluation.value"),
        ("budget", "chips", 2**31, "for budget.chips"),
        ("cost", "flops", "much", "damaged: 'much'"),
        ("note", "text", None, "for note.text"),
    ]:
        try:
            with pytest.raises(UserError, match=match):
                decoded(table, column, value)
        except (pytest.fail.Exception, AssertionError) as failure:
            accepted.append(f"{table}.{column} = {str(value)[:40]}: {failure}")
    assert accepted == []


def test_accepts_extreme_values_that_a_column_can_have():
    for table, column, value, expected in [
        ("run", "seed", 2**63 - 1, 2**63 - 1),
        ("run", "failures", 2**31 - 1, 2**31 - 1),
        ("run", "config", nested(64), nested(64)),
        ("run", "reason", "x" * 10_001, "x" * 10_000),  # cut off
        ("member", "label", "x" * 10_000, "x" * 10_000),
        ("note", "text", "a\0" + "x" * 20_000, "a\ufffd" + "x" * 20_000),
        ("evaluation", "value", "-inf", float("-inf")),
        ("evaluation", "value", "nan", None),
        ("evaluation", "value", 1, 1.0),
    ]:
        assert decoded(table, column, value) == expected, (table, column)
    for time in ("1970-01-01T00:00:00", "2200-12-31T23:59:59"):
        assert decoded("experiment", "updated_at", time).isoformat() == time


def test_rejects_invalid_curves_and_rows_without_a_column():
    curve = {"name": "loss", "steps": [1, 2], "values": [0.5, None]}
    assert decode_curve(curve) == ("loss", [(1, 0.5), (2, None)])
    for change, match in (
        ({"steps": None}, "a curve"),
        ({"steps": [1]}, "a curve"),
        ({"steps": [1, 2**63]}, "for metric.step"),
        ({"steps": [1, "2"]}, "for metric.step"),
        ({"values": [1.0, []]}, "a list for metric.value"),
        ({"name": 5}, "damaged: 5 for metric_name.name"),
    ):
        with pytest.raises(UserError, match=match):
            decode_curve(curve | change)
    row = {name: encode(value) for name, value in ROWS["attempt"][0].items() if name != "number"}
    with pytest.raises(UserError, match="a row of attempt without number"):
        decode(TABLES["attempt"], row)


# ---- archives


@pytest.fixture
def path(archive: bytes, tmp_path: Path) -> Path:
    (tmp_path / "bad.tar.gz").write_bytes(archive)
    return tmp_path / "bad.tar.gz"


def check_refused(lab: Lab, path: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        take(lab, path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert {p.name for p in lab.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}
    assert {p.name for p in path.parent.iterdir()} == {"bad.tar.gz", "copy"}


def without(name: str) -> Change:
    return lambda contents: contents.pop(name)


OTHER_PROGRAMS = ("toy_programs:other", "train", "command", "nothing of ours")
NO_PLACES = (
    "../../evil",
    "/tmp/evil",
    "runs/../../evil/x",
    "results.db",
    "runs/evil",
    "tables/launcher.jsonl",
)
NO_NAMES = ("runs/evil/.spool", "runs/.evil/x", "runs/a\\b/x", "runs/a\x1b[2J/x", "runs/" + "d/" * 100 + "x")
OTHER_FINGERPRINT = "has another fingerprint than its program, config and needs"
CHANGES: list[tuple[Change, str]] = [
    (head(schema="0009"), "older than this jestlab's .*: import it with the version that wrote it"),
    (head(schema="9999"), "newer than this jestlab's .*: upgrade jestlab"),
    (head(format=2), "of another format"),
    (head(schema=None), "of another format"),
    (add("jestlab.json", b"[]"), "jestlab.json is not valid JSON"),
    *((add(name), "does not belong there") for name in (*NO_PLACES, *NO_NAMES)),
    (lambda contents: [add(name)(contents) for name in ("runs/a/b", "runs/a/b/c")], "another file is"),
    (add("tables/run.jsonl", b"[1]\n"), "a line of run is not a row"),
    (add("tables/run.jsonl", b"\xff\n"), "a line of run is not a row"),
    (without("tables/published.jsonl"), "lacks tables/published.jsonl"),
    (put("run", directory="../../evil"), "damaged: run"),
    (put("run", directory="runs/reference-00000000"), "damaged: run"),
    (put("run", directory="runs/.."), "damaged: run"),
    (put("run", fingerprint="short"), "a row of run without a run"),
    (put("run", state="WON"), "damaged: run"),
    (put("run", seed=2**70), "damaged: 1180591620717411303424 for run.seed"),
    (put("run", config='{"steps": 11}'), OTHER_FINGERPRINT),
    (put("run", config='{"steps": NaN}'), OTHER_FINGERPRINT),
    *((put("run", program=name), OTHER_FINGERPRINT) for name in OTHER_PROGRAMS),
    (put("need", role="selection.other"), OTHER_FINGERPRINT),
    (put("need", needs="0" * 64), OTHER_FINGERPRINT),
    (put("need", needs={}), "a row of need without what it belongs to"),
    (put("experiment", name="../evil"), "damaged: experiment"),
    (put("experiment", spec='{"name": "toy"}'), "the spec of other: runs: is missing"),
    (put("experiment", spec='{"name": "toy", "studies": {"a": 5}}'), "the spec of other: studies.a"),
    (put("experiment", spec='{"name": "mine", "runs": {"a": {}}}'), "the spec of other is that of 'mine'"),
    (put("member", experiment=[]), "a row of member without what it belongs to"),
    (put("tag", experiment=7), "a row of tag without what it belongs to"),
    (put("note", experiment="none"), "is damaged, nothing was imported"),
    (put("attempt", run=[]), "a row of attempt without a run"),
    (put("attempt", log="../../etc/passwd"), "damaged: the path"),
    (put("attempt", log="reports/toy/table.md"), "damaged: the path"),
    (put("artifact", uri="/etc/passwd"), "damaged: the path"),
    (put("evaluation", attempt=99), "is damaged, nothing was imported"),
    (put("evaluation", attempt=[]), "a list for evaluation.attempt"),
    (put("published", printed=None), "damaged: None for published.printed"),
    (put("published", printed="<b>"), "damaged.* column printed: '<b>' is not a number"),
    (put("published", unit="miles"), "damaged.* column unit: 'miles' is not a unit"),
    (put("published", variant="L"), "damaged.* column variant: row 1 of laion has"),
]


def test_refuses_changed_archives_completely(copy, path, archive):
    accepted = []
    for number, (change, match) in enumerate(CHANGES):
        path.write_bytes(archive)
        rewrite(path, change)
        try:
            check_refused(copy, path, match)
        except (pytest.fail.Exception, AssertionError) as failure:
            accepted.append(f"change {number}, expected {match!r}: {failure}")
    assert accepted == []
    for view in ("runs", "experiments"):
        assert query.select(copy.store_url, view).rows == []


def test_refuses_changes_without_new_checksums_and_links_and_devices(copy, path):
    rewrite(path, put("evaluation", value=0.99), update_checksums=False)
    check_refused(copy, path, "has changed since it was written .tables/evaluation.jsonl.")
    (first, content), *_ = members(path)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(first, io.BytesIO(content))
            member = tarfile.TarInfo("runs/a/link")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        check_refused(copy, path, "does not belong there")


def test_refuses_truncated_archives_and_other_files(copy, path, archive, tmp_path):
    content = gzip.decompress(archive)
    for share in (0.0, 0.01, 0.5, 0.7):
        path.write_bytes(gzip.compress(content[: int(len(content) * share)]))
        check_refused(copy, path, "cut short|damaged")
    path.write_bytes(archive)
    files = members(path)
    with tarfile.open(path, "w:gz") as tar:  # it ends between two files
        for member, data in files[:-1]:
            tar.addfile(member, io.BytesIO(data))
    check_refused(copy, path, "is cut short: copy it again")
    path.write_bytes(b"PK not a gzip at all" * 100)
    check_refused(copy, path, "is damaged, or not an archive of jestlab")
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("hello.txt"))
    check_refused(copy, path, "is not an archive of jestlab")
    with pytest.raises(UserError, match=r"NAME\.tar\.zst or NAME\.tar\.gz"):
        take(copy, tmp_path / "lab.zip")
