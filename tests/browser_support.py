"""A browser for tests of pages, from disk or of a server: Debian's Chromium, through Playwright."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextmanager
def started_browser() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium here: make tools")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=_FLAGS.split())
        yield started
        started.close()


@dataclass
class Opened:
    """A page, and what came of opening it."""

    tab: Any
    complaints: list[str]
    requests: list[str]


def open_page(browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> Opened:
    """Open a page from disk in a new tab: see `open_url`."""
    return open_url(browser, path.as_uri(), width, scheme)


@contextmanager
def tabs(browser: Any, open_one: Callable[..., Opened]) -> Iterator[Callable[..., Opened]]:
    """Yield what opens tabs by `open_page` or `open_url`; they are closed afterwards."""
    found: list[Opened] = []

    def opening(place: Any, width: int = 1280, scheme: str = "light") -> Opened:
        found.append(open_one(browser, place, width, scheme))
        return found[-1]

    yield opening
    for each in found:
        each.tab.context.close()


def open_url(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> Opened:
    """Open an address in a new tab, and keep what it writes to the console and asks of the network."""
    tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    found = Opened(tab, [], [])
    tab.on("console", lambda message: found.complaints.append(message.text))
    tab.on("pageerror", lambda error: found.complaints.append(str(error)))
    tab.on("request", lambda request: found.requests.append(request.url))
    tab.goto(url)
    return found
