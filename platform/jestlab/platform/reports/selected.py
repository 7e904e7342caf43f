"""Read the examples that runs selected, from the super-batches that they recorded."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jestlab.analysis.errors import NotYet
from jestlab.models.config import ELSEWHERE, TrainConfig
from jestlab.models.data import datasets
from jestlab.models.data.curation import shares_by_value
from jestlab.models.data.images import decode
from jestlab.models.data.shards import ShardIndex
from jestlab.models.training import records
from jestlab.platform.errors import UserError, one_line_errors, sentence
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunSummary
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    import numpy.typing as npt

    from jestlab.analysis.figures.selected import ShownExample

_SIDE = 48  # pixels


class RecordedRun:
    """A training run with the super-batches that it recorded, and its data."""

    def __init__(self, lab: Lab, store: Store, row: RunSummary) -> None:
        """Find the super-batches of a run.

        Raises:
            UserError: The run isn't a training run, has recorded none, or its data isn't on this machine.
        """
        self.row = row
        self._directory = lab.inside(row.directory)
        self.steps = records.recorded(self._directory)
        record = store.run(row.fingerprint)
        if record.program != "train":
            raise UserError(f"{row.label} runs the program {record.program}: only training selects examples")
        if not self.steps:
            raise UserError(
                f"{row.label} has recorded no super-batch in {self._directory}: it hasn't started, or it ran "
                "on another machine"
            )
        self.config = TrainConfig.model_validate(record.config, context=ELSEWHERE)
        try:
            self.source = ShardIndex.load(datasets.ensure_web(self.config, lab.data))
        except (OSError, ValueError) as error:
            raise UserError(f"can't read the images of {row.label}: {sentence(error)}") from None

    def nearest(self, step: float) -> int:
        """Return the recorded step that is nearest to a step."""
        return min(self.steps, key=lambda recorded: (abs(recorded - step), recorded))

    def batch(self, step: int) -> records.RecordedBatch:
        """Read the super-batch of a step.

        Raises:
            UserError: The run recorded none at this step, or the file is damaged.
        """
        if step not in self.steps:
            known = ", ".join(map(str, self.steps))
            raise UserError(f"{self.row.label} recorded no super-batch at step {step}, but at: {known}")
        try:
            return records.load(self._directory, step)
        except (OSError, ValueError) as error:
            raise UserError(sentence(error)) from None

    def shares(self, batch: records.RecordedBatch) -> dict[str, dict[str, dict[str, float]]]:
        """Compute column → value → share of the `selected` examples and of all `candidates`.

        The columns are those of the run's diagnostics. Values are ordered by their share of the selected
        examples.
        """
        parts = {"selected": batch.examples[batch.selected], "candidates": batch.examples}
        counted = shares_by_value(self.source, self.config.runtime.diagnostics.columns, parts)
        return {
            column: dict(sorted(values.items(), key=lambda item: (-item[1]["selected"], item[0])))
            for column, values in counted.items()
        }

    def examples(
        self, step: int, batch: records.RecordedBatch, positions: npt.NDArray[np.int64]
    ) -> list[ShownExample]:
        """Read the images, captions, and scores of some candidates of a super-batch."""
        from jestlab.analysis.figures.selected import ShownExample

        indices = batch.examples[positions]
        columns = zip(
            np.isin(positions, batch.selected).tolist(),
            batch.scores[positions],
            self.source.captions(indices),
            self.source.images(indices),
            strict=True,
        )
        return [
            ShownExample(self.row.label, step, is_selected, float(score), caption, _thumbnail(image))
            for is_selected, score, caption, image in columns
        ]


def sample(batch: records.RecordedBatch, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose positions of at most `size` selected and `size` rejected candidates, evenly spaced."""

    def spaced(positions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        places = np.linspace(0, len(positions) - 1, min(size, len(positions))).astype(np.int64)
        return positions[places].astype(np.int64)

    return spaced(batch.selected), spaced(batch.rejected)


def selected_images(lab: Lab, experiment: str, labels: tuple[str, ...], size: int) -> list[ShownExample]:
    """Read examples that the first seed of each label selected.

    They are up to `size` examples of each of three steps: the first, one after a quarter of the training, and
    the last. Labels without recorded super-batches or without data on this machine are left out.

    Raises:
        NotYet: No label has examples.
    """
    examples: list[ShownExample] = []
    reason = f"no run of {experiment!r} has recorded a super-batch"
    opened = Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)
    with one_line_errors(), closing(opened) as store:
        first: dict[str, RunSummary] = {}
        for row in store.runs(experiment):
            first.setdefault(row.label, row)
        for label in labels:
            try:
                run = RecordedRun(lab, store, first[label])
            except UserError as error:
                reason = str(error)
                continue
            total = run.config.total_steps
            for step in dict.fromkeys(map(run.nearest, (1, total / 4, total))):
                batch = run.batch(step)
                examples += run.examples(step, batch, sample(batch, size)[0])
    if not examples:
        raise NotYet(reason)
    return examples


def _thumbnail(image: bytes) -> bytes:
    """Return a small PNG of an image file; a gray one if the file is damaged."""
    from PIL import Image

    try:
        pixels = decode(image, _SIDE)
    except ValueError:
        pixels = np.full((_SIDE, _SIDE, 3), 128, np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def default_path(lab: Lab, experiment: str, row: RunSummary, step: int) -> Path:
    """Return the default path of the image of a step."""
    name = f"{row.label}-{row.seed}-step-{step}.png".replace("/", "_").replace(" ", "_")
    return lab.reports / experiment / "batches" / name
