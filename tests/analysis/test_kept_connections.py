"""A connection to a file is kept between queries, without any visible effect."""

import subprocess
import sys

import pytest

from jestlab.analysis import connection, query
from jestlab.analysis.results import experiments as experiments_in

COUNT = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT MAX(i) FROM n"


def test_reads_a_file_that_replaces_another(study, stored_run, new_store):
    other = new_store().add(stored_run("uniform", [0.9]), experiment="other")
    assert experiments_in(study.url) == ["study"]
    other.path.replace(study.path)
    assert experiments_in(study.url) == ["other"]
    study.path.unlink()
    with pytest.raises(FileNotFoundError):
        experiments_in(study.url)


def test_the_time_limit_is_for_one_query(study):
    with pytest.raises(ValueError, match=r"took longer than 0\.05 s"):
        query.ask(study.url, COUNT.format(10**9), query.Limits(rows=1, most_bytes=1_000, seconds=0.05))
    assert query.ask(study.url, COUNT.format(10**5)).rows == [(100_000,)]


def test_keeps_the_last_files(study, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_KEPT", 2)
    for number in range(5):
        assert experiments_in(study.copy(tmp_path / f"{number}.db").url) == ["study"]
    assert [key[0].name for key in connection._kept] == ["3.db", "4.db"]


FORKS = """
import os, sys
from pathlib import Path
from jestlab.analysis.results import experiments as experiments_in

path = Path(sys.argv[1])

def is_open():
    found = 0
    for number in range(256):
        try:
            found += os.fstat(number).st_ino == path.stat().st_ino
        except OSError:
            pass
    return found

assert experiments_in(f"sqlite:///{path}") == ["study"]
assert is_open() == 1, is_open()
child = os.fork()
if child == 0:
    inherited = is_open()
    assert experiments_in(f"sqlite:///{path}") == ["study"]
    os._exit(inherited)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert experiments_in(f"sqlite:///{path}") == ["study"]
"""


def test_a_forked_process_inherits_no_connection_and_leaves_no_files(study):
    study.execute("PRAGMA journal_mode = WAL")
    before = list(study.path.parent.iterdir())
    command = [sys.executable, "-c", FORKS, study.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(study.path.parent.iterdir()) == before == [study.path]
