"""Tables of what is rejected, with the errors."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.spec import load

CheckErrors = Callable[..., None]


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each input of a table with its errors."""
    lines: list[str] = []
    errors: list[str] = []
    for line in [*table.strip("\n").splitlines(), ""]:
        if line.startswith("=> "):
            errors.append(line.removeprefix("=> "))
            continue
        if errors:
            yield "\n".join(lines), errors
            lines, errors = [], []
        lines.append(line)


@pytest.fixture
def check_errors(tmp_path: Path, subtests: pytest.Subtests) -> CheckErrors:
    """Check that each input of a table is rejected with exactly the errors below it.

    In a table, `=>` comes before the beginning of each error, without what all errors begin with.
    """

    def load_text(text: str) -> object:
        (tmp_path / "study.yaml").write_text(text)
        return load(str(tmp_path / "study.yaml"))

    def check(table: str, load: Callable[[str], object] = load_text, prefix: str = "study.yaml:") -> None:
        rows = list(_rows(table))
        assert rows
        for text, expected in rows:
            with subtests.test(text):
                with pytest.raises(UserError) as caught:
                    load(text)
                lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
                if len(expected) > 1:
                    assert lines.pop().startswith(f"{len(expected)} mistakes in ")
                assert all(line.startswith(prefix) for line in lines), lines
                found = [line.removeprefix(prefix).lstrip() for line in lines]
                assert len(found) == len(expected), found
                assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected

    return check
