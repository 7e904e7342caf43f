"""`jestlab export` and `jestlab import`: labs as archives, and results in formats of other tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import FILE, examples, json_option, lab_options
from jestlab.platform.cli.output import counted, counting, print_json, say, show
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.archive_read import merge
from jestlab.platform.exchange.archive_write import write
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

FORMATS = ("mlflow", "parquet", "tensorboard")
"""Those of `jestlab.platform.exchange`, which is imported when one is asked for."""

_archive = click.argument("archive", type=FILE)


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
    from jestlab.platform.exchange import export as results
    from jestlab.platform.exchange.writers import write as write_in

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
