"""Colors of labels: each label of an experiment has one color in print, on pages, and on live pages.

A color follows from the position of a label among all labels of the experiment, never from the labels that a
figure shows. The baseline of the study is dark gray, references are lighter and dashed. The palette is
legible for color-blind readers, and has a contrast of at least 3:1 on the light and on the dark background.

Templates write `<i class="swatch" style="background: {{ color.css }}">`; scripts get the same `css` in JSON.
The browser chooses between the two colors, so a change of theme needs no script.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .names import Names, Point, study_of


@dataclass(frozen=True)
class LabelColor:
    """The color of a label, and the dash of its lines.

    Attributes:
        light: Color on a light background, #rrggbb. Print uses it.
        dark: Color on a dark background.
        dash: Lengths of dashes and gaps of a line that is two pixels wide, as in SVG; empty for a solid line.
    """

    light: str
    dark: str
    dash: str = ""

    @property
    def css(self) -> str:
        """The color in CSS, for the theme of the page."""
        return f"light-dark({self.light},{self.dark})"


BASELINE = LabelColor("#4a5560", "#aab4bf")
REFERENCE = LabelColor("#89929b", "#77818b", "6,3")
PALETTE = (
    LabelColor("#0b66c3", "#6aa9ff"),  # blue
    LabelColor("#c2570c", "#ff9d5c"),  # orange
    LabelColor("#0f7f5f", "#4fc79f"),  # green
    LabelColor("#8250c4", "#bb95f5"),  # purple
    LabelColor("#c0397f", "#f58abb"),  # magenta
    LabelColor("#147a8a", "#54c1d1"),  # teal
    LabelColor("#8a5a2b", "#cf9f6d"),  # brown
    LabelColor("#6b7a12", "#b3c24d"),  # olive
)

_DASHES = ("", "10,3", "10,3,2,3", "4,2", "16,3,2,3,2,3")


def numbered(position: int) -> LabelColor:
    """Return the color of the label at a position, from 0; colors repeat with another dash."""
    repeat, place = divmod(position, len(PALETTE))
    return replace(PALETTE[place], dash=_DASHES[repeat % len(_DASHES)])


def in_order(labels: Iterable[str], baseline: str) -> dict[str, LabelColor]:
    """Choose a color for each label by its position among the labels except the baseline."""
    others = [label for label in labels if label != baseline]
    return {baseline: BASELINE} | {label: numbered(position) for position, label in enumerate(others)}


def label_colors(
    rows: Iterable[tuple[str, str, Point | str | None, bool]], spec: Mapping[str, Any]
) -> dict[str, LabelColor]:
    """Choose the color of each label of an experiment; `Snapshot.colors` reads the arguments from a store.

    Args:
        rows: Run, label, point, and whether other runs need the run, in the order of the study.
        spec: The study, as stored. In a union, a label has the color that it has in its study.
    """
    labels = {label: (run, point, needed) for run, label, point, needed in rows}
    names = Names(spec, ((run, label, point) for label, (run, point, _) in labels.items()))
    of_studies: dict[str, list[str]] = {}
    for label, (run, *_) in labels.items():
        of_studies.setdefault(study_of(spec, run)[1], []).append(label)
    colors: dict[str, LabelColor] = {}
    for prefix, members in of_studies.items():
        study = study_of(spec, labels[members[0]][0])[0]
        named = next(filter(None, (report.get("baseline") for report in study.get("reports") or ())), "")
        rivals = [label for label in members if not labels[label][2]]
        baseline = next(iter([*names.meant(f"{prefix}{named}"), *rivals]), members[0])
        colors |= dict.fromkeys(members, REFERENCE) | in_order(rivals, baseline)
    return colors
