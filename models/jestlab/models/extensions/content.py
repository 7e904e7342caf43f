"""The digest of custom code.

It ignores comments, docstrings, blank lines, and the folder: a better explanation, or the same code in an
installed package, is the same code. It includes the files that the code imports from its folder or package,
and no others.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import os
import tokenize
from collections.abc import Iterator
from pathlib import Path

from jestlab.models.extensions.imports import Imports
from jestlab.models.extensions.references import root_of, source_of

_MOST_FILES = 500


def digest(reference: str) -> str:
    """Hash the file of a reference, and the files that it imports from its folder or package.

    Args:
        reference: `package.module:name` or `/path/to/file.py:name`; the name itself does not count.

    Returns:
        16 hex digits.

    Raises:
        ValueError: The file is missing.
    """
    file = source_of(reference)
    if file is None:
        raise ValueError(f"no source of {reference!r} to identify it by: expected a Python file")
    root = root_of(reference, file)
    top = root / file.relative_to(root).parts[0]  # of a module in a package, the package
    within = root if reference.rpartition(":")[0].endswith(".py") else top
    if is_of_jestlab(reference):
        within = file.parent  # configs of jestlab have versions for its other modules
    files = Imports([root]).followed([file], lambda found: found.is_relative_to(within), _MOST_FILES)
    state = hashlib.sha256(_hashed(file).encode())
    for other in sorted(files[1:], key=lambda path: os.path.relpath(path, file.parent)):
        state.update(f"\n{os.path.relpath(other, file.parent)} {_hashed(other)}".encode())
    return state.hexdigest()[:16]


def is_of_jestlab(reference: str) -> bool:
    """Return whether a reference is to code that comes with jestlab."""
    return reference.startswith("jestlab.")


def _hashed(file: Path) -> str:
    stat = file.stat()
    return _hashed_as_of(file, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _hashed_as_of(file: Path, size: int, modified: int) -> str:
    source = file.read_bytes()
    try:
        text = essence(source)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return hashlib.sha256(source).hexdigest()
    return hashlib.sha256(text.encode()).hexdigest()


def essence(source: bytes) -> str:
    """Return a module's text without comments, docstrings and blank lines, the same under every Python.

    Raises:
        SyntaxError: It is not valid Python.
    """
    tree = ast.parse(source)
    lines = io.TextIOWrapper(io.BytesIO(source), tokenize.detect_encoding(io.BytesIO(source).readline)[0])
    rows = lines.read().split("\n")
    in_strings = {row for node in ast.walk(tree) for row in _rows_inside(node)}
    for first, start, last, end in reversed([*_comments(source), *_docstrings(tree)]):
        kept = rows[first][:start] + rows[last][end:]
        rows[first : last + 1] = [kept] + [""] * (last - first)
        in_strings -= set(range(first, last + 1))
    kept_rows = (row if i in in_strings else row.rstrip() for i, row in enumerate(rows))
    return "\n".join(row for i, row in enumerate(kept_rows) if row or i in in_strings)


Span = tuple[int, int, int, int]
"""Row and column of the start, row and column of the end, counted from 0."""


def _comments(source: bytes) -> Iterator[Span]:
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield (token.start[0] - 1, token.start[1], token.end[0] - 1, token.end[1])


def _docstrings(tree: ast.Module) -> Iterator[Span]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            # Columns of `ast` are bytes; before a docstring there is white space alone, or a short `def`.
            last, end = (text.end_lineno or text.lineno) - 1, text.end_col_offset or 0
            yield (text.lineno - 1, text.col_offset, last, end)


def _rows_inside(node: ast.AST) -> range:
    """Return the rows, counted from 0, that a string of several lines spans: there, every space counts."""
    is_text = isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
    if not is_text or not isinstance(node, ast.expr) or node.end_lineno in (None, node.lineno):
        return range(0)
    return range(node.lineno - 1, node.end_lineno or node.lineno)
