"""Files are written completely or not at all."""

import contextlib
import os
import random
import signal

from jestlab.analysis.files import write_whole


class Stop(BaseException):
    """Raised by a signal handler, like KeyboardInterrupt."""


def test_a_signal_at_any_moment_leaves_no_other_file(tmp_path):
    stops = 0

    def stop(*_: object) -> None:
        nonlocal stops
        stops += 1  # counted, since an exception is lost if it's raised in a destructor
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    chance = random.Random(0)
    try:
        for number in range(100):
            with contextlib.suppress(Stop):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.003))
                while stops == number:
                    write_whole(tmp_path / "table.md", "x" * 1_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert (tmp_path / "table.md").read_text() == "x" * 1_000


def test_permissions_are_those_of_new_files(tmp_path):
    mask = os.umask(0o027)
    try:
        path = write_whole(tmp_path / "new" / "table.md", "λ")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text(encoding="utf-8") == "λ"
