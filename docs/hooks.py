"""Pages that the documentation site makes when it is built: MkDocs calls `on_files`.

The reference of commands comes from click, those of keys from the schema, the notebook from nbconvert; what
the repository keeps at its root (measurements, security, changes) is copied, with its links changed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from jestlab.platform.cli import cli
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.keys import (
    COMMAND,
    REQUIRED,
    SECTIONS,
    SpecKey,
    config_keys,
    group,
    spec_keys,
)
from jestlab.platform.spec.program import builtin_programs

DOCS = Path(__file__).parent
ROOT = DOCS.parent
COPIED = {"BENCHMARKS.md": "benchmarks", "SECURITY.md": "security", "CHANGELOG.md": "changelog"}
"""Pages at the root of the repository → their names under `reference/`."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that were written."""
    pages: dict[str, str | bytes] = {"reference/commands.md": commands()}
    pages |= {f"reference/{what}.md": keys(what) for what in KEYS}
    pages |= {f"reference/{name}.md": copied(ROOT / file) for file, name in COPIED.items()}
    pages |= notebook(DOCS / "notebook.ipynb")
    for name, content in pages.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=content))
    return files


# ---- commands


def commands() -> str:
    """Write the reference of all verbs and their subcommands."""
    head = (
        "# Commands\n\nThis page is generated from `jestlab --help`. Every verb takes `--help`; verbs whose "
        "output a program may want to read take `--json`. Errors are one line on standard error. The exit "
        "code is 0 for success, 1 for an error, 2 for wrong usage and 130 after Ctrl-C.\n\n"
        "| verb | what it does |\n|:--|:--|\n"
    )
    table = "".join(f"| [`{verb}`](#jestlab-{verb}) | {about} |\n" for verb, about in cli.verbs.items())
    with click.Context(cli, info_name="jestlab") as context:
        commands = ((verb, cli.get_command(context, verb)) for verb in cli.verbs)
        sections = [part for verb, command in commands for part in _command(verb, command, context)]
    return head + table + "\n" + "\n".join(sections)


def _command(
    name: str, command: click.Command | None, parent: click.Context, depth: int = 2
) -> Iterator[str]:
    """Write a command, and below it its subcommands."""
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"{'#' * depth} jestlab {context.command_path.removeprefix('jestlab ')}\n"
    yield f"```text\n{usage}\n```\n"
    yield _prose(command.help or "")
    records = [record for p in command.get_params(context) if (record := p.get_help_record(context))]
    if records:
        yield "| option | meaning |\n|:--|:--|"
        yield "".join(f"| `{_cell(option)}` | {_cell(meaning)} |\n" for option, meaning in records)
    if command.epilog:
        yield _prose(command.epilog)
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            yield from _command(sub, command.get_command(context, sub), context, depth + 1)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _prose(text: str) -> str:
    """Turn the text of click's help into Markdown: a paragraph after a line `\\b` is kept as it is."""
    written = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.startswith("\b"):
            written.append(re.sub(r"([<*_|])", r"\\\1", paragraph) + "\n")
            continue
        lines = paragraph.removeprefix("\b").strip("\n").splitlines()
        if lines[0] == "Examples:":
            written.append("Examples:\n")
            lines = lines[1:]
        written.append("```text\n" + inspect.cleandoc("\n" + "\n".join(lines)) + "\n```\n")
    return "\n".join(written)


# ---- keys

KEYS: dict[Literal["spec", "config"], str] = {
    "spec": "All keys of a spec. This page is generated from the schema that validates specs.",
    "config": "All keys of the config of a run, in `base`, in `runs`, on axes, and in `--set`. This page is "
    "generated from the schemas of jestlab's programs. A custom program can have any keys.",
}
"""Reference of keys → its introduction."""


def keys(what: Literal["config", "spec"]) -> str:
    """Write the reference of the keys of specs or of configs, from their schema."""
    listed = config_keys() if what == "config" else spec_keys()
    texts = introductions()
    parts = [f"# {what.capitalize()} keys", KEYS[what]]
    for section, members in groupby(listed, group):
        parts += [f"## `{section}`", texts.get(section, "")]
        head = ["| key | type | default | meaning | used by | identity |", "|:--|:--|:--|:--|:--|:--|"]
        parts.append("\n".join([*head, *(_key_row(key, section) for key in members)]))
    return "\n\n".join(filter(None, parts)) + "\n"


def introductions() -> dict[str, str]:
    """Return the introduction of each section of specs, and of each section and program of configs."""
    found = {section or "study": fields_of(cls).description for section, cls in SECTIONS.items()}
    found["command"] = COMMAND
    for name, program in builtin_programs().items():
        if program.schema is not None:
            root = fields_of(program.schema)
            found[name] = root.description
            for path, field in root.walk():
                models = field.items.sections or field.sections
                model = models[0] if len(models) == 1 else field.schema
                section = (*path, "<name>") if field.items.children else path
                found.setdefault(".".join(section), model.get("description", ""))
    return found


def _key_row(key: SpecKey, section: str) -> str:
    """Write a row of a table, whose heading has the beginning of the key."""
    is_value = key.default != REQUIRED and " " not in key.default.strip("[]{}").replace(", ", "")
    cells = (
        f"`{key.path.removeprefix(f'{section}.')}`",
        key.type,
        f"`{key.default}`" if is_value else key.default,
        key.description,
        ", ".join(key.where),
        "yes" if key.identity else "no",
    )
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    """Escape Markdown and HTML outside of code."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


# ---- pages of the repository


def copied(page: Path) -> str:
    """Read a page at the root, with links to other such pages and to these docs as they are in the site."""
    text = page.read_text(encoding="utf-8")

    def link(match: re.Match[str]) -> str:
        words, (target, _, anchor) = match[1], match[2].partition("#")
        end = f"#{anchor}" if anchor else ""
        if target in COPIED:
            return f"[{words}]({COPIED[target]}.md{end})"
        if target.startswith("docs/"):
            return f"[{words}](../{target.removeprefix('docs/')}{end})"
        return words if target else match[0]  # elsewhere in the repository: no page of the site

    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)\s]*)\)", link, text)


# ---- notebook


def notebook(path: Path) -> Mapping[str, str | bytes]:
    """Render an executed notebook as a page, with its pictures as files beside it."""
    if not path.exists():
        return {}
    from nbconvert import MarkdownExporter

    exporter: Any = MarkdownExporter
    body, resources = exporter().from_filename(str(path))
    return {f"{path.stem}.md": body} | dict(resources["outputs"])
