"""`jestlab export`: a lab, or some experiments, as one archive."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.lab import Lab

_EPILOG = """\b
Example:
  jestlab export lab.tar.zst
  jestlab export quickstart.tar.gz quickstart --with-checkpoints
  jestlab import quickstart.tar.gz --root /other/lab
"""


@click.command("export", epilog=_EPILOG)
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--with-checkpoints", is_flag=True, help="All files of completed runs, not their logs alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(
    archive: Path, experiments: tuple[str, ...], with_checkpoints: bool, as_json: bool, lab: Lab
) -> None:
    """Write results, logs and reports of EXPERIMENTs, or of the whole lab, to ARCHIVE (.tar.zst or .tar.gz).

    The whole lab has its published results with it.

    Without checkpoints, runs that need the weights of others cannot be launched where it is imported.
    """
    from jestlab.platform.archive.writing import write
    from jestlab.platform.store.store import Store

    lab.on_this_machine("export")
    store = Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)
    written = write(lab, store, archive, experiments, with_checkpoints)
    if as_json:
        click.echo(json.dumps({"archive": str(archive), **asdict(written)}, ensure_ascii=False))
    else:
        size = archive.stat().st_size / 1e6
        click.echo(
            f"{archive}: {len(written.experiments)} experiments, {written.runs} runs, {written.files} files, "
            f"{size:.1f} MB"
        )
