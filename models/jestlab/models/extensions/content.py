"""Hash custom code and the files it imports, without executing it.

The digest ignores comments, docstrings, blank lines, and the folder: a better explanation, or the same code
in an installed package, is the same code. It includes the files that the code imports from its folder or
package, and no others.
"""

import ast
import contextlib
import functools
import hashlib
import io
import os
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jestlab.models.extensions.references import root_of, source_of

_MOST_FILES = 500
_MOST_BYTES = 1 << 20  # imports of larger files are not read


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
    if reference.startswith("jestlab."):
        within = file.parent  # configs of jestlab have versions for its other modules
    elif reference.rpartition(":")[0].endswith(".py"):
        within = root
    else:
        within = root / file.relative_to(root).parts[0]  # the package, or a module without a package
    files = followed([file], [root], lambda found: found.is_relative_to(within), _MOST_FILES)
    state = hashlib.sha256(_file_digest(file, file.stat().st_mtime_ns).encode())
    for name, other in sorted((os.path.relpath(other, file.parent), other) for other in files[1:]):
        state.update(f"\n{name} {_file_digest(other, other.stat().st_mtime_ns)}".encode())
    return state.hexdigest()[:16]


@functools.cache
def _file_digest(file: Path, modified: int) -> str:
    """Return the SHA-256 of a file's essence or, if it isn't valid Python, of its bytes."""
    source = file.read_bytes()
    with contextlib.suppress(SyntaxError, ValueError, tokenize.TokenError):
        source = essence(source).encode()
    return hashlib.sha256(source).hexdigest()


def essence(source: bytes) -> str:
    """Return a module's text without comments, docstrings, and blank lines, the same under every Python.

    Raises:
        SyntaxError: It isn't valid Python.
    """
    tree = ast.parse(source)
    encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    rows = io.TextIOWrapper(io.BytesIO(source), encoding).read().split("\n")
    removed = [
        (*token.start, *token.end)  # row from 1 and column from 0, of the first and after the last character
        for token in tokenize.tokenize(io.BytesIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    in_strings: set[int] = set()  # rows of strings that span several: every space counts there
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                # Columns of `ast` are bytes. Only white space or a short `def` comes before a docstring.
                text = node.body[0]
                last = text.end_lineno or text.lineno
                removed.append((text.lineno, text.col_offset, last, text.end_col_offset or 0))
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            is_text = isinstance(node, ast.JoinedStr) or isinstance(node.value, str | bytes)
            last = node.end_lineno or node.lineno
            if is_text and last > node.lineno:
                in_strings |= {*range(node.lineno, last + 1)}
    for first, start, last, end in reversed(removed):
        rows[first - 1 : last] = [rows[first - 1][:start] + rows[last - 1][end:]] + [""] * (last - first)
        in_strings -= {*range(first, last + 1)}
    stripped = (row if i in in_strings else row.rstrip() for i, row in enumerate(rows, 1))
    return "\n".join(row for i, row in enumerate(stripped, 1) if row or i in in_strings)


# ---- imports


def followed(
    entries: Sequence[Path], roots: Sequence[Path], is_followed: Callable[[Path], bool], most: int
) -> list[Path]:
    """Return files and the files that they import, directly and indirectly.

    Args:
        entries: The first files.
        roots: The folders in which modules are found.
        is_followed: Whether a file is followed.
        most: Maximum number of files.
    """
    seen = dict.fromkeys(entries)
    waiting = [*entries]
    while waiting and len(seen) < most:
        for file in _imported(waiting.pop(0), roots):
            if file not in seen and is_followed(file):
                seen[file] = None
                waiting.append(file)
    return [*seen]


def module_files(name: str, roots: Sequence[Path]) -> list[Path]:
    """Return the `__init__.py` of each package around a module, then the module's file, if they exist."""
    found: list[Path] = []
    for part in name.split("."):
        folders = [root / part for root in roots]
        if package := [folder for folder in folders if (folder / "__init__.py").is_file()][:1]:
            found.append(package[0] / "__init__.py")
            roots = package
        elif module := [file for root in roots if (file := root / f"{part}.py").is_file()]:
            return [*found, module[0]]
        else:
            roots = [folder for folder in folders if folder.is_dir()]  # without an __init__.py
    return found


def _imported(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of the modules that a file imports."""
    try:
        if file.suffix != ".py" or file.stat().st_size > _MOST_BYTES:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from module_files(alias.name, roots)
        elif isinstance(node, ast.ImportFrom):
            places = file.parents[node.level - 1 :][:1] if node.level else roots
            if not node.module:  # from . import name
                yield from (init for place in places if (init := place / "__init__.py").is_file())
            for alias in node.names:
                parts = (node.module, None if alias.name == "*" else alias.name)
                yield from module_files(".".join(filter(None, parts)), places)
