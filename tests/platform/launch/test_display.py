"""The display of a launch, and the last lines of a log."""

import io

import plans_support as plans
import pytest

from jestlab.platform import logs
from jestlab.platform.launch.display import Lines, ProgressBars, display
from jestlab.platform.store.records import RunProgress, RunState


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_plain_line_a_change_over_all_rounds():
    stream = io.StringIO()
    lines = display("toy", stream)
    run = plans.run("joint", seed=2, point={"filter": "a\x1b[31m\nb"})
    lines.begin(1)
    lines.state(run, RunState.RUNNING)
    lines.progress({run.fingerprint: RunProgress(5, 10, {"loss": 0.5})})
    lines.state(run, RunState.FAILED, "exit code 1: ValueError: no")
    lines.note("first\nsecond \x1b[31m")
    lines.end()
    lines.begin(1)
    lines.state(plans.run("next"), RunState.COMPLETED)
    assert type(lines) is Lines
    assert lines.notes == ["first second [31m"]
    assert stream.getvalue().splitlines() == [
        "1 to run",
        "RUNNING    'toy/joint filter=a [31m b/2'",
        "[1/1] FAILED     'toy/joint filter=a [31m b/2', <1 s: ValueError: no (exit code 1)",
        "first second [31m",
        "1 to run",
        "[2/2] COMPLETED  toy/next/0",
    ]


@pytest.mark.parametrize("columns", [80, 140])
def test_bars_on_a_terminal(monkeypatch, columns):
    """A narrow terminal has no room for loss and rate."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    bar = display("toy", stream)
    assert type(bar) is ProgressBars
    runs = [plans.run("joint"), plans.run("uniform", seed=1)]
    bar.begin(2)
    for run in runs:
        bar.state(run, RunState.RUNNING)
    first = runs[0].fingerprint
    bar.progress({first: RunProgress(0, 10, {})})
    bar.progress({first: RunProgress(5, 10, {"loss": 0.12345, "examples_seen": 320.0})})
    bar.state(runs[0], RunState.COMPLETED)
    bar.end()
    shown = stream.getvalue()
    for expected in ("5/10 steps", "\x1b[32mCOMPLETED\x1b[0m  toy/joint/0", "1/2 runs"):
        assert expected in shown
    assert ("loss 0.1235" in shown) == (columns == 140)


# ---- logs


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
