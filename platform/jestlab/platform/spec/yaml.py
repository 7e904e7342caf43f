"""YAML for specs: the core schema of YAML 1.2, without tags and duplicate keys, with line numbers.

PyYAML implements YAML 1.1, where `1e-3` is a string, `no` is false, and `1:30` is ninety. This loader reads
them as a number and two strings. It reads `1e6` as an integer, which fingerprints depend on. ruamel.yaml
would read `1e6` as a float, accept tags, and take twice as long.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from jestlab.platform.errors import SpecError, dotted, shown

MAX_VALUES = 1_000_000
"""Maximum number of values in a spec, counting each use of an alias."""

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


class _Loader(yaml.SafeLoader):
    """Safe loader for the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 — PyYAML's protocol


class _ValueLoader(_Loader):
    """Loader that reads `#` as an ordinary character."""

    def peek(self, index: int = 0) -> str:
        """Return the next character, with a letter in place of `#`."""
        character: str = super().peek(index)
        return "x" if character == "#" else character


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes strings which the loader would read as another type, and writes no anchors."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 — PyYAML's protocol

    def ignore_aliases(self, data: Any) -> bool:
        """Write a repeated value in full each time."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # PyYAML would read Unicode's line breaks as spaces: escape them.
    style = '"' if re.search("[\x85\u2028\u2029]", value) else None
    return dumper.represent_scalar(_TAG + "str", value, style=style)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    digits, _, exponent = text.lower().partition("e") if "x" not in text else (text, "", "")
    # The length first: Python can't parse exponents with thousands of digits.
    if len(text) > _MOST_DIGITS or len(digits) + int(exponent or 0) > _MOST_DIGITS + 1:
        problem = f"{shown(text)[1:-1]} is too large"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    if exponent:
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
    """A parsed YAML document with line numbers.

    Attributes:
        value: The document as plain data.
    """

    def __init__(self, text: str, loader_class: type[_Loader] = _Loader) -> None:
        """Parse a document.

        Raises:
            SpecError: The document is invalid, has a tag, a duplicate key, or too many values, or contains
                itself through an alias.
        """
        self._root: yaml.Node | None = None
        try:
            loader = loader_class(text)
            self._root = loader.get_single_node()
            if self._root is not None:
                _check(self._root, {}, set())
            self.value: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"line {mark.line + 1}: " if mark else ""
            raise SpecError((), f"{line}not valid YAML: {error.problem or error.context}") from None
        except yaml.reader.ReaderError as error:
            problem = f"the character U+{error.character:04X} is not allowed"
            raise SpecError((), f"not valid YAML: {problem}") from None
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError((), f"not valid YAML: {error}") from None
        except RecursionError:
            raise SpecError((), "nested too deeply for a spec") from None

    def line(self, path: Sequence[str]) -> int | None:
        """Return the line of a place, counted from 1; if it doesn't exist, of the nearest place above it."""
        node, rest, line = self._root, dotted(path), None
        while node is not None and rest:
            for name, key, below in _children(node):
                if f"{rest}.".startswith(f"{name}."):
                    line, node, rest = key.start_mark.line + 1, below, rest[len(name) + 1 :]
                    break
            else:
                break
        return line


def value_of(text: str) -> Any:
    """Parse a value from the command line, where `#` is an ordinary character.

    Raises:
        SpecError: The value isn't valid YAML, or YAML would ignore a part of it, such as an anchor.
    """
    value, word = Document(text, _ValueLoader).value, text.strip()
    ignored = (yaml.AnchorToken, yaml.DirectiveToken, yaml.DocumentStartToken, yaml.DocumentEndToken)
    is_special = word in ("-", "?") or word[:1] in ("|", ">") or "\n" in word
    if is_special or any(isinstance(token, ignored) for token in yaml.scan(text, Loader=_ValueLoader)):
        raise SpecError((), "has a special meaning in YAML")
    return value


def _children(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield the name of each key below a node, its key node, and its value node."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key, value) for key, value in node.value)
        # Axes may be a mapping, but paths in errors number them.
        yield from ((str(index), key, value) for index, (key, value) in enumerate(node.value))
    elif isinstance(node, yaml.SequenceNode):
        yield from ((str(index), item, item) for index, item in enumerate(node.value))


def _check(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """Check a node, and return the number of its values.

    Args:
        node: The node.
        sizes: Results for the nodes checked before, by id.
        above: Ids of the nodes that contain this one.
    """
    line = node.start_mark.line + 1
    if id(node) in above:
        raise SpecError((), f"line {line}: contains itself through an alias")
    if id(node) in sizes:
        return sizes[id(node)]
    if node.tag not in _CORE and node.tag != _MERGE:
        written = node.tag.replace(_TAG, "!!")
        raise SpecError((), f"line {line}: the tag {written} is not allowed: specs are plain YAML")
    children = [] if isinstance(node, yaml.ScalarNode) else node.value
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError((), f"line {key.start_mark.line + 1}: a key must be a string")
            if (key.tag, key.value) in seen:
                raise SpecError((), f"line {key.start_mark.line + 1}: duplicate key {key.value!r}")
            seen.add((key.tag, key.value))
        children = [part for pair in node.value for part in pair]
    above.add(id(node))
    size = sizes[id(node)] = 1 + sum(_check(child, sizes, above) for child in children)
    above.remove(id(node))
    if size > MAX_VALUES:
        raise SpecError((), f"has more than {MAX_VALUES:,} values: too many for a spec")
    return size


def dump_inline(value: Any) -> str:
    """Write a value as YAML on one line."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, default_flow_style=True, width=10**6)
    return text.removesuffix("...\n").strip()


def dump(value: Any) -> str:
    """Write readable YAML that loads to an equal value."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
    )
    return text
