"""`jestlab db`, `gc`, `doctor`, `export` and `import`: the upkeep of a lab, and labs as archives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click
from rich.console import Console

from jestlab.platform.cli.help import Verbs
from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import FILE, examples, json_option, lab_options
from jestlab.platform.cli.output import counted, print_json, say, show, table
from jestlab.platform.cli.progress import counting
from jestlab.platform.errors import UserError
from jestlab.platform.lab import gc
from jestlab.platform.lab.doctor import Level, examine
from jestlab.platform.lab.exporting import write
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.merging import merge
from jestlab.platform.store import maintenance
from jestlab.platform.store.address import parse_url, shown_url
from jestlab.platform.store.backup import back_up
from jestlab.platform.store.backup import restore as restore_backup
from jestlab.platform.store.store import Store
from jestlab.platform.terminal import styled

FORMATS = ("mlflow", "parquet", "tensorboard")
"""Those of `jestlab.platform.formats`, which is imported when one is asked for."""

_archive = click.argument("archive", type=FILE)


@click.group(
    cls=Verbs,
    epilog=examples(
        "db check",
        "db upgrade",
        "db backup /safe/place/results.db",
        "db restore backup.db --store postgresql://lab@server/results",
    ),
)
def db_command() -> None:
    """Check, back up, and restore the results store, and recreate its views."""


@db_command.command(epilog=examples("db upgrade"))
@json_option()
@lab_options
def upgrade(*, as_json: bool, lab: Lab) -> None:
    """Recreate the views of the store that aren't those of this jestlab. They hold no data."""
    changed = maintenance.upgrade(lab.store_url)
    text = f"views recreated: {', '.join(changed)}" if changed else "nothing to do: all views are up to date"
    show(as_json, {"views": changed}, text)


@db_command.command(epilog=examples("db check", "db check --json"))
@json_option()
@lab_options
@click.pass_context
def check(context: click.Context, *, as_json: bool, lab: Lab) -> None:
    """Check the store: file, schema, references, views, runs and their folders. Changes nothing.

    Exit code: 0 all is well, 1 something is wrong; each line says what to do.
    """
    findings = maintenance.check(lab.store_url, lab.root)
    if as_json:
        print_json({"sound": not findings, "findings": list(map(asdict, findings))})
    else:
        for finding in findings:
            say(f"{finding.check}: {finding.what}: {finding.remedy}")
        if not findings:
            say(f"sound: {shown_url(parse_url(lab.store_url))}")
    context.exit(1 if findings else 0)


