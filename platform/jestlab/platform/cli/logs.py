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
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.bucket import Bucket
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import SyncedFolder
from jestlab.platform.launch import liveness
from jestlab.platform.launch.executor import LaunchedJob
from jestlab.platform.store import leases
from jestlab.platform.store.records import ADOPTED, Lease, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

_EPILOG = f"""{naming.HELP}

{examples("logs quickstart/joint/1", "logs quickstart/joint/1 -n 20 -f")}"""

_POLL_SECONDS = 0.5
_FETCH_SECONDS = 10.0  # from a bucket, to which its worker sends it every minute
_QUIET_LOOKS = 8
_BLOCK = 1 << 20


@click.command(epilog=_EPILOG)
@click.argument("name", metavar="RUN")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Print only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run ends or its worker is lost.")
@json_option("Print path, state and text as JSON.")
@lab_options
def logs_command(name: str, *, lines: int | None, follow: bool, as_json: bool, lab: Lab) -> None:
    """Print the log of a RUN.

    The log is read from the lab's folder, or else fetched from where the last attempt ran. It is printed as
    it is; a terminal gets its colours and progress bars, and no other control sequences.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json: expected only one of them")
    store = naming.existing_store(lab)
    named = naming.run(store, name)
    chosen = named.row
    lease = leases.standings(store, [chosen.fingerprint])[chosen.fingerprint].lease
    path, fetch = _log_of(chosen.directory, lease, lab)
    fetch()
    if not path.is_file() and not follow:
        text = _of_executor(store, lease, lab)
        if text is None and chosen.program == ADOPTED:
            raise UserError(f"{named.title} was adopted: its log is where its tool has left it")
        if text is None:
            raise UserError(f"{named.title} has no log yet: it is {chosen.state}")
        if lines is not None:
            text = b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    elif as_json:
        text = path.read_bytes() if lines is None else logs.last_lines(path, lines)
    else:
        with _printing() as write:
            _stream(path, lines, write)
            if follow:
                _follow(path, _End(store, chosen.fingerprint), fetch, write)
        return
    if as_json:
        about = {"path": str(path), "state": chosen.state, "text": text.decode(errors="replace")}
        print_json(about)
    else:
        with _printing() as write:
            write(text)


def _log_of(directory: str, lease: Lease | None, lab: Lab) -> tuple[Path, Callable[[], None]]:
    """Find the path of a run's log on this machine, and the function that fetches it there."""
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
    """Ask for the log of the last attempt where it ran; None where this store has launched nothing."""
    job = None if lease is None else LaunchedJob.of(store.id(), lease)
    if lease is None or job is None:
        return None
    # Here, because they import pydantic, and most logs are files.
    from jestlab.platform.lab.settings import Settings
    from jestlab.platform.launch import executors

    return b"".join(executors.find(lease.executor, Settings.find(), lab).logs(job))


class _End:
    """Tells when nothing more will be written: the run has ended, or its worker is lost."""

    def __init__(self, store: Store, fingerprint: str) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._quiet = 0

    def __call__(self) -> bool:
        try:
            standing = leases.standings(self._store, [self._fingerprint])[self._fingerprint]
        except StoreUnreachable:
            return False
        doubts = liveness.doubts(standing.lease, now())
        if doubts is not None:
            say(f"jestlab: {doubts}", err=True)
        # What failed, or was stopped from outside, may be tried again in a moment.
        self._quiet = self._quiet + 1 if standing.state.is_terminal else 0
        return standing.state == RunState.COMPLETED or self._quiet > _QUIET_LOOKS or doubts is not None


def _stream(path: Path, lines: int | None, write: Callable[[bytes], None]) -> None:
    """Print a log, whatever its size and bytes."""
    if lines is not None:
        write(logs.last_lines(path, lines))
    elif path.is_file():
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                write(block)


def _follow(
    path: Path, ended: Callable[[], bool], fetch: Callable[[], None], write: Callable[[bytes], None]
) -> None:
    position = path.stat().st_size if path.exists() else 0
    while True:
        last = ended()  # asked before reading, so that what was written before the end is read
        fetch()
        if path.is_file():
            with path.open("rb") as stream:
                stream.seek(position)
                while block := stream.read(_BLOCK):
                    write(block)
                position = stream.tell()
        if last:
            return
        time.sleep(_POLL_SECONDS)


# ---- how a log is printed

_COLOUR = r"\x1b\[[0-9;:]{0,32}m"
_OBEYED = re.compile(rf"({_COLOUR})|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")
_PLAIN = "\x1b[0m"


@contextmanager
def _printing() -> Iterator[Callable[[bytes], None]]:
    """Context with a function that prints parts of a log: unchanged, but on a terminal only harmless ones."""
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
    """Lets a log change colours and go back to the start of a line, as progress bars do, and nothing else.

    A log is what a program printed, perhaps somebody else's, and a terminal lets its output change its title,
    what is on the screen, even the clipboard.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a sequence, maybe
        self._coloured = False

    def shown(self, block: bytes) -> bytes:
        """Return what to print of the next part of a log."""
        text = self._held + self._decoder.decode(block)
        begun = _BEGUN.search(text)
        self._held = begun[0] if begun else ""
        return self._harmless(text.removesuffix(self._held))

    def end(self) -> bytes:
        """Return what to print in the end."""
        rest = self._harmless(self._held + self._decoder.decode(b"", final=True))
        return rest + (_PLAIN.encode() if self._coloured else b"")

    def _harmless(self, text: str) -> bytes:
        def kept(found: re.Match[str]) -> str:
            self._coloured |= found[1] is not None
            return found[1] or " "

        return _OBEYED.sub(kept, text).encode()
