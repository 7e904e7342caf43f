"""Pages that are generated when the documentation site is built: MkDocs calls the functions `on_…`.

The reference of commands comes from click, that of keys from the schema, and the notebook from nbconvert.
Pages at the root of the repository (measurements, security, changes) are copied, with their links changed.
`llms.txt` lists all pages for language models.
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
from mkdocs.structure.pages import Page

from jestlab.platform.cli import SECTIONS as VERBS
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


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the page of each command to the navigation, below the index of commands."""
    pages = [{f"jestlab {verb}": f"{COMMANDS}/{verb}.md"} for verb in cli.verbs]
    [reference] = [section["Reference"] for section in config.nav or () if "Reference" in section]
    [entry] = [entry for entry in reference if "Commands" in entry]
    entry["Commands"] = [f"{COMMANDS}/index.md", *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that were written."""
    pages: dict[str, str | bytes] = {f"{COMMANDS}/{name}.md": text for name, text in commands().items()}
    pages |= {f"reference/{what}.md": keys(what) for what in KEYS}
    pages |= {f"reference/{name}.md": copied(ROOT / file) for file, name in COPIED.items()}
    pages |= notebook(DOCS / "notebook.ipynb")
    for name, content in pages.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=content))
    return files


# ---- commands

COMMANDS = "reference/commands"
"""Folder of the pages of commands."""


def commands() -> dict[str, str]:
    """Write the reference of commands: name of the page → its text; `index`, and a page for each verb."""
    index = [
        "# Commands\n\nThis reference is generated from `jestlab --help`. All verbs have `--help`, and "
        "verbs with output for programs have `--json`. Errors are one line on standard error. The exit code "
        "is 0 for success, 1 for an error, 2 for wrong usage, and 130 after Ctrl-C.\n"
    ]
    for section, verbs in VERBS.items():
        rows = (f"| [`jestlab {verb}`]({verb}.md) | {about} |" for verb, about in verbs.items())
        index += [f"## {section}\n\n| Command | Purpose |\n|:--|:--|", *rows, ""]
    with click.Context(cli, info_name="jestlab") as context:
        texts = {
            verb: "\n".join(_command(verb, cli.get_command(context, verb), context)) for verb in cli.verbs
        }
    return {"index": "\n".join(index), **texts}


def _command(
    name: str, command: click.Command | None, parent: click.Context, depth: int = 1
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
        yield "| Option | Meaning |\n|:--|:--|"
        yield "".join(f"| `{option}` | {_cell(meaning)} |\n" for option, meaning in records if meaning)
    if command.epilog:
        yield _prose(command.epilog)
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            yield from _command(sub, command.get_command(context, sub), context, depth + 1)


def _cell(text: str) -> str:
    return re.sub(r"([|\[])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _prose(text: str) -> str:
    """Turn the text of click's help into Markdown: a paragraph after a line `\\b` stays unchanged."""
    written = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.startswith("\b"):
            written.append(re.sub(r"([<*_|\[])", r"\\\1", paragraph) + "\n")
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
    """Read a page at the root, with links changed to those of the site."""
    text = page.read_text(encoding="utf-8")

    def link(match: re.Match[str]) -> str:
        words, (target, _, anchor) = match[1], match[2].partition("#")
        end = f"#{anchor}" if anchor else ""
        if target in COPIED:
            return f"[{words}]({COPIED[target]}.md{end})"
        if target.startswith("docs/"):
            return f"[{words}](../{target.removeprefix('docs/')}{end})"
        return words if target else match[0]  # another file of the repository: no page of the site

    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)\s]*)\)", link, text)


# ---- notebook


def notebook(path: Path) -> Mapping[str, str | bytes]:
    """Render an executed notebook as a page, with its pictures as files."""
    if not path.exists():
        return {}
    from nbconvert import MarkdownExporter

    exporter: Any = MarkdownExporter
    body, resources = exporter().from_filename(str(path))
    return {f"{path.stem}.md": body} | dict(resources["outputs"])


# ---- llms.txt

_summaries: dict[str, str] = {}
"""Page → its description."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Keep the description of each page for `llms.txt` and search engines; default: the first sentence."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE))
    prose = (" ".join(text.split()) for text in paragraphs if re.match(r"[\w`*\[]", text))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", next(prose, "").replace("\\", ""))
    first = re.sub(r":$", ".", re.split(r"(?<=[.!?])\s", plain)[0])
    _summaries[page.file.src_uri] = page.meta.setdefault("description", first)


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`: the pages by section with their summaries, in the format of llmstxt.org."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section in config.nav or ():
        [(title, target)] = section.items()
        lines += ["", f"## {title}", "", *_listed(target if isinstance(target, list) else [section])]
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _listed(entries: list[Any], title: str = "") -> Iterator[str]:
    """Write a line for each page below a section of the navigation."""
    for entry in entries:
        name, target = next(iter(entry.items())) if isinstance(entry, dict) else (title, entry)
        if isinstance(target, list):
            yield from _listed(target, name)
        else:
            summary = _summaries[target]
            yield f"- [{name}]({target.removesuffix('.md')}.html)" + (f": {summary}" if summary else "")
