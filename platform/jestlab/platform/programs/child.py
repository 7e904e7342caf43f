"""A command as a child of the worker: in its session, so that it ends with it, but in a group of its own.

So it gets a signal once, from the worker, and not also from whoever signals the worker's group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.secrets import STORE, STORE_SECRET

_PROC = Path("/proc")
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_BLOCK = 1 << 16
_KEPT = 4_096
_LEFT_BLOCKS = 64


class Child:
    """A running command; what it prints is copied to standard error, the run's log, and its end kept."""

    def __init__(self, words: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> None:
        """Start it.

        Args:
            words: The command.
            cwd: Where; None for where this process is.
            environment: What it finds beside what this process does, whose store it need not know.

        Raises:
            UserError: It cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                list(words),
                cwd=cwd,
                env={**_inherited(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
                # Should the worker be killed, nobody else might be there to end its command, which then would
                # write beside the next attempt. (One system call, bound before the fork: safe with threads.)
                preexec_fn=_die_with_the_worker,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            where = f" in {cwd}" if cwd is not None else ""
            raise UserError(f"cannot start {words[0]!r}{where}: {error}") from None
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)
        self._tail = b""
        self.stopping = False

    def runs(self) -> bool:
        """Whether it runs; when it was asked to stop, also whether any process of its group does."""
        return not self._ended() or (self.stopping and self._others_run())

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def code(self) -> int:
        """How it ended, as `subprocess` says it."""
        return self._process.wait()

    @property
    def last_words(self) -> str:
        """The end of what it printed."""
        return self._tail.decode(errors="replace")

    def stop(self) -> None:
        """Ask it to stop."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """End it, and what it left behind in its group."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def copy_output(self) -> bool:
        """Copy what it printed, up to a block; whether more may come."""
        try:
            block = os.read(self.output, _BLOCK)
        except BlockingIOError:
            return True
        self._tail = (self._tail + block)[-_KEPT:]
        left = memoryview(block)
        while left:
            left = left[os.write(2, left) :]
        return bool(block)

    def copy_rest(self) -> None:
        """Copy what it printed before it ended."""
        for _ in range(_LEFT_BLOCKS):
            if not self.copy_output():
                break
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _ended(self) -> bool:
        # Not reaped before `end`: until then the id of its group cannot be another's.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None

    def _others_run(self) -> bool:
        group = str(self.pid)
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it ended just now
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if fields[2] == group and fields[0] not in "ZX":
                        return True
        return False


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in (STORE, STORE_SECRET)}


def _die_with_the_worker() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
