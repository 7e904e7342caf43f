"""`jestlab show-batch`: look at what a run selected and rejected, with captions and scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from jestlab.analysis.files import write_whole
from jestlab.platform.cli import naming
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say, writing
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table
from jestlab.platform.reports import selected

if TYPE_CHECKING:
    from jestlab.analysis.figures.selected import ShownExample

_EPILOG = f"""{naming.HELP}

{examples("show-batch quickstart/joint/1", "show-batch quickstart/joint/1 --step 45 -o batch.png")}"""


@click.command(epilog=_EPILOG)
@click.argument("name", metavar="RUN")
@click.option("--step", type=click.IntRange(min=1), help="Step of the super-batch  [default: the last]")
@click.option("--examples", "size", type=click.IntRange(min=1, max=200), default=12, show_default=True,
              help="How many of the selected, and of the rejected, to show.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png",
              help="Where to write the picture  [default: in the lab's reports]")  # fmt: skip
@json_option()
@lab_options
def show_batch_command(
    name: str, *, step: int | None, size: int, output: Path | None, as_json: bool, lab: Lab
) -> None:
    """Show what a RUN selected and rejected in one step: pictures, captions, scores, kinds.

    A run records the super-batches of its first step and of its evaluations. The examples are read from the
    data that it was trained on, which have to be on this machine.
    """
    from jestlab.analysis.figures.selected import super_batch

    with closing(naming.existing_store(lab)) as store:
        named = naming.run(store, name)
        run = selected.RecordedRun(lab, store, named.row)
    step = run.steps[-1] if step is None else step
    batch = run.batch(step)
    shown = run.shown(step, batch, np.concatenate(selected.few(batch, size)))
    means = [
        float(np.mean(batch.scores[part])) if len(part) else None for part in (batch.selected, batch.rejected)
    ]
    summary: dict[str, Any] = {
        "run": named.title,
        "step": step,
        "recorded_steps": run.steps,
        "candidates": len(batch.examples),
        "selected": len(batch.selected),
        "mean_score_selected": _number(means[0]),
        "mean_score_rejected": _number(means[1]),
        "shares": run.shares(batch),
    }
    path = output or selected.picture_path(lab, named.experiment or "runs", named.row, step)
    heading = f"{named.title}, step {step:,}: {summary['selected']:,} of {summary['candidates']:,} candidates"
    caption = (
        "Selected: as they were drawn. Rejected: spread evenly. Below each picture its caption and score."
    )
    with writing(path):
        write_whole(path, super_batch(path.stem, shown, heading, caption).png())
    summary["picture"] = str(path)
    if as_json:
        rows = [
            {"selected": one.selected, "score": _number(one.score), "caption": one.caption} for one in shown
        ]
        print_json(summary | {"examples": rows}, indent=2)
    else:
        say(_lines(heading, summary, shown))


def _lines(heading: str, summary: dict[str, Any], shown: Sequence[ShownExample]) -> Iterator[Block]:
    yield heading
    yield ""
    rows = [
        ("selected" if one.selected else "rejected", _in_words(one.score), one_line(one.caption))
        for one in shown
    ]
    yield table(("", "score", "caption"), rows, right=(1,))
    if summary["shares"]:
        yield ""
        told = [
            (column, one_line(value), f"{share['selected']:.1%}", f"{share['candidates']:.1%}")
            for column, values in summary["shares"].items()
            for value, share in values.items()
            if share["selected"] or share["candidates"] >= 0.01
        ]
        yield table(("column", "value", "of selected", "of candidates"), told, right=(2, 3))
    yield ""
    yield f"mean score: selected {_in_words(summary['mean_score_selected'])}, rejected " + _in_words(
        summary["mean_score_rejected"]
    )
    yield f"recorded steps: {', '.join(map(str, summary['recorded_steps']))}"
    yield f"picture: {summary['picture']}"


def _number(value: float | None) -> float | None:
    """Return a number as JSON can hold it."""
    return None if value is None or np.isnan(value) else value


def _in_words(value: float | None) -> str:
    number = _number(value)
    return "–" if number is None else f"{number:.3f}"
