"""`jestlab export` and `import`: archives of experiments, and results in the formats of other tools."""

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import FILE, examples, lab_json_options
from jestlab.platform.cli.output import counting, show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted

VIEWERS = {
    "mlflow": "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}",
    "parquet": "pandas, DuckDB, and similar tools",
    "tensorboard": "tensorboard --logdir {folder}",
}
"""Format → command or tools to open an export with."""


@click.command(
    epilog=examples(
        "export lab.zip",
        "export quickstart.zip quickstart --with-checkpoints",
        "export mlruns quickstart --format mlflow",
        "import quickstart.zip --root /other/lab",
    ),
)
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("experiments", type=EXPERIMENT, nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("archive", *VIEWERS)),
    default="archive",
    show_default=True,
    help="An archive for `jestlab import`, or a folder for another tool.",
)
@click.option(
    "--with-checkpoints",
    is_flag=True,
    help="In an archive, include all files of completed runs, not only logs.",
)
@lab_json_options()
def export_command(
    out: Path, experiments: tuple[str, ...], kind: str, with_checkpoints: bool, as_json: bool, lab: Lab
) -> None:
    """Export the results, logs, and reports of EXPERIMENTs to the archive OUT (NAME.zip).

    Without EXPERIMENT, export the whole lab, including published results.

    To launch imported runs that start from the weights of other runs, export --with-checkpoints.

    In another format, OUT is a new folder with configs, metrics, scores, tags, and notes, but without the
    runs' files. mlflow is a file store of MLflow. parquet is three tables: `runs`, `metrics`, and
    `evaluations`. tensorboard is one folder of event files per run.
    """
    if kind != "archive":
        if with_checkpoints:
            raise click.UsageError(f"--with-checkpoints: only archives contain files of runs, not {kind}")
        _export_to_folder(kind, out, experiments, as_json, lab)
        return
    from jestlab.platform.exchange.archive_write import write_archive

    if out.is_dir():
        raise UserError(f"{out} is a folder: name an archive, NAME.zip, or choose a --format")
    lab.on_this_machine("export")
    summary = write_archive(lab, existing_store(lab), out, experiments, with_checkpoints)
    numbers = (
        counted(len(summary.experiments), "experiment"),
        counted(summary.runs, "run"),
        counted(summary.files, "file"),
        f"{out.stat().st_size / 1e6:.1f} MB",
    )
    show(as_json, {"archive": str(out), **asdict(summary)}, f"{out}: {', '.join(numbers)}")


def _export_to_folder(kind: str, folder: Path, experiments: tuple[str, ...], as_json: bool, lab: Lab) -> None:
    from jestlab.platform.exchange import export

    store = existing_store(lab)
    total = len(members := export.members(store, experiments))
    with counting(f"writing {counted(total, 'run')}", total) as advance:
        export.write(kind, export.read(store, members, advance), folder)
    viewer = VIEWERS[kind].format(folder=shlex.quote(str(folder)))
    data = {"folder": str(folder), "format": kind, "runs": total}
    show(as_json, data, f"{folder}: {counted(total, 'run')}; to view them: {viewer}")


@click.command(
    epilog=examples(
        "import quickstart.zip",
        "import quickstart.zip --store postgresql://lab@host/results",
    ),
)
@click.argument("archive", type=FILE)
@lab_json_options()
def import_command(archive: Path, as_json: bool, lab: Lab) -> None:
    """Add the results in ARCHIVE to the lab, all or nothing. Importing an archive again changes nothing.

    An existing run is replaced only if it is COMPLETED in the archive, and neither COMPLETED nor running in
    the lab. Experiments that were launched in the lab are not replaced. The code of an imported experiment is
    not executed until you use `jestlab trust`.
    """
    from jestlab.platform.exchange.archive_read import read_archive

    lab.on_this_machine("import")
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    summary = read_archive(lab, Store.open(lab.store_url), archive)
    published = f"; {counted(summary.published, 'published cell')}" if summary.published else ""
    lines = [
        f"runs: {summary.new} new, {summary.replaced} replaced, {summary.kept} unchanged; "
        f"experiments: {', '.join(summary.experiments) or 'unchanged'}{published}"
    ]
    for name in summary.kept_experiments:
        lines.append(f"{name} was launched here and is kept: import it into another lab (--root)")
    show(as_json, asdict(summary), lines)
