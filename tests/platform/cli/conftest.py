"""The command line in this process."""

import itertools
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import stores_support as stores

from jestlab.platform.cli import main
from jestlab.platform.store.store import Store


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    """The store of a new lab."""
    with closing(Store.open(stores.empty_lab(root).store_url)) as store:
        yield store


def calling(capsys: pytest.CaptureFixture[str], *more: str) -> Callable[..., str]:
    """Return a function that calls a command, checks its exit code, and returns its output, or its errors."""

    def call(*arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, arguments), *more])
        captured = capsys.readouterr()
        assert int(stopped.value.code or 0) == code, captured.err
        return captured.out if code == 0 else captured.out or captured.err

    return call


@pytest.fixture
def at_each_sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace a module's calls of `sleep` by actions, one each; later ones take no time."""

    def replace(module: object, *actions: Callable[[], object]) -> None:
        following = itertools.chain(actions, itertools.repeat(lambda: None))
        fake = SimpleNamespace(sleep=lambda _: next(following)(), monotonic=time.monotonic)
        monkeypatch.setattr(module, "time", fake)

    return replace


@pytest.fixture
def jestlab(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call a command in the lab, check its exit code, and return its output, or its errors."""
    return calling(capsys, "--root", str(root))


@pytest.fixture
def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Like `jestlab`, in an empty folder, without settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("JESTLAB_ROOT", "JESTLAB_STORE", "JESTLAB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return calling(capsys)


@pytest.fixture
def check_errors() -> Callable[[Callable[..., str], Iterable[tuple[str, str]]], None]:
    """Check that commands end with an error of one line that has a text; "2 text": with exit code 2."""

    def check(call: Callable[..., str], cases: Iterable[tuple[str, str]]) -> None:
        for words, text in cases:
            code = 2 if text.startswith("2 ") else 1
            error = call(*shlex.split(words), code=code)
            assert text.removeprefix("2 ") in error and error.count("\n") == 1, words

    return check
