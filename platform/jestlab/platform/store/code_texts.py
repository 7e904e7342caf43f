"""Text of users' code in the store, kept once a file, without secrets: so that a change of it can be shown.

The digest is of the file as it was. Files that are larger than `MOST_FILE_BYTES`, or are no scripts, are
known by their digest alone: what else a command names may be data, or credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sqlalchemy import select

from jestlab.platform.digests import digest_of
from jestlab.platform.store.checkout import without_secrets
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Source, chunks, execute_many, insert

MOST_FILE_BYTES = 256 * 1024
MOST_BYTES = 4 * 1024 * 1024
"""Of all files of one run together."""

_SUFFIXES = frozenset({".py", ".sh", ".bash", ".zsh", ".pl", ".rb", ".js", ".ts", ".jl", ".r", ".lua"})
_SHEBANG = "#!"


def readable(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield digest and text of those files that are scripts, as long as the limits allow."""
    left = MOST_BYTES
    for file in files:
        try:
            size = file.stat().st_size
            if size > min(MOST_FILE_BYTES, left):
                continue
            text = file.read_bytes().decode()
            digest = digest_of(file)
        except (OSError, UnicodeDecodeError):
            continue
        is_script = file.suffix.lower() in _SUFFIXES or text.startswith(_SHEBANG)
        if is_script and digest is not None and "\0" not in text:
            left -= size
            yield digest, text


def keep(store: Store, files: Iterable[Path], clean: Callable[[str], str]) -> None:
    """Keep the text of files that the store does not have yet.

    Args:
        store: Where it is kept.
        files: The files, as they are now.
        clean: Replaces secrets that are known already.
    """
    found = dict(readable(files))
    missing = found.keys() - texts(store, found).keys()
    rows = [{"sha256": digest, "text": without_secrets(clean(found[digest]))} for digest in sorted(missing)]
    if rows:
        with store.writing() as connection:
            execute_many(connection, insert(connection, Source).on_conflict_do_nothing(), rows)


def texts(store: Store, digests: Iterable[str]) -> dict[str, str]:
    """Return the text of files by their digests, as far as the store has it."""
    with store.reading() as connection:
        return {
            digest: text
            for chunk in chunks(digests)
            for digest, text in connection.execute(
                select(Source.sha256, Source.text).where(Source.sha256.in_(chunk))
            ).tuples()
        }
