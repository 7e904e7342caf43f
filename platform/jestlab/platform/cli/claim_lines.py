"""The claims of a launch as a terminal shows them: a line each, however long the whole table is."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from jestlab.platform.cli.common import same_lab_options

REPORT = "claims"
"""Which of a study's reports holds its claims with their verdicts."""

_SHORTEST = 16  # to which a statement is cut: a narrower terminal wraps the line


def show_claims(written: Sequence[Path], experiment: str, by_study: bool = False) -> bool:
    """Print the claims of an experiment, how many have which verdict, and how to see the whole table.

    Args:
        written: Its reports.
        experiment: Its name.
        by_study: Whether to say of which study each claim is.

    Returns:
        Whether claims are among its reports; else nothing is printed.
    """
    path = next((path for path in written if path.name == f"{REPORT}.json"), None)
    if path is None:
        return False
    content = json.loads(path.read_text(encoding="utf-8"))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None  # a pipe gets it all
    click.echo("\n" + "\n".join(claim_lines(content["rows"], by_study, width)))
    click.echo(content["caption"])
    click.echo(f"claims:  jestlab table claims {shlex.quote(experiment)}{same_lab_options()}")
    return True


def claim_lines(rows: Sequence[Mapping[str, Any]], by_study: bool, width: int | None) -> list[str]:
    """A line a claim: the sign of its verdict, its study, its statement, and by how much.

    Args:
        rows: Of the table of claims, as its JSON has them.
        by_study: Whether to name the study.
        width: Columns that a line may take, for which statements are shortened; None for any number.

    Returns:
        Lines, the differences aligned to the right.
    """
    from jestlab.analysis.report.claimed import MARKS
    from jestlab.analysis.tables.claims import difference

    widest = max((len(row["study"]) for row in rows), default=0)
    parts = [
        (
            f"{MARKS[row['verdict']]} " + (f"{row['study']:{widest}}  " if by_study else ""),
            " ".join(row["statement"].split()),
            "  " + difference({key: math.nan if value is None else value for key, value in row.items()}),
        )
        for row in rows
    ]
    natural = max((sum(map(len, part)) for part in parts), default=0)
    total = natural if width is None else min(natural, width)
    lines = []
    for head, statement, end in parts:
        room = total - len(head) - len(end)
        lines.append(head + _shortened(statement, max(room, _SHORTEST)).ljust(room) + end)
    return lines


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"
