"""`jestlab published`: import, export, list, and remove."""

import functools
import json
from pathlib import Path

import pytest

from jestlab.analysis import published

MINE = """source,table,method,quantity,printed,unit,baseline
Doe et al. 2025,small,SigLIP,imagenet/zero_shot,70.3,percent,yes
Doe et al. 2025,small,SigLIP,birds/10_shot,60.0,percent,yes
Doe et al. 2025,small,JEST++,imagenet/zero_shot,71.0,percent,
Doe et al. 2025,small,JEST++,birds/10_shot,60.5,percent,
Doe et al. 2025,small,JEST++,mean_delta,+{},percent,
"""


@pytest.fixture
def call(checked):
    return functools.partial(checked, "published")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(MINE.format("0.6"), encoding="utf-8-sig")
    return path


def test_imports_and_exports(call, mine):
    assert call("list") == "no published results yet: jestlab published import\n"
    assert not Path("lab").exists()
    assert call("import").startswith("Evans et al. 2024: cells new 233, changed 0, unchanged 0")
    imported = json.loads(call("import", mine, "--json"))
    assert imported == {"new": 5, "changed": 0, "unchanged": 0, "kept": 0}
    assert call("export", "--output", "all.csv") == "all.csv: 238 cells\n"
    assert call("export") == Path("all.csv").read_text(encoding="utf-8")
    printed = json.loads(call("import", "all.csv", "--json"))
    assert printed == {"new": 0, "changed": 0, "unchanged": 238, "kept": 0}
    exported = published.parse(call("export", "--source", published.PAPER).encode(), "x")
    assert sorted(exported, key=repr) == sorted(published.paper(), key=repr)
    assert json.loads(call("export", "--json"))[0]["source"] == "Doe et al. 2025"
    assert "no published results of 'Doe'" in call("remove", "Doe", code=1)
    assert call("remove", "Doe et al. 2025") == "Doe et al. 2025: 5 cells removed\n"
    assert "Doe" not in call("list")


def test_reports_changed_cells(call, mine):
    assert "imagenet/zero_shot of SigLIP is already in " in call("import", mine, mine, code=1)
    call("import", mine)
    mine.write_text(MINE.format("0.7"))
    assert "cells new 0, changed 1, unchanged 4" in call("import", mine)
    mine.write_text("\n".join(MINE.splitlines()[:-1]))
    assert "are kept: 1;" in call("import", mine)


def test_lists_and_draws_tables_as_they_are_printed(call, checked):
    call("import")
    lines = [" ".join(line.split()) for line in call("list", "--table", "comparison").splitlines()]
    assert lines[0] == "comparison (Evans et al. 2024)" and len(lines) == 2 + 13
    assert lines[1].startswith("row method variant examples_seen flops_per_iteration ")
    assert lines[2] == "1 CLIP B 13B 100 32 −11.8 68.3 52.4 33.1"
    assert lines[7] == "6 SigLIP (baseline) B 40B 100 100 0.0 70.3 76.7 65.2 47.4"
    assert call("list").count(" (Evans et al. 2024)") == 5
    cells = json.loads(call("list", "--table", "laion", "--json"))
    assert len(cells) == 18 and cells[0]["value"] == 12.8e9
    assert "did you mean 'laion'" in call("list", "--table", "laoin", code=1)
    assert "missing EXPERIMENT: only --kind published" in checked("plot", code=1)
    paths = [Path(line) for line in checked("plot", "--kind", "published").split()]
    assert [path.name for path in paths] == ["published.png", "published.svg", "published.pdf"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_errors_are_one_line_and_change_nothing(call, mine, check_errors):
    bad = mine.with_name("bad.csv")
    bad.write_text(MINE.format("many"))
    cases = {
        f"import {mine} {bad}": "bad.csv, line 6, '+many' is not a number",
        "import none.csv": "cannot read none.csv: No such file or directory",
        "list --source Doe": "no published source 'Doe' in the store: none exist",
    }
    check_errors(call, cases.items())
    assert not Path("lab").exists()


def test_the_file_that_the_help_shows_can_be_imported(call):
    lines = call("import", "--help").splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("source,table"))
    Path("shown.csv").write_text("\n".join(line.strip() for line in lines[start : start + 4]))
    assert json.loads(call("import", "shown.csv", "--json"))["new"] == 3
