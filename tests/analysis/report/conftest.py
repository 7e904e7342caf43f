"""Experiments in real stores, and their reports, parsed or opened in a browser."""

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "support"))

import plans_support as plans
import stores_support as stores
from PIL import Image
from tests.analysis.conftest import StoredRun
from tests.browser_support import Opened, open_page

from jestlab.analysis.costs import Cost
from jestlab.analysis.figures import Plot
from jestlab.analysis.report import build
from jestlab.models.training.phases import Spent
from jestlab.platform.planning.plan import Plan
from jestlab.platform.programs import Price
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.records import RunState
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
    name: str = "study"


def make_lab(
    folder: Path,
    runs: Sequence[StoredRun],
    question: str = "Is it faster?",
    name: str = "study",
    reports: Sequence[Mapping[str, Any]] = (),
    claims: Sequence[Mapping[str, Any]] = (),
    family: Any = None,
) -> Lab:
    """Record runs and their attempts, as launchers and workers do."""
    url = stores.empty_lab(folder / "lab").store_url
    store = Store.open(url)
    planned: dict[tuple[str, int], Any] = {}
    for run in runs:
        needs = {role: planned[needed, run.seed].fingerprint for role, needed in run.needs.items()}
        steps = max(1, len(run.scores))
        made = plans.run(
            run.run,
            config={"selection": {"rule": run.label or run.run}, "seed": run.seed} | run.config,
            seed=run.seed,
            needs=needs,
            price=None
            if run.flops_per_step is None
            else Price(Cost(image_tower=run.flops_per_step[0] * steps), examples=64 * steps),
        )
        planned[run.label or run.run, run.seed] = replace(made, label=run.label or made.label)
    names: dict[str, Any] = {run.run: {} for run in runs} | {"greedy": {}}  # greedy is never launched
    spec: dict[str, Any] = {"name": name, "question": question, "scale": "smoke", "runs": names}
    spec |= {"reports": list(reports), "claims": list(claims), "family": family}
    spec["metrics"] = {"*": {"goal": "max", "unit": "percent"}}
    needed = frozenset(name for run in runs for name in run.needs.values())
    plans.record(store, Plan(StudySpec.parse(spec), tuple(planned.values()), needed))
    for run in runs:
        _happen(store, planned[run.label or run.run, run.seed], run)
    store.close()
    return Lab(url, folder, name)


def _happen(store: Store, made: Any, run: StoredRun) -> None:
    row = next(row for row in store.runs(store.experiments()[0].name) if row.fingerprint == made.fingerprint)
    for reason in run.fails_before:
        plans.begun(store, row, spent=SPENT).fail(reason)
        plans.move(store, made, RunState.PENDING)
    if run.state == "PENDING":
        return
    attempt = plans.begun(store, row, spent=SPENT)
    for step, score in enumerate(run.scores, start=1):
        scores = {"shapes/zero_shot": score, "shapes_retrieval/i2t_r1": score}
        flops = None if run.flops_per_step is None else run.flops_per_step[0] * step
        attempt.evaluation(step, 64 * step, flops, scores)
        attempt.progress(step, len(run.scores))
    if run.state == "COMPLETED":
        attempt.complete()
    elif run.state == "FAILED":
        attempt.fail("ValueError: it broke <b>here</b>")
    else:
        attempt.flush()


def finished() -> list[StoredRun]:
    """A reference, uniform, independent and joint, three seeds each; one attempt failed on the way."""
    runs = []
    selecting: dict[str, Any] = {"flops_per_step": (8e9, 0, 0), "needs": {"selection": "reference"}}
    for seed, more in enumerate((0.0, 0.04, -0.03)):
        lost = ["lost its node"] if seed == 1 else []
        runs += [
            StoredRun("reference", [0.5, 0.7 + more], seed=seed, flops_per_step=(9e9, 0, 0)),
            StoredRun("uniform", [0.1, 0.2, 0.3, 0.4 + more], seed=seed),
            StoredRun("independent", [0.1, 0.3, 0.4, 0.45 - more], seed=seed, **selecting),
            StoredRun("joint", [0.3, 0.5, 0.6, 0.65 + more], seed=seed, fails_before=lost, **selecting),
        ]
    return runs


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


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished experiment, which tests must not change."""
    folder = tmp_path_factory.mktemp("study")
    return make_lab(folder, finished(), reports=REPORTS, claims=CLAIMS, family="none")


@pytest.fixture(scope="session")
def page(study: Lab) -> Path:
    """The report of the finished experiment, with stubs for its printed figures."""
    with stubbed_figures():
        return build(study.url, "study", study.folder / "report", "uniform")[0]


@pytest.fixture(scope="session")
def parsed_page(page: Path) -> Element:
    return parse_page(page)


@pytest.fixture
def new_lab(tmp_path: Path) -> Callable[..., Lab]:
    """A function that records an experiment with given runs."""
    return lambda *runs, **options: make_lab(tmp_path, runs, **options)


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


def check_accessible(opened: Opened, width: int) -> None:
    """Check that a page fits the window, and check it by the rules of WCAG."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for summary in opened.tab.locator("summary").all():
        summary.click()
    found = axe.Axe().run(opened.tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.complaints == []


@pytest.fixture(scope="module")
def shown(browser: Any, page: Path) -> Iterator[Opened]:
    """The report of the finished experiment in a browser, for tests that do not change it."""
    found = open_page(browser, page)
    yield found
    found.tab.context.close()
