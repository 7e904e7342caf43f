"""A run's folder in a bucket: what comes back is what was kept, whoever is killed and whatever breaks."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import labs_support as labs
import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab import sync
from jestlab.platform.lab.sync import Bucket, SyncedFolder

URL = "gs://lab-bucket/labs/mine"
RUN = "runs/joint-abc"
KEPT = f"{RUN}/kept"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(sync, "PART_BYTES", 1_000)


@pytest.fixture
def bucket(bucket_server):
    """Of this test: fsspec would give it the last test's connection."""
    import fsspec

    fsspec.get_filesystem_class("gs").clear_instance_cache()
    return Bucket(URL)


@pytest.fixture
def machine(bucket, tmp_path):
    """Makes the run's folder on a machine of that name."""
    return lambda name: SyncedFolder(bucket, RUN, tmp_path / name)


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def begun(synced, attempt, sure=lambda: None):
    synced.begin(attempt, sure)
    return synced


FILES = {
    "checkpoints/4/d/data": os.urandom(2_500),
    "checkpoints/4/empty": b"",
    "checkpoints/sha256-4.json": b"{}",
    "whole parts": os.urandom(2_000),
}


def test_another_machine_gets_what_was_kept(machine, tmp_path):
    first = begun(machine("a"), 1)
    fill(tmp_path / "a", FILES)
    first.push()
    fill(tmp_path / "b", {"stale": b"x", "whole parts": b"other", "log.txt": b"here", "spool-3.jsonl": b"{}"})
    machine("b").pull()
    assert content(tmp_path / "b") == FILES | {"log.txt": b"here", "spool-3.jsonl": b"{}"}


@pytest.mark.parametrize("held", [b"", b"\r", b"\n", b"12\r", b"12\r\n\r", b"1\r\n--==0==\n2"])
def test_an_object_holds_every_byte_that_was_written(bucket, held):
    """Of random bytes, one in 256 is a carriage return: whatever the last byte is, it is not a line's end."""
    bucket.write("object", held)
    assert bucket.read("object") == held


def test_a_run_without_any_begins_with_an_empty_folder(machine, tmp_path):
    fill(tmp_path / "a", {"checkpoints/4/data": b"never kept"})
    begun(machine("a"), 1)
    assert content(tmp_path / "a") == {}


def test_killed_while_it_keeps_a_checkpoint_the_one_before_is_there(bucket, bucket_server, machine, tmp_path):
    """Of the second one some parts are there and some are not; then the server dies, and the worker too."""
    begun(machine("a"), 1)
    fill(tmp_path / "a", FILES)
    fill(tmp_path / "late", FILES | {f"checkpoints/8/{i}": os.urandom(200_000) for i in range(40)})
    code = f"""
import sys
from pathlib import Path
from jestlab.platform.lab import sync
from jestlab.platform.lab.sync import Bucket
sync.PART_BYTES = 20_000
synced = sync.SyncedFolder(Bucket({URL!r}), {RUN!r}, Path(sys.argv[1]))
synced.begin(1, lambda: None)
Path(sys.argv[2]).rename(sys.argv[1] + "/checkpoints")
synced.push()
Path(sys.argv[3]).rename(sys.argv[1] + "/checkpoints/8")
synced.push()
"""
    paths = [tmp_path / "b", tmp_path / "a" / "checkpoints", tmp_path / "late" / "checkpoints" / "8"]
    before = {f"checkpoints/{name}": data for name, data in content(paths[1]).items()}
    worker = subprocess.Popen([sys.executable, "-c", code, *map(str, paths)], stderr=subprocess.DEVNULL)
    labs.wait_until(lambda: bucket_server.objects() > 80)
    bucket_server.stop()
    worker.kill()
    worker.wait()
    bucket_server.start()
    assert 50 < len(bucket.names(f"{KEPT}/0-1")) < 400
    machine("c").pull()
    assert content(tmp_path / "c") == before


def test_an_attempt_that_was_given_up_changes_nothing_any_more(machine, tmp_path):
    lost = begun(machine("a"), 1)
    fill(tmp_path / "a", FILES)
    lost.push()
    second = begun(machine("b"), 2)
    (tmp_path / "a" / "checkpoints/4/d/data").write_bytes(b"late")
    lost.push()  # before the second has kept anything
    fill(tmp_path / "b", {"checkpoints/8/data": b"8" * 3_000})
    second.push()
    (tmp_path / "a" / "whole parts").unlink()
    lost.push()  # and after
    machine("c").pull()
    assert content(tmp_path / "c") == FILES | {"checkpoints/8/data": b"8" * 3_000}