@db_command.command(epilog=examples("db backup /safe/place/results.db"))
@click.argument("path", type=FILE)
@json_option()
@lab_options
def backup(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Copy the store, from any kind of database, to the new SQLite file PATH.

    Runs may continue meanwhile. The copy is a store itself: --store sqlite:///PATH reads it.
    """
    back_up(lab.store_url, path)
    size = path.stat().st_size
    show(as_json, {"path": str(path), "bytes": size}, f"{path} ({size / 1e6:.1f} MB)")


@db_command.command(epilog=examples("db restore backup.db --store postgresql://lab@server/results"))
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option()
@lab_options
def restore(path: Path, *, as_json: bool, lab: Lab) -> None:
    """Restore the backup PATH into an empty database or a new SQLite file.

    This also moves a store from a file to a database server.
    """
    restore_backup(path, lab.store_url)
    address = shown_url(parse_url(lab.store_url))
    show(as_json, {"store": address}, f"restored: {address}")


# ---- gc

_GC_EPILOG = """\
Never deleted: runs that belong to an experiment, are tagged `keep` or have not ended, and the runs that they
need.

\b
Examples:
  jestlab gc
  jestlab gc --older-than 12h --delete
"""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    """Parse an age such as `90m`, `12h`, `1d` or `2w`."""
    match = re.fullmatch(r"(\d{1,5})([smhdw])", text)
    if match is None:
        raise click.BadParameter(f"invalid age {text!r}: expected 90m, 12h, 1d, 2w or the like")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(epilog=_GC_EPILOG)
@click.option("--delete", is_flag=True, help="Delete what was found; without this, nothing is changed.")
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    default="1d",
    show_default=True,
    help="Keep what is younger.",
)
@json_option()
@lab_options
def gc_command(delete: bool, older_than: timedelta, as_json: bool, lab: Lab) -> None:
    """List unreferenced files with their sizes, and delete them with --delete.

    These are runs that nothing refers to, folders that belong to no run, partial files, what jobs of
    Slurm have left, and datasets that can be made again and that no run reads.
    """
    lab.on_this_machine("gc")
    store = existing_store(lab, writes=delete)
    found = gc.collect(lab, store, older_than) if delete else gc.find(lab, store, older_than)
    garbage = [asdict(item) | {"path": item.path.relative_to(lab.root).as_posix()} for item in found]
    if as_json:
        print_json({"deleted": delete, "garbage": garbage})
    elif not found:
        say("nothing to collect")
    else:
        rows = [[item["kind"], item["path"], _bytes(item["size"]), item["reason"]] for item in garbage]
        say(table(["what", "where", "size", "why"], rows, right=(2,)))
        total = _bytes(sum(item.size for item in found))
        say(f"{total} deleted" if delete else f"{total} in total; to delete: jestlab gc --delete")


def _bytes(size: float) -> str:
    """A size in a few characters."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# ---- doctor

_LEVELS = {Level.OK: "green", Level.WARNING: "yellow", Level.BROKEN: "red"}


@click.command(epilog=examples("doctor", "doctor --no-jax --json"))
@click.option("--jax/--no-jax", default=True, help="Whether to check which devices JAX finds.")
@json_option()
@lab_options
def doctor_command(jax: bool, as_json: bool, lab: Lab) -> None:
    """Check Python, packages, JAX, store, disk and clouds, and say how to fix what is wrong.

    Exit code: 0 everything needed works, 1 something is broken.
    """
    console = Console(stderr=True)
    findings = []
    waiting = console.status("checking …") if console.is_terminal else nullcontext()
    with waiting:
        for finding in examine(lab, jax):
            findings.append(finding)
            if not as_json:
                remedy = f": {finding.remedy}" if finding.remedy else ""
                level = styled(f"{finding.level:8}", _LEVELS.get(finding.level, ""))
                say(level + f" {finding.check:12} {finding.found}{remedy}", hang=22)
    if as_json:
        print_json(list(map(asdict, findings)))
    if any(finding.level is Level.BROKEN for finding in findings):
        raise SystemExit(1)


# ---- archives


@click.command(
    epilog=examples(
        "export lab.tar.zst",
        "export quickstart.tar.gz quickstart --with-checkpoints",
        "export mlruns quickstart --format mlflow",
        "import quickstart.tar.gz --root /other/lab",
    ),
)
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("archive", *FORMATS)),
    default="archive",
    show_default=True,
    help="An archive, which `jestlab import` reads, or a folder for another tool.",
)
@click.option("--with-checkpoints", is_flag=True, help="Include all files of completed runs, not only logs.")
@json_option()
@lab_options
def export_command(
    out: Path, experiments: tuple[str, ...], kind: str, with_checkpoints: bool, as_json: bool, lab: Lab
) -> None:
    """Write the results, logs and reports of EXPERIMENTs to OUT, an archive (.tar.zst or .tar.gz).

    Without EXPERIMENT, export the whole lab, published results included.

    Without checkpoints, runs that need the weights of others cannot be launched from the imported archive.

    With another format, OUT is a new folder with configs, metrics, scores, tags and notes, and no files of
    runs: a file store of MLflow; three tables in Parquet, `runs`, `metrics` and `evaluations`; or event files
    of TensorBoard, a folder for each run.
    """
    if kind != "archive":
        if with_checkpoints:
            raise click.UsageError(f"--with-checkpoints: only an archive holds files of runs, {kind} none")
        _hand_on(kind, out, experiments, as_json, lab)
        return
    archive = out
    if archive.is_dir():
        raise UserError(f"{archive} is a folder: name an archive, .tar.zst or .tar.gz, or give a --format")
    lab.on_this_machine("export")
    written = write(lab, existing_store(lab), archive, experiments, with_checkpoints)
    if as_json:
        print_json({"archive": str(archive), **asdict(written)})
    else:
        held = f"{counted(len(written.experiments), 'experiment')}, {counted(written.runs, 'run')}"
        size = f"{counted(written.files, 'file')}, {archive.stat().st_size / 1e6:.1f} MB"
        say(f"{archive}: {held}, {size}")


def _hand_on(kind: str, folder: Path, experiments: tuple[str, ...], as_json: bool, lab: Lab) -> None:
    """Write results in the format of another tool."""
    from jestlab.platform.formats import results
    from jestlab.platform.formats.kinds import write as write_in

    store = existing_store(lab)
    total = results.count(store, experiments)
    with counting(f"writing {counted(total, 'run')}", total) as advance:

        def counted_off() -> Iterator[results.Result]:
            for result in results.read(store, experiments):
                yield result
                advance(1)

        write_in(kind, counted_off(), folder)
    data = {"folder": str(folder), "format": kind, "runs": total}
    viewer = _VIEWERS[kind].format(folder=shlex.quote(str(folder)))
    show(as_json, data, f"{folder}: {counted(total, 'run')}; to look at them: {viewer}")


_VIEWERS = {
    "mlflow": "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}",
    "parquet": "pandas, DuckDB and the like",
    "tensorboard": "tensorboard --logdir {folder}",
}


@click.command(
    epilog=examples(
        "import quickstart.tar.zst",
        "import quickstart.tar.zst --store postgresql://lab@host/results",
    ),
)
@_archive
@click.option("--replace", is_flag=True, help="Let experiments in ARCHIVE replace those launched here.")
@json_option()
@lab_options
def import_command(archive: Path, replace: bool, as_json: bool, lab: Lab) -> None:
    """Add the results in ARCHIVE to the lab, all or nothing; importing again changes nothing.

    A run that the lab has already is replaced only if it is neither COMPLETED nor running here, and COMPLETED
    in the archive. An experiment that was launched here stays as it is. What was imported is not executed
    before `jestlab trust`.
    """
    lab.on_this_machine("import")
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    merged = merge(lab, Store.open(lab.store_url), archive, replace)
    if as_json:
        print_json(asdict(merged))
    else:
        published = f"; {counted(merged.published, 'published cell')}" if merged.published else ""
        say(
            f"runs: {merged.new} new, {merged.replaced} replaced, {merged.kept} unchanged; "
            f"experiments: {', '.join(merged.experiments) or 'unchanged'}{published}"
        )
        for name in merged.kept_experiments:
            say(
                f"{name} was launched here and stays as it is: import into a lab of its own "
                f"(--root), or jestlab import {shlex.quote(str(archive))} --replace"
            )
