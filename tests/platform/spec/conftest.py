"""Tables of what is rejected, with the errors."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.spec import load

CheckErrors = Callable[..., None]


@pytest.fixture
def check_errors(tmp_path: Path, subtests: pytest.Subtests) -> CheckErrors:
    """Check that each input of a table is rejected with exactly the errors behind it.

    In a table, `=>` comes before the beginning of each error, without what all errors begin with.
    """

    def load_text(text: str) -> object:
        (tmp_path / "study.yaml").write_text(text)
        return load(str(tmp_path / "study.yaml"))

    def check(table: str, load: Callable[[str], object] = load_text, prefix: str = "study.yaml:") -> None:
        for text, errors in re.findall(r"(.+?)((?:\s*=> [^\n]+)+)", table, re.DOTALL):
            with subtests.test(text):
                with pytest.raises(UserError) as caught:
                    load(text.strip())
                lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
                expected = re.findall("=> (.+)", errors)
                if len(expected) > 1:
                    assert lines.pop().startswith(f"{len(expected)} mistakes in ")
                for line, start in zip(lines, expected, strict=True):
                    assert re.match(f"{re.escape(prefix)} ?{re.escape(start)}", line), line

    return check