def test_an_attempt_that_kept_nothing_does_not_hide_its_successor(machine, tmp_path):
    lost = begun(machine("a"), 1)
    second = begun(machine("b"), 2)
    fill(tmp_path / "b", {"state": b"of the second"})
    second.push()
    fill(tmp_path / "a", {"state": b"of the first"})
    lost.push()
    machine("c").pull()
    assert content(tmp_path / "c") == {"state": b"of the second"}


def test_a_store_that_counts_attempts_anew_goes_on_from_what_is_there(machine, tmp_path):
    first = begun(machine("a"), 7)
    fill(tmp_path / "a", {"state": b"old"})
    first.push()
    again = begun(machine("b"), 1)
    fill(tmp_path / "b", {"state": b"new"})
    again.push()
    machine("c").pull()
    assert content(tmp_path / "c") == {"state": b"new"}


def test_nothing_is_kept_for_an_attempt_that_is_over(bucket, machine, tmp_path):
    class Lost(Exception):
        pass

    def sure():
        raise Lost

    synced = begun(machine("a"), 1, sure)
    fill(tmp_path / "a", FILES)
    with pytest.raises(Lost):
        synced.keep()
    assert bucket.names(RUN) == []


def test_what_is_damaged_in_the_bucket_is_left_out(bucket, machine, tmp_path, caplog):
    first = begun(machine("a"), 1)
    fill(tmp_path / "a", FILES)
    first.push()
    digest = hashlib.sha256(FILES["whole parts"][:1_000]).hexdigest()
    bucket.write(f"{KEPT}/0-1/{digest}", b"something else")
    machine("b").pull()
    assert content(tmp_path / "b") == {name: data for name, data in FILES.items() if name != "whole parts"}
    assert "whole parts is damaged: left out" in caplog.text
    bucket.delete([f"{KEPT}/0-1/{digest}"])
    machine("c").pull()
    assert content(tmp_path / "c") == content(tmp_path / "b")


def test_only_what_changed_is_sent_and_what_is_not_needed_is_deleted(bucket, machine, tmp_path, monkeypatch):
    sent: list[str] = []
    write = Bucket.write

    def counted(self, name, data):
        sent.append(name)
        write(self, name, data)

    monkeypatch.setattr(Bucket, "write", counted)
    synced = begun(machine("a"), 1)
    rows = bytearray(os.urandom(5_000))
    fill(tmp_path / "a", {"embeddings/images.npy": bytes(rows)})
    synced.push()
    assert len(sent) == 5 + 1
    sent.clear()
    synced.push()
    assert sent == []
    rows[2_500] ^= 1
    fill(tmp_path / "a", {"embeddings/images.npy": bytes(rows)})
    synced.push()
    assert len(sent) == 1 + 1
    assert len(bucket.names(f"{KEPT}/0-1")) == 5
    second = begun(machine("b"), 2)
    second.push()
    assert sorted(bucket.names(KEPT)) == ["1-2", "1-2.json"]


def test_logs_and_events_are_there_as_they_are(bucket, machine, tmp_path):
    shown = {"log.txt": b"step 1\n", "events/events.out.tfevents.1.host": b"\x00\x01"}
    synced = begun(machine("a"), 1)
    fill(tmp_path / "a", shown | {"state": b"kept"})
    synced.show()
    synced.push()
    assert {name: bucket.read(f"{RUN}/{name}") for name in shown} == shown
    machine("b").pull()
    assert content(tmp_path / "b") == {"state": b"kept"}
    assert machine("b").fetch_log(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"step 1\n"


def test_a_file_that_leads_out_of_the_folder_is_refused(bucket, machine, tmp_path):
    bucket.write(f"{KEPT}/0-1.json", json.dumps({"format": 1, "files": {"../../out": []}}).encode())
    with pytest.raises(UserError, match="is outside the run's folder"):
        machine("b").pull()
    assert not (tmp_path.parent / "out").exists()


@pytest.mark.parametrize("url", ["none://bucket/lab", "abfs://bucket/lab"])
def test_an_address_that_cannot_be_read_is_one_line(url):
    with pytest.raises(UserError) as error:
        Bucket(url)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith(url)
