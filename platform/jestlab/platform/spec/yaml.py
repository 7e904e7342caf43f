"""YAML as specs use it: the core schema of YAML 1.2, no tags, no duplicate keys, line numbers for errors.

PyYAML reads YAML 1.1, in which `1e-3` is a string, `no` is false and `1:30` is ninety. Here they are a number
and two strings, as a reader expects; and `1e6` is a whole number, which run fingerprints depend on.

ruamel.yaml reads YAML 1.2, but not its core schema: `1e6` is a float, `1_000` is a thousand, `0b1` is one and
`2026-01-01` is a date; tags are taken, and a list that contains itself is read as `[null]`. Its resolvers and
its checks would have to be replaced as PyYAML's are here, and it takes twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from jestlab.platform.errors import SpecError, shown

LARGEST = 1_000_000
"""Most values in a spec, counting an alias each time it is used: a few lines can stand for billions."""

_MOST_DIGITS = 300  # larger numbers are infinite as floats

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_CORE = frozenset(_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null"))
_RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+(?:[eE]\+?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE]-[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)


_LEFT_OUT = (yaml.AnchorToken, yaml.DirectiveToken, yaml.DocumentStartToken, yaml.DocumentEndToken)


class _Loader(yaml.SafeLoader):
    """Safe loader for the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 — PyYAML's protocol


class _ValueLoader(_Loader):
    """Takes `#` for a letter like any other, which begins no comment."""

    def peek(self, index: int = 0) -> str:
        """Return the next character, or another one, which decides what it is part of."""
        character: str = super().peek(index)
        return "x" if character == "#" else character


class _Dumper(yaml.SafeDumper):
    """Quotes what the loader above would not read as a string; never writes anchors."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 — PyYAML's protocol

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that is used twice in full both times."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # PyYAML writes Unicode's line breaks as they are, and reads them as spaces: escape them.
    style = '"' if re.search("[\x85\u2028\u2029]", value) else None
    return dumper.represent_scalar(_TAG + "str", value, style=style)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    digits, _, exponent = text.lower().partition("e") if "x" not in text else (text, "", "")
    # In this order: Python reads no exponents of thousands of digits.
    if len(text) > _MOST_DIGITS or len(digits) + int(exponent or 0) > _MOST_DIGITS + 1:
        problem = f"{shown(text)[1:-1]} is too large"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    if exponent:  # 1e6: a whole number, however it is written
        return int(digits) * int("1" + "0" * int(exponent))
    return int(text, 0 if text[:2] in ("0o", "0x") else 10)


for _name, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            _TAG + _name, re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
        )
_Loader.add_constructor(_TAG + "int", _integer)
_Dumper.add_representer(str, _text)


class Document:
    """A parsed YAML document: its value, and the line of any place in it."""

    def __init__(self, text: str, loader_class: type[_Loader] = _Loader) -> None:
        """Parse a document.

        Raises:
            SpecError: Not YAML, a tag, a duplicate key, too many values, or a value within itself.
        """
        self._root: yaml.Node | None = None
        try:
            loader = loader_class(text)
            self._root = loader.get_single_node()
            if self._root is not None:
                _check(self._root)
            self.value: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"line {mark.line + 1}: " if mark else ""
            raise SpecError((), f"{line}not valid YAML: {error.problem or error.context}") from None
        except yaml.reader.ReaderError as error:
            raise SpecError(
                (), f"not valid YAML: the character U+{error.character:04X} is not allowed"
            ) from None
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError((), f"not valid YAML: {error}") from None
        except RecursionError:
            raise SpecError((), "nested too deeply for a spec") from None

    def line(self, path: Sequence[str]) -> int | None:
        """Return the line of a place, or of the nearest place above it that is written; counted from 1."""
        node, rest = self._root, list(path)
        line = None
        while node is not None and rest:
            for parts, key, below in _below(node):
                if rest[: len(parts)] == parts:
                    line, node, rest = key.start_mark.line + 1, below, rest[len(parts) :]
                    break
            else:
                break
        return line


def value_of(text: str) -> Any:
    """Parse a value as the shell passes it: no part of it is a comment, a name, or the mark of a document.

    Raises:
        SpecError: As of `Document`; or it is written with what YAML would leave out.
    """
    value = Document(text, _ValueLoader).value
    is_left_out = text.strip() in ("-", "?")
    for token in yaml.scan(text, Loader=_ValueLoader):
        is_left_out |= isinstance(token, _LEFT_OUT)
        if isinstance(token, yaml.ScalarToken):
            is_block = token.style in ("|", ">")
            # Outside a block, a line break would become a space.
            is_left_out |= not token.value if is_block else token.start_mark.line < token.end_mark.line
    if is_left_out:
        raise SpecError((), "has a special meaning in YAML")
    return value


def _below(node: yaml.Node) -> Iterator[tuple[list[str], yaml.Node, yaml.Node]]:
    """Yield what lies below a node: the parts of its key (dotted keys have several), its key, its value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value).split("."), key, value
        # Axes may be written as a mapping, but their places are numbered.
        yield from (([str(index)], key, value) for index, (key, value) in enumerate(node.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield [str(index)], item, item


def _check(root: yaml.Node) -> None:
    """Refuse tags, duplicate keys, values within themselves, and too many values."""
    sizes: dict[int, int] = {}  # of finished nodes
    within: set[int] = set()  # nodes that are being looked into
    stack = [(root, False)]
    while stack:
        node, finished = stack.pop()
        if finished:
            within.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            if sizes[id(node)] > LARGEST:
                raise SpecError((), f"has more than {LARGEST:,} values: too many for a spec")
        elif id(node) in within:
            raise SpecError((), f"line {node.start_mark.line + 1}: contains itself through an alias")
        elif id(node) not in sizes:
            _check_node(node)
            within.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in _children(node))


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_node(node: yaml.Node) -> None:
    line = node.start_mark.line + 1
    if node.tag not in _CORE and node.tag != _MERGE:
        written = node.tag.replace(_TAG, "!!")
        raise SpecError((), f"line {line}: the tag {written} is not allowed: a spec is plain data")
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError((), f"line {key.start_mark.line + 1}: a key must be a string")
            if (key.tag, key.value) in seen:
                raise SpecError((), f"line {key.start_mark.line + 1}: duplicate key {key.value!r}")
            seen.add((key.tag, key.value))


def dump_inline(value: Any) -> str:
    """Write a value as YAML on one line."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, default_flow_style=True, width=10**6)
    return text.removesuffix("...\n").strip()


def dump(value: Any) -> str:
    """Write YAML that reads well and loads again to an equal value."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
    )
    return text
