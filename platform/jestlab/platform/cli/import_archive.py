"""`jestlab import`: take an archive into a lab."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.lab import Lab

_EPILOG = """\b
Example:
  jestlab import quickstart.tar.zst
  jestlab import quickstart.tar.zst --root /other/lab --store postgresql://lab@host/results
"""


@click.command("import", epilog=_EPILOG)
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(archive: Path, as_json: bool, lab: Lab) -> None:
    """Take the results in ARCHIVE into the lab, all or nothing; doing it again changes nothing.

    A run that is here gives way only to one that is COMPLETED, if it is not, and never while it runs.
    """
    from jestlab.platform.archive.merging import merge
    from jestlab.platform.errors import UserError
    from jestlab.platform.store.store import Store

    lab.on_this_machine("import")
    if not archive.is_file():
        raise UserError(f"no archive {archive}")
    merged = merge(lab, Store.open(lab.store_url), archive)
    if as_json:
        click.echo(json.dumps(asdict(merged), ensure_ascii=False))
    else:
        click.echo(
            f"{merged.new} runs are new, {merged.replaced} replaced unfinished ones, {merged.kept} stayed as "
            f"they are; experiments: {', '.join(merged.experiments) or 'as they are'}"
            + (f"; {merged.published} published cells" if merged.published else "")
        )
