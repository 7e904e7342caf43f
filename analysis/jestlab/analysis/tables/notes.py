"""What a reader of a table must know besides its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..frames import Frames
from ..rendering import Table
from .finals import Finals
from .show import ONE_SEED

if TYPE_CHECKING:
    import pandas as pd


def with_marks_explained(table: Table) -> Table:
    """The same table, with what its marks mean where it has such."""
    marks = {cell.mark for section in table.sections() for line in section.lines for cell in line.cells}
    if not any(ONE_SEED in mark for mark in marks):
        return table
    return replace(table, notes=(*table.notes, f"{ONE_SEED} by one seed: no spread is known"))


def gaps(finals: Finals) -> list[str]:
    """Rows that are not what they seem: references, runs that did not complete, scores that are missing."""
    frames = finals.frames
    notes = [
        f"{label}: a reference, needed by other runs; no competitor"
        for label in frames.apart_from(finals.baseline)
    ]
    notes += unfinished(frames)
    left_out = [name for name in frames.metrics if name not in finals.averaged]
    averaged = list(finals.averaged)
    missing = finals.runs[averaged].isna().groupby(finals.runs["label"], sort=False).any()
    for label, of_metric in missing[missing.any(axis=1)].iterrows():
        lacking = [name for name in averaged if of_metric[name]]
        notes.append(f"{label}: no score where {', '.join(lacking)} is missing")
    if left_out:
        notes.append(f"score: without {', '.join(left_out)}, which some runs lack")
    return notes


def unfinished(frames: Frames) -> list[str]:
    """A line a label with runs that have not completed, and why."""
    runs = frames.runs[frames.runs["state"] != "COMPLETED"]
    return [
        f"{label}: {'; '.join(_why_open(run) for _, run in of_label.iterrows())}"
        for label, of_label in runs.groupby("label", sort=False)
    ]


def _why_open(run: pd.Series[Any]) -> str:
    text = f"seed {run['seed']} {run['state']}"
    if run["step"] > 0:
        text += f" at step {run['step']:.0f}"
        text += f" of {run['total_steps']:.0f}" if run["total_steps"] > 0 else ""  # NaN where it is not known
    if isinstance(run["reason"], str) and run["reason"].strip():
        text += f" ({_shortened(run['reason'].strip().splitlines()[0])})"
    return text


def _shortened(text: str, width: int = 100) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
