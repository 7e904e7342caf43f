"""`jestlab show-batch`: the examples that a run selected and rejected, with captions and scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from jestlab.analysis.files import write_whole
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import show, writing
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table
from jestlab.platform.reports import selected

if TYPE_CHECKING:
    from jestlab.analysis.figures.selected import ShownExample

_EPILOG = f"""{naming.HELP}

{examples("show-batch quickstart/joint/1", "show-batch quickstart/joint/1 --step 45 -o batch.png")}"""


@click.command(epilog=_EPILOG)
@click.argument("name", type=RUN, metavar="RUN")
@click.option("--step", type=click.IntRange(min=1), help="Step of the super-batch  [default: the last]")
@click.option("--examples", "size", type=click.IntRange(min=1, max=200), default=12, show_default=True,
              help="Number of selected, and of rejected, examples.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png",
              help="Image to write  [default: in the lab's reports]")  # fmt: skip
@json_option()
@lab_options
def show_batch_command(
    name: str, *, step: int | None, size: int, output: Path | None, as_json: bool, lab: Lab
) -> None:
    """Show the examples that a RUN selected and rejected in one step, with captions, scores, and metadata.

    A run records the super-batches of its first step and of its evaluations. Its training data must be on
    this machine.
    """
    from jestlab.analysis.figures.selected import super_batch

    with closing(naming.existing_store(lab)) as store:
        named = naming.run(store, name)
        run = selected.RecordedRun(lab, store, named.row)
    step = run.steps[-1] if step is None else step
    batch = run.batch(step)
    shown = run.examples(step, batch, np.concatenate(selected.sample(batch, size)))
    path = output or selected.default_path(lab, named.experiment, named.row, step)
    summary: dict[str, Any] = {
        "run": named.title,
        "step": step,
        "recorded_steps": run.steps,
        "candidates": len(batch.examples),
        "selected": len(batch.selected),
        "mean_score_selected": _mean(batch.scores[batch.selected]),
        "mean_score_rejected": _mean(batch.scores[batch.rejected]),
        "shares": run.shares(batch),
        "picture": str(path),
    }
    heading = f"{named.title}, step {step:,}: {summary['selected']:,} of {summary['candidates']:,} candidates"
    caption = "Evenly spaced examples, each with its caption and score."
    with writing(path):
        write_whole(path, super_batch(path.stem, shown, heading, caption).png())
    rows = [
        {"selected": each.selected, "score": _mean([each.score]), "caption": each.caption} for each in shown
    ]
    show(as_json, summary | {"examples": rows}, _blocks(heading, summary, shown))


def _blocks(heading: str, summary: dict[str, Any], shown: Sequence[ShownExample]) -> Iterator[Block]:
    yield heading
    yield ""
    rows = [
        ("selected" if each.selected else "rejected", _text(_mean([each.score])), one_line(each.caption))
        for each in shown
    ]
    yield table(("", "score", "caption"), rows, right=(1,))
    if summary["shares"]:
        yield ""
        rows_of_shares = [
            (column, one_line(value), f"{share['selected']:.1%}", f"{share['candidates']:.1%}")
            for column, values in summary["shares"].items()
            for value, share in values.items()
            if share["selected"] or share["candidates"] >= 0.01
        ]
        yield table(("column", "value", "of selected", "of candidates"), rows_of_shares, right=(2, 3))
    yield ""
    means = [f"{part} {_text(summary[f'mean_score_{part}'])}" for part in ("selected", "rejected")]
    yield f"mean score: {', '.join(means)}"
    yield f"recorded steps: {', '.join(map(str, summary['recorded_steps']))}"
    yield f"picture: {summary['picture']}"


def _mean(scores: Any) -> float | None:
    """Return the mean of scores; None for none, and for NaN, which JSON doesn't have."""
    mean = float(np.mean(scores)) if len(scores) else np.nan
    return None if np.isnan(mean) else mean


def _text(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"
