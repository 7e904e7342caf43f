"""`Plot`: a figure as data and texts, drawn when needed; looks and intervals of all figures."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..efforts import WORDS, unit
from ..errors import NotYet
from ..files import write_whole
from ..frames import DIVERGED, UNEVALUATED, Frames
from ..intervals import HUGE, of_groups
from ..metrics import UNKNOWN, Metric
from ..sheet import NONE, PLAIN, Sheet
from .style import SURVIVORS, Look, applied, looks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..tables.core import Table

SUFFIXES = (".png", ".svg", ".pdf")

MOST_REFERENCES = 6
"""If a figure has more references, none is named."""

_NEAR = 0.35  # share of the range of scores: a line farther from the scores would squeeze them


@dataclass(frozen=True)
class Texts:
    """The words on a figure.

    Attributes:
        title: Text above the figure.
        caption: Text below the figure: contents and conventions.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        metric: Metric of the vertical axis, which defines the format of numbers and the scale.
    """

    title: str
    caption: str
    x: str
    y: str
    metric: Metric = UNKNOWN

    def numbers(self, shown: pd.Series[float]) -> list[str]:
        """Format numbers in the unit of the vertical axis."""
        return self.metric.texts((shown / self.metric.factor).tolist())


@dataclass(frozen=True)
class Plot:
    """Everything that a figure shows, as plain data.

    Attributes:
        name: Stem of the file names.
        data: Numbers and looks of everything in the figure.
        texts: Words on the figure.
        draw: Draws the printed figure from data, texts, and sheet alone.
        sheet: Size, font, and words that the user chose.
        code: Digest of the custom code that draws the figure; empty for built-in figures.
        table: The numbers behind the figure, for readers; None for most figures.
    """

    name: str
    data: pd.DataFrame
    texts: Texts
    draw: Callable[[pd.DataFrame, Texts, Sheet], Figure]
    sheet: Sheet = PLAIN
    code: str = ""
    table: Table | None = None

    def figure(self) -> Figure:
        """Draw the figure with Matplotlib; its axes can be restyled.

        Returns:
            A figure that pyplot has no record of, so it needs no closing. It has a canvas, so
            `figure.savefig("score.pdf")` works; fonts are embedded whatever the user's settings are.

        Raises:
            ValueError: The font isn't installed, or the figure doesn't fit in its height or width.
        """
        numbers = self.data.select_dtypes("float").drop(columns="factor", errors="ignore")  # not drawn
        shown = self.data.assign(**numbers.mask(numbers.abs() > HUGE))  # no axis can show huge numbers
        chosen = self.sheet.model_dump(include={"title", "caption"}, exclude_none=True)
        words: dict[str, Any] = {name: "" if text == NONE else text for name, text in chosen.items()}
        with applied(self.sheet):
            return self.draw(shown, replace(self.texts, **words), self.sheet)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the `files` of the figure, each atomically, and return their paths.

        If the user leaves out the title or the caption, a text file has it, to be copied into a paper.
        """
        contents = self.files([folder])
        words = ((self.sheet.title, self.texts.title), (self.sheet.caption, self.texts.caption))
        if left_out := [text for chosen, text in words if chosen == NONE]:
            contents[f"{self.name}.txt"] = ("\n\n".join(left_out) + "\n").encode()
        return [write_whole(Path(folder) / name, content) for name, content in contents.items()]

    def files(
        self, folders: Iterable[str | Path] = (), suffixes: Sequence[str] = SUFFIXES
    ) -> dict[str, bytes]:
        """Draw the figure as PNG, SVG, and PDF, unless a folder has files that are up to date.

        The metadata of each file has a digest of the data, texts, options, and code. Equal figures give equal
        bytes.

        Args:
            folders: Folders that may have earlier files; the first in which all are up to date is used.
            suffixes: Formats of the files.

        Returns:
            Name → content.

        Raises:
            ValueError: As for `figure`.
        """
        names = [f"{self.name}{suffix}" for suffix in suffixes]
        for folder in folders:
            paths = [Path(folder) / name for name in names]
            known = [path.read_bytes() for path in paths if path.is_file()]
            if len(known) == len(names) and all(self._mark.encode() in content for content in known):
                return dict(zip(names, known, strict=True))
        return dict(zip(names, self._drawn(suffixes), strict=True))

    def png(self, folders: Iterable[str | Path] = ()) -> bytes:
        """Return the figure as PNG; `folders` as for `files`."""
        return self.files(folders, [".png"])[f"{self.name}.png"]

    def _drawn(self, suffixes: Sequence[str]) -> list[bytes]:
        """Draw the figure once, and return it in each of the formats."""
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # none, so that bytes are equal
        contents = []
        with applied(self.sheet):
            figure = self.figure()
            for suffix in suffixes:
                content = io.BytesIO()
                mark = {"Keywords" if suffix == ".pdf" else "Description": self._mark}
                figure.savefig(content, format=suffix[1:], metadata=mark | dates.get(suffix, {}))
                contents.append(content.getvalue())
        return contents

    @cached_property
    def _mark(self) -> str:
        """Digest of data, texts, sheet, and code, for the metadata of the files."""
        content = hashlib.sha256(f"{self.name}\n{self.texts}\n{self.sheet}\n{_code()}{self.code}\n".encode())
        content.update(self.data.to_csv().encode())
        return f"jestlab:{content.hexdigest()}"


