"""`jestlab logs`: print or follow the log of a run."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from jestlab.platform import logs
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.bucket import Bucket
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import SyncedFolder
from jestlab.platform.launch import liveness
from jestlab.platform.launch.executors.base import LaunchedJob
from jestlab.platform.store import leases
from jestlab.platform.store.records import ADOPTED, Lease, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

_EPILOG = f"""{naming.HELP}

{examples("logs quickstart/joint/1", "logs quickstart/joint/1 -n 20 -f")}"""

_POLL_SECONDS = 0.5
_FETCH_SECONDS = 10.0  # between downloads from a bucket, to which the worker uploads every minute
_ENDED_CHECKS = 8  # a run that failed or was stopped may be retried soon


@click.command(epilog=_EPILOG)
@click.argument("name", type=RUN, metavar="RUN")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Print only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run ends or its worker is lost.")
@json_option("Print path, state and text as JSON.")
@lab_options
def logs_command(name: str, *, lines: int | None, follow: bool, as_json: bool, lab: Lab) -> None:
    """Print the log of a RUN.

    The log is read from the lab's folder, or fetched from where the last attempt ran. It is printed
    unchanged, except that a terminal only receives colors and progress bars, and no other control sequences.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json: expected only one of them")
    store = naming.existing_store(lab)
    named = naming.run(store, name)
    chosen = named.row
    lease = leases.standings(store, [chosen.fingerprint])[chosen.fingerprint].lease
    path, fetch = _log_of(chosen.directory, lease, lab)
    fetch()
    if path.is_file() or follow:
        blocks = (
            _blocks(path, lines)
            if not follow
            else _followed(path, lines, _End(store, chosen.fingerprint), fetch)
        )
    elif (text := _of_executor(store, lease, lab)) is not None:
        if lines is not None:
            text = b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])
        blocks = iter([text])
    elif chosen.program == ADOPTED:
        raise UserError(f"{named.title} was imported: see the original tool for its log")
    else:
        raise UserError(f"{named.title} has no log yet: it is {chosen.state}")
    if as_json:
        whole = b"".join(blocks).decode(errors="replace")
        print_json({"path": str(path), "state": chosen.state, "text": whole})
        return
    with _printing() as write:
        for block in blocks:
            write(block)


def _log_of(directory: str, lease: Lease | None, lab: Lab) -> tuple[Path, Callable[[], None]]:
    """Return the path of a run's log on this machine, and the function that fetches it there."""
    path = lab.inside(f"{directory}/{logs.NAME}")
    if lab.remote is None or (lease is not None and lease.executor == "local" and path.exists()):
        return path, lambda: None
    synced = SyncedFolder(Bucket(lab.remote), directory, lab.root / directory)
    path = lab.inside(lab.cache / directory / logs.NAME)
    fetched_at = -_FETCH_SECONDS

    def fetch() -> None:
        nonlocal fetched_at
        if time.monotonic() - fetched_at >= _FETCH_SECONDS:
            fetched_at = time.monotonic()
            synced.fetch_log(path)

    return path, fetch


def _of_executor(store: Store, lease: Lease | None, lab: Lab) -> bytes | None:
    """Fetch the log of the last attempt from its executor; None if this store didn't launch it."""
    job = None if lease is None else LaunchedJob.of(store.id(), lease)
    if lease is None or job is None:
        return None
    # Imported here, because they import pydantic, and most logs are files.
    from jestlab.platform.lab.settings import Settings
    from jestlab.platform.launch import executors

    return b"".join(executors.find(lease.executor, Settings.find(), lab).logs(job))


class _End:
    """Whether a log is complete: the run has ended, or its worker is lost."""

    def __init__(self, store: Store, fingerprint: str) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._checks = 0

    def __call__(self) -> bool:
        try:
            standing = leases.standings(self._store, [self._fingerprint])[self._fingerprint]
        except StoreUnreachable:
            return False
        doubts = liveness.doubts(standing.lease, now())
        if doubts is not None:
            say(f"jestlab: {doubts}", err=True)
        self._checks = self._checks + 1 if standing.state.is_terminal else 0
        return standing.state == RunState.COMPLETED or self._checks > _ENDED_CHECKS or doubts is not None


def _blocks(path: Path, lines: int | None, position: int = 0) -> Iterator[bytes]:
    """Yield a log from a position, or only its last lines."""
    if lines is not None:
        yield logs.last_lines(path, lines)
    elif path.is_file():
        yield from logs.blocks(path, position)


def _followed(
    path: Path, lines: int | None, ended: Callable[[], bool], fetch: Callable[[], None]
) -> Iterator[bytes]:
    """Yield a log, and the lines appended until the run has ended."""
    position = path.stat().st_size if lines is not None and path.exists() else 0
    if lines is not None:
        yield from _blocks(path, lines)
    while True:
        last = ended()  # checked before reading, so that everything written before the end is read
        fetch()
        for block in _blocks(path, None, position):
            position += len(block)
            yield block
        if last:
            return
        time.sleep(_POLL_SECONDS)


# ---- printing

_COLOR = r"\x1b\[[0-9;:]{0,32}m"
_CONTROL = re.compile(rf"({_COLOR})|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INCOMPLETE = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")
_RESET = "\x1b[0m"


@contextmanager
def _printing() -> Iterator[Callable[[bytes], None]]:
    """Context with a function that prints parts of a log: unchanged, or only harmless ones on a terminal."""
    out = sys.stdout.buffer
    terminal = Terminal() if sys.stdout.isatty() else None

    def write(block: bytes) -> None:
        out.write(block if terminal is None else terminal.shown(block))
        out.flush()

    try:
        yield write
    finally:
        if terminal is not None:
            out.write(terminal.end())
            out.flush()


class Terminal:
    """Keeps colors and carriage returns of a log, and removes all other control sequences.

    A program may print anything, and a terminal lets its output change the title, the screen, and even the
    clipboard.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # possibly the first part of a color sequence
        self._colored = False

    def shown(self, block: bytes) -> bytes:
        """Return the printable version of the next part of a log."""
        text = self._held + self._decoder.decode(block)
        incomplete = _INCOMPLETE.search(text)
        self._held = incomplete[0] if incomplete else ""
        return self._harmless(text.removesuffix(self._held))

    def end(self) -> bytes:
        """Return what remains to be printed at the end."""
        rest = self._harmless(self._held + self._decoder.decode(b"", final=True))
        return rest + (_RESET.encode() if self._colored else b"")

    def _harmless(self, text: str) -> bytes:
        def kept(found: re.Match[str]) -> str:
            self._colored |= found[1] is not None
            return found[1] or " "

        return _CONTROL.sub(kept, text).encode()
