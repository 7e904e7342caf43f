"""What the documentation tells its reader to do works: every command, file, snippet and transcript in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import docs_support
from tests.docs_support import Reader, blocks, unlisted

from jestlab.experiments import paper

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))

NOT_RUN: dict[tuple[str, str], str] = {
    ("clusters.md", "createdb results"): "needs a PostgreSQL server",
    ("clusters.md", "export JESTLAB_STORE=postgresql://lab@server/results"): "needs a PostgreSQL server",
    ("clusters.md", "jestlab db backup before.db"): "needs a PostgreSQL server",
    ("clusters.md", "CREATE ROLE reader LOGIN PASSWORD 'choose one';"): "needs a PostgreSQL server",
    (
        "clusters.md",
        "jestlab table quickstart --store postgresql://reader@server/results",
    ): "needs a PostgreSQL server",
    ("clusters.md", "jestlab launch pod.yaml"): "needs a Kubernetes cluster",
    ("clusters.md", "pip install 'jestlab[gcs]'"): "needs a bucket",
    ("paper.md", "jestlab launch filtering_ratio"): "takes five minutes",
}
"""Page, first line of a block of code in it → why it is not run here."""

pytestmark = pytest.mark.process


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_works(page, tmp_path, monkeypatch, capsys):
    found = blocks((DOCS / page).read_text(encoding="utf-8"))
    assert list(unlisted(page, found, NOT_RUN)) == []
    monkeypatch.setattr(paper, "STUDIES", docs_support.FEW)
    reader = Reader(tmp_path, monkeypatch, capsys)
    reader.write(found)
    for block in found:
        if block.is_run:
            reader.do(block)


@pytest.mark.parametrize(("page", "first"), NOT_RUN)
def test_what_is_not_run_is_there(page, first):
    """The list holds nothing that was changed or removed since."""
    found = blocks((DOCS / page).read_text(encoding="utf-8"))
    assert [block.first for block in found if not block.is_run and block.first == first] == [first]
