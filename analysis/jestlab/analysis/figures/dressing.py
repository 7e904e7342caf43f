"""What figures of scores share: words, units, looks, and who competes with whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..curves import Band
from ..frames import Frames
from ..style import looks

if TYPE_CHECKING:
    import pandas as pd

BANDS: dict[Band, str] = {
    "range": "from the lowest to the highest seed",
    "std": "± standard deviation over seeds",
}


def dressed(frames: Frames, data: pd.DataFrame, baseline: str, scores: Sequence[str]) -> pd.DataFrame:
    """Rows in the order of the study, scores in the axis's unit, with how each label looks and reads.

    Args:
        frames: Of the experiment.
        data: With a column label.
        baseline: Its label, which is drawn in black.
        scores: Columns to be shown as scores.
    """
    data = data.copy()
    apart = set(frames.apart_from(baseline))
    chosen = looks([label for label in frames.labels if label not in apart], baseline)
    roles = {label: "reference" if label in apart else "competitor" for label in frames.labels}
    data["role"] = data["label"].map(roles | {baseline: "baseline"})
    data["text"] = data["label"].map(texts(frames))
    for part in ("colour", "marker", "line"):
        data[part] = data["label"].map({label: getattr(look, part) for label, look in chosen.items()})
    data[list(scores)] = data[list(scores)] * scale(frames)
    order = {label: position for position, label in enumerate(frames.labels)}
    return data.sort_values("label", key=lambda labels: labels.map(order), kind="stable", ignore_index=True)


def texts(frames: Frames) -> dict[str, str]:
    """Label → how it reads in a figure: marked where some of its seeds have not completed."""
    return {
        label: label if done == planned else f"{label} ({done} of {planned} seeds)"
        for label, (done, planned) in seeds(frames).items()
    }


def seeds(frames: Frames) -> dict[str, tuple[int, int]]:
    """Label → how many of its seeds have completed, and how many there are to be."""
    completed = frames.runs["state"].eq("COMPLETED").groupby(frames.runs["label"]).agg(["sum", "size"])
    return {str(label): (int(done), int(planned)) for label, done, planned in completed.itertuples()}


def require_competitors(frames: Frames, data: pd.DataFrame) -> None:
    """ValueError where there is nothing but references."""
    if (data["role"] == "reference").all():
        raise ValueError(
            f"no run of experiment {frames.experiment!r} but references has a score: {frames.progress()}"
        )


def about_references(data: pd.DataFrame) -> list[str]:
    """Sentences on references, which have no point: their own training is another budget on other data.

    Args:
        data: Rows of label, role, mean (as shown) and final (whether it is the end of completed runs), a
            label's last row its end.
    """
    ends = data[data["role"] == "reference"].groupby("label", sort=False).tail(1)
    sentences = []
    for what, completed in (("Final score", True), ("Score so far", False)):
        of = ends[ends["final"].astype(bool) == completed]
        shown = ", ".join(
            f"{label} {score:.1f}" for label, score in zip(of["label"], of["mean"], strict=True)
        )
        if shown:
            # A reference far from the others' scores is not drawn: it would squeeze them.
            sentences.append(f"{what} of the others' reference (grey dashes where near): {shown}.")
    return sentences


def about_unfinished(frames: Frames, labels: Iterable[str]) -> list[str]:
    """A sentence on those of some labels that no seed of has completed, and so are not shown."""
    missing = [label for label in labels if seeds(frames)[label][0] == 0]
    return [f"Not shown, since no seed has completed: {', '.join(missing)}."] if missing else []


def scale(frames: Frames) -> float:
    """What scores are multiplied by: shares are shown in percent."""
    return 100.0 if frames.scores_are_shares else 1.0


def score_axis(frames: Frames) -> str:
    """How the axis of scores reads."""
    return "mean score (%)" if frames.scores_are_shares else "mean score"


def difference_axis(frames: Frames, to: str) -> str:
    """How an axis of differences of scores reads."""
    return f"score − {to} (points)" if frames.scores_are_shares else f"score − {to}"


def what_score_is(frames: Frames) -> str:
    """The sentence that says it."""
    names = frames.metrics
    return f"Score: mean of {', '.join(names)}." if len(names) > 1 else f"Score: {names[0]}."


def title(frames: Frames) -> str:
    """The question, or else the name."""
    return frames.question or frames.experiment
