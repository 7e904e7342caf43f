"""`jestlab published`: import, list, export, and remove published results."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from jestlab.analysis.published import paper, parse, render, stored
from jestlab.analysis.published.cell import PublishedCell, order
from jestlab.platform.cli import SubcommandGroup
from jestlab.platform.cli.options import FILE, examples, lab_json_options, output_option
from jestlab.platform.cli.output import print_or_write, show, writing
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import USUAL, Block, TextTable, styled, table
from jestlab.platform.store.published import import_cells, remove_source
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted

_EPILOG = examples(
    "published import             # the tables of the JEST paper",
    "published list --table comparison",
)
_CSV = """\b
FILE is CSV in UTF-8 with one line per number (a cell of a published table):
  source,table,method,quantity,printed,unit,baseline
  Doe et al. 2025,ours,SigLIP,imagenet/zero_shot,70.3,percent,yes
  Doe et al. 2025,ours,SigLIP,examples_seen,13B,count,yes
  Doe et al. 2025,ours,JEST++,imagenet/zero_shot,71.0,percent,
\b
Optional columns: position group variant data citation citation_key ours
  accounting value bold note (see `jestlab published export`).
unit: percent or share; count for examples_seen, flag for filtered (yes, no).
quantity: dataset/metric, mean, mean_delta, examples_seen, filtered,
  flops_per_iteration or flops_total.
position: the row, from 1; by default, rows are numbered in order.
note: a note that starts with ‡ is shown below tables, which mark the cell.
"""
_MAX_BYTES = 64_000_000  # of a CSV file


@click.group(cls=SubcommandGroup, epilog=_EPILOG)
def published_command() -> None:
    """Manage published results, to compare your runs with them."""


@published_command.command(
    "import",
    epilog=f"""{_CSV}
\b
Examples:
  jestlab published import
  jestlab published import ours.csv others.csv
""",
)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=FILE)
@lab_json_options()
def import_(files: tuple[Path, ...], *, as_json: bool, lab: Lab) -> None:
    """Import published numbers from FILEs; without FILE, the tables of the JEST paper.

    If a line is invalid, nothing is imported. Existing cells are updated; importing again changes nothing.
    """
    cells = [] if files else paper()
    for file in files:
        with writing(file, "cannot read"):
            if file.stat().st_size > _MAX_BYTES:
                raise UserError(
                    f"{file} is too large: expected a CSV file of at most {_MAX_BYTES // 10**6} MB"
                )
            cells += parse(file.read_bytes(), str(file))
    done = import_cells(Store.open(lab.store_url), cells)
    sources = ", ".join(dict.fromkeys(cell.source for cell in cells))
    counts = f"cells new {done.new}, changed {done.changed}, unchanged {done.unchanged}"
    lines = [f"{sources}: {counts}"]
    if done.kept:
        lines.append(f"other cells of these tables are kept: {done.kept}; see jestlab published remove")
    show(as_json, asdict(done), lines)


@published_command.command(
    "list", epilog=examples("published list", "published list --table comparison --json")
)
@click.option("--table", "name", metavar="NAME", help="List only this table.")
@click.option("--source", metavar="SOURCE", help="List only the tables of this source.")
@lab_json_options()
def list_(name: str | None, source: str | None, *, as_json: bool, lab: Lab) -> None:
    """Print the published tables in the store."""
    cells = _select_stored(lab, name, source)
    blocks: list[Block] = []
    for (of, name), own in itertools.groupby(cells, key=lambda cell: (cell.source, cell.table)):
        blocks += ["", styled(name, "bold") + f" ({of})", _matrix(list(own))]
    text = blocks[1:] or "no published results yet: jestlab published import"
    show(as_json, [cell.model_dump() for cell in cells], text)


@published_command.command(
    epilog=examples(
        "published export > published.csv", 'published export --source "Evans et al. 2024" -o evans.csv'
    ),
)
@click.option("--source", metavar="SOURCE", help="Export only the results of this source.")
@output_option()
@lab_json_options()
def export(source: str | None, output: Path | None, *, as_json: bool, lab: Lab) -> None:
    """Write the published results in the store as CSV, for `jestlab published import`."""
    cells = _select_stored(lab, None, source)
    text = render(cells)
    if as_json:
        text = json.dumps([cell.model_dump() for cell in cells], ensure_ascii=False) + "\n"
    print_or_write(output, text, f"{output}: {len(cells)} cells")


@published_command.command(epilog=examples('published remove "Doe et al. 2025"'))
@click.argument("source")
@lab_json_options()
def remove(source: str, *, as_json: bool, lab: Lab) -> None:
    """Delete all published results of SOURCE from the store."""
    removed = remove_source(Store.open(lab.store_url, create=False), source)
    text = f"{source}: {counted(removed, 'cell')} removed"
    show(as_json, {"source": source, "removed": removed}, text)


def _select_stored(lab: Lab, name: str | None, source: str | None) -> list[PublishedCell]:
    """Read the cells in the store, or those of one table or source; UserError if it is unknown."""
    cells = _cells_in_store(lab)
    for wanted, attribute in ((source, "source"), (name, "table")):
        known = {getattr(cell, attribute) for cell in cells}
        if wanted is not None and wanted not in known:
            raise UserError(f"no published {attribute} {wanted!r} in the store: {nearest(wanted, known)}")
        cells = [cell for cell in cells if wanted is None or getattr(cell, attribute) == wanted]
    return cells


def _cells_in_store(lab: Lab) -> list[PublishedCell]:
    # `open_readonly` reports a store of another version, which `stored` doesn't.
    return stored(lab.store_url) if Store.open_readonly(lab.store_url) is not None else []


def _matrix(cells: Sequence[PublishedCell]) -> TextTable:
    """Arrange cells as the rows and columns of their table."""
    quantities = sorted({cell.quantity for cell in cells}, key=order)
    rows = []
    for _, own in itertools.groupby(cells, key=lambda cell: cell.position):
        row = {cell.quantity: cell for cell in own}
        first = next(iter(row.values()))
        method = f"{first.method} (baseline)" if first.baseline else first.method
        printed = (row[quantity].printed if quantity in row else "" for quantity in quantities)
        rows.append([str(first.position), method, first.variant, *printed])
    headers = ["row", "method", "variant", *quantities]
    importance = {"row": 90, "variant": 80, **dict.fromkeys(quantities, USUAL)}
    return table(headers, rows, (0, *range(3, len(headers))), importance)
