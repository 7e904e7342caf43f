"""The documentation site is whole: it builds without warnings, links lead somewhere, it opens from disk."""

import importlib.util
import os
import re
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from jestlab.platform.cli import cli
from jestlab.platform.spec.keys import config_keys, spec_keys

ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Tag → the attribute that names what a browser loads."""
# Preloading is refused from disk.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], "preload": False}
PAGES = [
    path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
]
PAGES += [f"reference/{name}.html" for name in ("spec", "config", "benchmarks", "security")]
PAGES += [f"reference/commands/{name}.html" for name in ("index", "launch", "data")]  # the others are alike


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    if not importlib.util.find_spec("mkdocs"):
        pytest.skip("mkdocs is not installed")
    folder = tmp_path_factory.mktemp("docs") / "site"
    # Not --quiet, which would also hide the warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    said = (done.stdout + done.stderr).splitlines()
    assert (done.returncode, [line for line in said if not line.startswith("INFO")]) == (0, [])
    return folder


class Page(HTMLParser):
    """Where a page's links lead, what it loads, and which anchors it has."""

    def __init__(self, path: Path) -> None:
        """Read the page."""
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        given = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := given.get(key))}
        if tag == "a" and (target := given.get("href")):
            self.links.add(target)
        if tag in LOADED and (target := given.get(LOADED[tag])):
            self.loads.add(target)


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) >= len(PAGES)
    broken = []
    for path, page in pages.items():
        for target in page.links | page.loads:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https") and target not in page.loads:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[there].anchors if there in pages else {parts.fragment}
            if parts.scheme or parts.netloc or not there.exists() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


def test_every_command_and_every_option_is_in_the_reference(site):
    index = (site / "reference/commands/index.html").read_text(encoding="utf-8")
    with click.Context(cli) as context:
        for verb in cli.verbs:
            assert index.count(f'href="{verb}.html"') >= 2  # in the navigation, and in the table
            text = (site / f"reference/commands/{verb}.html").read_text(encoding="utf-8")
            command = cli.get_command(context, verb)
            assert command is not None
            subcommands = getattr(command, "commands", {})
            for name in (verb, *(f"{verb}-{sub}" for sub in subcommands)):
                assert f'id="jestlab-{name}"' in text
            for one in (command, *subcommands.values()):
                for option in (o for p in one.params for o in p.opts if o.startswith("--")):
                    assert re.search(rf"{option}\b", text), (verb, option)


@pytest.mark.parametrize("module", ["api", "platform.client", "platform.spec", "testing"])
def test_every_public_name_of_python_is_in_the_reference(site, module):
    """With its docstring; options that are generated from models are there, too."""
    page = (site / f"reference/python/{module.rpartition('.')[2]}.html").read_text(encoding="utf-8")
    public = importlib.import_module(f"jestlab.{module}")
    hidden = {"__version__", "SpecError", "StudySpec"}  # of specs: in the reference of keys
    names = set(getattr(public, "__all__", ("run", "ScriptRun", "Reporter"))) - hidden
    found = set(re.findall(rf'id="jestlab\.{module}\.(?:\w+\.)?(\w+)"', page))
    assert names - found == set()
    assert module != "api" or "highlight" in page


def test_llms_txt_lists_every_page_with_a_description(site):
    """In the format of llmstxt.org: a title, a summary, and sections with lists of links."""
    title, summary, *sections = (site / "llms.txt").read_text(encoding="utf-8").split("\n\n")
    assert title == "# jestlab" and summary.startswith("> ")
    assert [part for part in sections[::2] if not re.fullmatch(r"## [\w -]+", part)] == []
    links = [line for part in sections[1::2] for line in part.strip().splitlines()]
    found = [re.fullmatch(r"- \[[^\]]+\]\((\S+)\): .+", line) for line in links]
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert None not in found and sorted(match[1] for match in found if match) == sorted(pages)


@pytest.mark.parametrize(("page", "keys"), [("spec", spec_keys()), ("config", config_keys())])
def test_every_key_is_in_the_reference(site, page, keys):
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    assert [
        key.path for key in keys if f"<code>{escape(key.path.rpartition('.')[2])}</code>" not in text
    ] == []


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_asks_nothing_of_the_network(opened, site, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    violations = set()
    for page in PAGES:
        shown = opened(site / page, scheme=scheme)
        palette = shown.tab.get_attribute("body", "data-md-color-scheme")
        assert palette == {"light": "default", "dark": "slate"}[scheme]
        for violation in axe.run(shown.tab, options=RULES).response["violations"]:
            for node in violation["nodes"]:
                said = node["any"][0]["message"] if node["any"] else ""
                violations.add((page, violation["id"], node["html"][:80], said[:140]))
        assert [request for request in shown.requests if not request.startswith("file:")] == []
        assert shown.complaints == [], page
        shown.tab.close()
    assert sorted(violations) == []


@pytest.mark.full
@pytest.mark.browser
def test_pages_fit_a_phone(opened, site):
    for page in PAGES:
        shown = opened(site / page, width=400)
        assert shown.tab.evaluate("document.documentElement.scrollWidth") <= 400, page
        shown.tab.close()


@pytest.mark.full
@pytest.mark.browser
def test_search_from_disk_finds_a_word(opened, site):
    tab = opened(site / "index.html").tab
    tab.fill("[data-md-component=search-query]", "fingerprint")
    tab.wait_for_selector(".md-search-result__item a")
    assert "identity.html" in tab.inner_html(".md-search-result__list")
