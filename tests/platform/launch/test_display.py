"""The display of a launch, on a terminal and in a pipe."""

import io

import plans_support as plans
import pytest

from jestlab.platform import logs
from jestlab.platform.launch.display import Bar, Lines, display
from jestlab.platform.store.records import Progress, RunState


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_stream_decides():
    assert type(display("toy", io.StringIO())) is Lines
    assert type(display("toy", Terminal())) is Bar


def test_one_plain_line_a_change():
    stream = io.StringIO()
    lines = Lines("toy", stream)
    run = plans.run("joint", seed=2, point={"filter": "a\x1b[31m\nb"})
    lines.begin(1)
    lines.state(run, RunState.RUNNING)
    lines.progress({run.fingerprint: Progress(5, 10, {"loss": 0.5})})
    lines.state(run, RunState.FAILED, "exit code 1: ValueError: no")
    lines.end()
    assert stream.getvalue().splitlines() == [
        "1 to run",
        "RUNNING    'toy/joint filter=a [31m b/2'",
        "[1/1] FAILED     'toy/joint filter=a [31m b/2', 0 s: exit code 1: ValueError: no",
    ]


def test_runs_of_further_rounds_are_counted_on():
    stream = io.StringIO()
    lines = Lines("toy", stream)
    for seed in (0, 1):
        lines.begin(1)
        lines.state(plans.run("joint", seed=seed), RunState.COMPLETED)
        lines.end()
    assert [line.split(" ")[0] for line in stream.getvalue().splitlines()] == ["1", "[1/1]", "1", "[2/2]"]


@pytest.mark.parametrize("columns", [80, 140])
def test_bars_on_a_terminal(monkeypatch, columns):
    """On a narrow one loss and rate give way to label, bar and time."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    moving = Bar("toy", stream)
    runs = [plans.run("joint"), plans.run("uniform", seed=1)]
    moving.begin(2)
    for run in runs:
        moving.state(run, RunState.RUNNING)
    first = runs[0].fingerprint
    moving.submitted(1, 2)
    moving.progress({first: Progress(0, 10, {})})
    moving.progress({first: Progress(5, 10, {"loss": 0.12345, "examples_seen": 320.0})})
    moving.state(runs[0], RunState.COMPLETED)
    moving.end()
    said = stream.getvalue()
    for expected in ("submitted 1 of 2", "5/10 steps", "\x1b[32mCOMPLETED\x1b[0m  toy/joint/0", "1/2 runs"):
        assert expected in said
    assert ("loss 0.1235" in said) == (columns == 140)


def test_last_lines_of_a_log(tmp_path):
    path = tmp_path / "log.txt"
    assert logs.last_lines(path, 3) == b""
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)) + b"unended")
    assert logs.last_lines(path, 2) == b"line 49999\nunended"
    assert logs.last_lines(path, 0) == b""
    assert len(logs.last_lines(path, 100_000).splitlines()) == 50_001
    path.write_bytes(b"x" * 2_000_000)
    assert len(logs.last_lines(path, 1, limit=1_000)) == 1_000
    path.write_text("é∑😀" * 1_000)  # no character is cut
    for limit in range(100, 109):
        assert path.read_text().endswith(logs.last_lines(path, 1, limit).decode())
    assert logs.last_lines(tmp_path, 1) == b""


def test_a_reason_is_one_printable_line(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("--- attempt 1\nfirst\n\n\x1b[31mTraceback\x1b[0m\n  at\tline\rtwo\n")
    assert logs.summary(path) == "[31mTraceback [0m | at line | two"
    path.write_text("cannot connect to postgresql://lab:sesame@db.example/results\n")
    assert logs.summary(path) == "cannot connect to postgresql://***@db.example/results"
    assert len(logs.one_line("x" * 10_000)) < 600
