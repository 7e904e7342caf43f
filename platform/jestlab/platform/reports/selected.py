"""Look at what runs selected: pictures, captions and scores of super-batches that they recorded."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jestlab.models.config import ELSEWHERE, TrainConfig
from jestlab.models.data import datasets
from jestlab.models.data.curation import shares_by_value
from jestlab.models.data.images import decode
from jestlab.models.data.shards import ShardSource
from jestlab.models.training import batches
from jestlab.platform.errors import UserError, one_line_errors, sentence
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunRow
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    import numpy.typing as npt

    from jestlab.analysis.figures.selected import ShownExample

SIDE = 48
"""Side of the pictures, in pixels."""


class RecordedRun:
    """A training run with the super-batches that it recorded, and the data that they are of."""

    def __init__(self, lab: Lab, store: Store, row: RunRow) -> None:
        """Find what a run recorded.

        Raises:
            UserError: The run is no training run, or recorded nothing, or its data are not on this machine.
        """
        self.row = row
        self._directory = lab.inside(row.directory)
        self.steps = batches.recorded(self._directory)
        record = store.run(row.fingerprint)
        if record.program != "train":
            raise UserError(f"{row.label} is a run of {record.program}: only training selects examples")
        if not self.steps:
            raise UserError(
                f"{row.label} has recorded no super-batch in {self._directory}: it has taken no "
                "step yet, or ran on another machine"
            )
        self.config = TrainConfig.model_validate(record.config, context=ELSEWHERE)
        try:
            web = datasets.ensure_web(
                self.config.data.train, self.config.web_seed, lab.data, self.config.code
            )
        except (OSError, ValueError) as error:
            raise UserError(f"the pictures of {row.label} cannot be shown: {sentence(error)}") from None
        self.source = ShardSource(web)

    def nearest(self, step: float) -> int:
        """Return the recorded step that is nearest to a step."""
        return min(self.steps, key=lambda known: (abs(known - step), known))

    def batch(self, step: int) -> batches.SuperBatch:
        """Read the super-batch of a recorded step; raises UserError if there is none, or it is damaged."""
        if step not in self.steps:
            known = ", ".join(map(str, self.steps))
            raise UserError(f"{self.row.label} recorded no super-batch at step {step}, but at: {known}")
        try:
            return batches.load(self._directory, step)
        except (OSError, ValueError) as error:
            raise UserError(sentence(error)) from None

    def shares(self, batch: batches.SuperBatch) -> dict[str, dict[str, dict[str, float]]]:
        """Count a super-batch by the columns of the run's diagnostics: column → value → share of the
        `selected`, and of all `candidates`; the values that were selected most come first.
        """
        parts = {"selected": batch.examples[batch.selected], "candidates": batch.examples}
        counted = shares_by_value(self.source, self.config.runtime.diagnostics.columns, parts)
        return {
            column: dict(sorted(values.items(), key=lambda item: (-item[1]["selected"], item[0])))
            for column, values in counted.items()
        }

    def shown(
        self, step: int, batch: batches.SuperBatch, positions: npt.NDArray[np.int64]
    ) -> list[ShownExample]:
        """Read pictures, captions and scores of some candidates of a step's super-batch."""
        from jestlab.analysis.figures.selected import ShownExample

        examples = batch.examples[positions]
        files, captions = self.source.images(examples), self.source.captions(examples)
        chosen = np.isin(positions, batch.selected).tolist()
        return [
            ShownExample(self.row.label, step, is_chosen, float(score), caption, _thumbnail(file))
            for is_chosen, score, caption, file in zip(
                chosen, batch.scores[positions], captions, files, strict=True
            )
        ]


def few(batch: batches.SuperBatch, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose some of the selected, as they were drawn, and some of the rejected, spread evenly.

    Returns:
        int64 [≤ size] each: positions in the super-batch.
    """
    return tuple(  # type: ignore[return-value]
        positions[np.linspace(0, len(positions) - 1, min(size, len(positions))).astype(np.int64)].astype(
            np.int64
        )
        for positions in (batch.selected, batch.rejected)
    )


def selected_images(lab: Lab, experiment: str, labels: tuple[str, ...], size: int) -> list[ShownExample]:
    """Read some of what each label's first seed selected: first, after a quarter of its steps, and last.

    Labels whose runs recorded nothing, or whose data are elsewhere, are left out.

    Args:
        lab: With the runs.
        experiment: Name of the experiment.
        labels: Of its runs.
        size: How many pictures of each step.

    Raises:
        ValueError: There is nothing to show; says why, in one line.
    """
    shown: list[ShownExample] = []
    why = f"no run of {experiment!r} has recorded what it selected"
    opened = Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)
    with one_line_errors(), closing(opened) as store:
        first: dict[str, RunRow] = {}
        for row in store.runs(experiment):
            first.setdefault(row.label, row)
        for label in labels:
            try:
                run = RecordedRun(lab, store, first[label])
            except UserError as error:
                why = str(error)
                continue
            total = run.config.total_steps
            for step in dict.fromkeys(map(run.nearest, (1, total / 4, total))):
                batch = run.batch(step)
                shown += run.shown(step, batch, few(batch, size)[0])
    if not shown:
        raise ValueError(why)
    return shown


def _thumbnail(file: bytes) -> bytes:
    """Return a small PNG of an image file; a grey one if it is damaged."""
    from PIL import Image

    try:
        pixels = decode(file, SIDE)
    except ValueError:
        pixels = np.full((SIDE, SIDE, 3), 128, np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def picture_path(lab: Lab, experiment: str, row: RunRow, step: int) -> Path:
    """Return where the picture of a step is written, unless the user says."""
    name = f"{row.label}-{row.seed}-step-{step}.png".replace("/", "_").replace(" ", "_")
    return lab.reports / experiment / "batches" / name
