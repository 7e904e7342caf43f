"""A connection to a file is kept between questions, and nobody notices."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jestlab.analysis import connection, frames, query

COUNT = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT MAX(i) FROM n"


def test_a_file_that_takes_the_place_of_another_is_read(study, stored_run, new_store):
    path = Path(study.url.removeprefix("sqlite:///"))
    other = new_store().add(stored_run("uniform", [0.9]), experiment="other")
    assert frames.experiments(study.url) == ["study"]
    Path(other.url.removeprefix("sqlite:///")).replace(path)
    assert frames.experiments(study.url) == ["other"]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        frames.experiments(study.url)


def test_what_others_write_is_seen(study):
    assert len(query.frame(study.url, sql="SELECT * FROM v_runs")) == 8
    with closing(sqlite3.connect(study.url.removeprefix("sqlite:///"))) as other, other:
        other.execute("DELETE FROM v_runs WHERE label = 'joint'")
        other.execute("CREATE TABLE later AS SELECT 1 AS one")
    assert len(query.frame(study.url, sql="SELECT * FROM v_runs")) == 6
    assert query.frame(study.url, sql="SELECT * FROM later").one.tolist() == [1]


def test_time_is_limited_for_one_question(study):
    with pytest.raises(ValueError, match=r"took longer than 0\.05 s"):
        query.ask(study.url, COUNT.format(10**9), seconds=0.05)
    assert query.ask(study.url, COUNT.format(10**5)).rows == [(100_000,)]


def test_two_questions_at_once(study):
    with connection.connect(study.url) as first, connection.connect(study.url) as second:
        for each in (first, second):
            assert len(connection.frame(each, "SELECT * FROM v_runs")) == 8


def test_the_last_files_are_kept(study, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_KEPT", 2)
    path = Path(study.url.removeprefix("sqlite:///"))
    for number in range(5):
        shutil.copy(path, tmp_path / f"{number}.db")
        assert frames.experiments(f"sqlite:///{tmp_path / f'{number}.db'}") == ["study"]
    assert [key[0].name for key in connection._kept] == ["3.db", "4.db"]


FORKS = """
import os, sys
from pathlib import Path
from jestlab.analysis import frames

path = Path(sys.argv[1])

def is_open():
    found = 0
    for number in range(256):
        try:
            found += os.fstat(number).st_ino == path.stat().st_ino
        except OSError:
            pass
    return found

assert frames.experiments(f"sqlite:///{path}") == ["study"]
assert is_open() == 1, is_open()
child = os.fork()
if child == 0:
    inherited = is_open()
    assert frames.experiments(f"sqlite:///{path}") == ["study"]
    os._exit(inherited)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert frames.experiments(f"sqlite:///{path}") == ["study"]
"""


def test_a_process_that_forks_takes_none_along_and_leaves_nothing_behind(study):
    path = Path(study.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
    assert not list(path.parent.glob("*-wal"))
    done = subprocess.run([sys.executable, "-c", FORKS, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(path.parent.glob("*-wal")) + list(path.parent.glob("*-shm"))
