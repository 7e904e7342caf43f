"""The text of users' code: kept once, without secrets, within limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from jestlab.platform.store import code_texts, provenance
from jestlab.platform.store.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store.open(store_url)
    yield store
    store.close()


def kept(store: Store, *files: Path) -> dict[str, str]:
    code_texts.keep(store, files, provenance.cleaner())
    with store.reading() as connection:
        return dict(connection.execute(text("SELECT sha256, text FROM v_sources")).tuples().all())


def test_a_file_is_kept_once_under_the_digest_of_what_it_was(store, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "correct-horse")
    content = "λ = 1\nkey = 'correct-horse'\npassword = 'Tr0ub4dor&3-staple'\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(content)
    [(digest, said)] = kept(store, tmp_path / "one.py", tmp_path / "two.py").items()
    assert digest == hashlib.sha256(content.encode()).hexdigest()
    assert said.startswith("λ = 1\n") and "correct-horse" not in said and "Tr0ub4dor" not in said
    assert len(kept(store, tmp_path / "one.py")) == 1


def test_what_is_large_or_no_script_is_known_by_its_digest_alone(store, tmp_path, monkeypatch):
    monkeypatch.setattr(code_texts, "MOST_FILE_BYTES", 10)
    monkeypatch.setattr(code_texts, "MOST_BYTES", 12)
    contents = {
        "a.py": b"0123456789A", "b.py": b"\xff\xfe", "c.py": b"a\0b", "d.py": b"dd" * 4, "e.py": b"eeeee",
        ".env": b"A=1", "run": b"#!/a",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [*(tmp_path / name for name in contents), tmp_path / "missing.py"]
    assert sorted(kept(store, *files).values()) == ["#!/a", "dddddddd"]
