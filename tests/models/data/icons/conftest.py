"""A registry of packages on this machine, which npm is configured for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.support.icon_packages import Registry, serving


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with serving() as here:
        monkeypatch.setenv("npm_config_registry", here.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield here
