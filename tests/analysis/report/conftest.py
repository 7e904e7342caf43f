"""Experiments in real stores, and their reports, parsed or opened in a browser."""

import io
import itertools
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "support"))

import plans_support as plans
import stores_support as stores
from PIL import Image
from tests.browser_support import Opened, open_page

from jestlab.analysis.costs import Cost
from jestlab.analysis.figures import Plot
from jestlab.analysis.report import build, gather
from jestlab.models.training.phases import Spent
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.programs import Price
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.records import RunState, RunSummary
from jestlab.platform.store.store import Store

SPENT = Spent(
    startup_seconds=0.4, compilation_seconds=0.8, training_seconds=2.0, evaluation_seconds=0.6,
    checkpoint_seconds=0.2, winddown_seconds=None, resumed_step=0, reached_step=4, saved_step=2,
    saved_seconds=1.3,
)  # fmt: skip
"""How each attempt spent its time."""


@dataclass
class Lab:
    url: str
    folder: Path


CLAIMS: list[dict[str, Any]] = [
    {
        "statement": "Joint selection learns more than uniform sampling",
        "of": "joint", "above": "uniform", "source": "Figure 3, middle", "unless": "never shown",
    },
    {
        "statement": "Independent selection is as good as its reference",
        "of": "independent", "near": "reference", "within": 0.02, "source": "Table 4",
        "unless": "the learners are small",
    },
    {"statement": "Selection hurts <b>", "of": ["joint", "independent"], "below": "uniform"},
    {"statement": "Greedy learns more", "of": "greedy", "above": "uniform", "unless": "never shown"},
    {"statement": "More is lost", "of": {"of": "joint", "minus": "uniform"}, "above": {
        "of": "independent", "minus": "uniform"}, "measure": "shapes/zero_shot"},
]  # fmt: skip
REPORTS: list[dict[str, Any]] = [
    {"kind": "table", "name": "comparison"},
    {"kind": "speedup", "figure": {"caption": "none"}},
    {"kind": "batch_size"},
]


CURVES = {
    "reference": (9e9, [0.5, 0.7]),
    "uniform": (3e9, [0.1, 0.2, 0.3, 0.4]),
    "independent": (8e9, [0.1, 0.3, 0.4, 0.45]),
    "joint": (8e9, [0.3, 0.5, 0.6, 0.65]),
}
"""Run → FLOPs of a step, and scores at steps 1, 2, …, the last of which differs by seed."""


def record_attempt(store: Store, row: RunSummary, flops_per_step: float, scores: Sequence[float]) -> None:
    """Record a completed attempt at a run, as a worker does."""
    attempt = plans.begun(store, row, spent=SPENT)
    for step, score in enumerate(scores, start=1):
        metrics = {"shapes/zero_shot": score, "shapes_retrieval/i2t_r1": score}
        attempt.evaluation(step, 64 * step, flops_per_step * step, metrics)
        attempt.progress(step, len(scores))
    attempt.complete()


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished experiment with three seeds of each run, which tests must not change.

    One attempt at a run of joint failed on the way.
    """
    folder = tmp_path_factory.mktemp("study")
    url = stores.empty_lab(folder / "lab").store_url
    store = Store.open(url)
    planned: dict[tuple[str, int], PlannedRun] = {}
    for seed, (name, (flops, scores)) in itertools.product(range(3), CURVES.items()):
        selects = name in ("independent", "joint")
        planned[name, seed] = plans.run(
            name,
            config={"selection": {"rule": name}, "seed": seed},
            seed=seed,
            needs={"selection": planned["reference", seed].fingerprint} if selects else {},
            price=Price(Cost(image_tower=flops * len(scores)), examples=64 * len(scores)),
        )
    spec: dict[str, Any] = {
        "name": "study", "question": "Is it faster?", "scale": "smoke", "reports": REPORTS, "claims": CLAIMS,
        "family": "none", "metrics": {"*": {"goal": "max", "unit": "percent"}},
        "runs": {name: {} for name in (*CURVES, "greedy")},  # greedy is never launched
    }  # fmt: skip
    plans.record(store, Plan(StudySpec.parse(spec), tuple(planned.values()), frozenset(["reference"])))
    for row in store.runs("study"):
        if (row.name, row.seed) == ("joint", 1):
            plans.begun(store, row, spent=SPENT).fail("lost its node")
            plans.move(store, planned["joint", 1], RunState.PENDING)
        flops, (*scores, last) = CURVES[row.name]
        more = (0.0, 0.04, -0.03)[row.seed] * (-1 if row.name == "independent" else 1)
        record_attempt(store, row, flops, [*scores, last + more])
    store.close()
    return Lab(url, folder)


@pytest.fixture(scope="session")
def page(study: Lab) -> Path:
    """The report of the finished experiment, with stubs for its printed figures."""
    with stubbed_figures():
        return build(gather(study.url, "study", "uniform"), study.folder / "report")[0]


@pytest.fixture(scope="session")
def parsed_page(page: Path) -> Element:
    return parse_page(page)


def copy_with_spec(lab: Lab, path: Path, experiment: str, change: Callable[[Any], Any]) -> str:
    """Copy the store of a lab, change the spec of an experiment there, and return the URL of the copy."""
    shutil.copy(lab.url.removeprefix("sqlite:///"), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        (text,) = connection.execute("SELECT spec FROM experiment WHERE name = ?", [experiment]).fetchone()
        changed = json.dumps(change(json.loads(text)))
        connection.execute("UPDATE experiment SET spec = ? WHERE name = ?", [changed, experiment])
    return f"sqlite:///{path}"


@contextmanager
def stubbed_figures() -> Iterator[None]:
    """Replace printed figures by one-pixel images: drawing them takes most of the time of a report."""
    content = io.BytesIO()
    Image.new("RGB", (1, 1)).save(content, format="png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plot, "_drawn", lambda self, suffixes: [content.getvalue() for _ in suffixes])
        yield


@pytest.fixture
def figure_stubs() -> Iterator[None]:
    with stubbed_figures():
        yield


def parse_page(page: Path) -> Element:
    """Parse a page strictly. It must not have characters that HTML forbids."""
    text = page.read_bytes().decode()
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]", text)
    tree: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    # All links are within the page, so that they work after it was mailed.
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [link.get("href", "") for link in tree.iter("a")]
    assert links and {link[0] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    return tree


def words(element: Element) -> str:
    """Return the text of an element without its scripts, with single spaces."""
    return " ".join(" ".join(_texts(element)).split())


def _texts(element: Element) -> Iterator[str]:
    if element.tag not in ("script", "style"):
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""


def by_class(tree: Element, name: str) -> list[Element]:
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def by_id(tree: Element, name: str) -> Element:
    (found,) = (element for element in tree.iter() if element.get("id") == name)
    return found


@pytest.fixture(scope="module")
def shown(browser: Any, page: Path) -> Iterator[Opened]:
    """The report of the finished experiment in a browser, for tests that do not change it."""
    found = open_page(browser, page)
    yield found
    found.tab.context.close()
