"""`jestlab logs`: what a run printed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab import Lab
from jestlab.platform.launch import logs

if TYPE_CHECKING:
    from jestlab.platform.store.records import RunRow

_EPILOG = """\b
Example:
  jestlab logs quickstart joint --seed 1
  jestlab logs quickstart joint --seed 1 -n 20 -f
"""

_POLL_SECONDS = 0.5
_BLOCK = 1 << 20


@click.command(epilog=_EPILOG)
@click.argument("experiment")
@click.argument("run")
@click.option("--seed", type=int, help="Replicate, where there are several.")
@click.option("-n", "lines", type=click.IntRange(min=0), help="The last N lines only.")
@click.option("-f", "follow", is_flag=True, help="Go on until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print path, state and text as JSON.")
@lab_options
def command(
    experiment: str, run: str, *, seed: int | None, lines: int | None, follow: bool, as_json: bool, lab: Lab
) -> None:
    """Print the log of a run, named as in the study, by its label, or by its fingerprint's beginning."""
    from jestlab.platform.store.store import Store

    if follow and as_json:
        raise click.UsageError("-f and --json do not go together")
    store = Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)
    chosen = find(store.runs(experiment), run, seed)
    path = lab.root / chosen.directory / logs.NAME
    if not path.exists() and not follow:
        raise UserError(f"{chosen.label} (seed {chosen.seed}) has no log yet: it is {chosen.state}")
    if as_json:
        text = _tail(path, lines).decode(errors="replace")
        click.echo(json.dumps({"path": str(path), "state": chosen.state, "text": text}, ensure_ascii=False))
        return
    _stream(path, lines)
    if follow:
        _follow(path, lambda: store.states([chosen.fingerprint])[chosen.fingerprint].is_terminal)


def find(runs: Sequence[RunRow], wanted: str, seed: int | None) -> RunRow:
    """The one run that is meant.

    Args:
        runs: Of the experiment.
        wanted: Name, label, or the first characters of the fingerprint.
        seed: Replicate; None where there is one only.

    Raises:
        UserError: None or several; the message says how to choose.
    """
    found = [run for run in runs if wanted in (run.name, run.label)]
    if not found and len(wanted) >= 4:
        found = [run for run in runs if run.fingerprint.startswith(wanted)]
    if not found:
        raise UserError(
            f"no run {wanted!r}: {nearest(wanted, {run.label for run in runs} | {run.name for run in runs})}"
        )
    labels = sorted({run.label for run in found})
    if len(labels) > 1 and wanted not in labels:
        shown = ", ".join(map(repr, labels[:6])) + (", …" if len(labels) > 6 else "")
        raise UserError(f"several runs are named {wanted!r}: say which by its label: {shown}")
    if wanted in labels:
        found = [run for run in found if run.label == wanted]
    seeds = sorted(run.seed for run in found)
    if seed is not None:
        found = [run for run in found if run.seed == seed]
    if len(found) != 1:
        raise UserError(f"{wanted!r} was run with seeds {', '.join(map(str, seeds))}: choose one by --seed")
    return found[0]


def _tail(path: Path, lines: int | None) -> bytes:
    return path.read_bytes() if lines is None else logs.last_lines(path, lines)


def _stream(path: Path, lines: int | None) -> None:
    """Print a log as it is, whatever its size and bytes."""
    if lines is not None:
        sys.stdout.buffer.write(logs.last_lines(path, lines))
    elif path.exists():
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _follow(path: Path, ended: Callable[[], bool]) -> None:
    position = path.stat().st_size if path.exists() else 0
    while True:
        last = ended()  # asked before reading, so that what was written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while block := stream.read(_BLOCK):
                    sys.stdout.buffer.write(block)
                position = stream.tell()
            sys.stdout.buffer.flush()
        if last:
            return
        time.sleep(_POLL_SECONDS)
