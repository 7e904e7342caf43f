"""`jestlab logs`: print or follow the log of a run."""

import codecs
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import click

from jestlab.platform import logs
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import RUN_HELP, examples, lab_json_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import Bucket, SyncedFolder
from jestlab.platform.launch import liveness
from jestlab.platform.launch.executors.base import LaunchedJob
from jestlab.platform.store import leases
from jestlab.platform.store.records import ADOPTED, Lease, RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

_EPILOG = f"""{RUN_HELP}

{examples("logs quickstart/joint/1", "logs quickstart/joint/1 -n 20 -f")}"""

_POLL_SECONDS = 0.5
_FETCH_SECONDS = 10.0  # interval of downloads from a bucket; workers upload once a minute
_ENDED_CHECKS = 8  # extra checks after a failure or stop, since the run may be retried


@click.command(epilog=_EPILOG)
@click.argument("name", type=RUN, metavar="RUN")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Print only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run ends or its worker is lost.")
@lab_json_options("Print path, state and text as JSON.")
def logs_command(name: str, *, lines: int | None, follow: bool, as_json: bool, lab: Lab) -> None:
    """Print the log of a RUN.

    The log is read from the lab, or else from the executor of the last attempt. It is printed unchanged,
    except that on a terminal, control characters are replaced, other than those of colors and progress bars.
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json: expected only one of them")
    store = naming.existing_store(lab)
    named = naming.find_run(store, name)
    run = named.row
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    path, fetch = _log_path(run.directory, lease, lab)
    fetch()
    blocks: Iterable[bytes]
    if follow:
        blocks = _follow(path, lines, store, run.fingerprint, fetch)
    elif path.is_file():
        blocks = logs.blocks(path) if lines is None else [logs.last_lines(path, lines)]
    elif (text := _executor_log(store, lease, lab)) is not None:
        every = text.splitlines(keepends=True)
        blocks = every if lines is None else every[max(len(every) - lines, 0) :]
    elif run.program == ADOPTED:
        raise UserError(f"{named.title} was imported: see the original tool for its log")
    else:
        raise UserError(f"{named.title} has no log yet: it is {run.state}")
    if as_json:
        whole = b"".join(blocks).decode(errors="replace")
        print_json({"path": str(path), "state": run.state, "text": whole})
        return
    out, is_terminal = sys.stdout.buffer, sys.stdout.isatty()
    try:
        for block in without_controls(blocks) if is_terminal else blocks:
            out.write(block)
            out.flush()
    finally:
        if is_terminal:
            out.write(_RESET)


def _log_path(directory: str, lease: Lease | None, lab: Lab) -> tuple[Path, Callable[[], None]]:
    """Return the path of a run's log on this machine, and a function that downloads it if necessary."""
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


def _executor_log(store: Store, lease: Lease | None, lab: Lab) -> bytes | None:
    """Fetch the log of the last attempt from its executor; None if this store didn't launch it."""
    if lease is None or (job := LaunchedJob.of(store.id(), lease)) is None:
        return None
    # Imported only here, because the imports are slow, and most logs are files.
    from jestlab.platform.lab.settings import Settings
    from jestlab.platform.launch import executors

    return b"".join(executors.get(lease.executor, None, Settings.find(), lab).logs(job))


def _follow(
    path: Path, lines: int | None, store: Store, fingerprint: str, fetch: Callable[[], None]
) -> Iterator[bytes]:
    """Yield a log, or its last lines, and then all appended text until the run has ended."""
    position = checks = 0
    if lines is not None and path.exists():
        position = path.stat().st_size
        yield logs.last_lines(path, lines)
    has_ended = False
    while not has_ended:
        # Check the state before reading the log, so that all text from before the end is read.
        with suppress(StoreUnreachable):
            standing = leases.standings(store, [fingerprint])[fingerprint]
            if (warning := liveness.liveness_warning(standing.lease, now())) is not None:
                say(f"jestlab: {warning}", err=True)
            checks = checks + 1 if standing.state.is_terminal else 0
            is_final = standing.state == RunState.COMPLETED or checks > _ENDED_CHECKS
            has_ended = is_final or warning is not None
        fetch()
        for block in logs.blocks(path, position) if path.is_file() else ():
            position += len(block)
            yield block
        if not has_ended:
            time.sleep(_POLL_SECONDS)


# ---- printing

_COLOR = r"\x1b\[[0-9;:]{0,32}m"
_CONTROL = re.compile(rf"({_COLOR})|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INCOMPLETE = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")
_RESET = b"\x1b[0m"


def without_controls(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Replace control characters of a log with spaces, except tabs, line ends, backspaces, and colors.

    Otherwise, the output of a program could change the terminal's title, its screen, or even the clipboard.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""  # end of the last block that may be part of a color sequence
    for block in chain(blocks, [b""]):
        text = held + decoder.decode(block, final=not block)
        incomplete = _INCOMPLETE.search(text) if block else None
        held = incomplete[0] if incomplete else ""
        yield _CONTROL.sub(lambda found: found[1] or " ", text.removesuffix(held)).encode()
