"""A full disk is named, and ends neither a worker nor the command that it runs."""

import errno
import os
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from jestlab.platform import logs, worker
from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.programs.command_run import Child
from jestlab.platform.store import engine
from jestlab.platform.store.address import parse_url

CRASHED = """
step 10
Traceback (most recent call last):
  File "/home/me/train.py", line 7, in <module>
    main()
    ^^^^^^
  File "/home/me/train.py", line 4, in main
    save(model)
OSError: [Errno 28] No space left on device: 'model.npz'
"""


def test_a_reason_has_the_error_and_no_traceback_even_if_the_full_disk_cut_it():
    assert logs.tail(CRASHED) == "step 10 | OSError: [Errno 28] No space left on device: 'model.npz'"
    whole = CRASHED.rpartition("OSError")[0]
    for end in range(whole.index("Traceback") + len("Traceback (most recent call last):"), len(whole)):
        lines = logs.tail(whole[:end]).split(" | ")
        assert lines[0] == "step 10"
        # At most the line that was being written.
        assert len(lines) == 1 or whole[:end].rstrip().endswith(lines[1])
    text = 'File "data.csv", line 3: no label\n  File names: 3\n    indented\nloss 0.5\n'
    assert logs.tail(text) == "File names: 3 | indented | loss 0.5"


@pytest.mark.parametrize("free", [0, 4_096, 10_000_000])
@pytest.mark.parametrize("name", ["FULL", "IOERR_WRITE", "IOERR_SHMSIZE"])
def test_the_store_says_that_the_disk_is_full(tmp_path, monkeypatch, name, free):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free // 4_096, f_frsize=4_096))
    error = sqlite3.OperationalError("some words")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    url = parse_url(f"sqlite:///{tmp_path / 'results.db'}")
    found = engine.user_error(OperationalError("INSERT", {}, error), url)
    assert isinstance(found, StoreUnreachable)
    is_full = str(found) == f"store {tmp_path / 'results.db'}: the disk is full: make room"
    assert is_full == (name == "FULL" or free < 65_536)


def test_a_worker_goes_on_without_its_log(monkeypatch):
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=full, flush=lambda: None))
    worker._say("jestlab: something")


def test_a_command_goes_on_without_its_log():
    child = Child([sys.executable, "-c", "print('first'); print('last words')"], None, {})
    kept = os.dup(2)
    try:
        with Path("/dev/full").open("wb") as full:
            os.dup2(full.fileno(), 2)
        child.process.wait()
        assert child.end() == 0
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert child.tail == b"first\nlast words\n"
