"""The digest of code depends on its behavior, not on comments or its folder."""

from pathlib import Path

import pytest

from jestlab.models.extensions import digest
from jestlab.models.extensions.content import essence

SOURCE = '''"""The purpose."""

import helper  # ours


def rule(key, *, gain=1.0):
    """Choose."""
    # by drawing
    return helper.draw(key, gain)
'''
EXPLAINED = '''# Another license.
"""Quite another text,
of two lines."""
import helper
\t# deeper
def rule(key, *, gain=1.0):
    \'\'\'Choose well.\'\'\'

   
    # twice
    return helper.draw(key, gain)   # done
'''


def write(folder: Path, source: str = SOURCE, helper: str = "def draw(key, gain): return 1\n") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.py").write_text(source)
    (folder / "helper.py").write_text(helper)
    return f"{folder / 'rules.py'}:rule"


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        (EXPLAINED, True),
        (SOURCE.replace("gain=1.0", "gain=2.0"), False),
        (SOURCE.replace("    return", "    if key: return"), False),
        (SOURCE + "LAST = 1\n", False),
        (SOURCE.replace("helper.draw(key, gain)", "'# no comment'"), False),
    ],
)
def test_behavior_counts_and_comments_blank_lines_and_the_folder_do_not(tmp_path, changed, is_same):
    assert (digest(write(tmp_path / "a")) == digest(write(tmp_path / "b", changed))) is is_same


def test_imported_files_of_the_folder_count(tmp_path):
    first = digest(write(tmp_path))
    assert digest(write(tmp_path, helper="# a comment\ndef draw(key, gain): return 1\n")) == first
    assert digest(write(tmp_path, helper="def draw(key, gain): return 2\n")) != first


def test_imported_modules_of_the_package_count(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "pack_c", SOURCE.replace("import helper", "from . import helper"))
    found: list[str] = []
    for name in ("pack_c/__init__", "neighbor_c", "pack_c/helper", "pack_c/__init__"):
        (tmp_path / f"{name}.py").write_text(f"x = {len(found)}\n")
        found.append(digest("pack_c.rules:rule"))
    assert found[0] == found[1] and len({*found}) == 3


def test_code_without_a_source_is_refused():
    with pytest.raises(ValueError, match="no source of 'math:sin'"):
        digest("math:sin")


def test_blank_lines_hashes_and_other_ends_of_lines_in_strings_count():
    """A page break or a line separator in a string doesn't move comments."""
    prompt = 'PROMPT = """a {c}\n\n# of {c}   \n"""\n'
    assert essence(prompt.encode()) == prompt.rstrip("\n")
    source = "A = 'x\u2028y'\n\f\nB = 1{}\nC = 2\n"
    assert essence(source.format("  # why").encode()) == essence(source.format("").encode())