@cache
def _code() -> str:
    """Digest of our code and the version of Matplotlib, taken once in a process."""
    content = hashlib.sha256(f"matplotlib {version('matplotlib')}\n".encode())
    for module in sorted(Path(__file__).parents[1].rglob("*.py")):
        content.update(module.read_bytes())
    return content.hexdigest()


# ---- data: looks, roles, and intervals


def styled(frames: Frames, data: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Order rows as in the study, and add names and looks of labels.

    Args:
        frames: Results of the experiment.
        data: Rows with a column label.
        baseline: Label of the baseline.

    Returns:
        The rows with role ("baseline", "competitor", "reference"), text, color, marker, line, and dark.

    Raises:
        NotYet: All rows are of references.
    """
    data = data.copy()
    apart = set(frames.apart_from(baseline))
    roles = {label: "reference" if label in apart else "competitor" for label in frames.labels}
    data["role"] = data["label"].map(roles | {baseline: "baseline"})
    if len(data) and (data["role"] == "reference").all():
        raise NotYet(
            f"only references of experiment {frames.experiment!r} have a score so far: {frames.progress()}"
        )
    data["text"] = data["label"].map(texts(frames))
    chosen = looks_of(frames)
    for part in ("color", "marker", "line", "dark"):
        values = {label: getattr(look, part) for label, look in chosen.items() if label not in apart}
        data[part] = data["label"].map(values)
    order = {label: position for position, label in enumerate(frames.labels)}
    return data.sort_values("label", key=lambda labels: labels.map(order), kind="stable", ignore_index=True)


def looks_of(frames: Frames) -> dict[str, Look]:
    """Choose the look of each label of an experiment; a label that lost seeds has the line `SURVIVORS`.

    A label keeps its look in a figure of some of the labels, and with another baseline.
    """
    return {
        label: replace(look, line=SURVIVORS) if label in frames.lost else look
        for label, look in looks(frames.colors).items()
    }


def mean_intervals(values: pd.Series[float], groups: pd.Series[Any]) -> pd.DataFrame:
    """Compute the mean of each group, such as the seeds of a label, with its confidence interval.

    Returns:
        A row for each group: mean, std, count, low, high. For a single value, both ends are the mean.
    """
    means = of_groups(values, groups)
    return means.assign(**{end: means[end].fillna(means["mean"]) for end in ("low", "high")})


def texts(frames: Frames) -> dict[str, str]:
    """Return the name of each label in a figure, with the number of finished seeds if some are missing."""
    names = {}
    for label, (completed, planned) in seeds_of(frames).items():
        done = completed - sum(fate in (DIVERGED, UNEVALUATED) for fate in frames.fates[label])
        names[label] = frames.shown[label] + ("" if done == planned else f" ({done} of {planned} seeds)")
    return names


def seeds_of(frames: Frames) -> dict[str, tuple[int, int]]:
    """Return for each label how many of its seeds have completed, and how many are planned."""
    completed = frames.runs["state"].eq("COMPLETED").groupby(frames.runs["label"]).agg(["sum", "size"])
    return {str(label): (int(done), int(planned)) for label, done, planned in completed.itertuples()}


def near_references(data: pd.DataFrame, scores: pd.Series[float]) -> list[tuple[float, str]]:
    """Return final scores and names of the references that get a line: those near the other scores.

    If there are many references, as in a union of studies, none gets a line.

    Args:
        data: Rows of a figure: role, label, text, and the score as `mean`.
        scores: The other scores.
    """
    shown = scores[scores.abs() <= HUGE]
    low, high = shown.min(), shown.max()
    room = _NEAR * (high - low)
    ends = references_in(data)
    near = ends[ends["mean"].between(low - room, high + room)]
    return [] if len(ends) > MOST_REFERENCES else [*zip(near["mean"].tolist(), near["text"], strict=True)]


def references_in(data: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each reference."""
    return data[data["role"] == "reference"].groupby("label", sort=False).tail(1)


# ---- words: titles and labels of axes


def axis_unit(x_label: str, values: pd.Series[float]) -> tuple[float, str]:
    """Return the divisor of values on the horizontal axis, and the axis label with the resulting unit."""
    effort = next((effort for effort, words in WORDS.items() if words.axis == x_label), None)
    if effort is None:
        return 1.0, x_label
    divisor, name = unit(effort, values.dropna().sort_values().tail(1))
    return divisor, f"{x_label} ({name})" if name else x_label


def score_axis(frames: Frames) -> str:
    """Return the label of an axis of scores: "mean score (%)", "PPL, less is better"."""
    return value_label(frames.score, (frames.score.name if len(frames.averaged) == 1 else "") or "mean score")


def value_label(metric: Metric, name: str) -> str:
    """Return the label of an axis of a metric: "PPL (nats), less is better"."""
    unit = f" ({metric.suffix})" if metric.suffix else ""
    return f"{name}{unit}{', less is better' if metric.goal == 'min' else ''}"


def difference_axis(frames: Frames, to: str) -> str:
    """Return the label of an axis of differences from the score of `to`: a label, or the name of a line."""
    unit, to = frames.score.of_differences, frames.shown[to]
    return f"score − {to} ({unit})" if unit else f"score − {to}"


def title(frames: Frames) -> str:
    """Return the study's question, or else its name."""
    return frames.question or frames.experiment
