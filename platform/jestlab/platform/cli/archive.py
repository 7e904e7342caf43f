"""`jestlab export` and `jestlab import`: a lab, or some of its experiments, as one archive."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import counted, print_json
from jestlab.platform.errors import UserError
from jestlab.platform.lab.exporting import write
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.merging import merge
from jestlab.platform.store.store import Store

_archive = click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))


@click.command(
    "export",
    epilog=examples(
        "export lab.tar.zst",
        "export quickstart.tar.gz quickstart --with-checkpoints",
        "import quickstart.tar.gz --root /other/lab",
    ),
)
@_archive
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--with-checkpoints", is_flag=True, help="Include all files of completed runs, not only logs.")
@json_option()
@lab_options
def export(
    archive: Path, experiments: tuple[str, ...], with_checkpoints: bool, as_json: bool, lab: Lab
) -> None:
    """Write the results, logs and reports of EXPERIMENTs to ARCHIVE (.tar.zst or .tar.gz).

    Without EXPERIMENT, export the whole lab, published results included.

    Without checkpoints, runs that need the weights of others cannot be launched from the imported archive.
    """
    lab.on_this_machine("export")
    written = write(lab, existing_store(lab), archive, experiments, with_checkpoints)
    if as_json:
        print_json({"archive": str(archive), **asdict(written)})
    else:
        parts = (
            counted(len(written.experiments), "experiment"),
            counted(written.runs, "run"),
            counted(written.files, "file"),
        )
        click.echo(f"{archive}: {', '.join(parts)}, {archive.stat().st_size / 1e6:.1f} MB")


@click.command(
    "import",
    epilog=examples(
        "import quickstart.tar.zst",
        "import quickstart.tar.zst --root /other/lab --store postgresql://lab@host/results",
    ),
)
@_archive
@json_option()
@lab_options
def import_(archive: Path, as_json: bool, lab: Lab) -> None:
    """Add the results in ARCHIVE to the lab, all or nothing; importing again changes nothing.

    A run that the lab has already is replaced only if it is neither COMPLETED nor running here, and COMPLETED
    in the archive.
    """
    lab.on_this_machine("import")
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    merged = merge(lab, Store.open(lab.store_url), archive)
    if as_json:
        print_json(asdict(merged))
    else:
        published = f"; {counted(merged.published, 'published cell')}" if merged.published else ""
        click.echo(
            f"runs: {merged.new} new, {merged.replaced} replaced, {merged.kept} unchanged; "
            f"experiments: {', '.join(merged.experiments) or 'unchanged'}{published}"
        )
