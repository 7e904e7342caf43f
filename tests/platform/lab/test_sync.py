"""A run's folder in a bucket: the last snapshot comes back, whatever is killed or breaks."""

import hashlib
import json
import os
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab import sync
from jestlab.platform.lab.sync import Bucket, SyncedFolder

URL = "gs://lab-bucket/labs/mine"
RUN = "runs/joint-abc"
KEPT = f"{RUN}/kept"
FIRST = f"{KEPT}/000000000-000000001"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(sync, "PART_BYTES", 1_000)


@pytest.fixture
def bucket(bucket_server):
    return Bucket(URL)


@pytest.fixture
def machine(bucket, tmp_path):
    """Creates the run's folder on the machine of a name."""
    return lambda name: SyncedFolder(bucket, RUN, tmp_path / name)


@pytest.fixture
def attempt(machine, tmp_path):
    """Begins an attempt of a number on a machine, where it writes files."""

    def begin(name, number, files=None, check=lambda: None):
        synced = machine(name)
        synced.begin(number, check)
        fill(tmp_path / name, files or {})
        return synced

    return begin


@pytest.fixture
def pulled(machine, tmp_path):
    """Pulls the snapshot to a machine, and returns all files there."""

    def pull(name):
        machine(name).pull()
        return content(tmp_path / name)

    return pull


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


FILES = {
    "checkpoints/4/d/data": os.urandom(2_500),
    "checkpoints/4/empty": b"",
    "checkpoints/sha256-4.json": b"{}",
    "whole parts": os.urandom(2_000),
}


def test_another_machine_gets_the_snapshot(attempt, pulled, tmp_path):
    fill(tmp_path / "a", {"checkpoints/4/data": b"never kept"})
    first = attempt("a", 1, FILES)
    assert content(tmp_path / "a") == FILES
    first.push()
    stays = {"log.txt": b"here", "spool-3.jsonl": b"{}"}
    fill(tmp_path / "b", {"stale": b"x", "whole parts": b"other"} | stays)
    assert pulled("b") == FILES | stays


def test_objects_contain_every_byte(bucket):
    """Whatever the last byte is, it isn't taken for the end of a line."""
    for content in (b"", b"\r", b"\n", b"12\r", b"12\r\n\r", b"1\r\n--==0==\n2"):
        bucket.write("object", content)
        assert bucket.read("object") == content


@pytest.mark.parametrize("written", [0, 1, 3, 4])
def test_an_interrupted_push_keeps_the_snapshot_before(attempt, pulled, tmp_path, monkeypatch, written):
    """The new snapshot has four parts and its list of files; only some of them were written."""
    synced = attempt("a", 1, FILES)
    synced.push()
    fill(tmp_path / "a", {"checkpoints/8/data": os.urandom(4_000)})
    write, lock, names = Bucket.write, threading.Lock(), list[str]()

    def interrupted(self, name, content):
        with lock:
            names.append(name)
            if len(names) > written:
                raise BucketUnreachable("interrupted")
        write(self, name, content)

    with monkeypatch.context() as broken:
        broken.setattr(Bucket, "write", interrupted)
        with pytest.raises(BucketUnreachable):
            synced.push()
    assert pulled("b") == FILES
    synced.push()
    assert pulled("c") == content(tmp_path / "a")


def test_a_revoked_attempt_changes_nothing(attempt, pulled, tmp_path):
    lost = attempt("a", 1, FILES)
    lost.push()
    second = attempt("b", 2, {"checkpoints/8/data": b"8" * 3_000})
    (tmp_path / "a" / "checkpoints/4/d/data").write_bytes(b"late")
    lost.push()  # before the second one has pushed
    second.push()
    (tmp_path / "a" / "whole parts").unlink()
    lost.push()  # and after
    assert pulled("c") == FILES | {"checkpoints/8/data": b"8" * 3_000}


def test_numbers_of_attempts_may_start_again(attempt, pulled):
    attempt("a", 7, {"state": b"old"}).push()
    attempt("b", 1, {"state": b"new"}).push()
    assert pulled("c") == {"state": b"new"}


def test_an_attempt_that_lost_its_run_pushes_nothing(bucket, attempt):
    with pytest.raises(LookupError):
        attempt("a", 1, FILES, check=Mock(side_effect=LookupError)).keep()
    assert bucket.names(RUN) == []


def test_damaged_files_are_left_out(bucket, attempt, pulled, caplog):
    attempt("a", 1, FILES).push()
    part = f"{FIRST}/{hashlib.sha256(FILES['whole parts'][:1_000]).hexdigest()}"
    bucket.write(part, b"something else")
    rest = {name: data for name, data in FILES.items() if name != "whole parts"}
    assert pulled("b") == rest
    assert "whole parts is damaged" in caplog.text
    bucket.delete([part])
    assert pulled("c") == rest


def test_only_changed_parts_are_sent_and_unneeded_ones_are_deleted(bucket, attempt, tmp_path, monkeypatch):
    sent: list[str] = []
    write = Bucket.write

    def counted(self, name, data):
        sent.append(name)
        write(self, name, data)

    monkeypatch.setattr(Bucket, "write", counted)
    rows = bytearray(os.urandom(5_000))
    synced = attempt("a", 1, {"images.npy": bytes(rows)})
    for parts in (5, 0, 1):
        sent.clear()
        if parts == 1:
            rows[2_500] ^= 1
            fill(tmp_path / "a", {"images.npy": bytes(rows)})
        synced.push()
        assert len(sent) == (parts + 1 if parts else 0)  # and the list of files
    assert len(bucket.names(FIRST)) == 5
    attempt("b", 2).push()
    second = "000000001-000000002"
    assert sorted(bucket.names(KEPT)) == [second, f"{second}.json"]


def test_logs_and_events_are_plain_objects(bucket, machine, attempt, pulled, tmp_path):
    shown = {"log.txt": b"step 1\n", "events/events.out.tfevents.1.host": b"\x00\x01"}
    synced = attempt("a", 1, shown | {"state": b"kept"})
    synced.show()
    synced.push()
    assert {name: bucket.read(f"{RUN}/{name}") for name in shown} == shown
    assert pulled("b") == {"state": b"kept"}
    assert machine("b").fetch_log(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"step 1\n"


def test_files_outside_the_folder_are_refused(bucket, machine, tmp_path):
    bucket.write(f"{FIRST}.json", json.dumps({"format": 1, "files": {"../../out": []}}).encode())
    with pytest.raises(UserError, match="is outside the run's folder"):
        machine("b").pull()
    assert not (tmp_path.parent / "out").exists()


def test_invalid_addresses_are_errors_in_one_line():
    for url in ("none://bucket/lab", "abfs://bucket/lab"):
        with pytest.raises(UserError) as error:
            Bucket(url)
        assert len(str(error.value).splitlines()) == 1
        assert str(error.value).startswith(url)
