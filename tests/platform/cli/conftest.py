"""The command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jestlab.platform.cli import main


@pytest.fixture
def jestlab(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call a command in the lab, check its exit code, and return what it printed."""

    def call(*arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, arguments), "--root", str(root)])
        captured = capsys.readouterr()
        assert stopped.value.code == code, captured.err
        return captured.out

    return call
