"""A table in Markdown and HTML; `latex` writes it for papers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from jinja2 import BaseLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

from ..units import MISSING

if TYPE_CHECKING:
    from .core import Cell, Table

# ---- GitHub's Markdown, aligned so that it is readable on a terminal

_WIDTH = 100  # characters in a line of captions and notes
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")  # an underscore within a word doesn't start emphasis
_BLOCK = re.compile(r"^(\d*)(>|(?:[-+#]+|[.)])(?=\s|$))")  # starts a quote, a list, a heading, or a rule


def markdown(table: Table) -> str:
    """Write a table in GitHub's Markdown; titles of sections and names of rows set apart are in italics."""
    rows = [[_md(column.title) for column in table.columns]]
    for title, section in table.sections:
        rows += [[f"*{_md(title)}*", *[""] * (len(rows[0]) - 1)]] if title else []
        for line in section:
            first, *others = map(_md_cell, line.cells)
            rows.append([f"*{first}*" if line.apart else first, *others])
    is_left = [column.align == "left" for column in table.columns]
    widths = [max(3, *map(len, texts)) for texts in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, is_left, strict=True)
        padded = (text.ljust(width) if left else text.rjust(width) for text, width, left in cells)
        lines.append(f"| {' | '.join(padded)} |")
    rules = (f":{'-' * n}-" if left else f"-{'-' * n}:" for n, left in zip(widths, is_left, strict=True))
    lines[1:1] = [f"|{'|'.join(rules)}|"]
    lines += ["", _md_lines("", table.caption)]
    lines += [""] if table.notes else []
    lines += [_md_lines("- ", note) for note in table.notes]
    return "\n".join(lines) + "\n"


def _md_lines(start: str, text: str) -> str:
    """Write a paragraph after `start` and align its lines; none of them starts another block."""
    lines = textwrap.wrap(_md(text), _WIDTH - len(start))
    return start + f"\n{' ' * len(start)}".join(_BLOCK.sub(r"\1\\\2", line) for line in lines)


def _md_cell(cell: Cell) -> str:
    text = f"~~{_md(cell.text)}~~" if cell.struck else _md(cell.text)
    return (f"**{text}**" if cell.bold else text) + cell.mark


def _md(text: str) -> str:
    """Escape a string for Markdown, on one line; commands between backticks stay code."""
    text = re.sub(r"[\\|*`$]|<(?=[a-z/!?])", r"\\\g<0>", " ".join(text.split()), flags=re.IGNORECASE)
    text = re.sub(r"\\`([A-Za-z0-9 .=-]+)\\`", r"`\1`", text)
    return _UNDERSCORE.sub(r"\_", text).replace("](", "]\\(")  # brackets without parentheses are no link


# ---- HTML


@dataclass(frozen=True)
class OnPage:
    """How a page shows a table.

    Attributes:
        name: Name of the table on the page.
        hidden: Keys of columns that are hidden until the reader chooses them.
        before: Row → HTML before its name.
        after: (row, key of a column) → HTML after the text of the cell.
    """

    name: str = ""
    hidden: Collection[str] = ()
    before: Mapping[str, Markup] = field(default_factory=dict)
    after: Mapping[tuple[str, str], Markup] = field(default_factory=dict)


def html(table: Table, page: OnPage | None = None) -> str:
    """Write a table in HTML, with only ASCII characters so that every encoding works; see `Table.html`."""
    groups = [(name, len(list(same))) for name, same in groupby(column.group for column in table.columns)]
    opened = [column.key if page and table.opens and column.formula else "" for column in table.columns[1:]]
    text = _template().render(
        table=table, page=page, groups=groups, css=Markup(_CSS), zip=zip, keys=["", *opened],
        prose=lambda text: Markup(prose(text)), empty=("", MISSING),
    )  # fmt: skip
    return text.encode("ascii", "xmlcharrefreplace").decode() + "\n"


def prose(text: str) -> str:
    """Escape a text for HTML, and mark up the parts between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def environment(loader: BaseLoader | None = None) -> Environment:
    """Return an environment for templates of HTML."""
    return Environment(
        autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@cache
def _template() -> Template:
    return environment().from_string(_HTML)


_HTML = """\
{% if not page %}<style>{{ css }}</style>{% endif %}
<table class="jestlab{% if page and page.name == "summary" %} cards{% endif %}">
{% if not page %}
<caption>{{ prose(table.caption) }}{% for note in table.notes %}<br>{{ prose(note) }}{% endfor %}</caption>
{% endif %}
<thead>
{% if groups|length > 1 %}
<tr class="groups">
{% for name, span in groups %}
<th{% if name %} scope="colgroup" class="group"{% endif %} colspan="{{ span }}">{{ name }}</th>
{% endfor %}
</tr>
{% endif %}
<tr>
{% for column in table.columns %}
<th scope="col" class="{{ column.align }}{% if page and column.key in page.hidden %} off{% endif %}"\
{% if not page %} title="{{ column.formula }}"{% endif %}>\
{% if page %}<button type="button" class="sort">{{ column.header }}</button>\
{% else %}{{ column.header }}{% endif %}\
{% if page and column.formula %}\
<button type="button" class="info" popovertarget="about-{{ page.name }}-{{ loop.index }}" \
aria-label="About {{ column.title }}"></button>{% endif %}</th>
{% endfor %}
</tr>
</thead>
{% for title, lines in table.sections %}
<tbody>
{% if title %}
<tr class="section"><th scope="rowgroup" colspan="{{ table.columns|length }}">{{ title }}</th></tr>
{% endif %}
{% for line in lines %}
<tr class="{{ 'apart' if line.apart }}">
{% for column, cell, key in zip(table.columns, line.cells, keys) %}
{% set text, is_left, is_button = cell.text, column.align == "left", key and cell.text not in empty %}
{% if loop.first %}<th scope="row">{% if page %}{{ page.before.get(line.key, "") }}{% endif %}\
<span class="name">{% else %}
{% set kinds = ["left" if is_left, "long" if is_left and text|length > 40, \
"off" if page and column.key in page.hidden]|select|join(" ") %}
<td{% if kinds %} class="{{ kinds }}"{% endif %}\
{% if page and page.name == "summary" %} data-label="{{ column.header }}"{% endif %}>{% endif %}
{% if is_button %}
<button type="button" aria-haspopup="dialog" data-row="{{ line.key }}" data-column="{{ key }}">{% endif %}
{% if cell.bold %}<b>{{ text }}</b>{% elif cell.struck %}<s>{{ text }}</s>{% else %}{{ text }}{% endif %}
{% if cell.mark %}<sup>{{ cell.mark }}</sup>{% endif %}{% if is_button %}</button>{% endif %}
{% if page %}{{ page.after.get((line.key, column.key), "") }}{% endif %}
{% if loop.first %}</span></th>{% else %}</td>{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody>
{% endfor %}
</table>
"""

_CSS = (
    "table.jestlab{border-collapse:collapse;font:14px/1.5 system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums;border-block:2px solid}"
    "table.jestlab caption{caption-side:bottom;text-align:left;font-size:12px;padding-top:6px}"
    "table.jestlab th,table.jestlab td{padding:2px 10px;text-align:right;font-weight:400;white-space:nowrap}"
    "table.jestlab tr>:first-child,table.jestlab .left{text-align:left}"
    "table.jestlab .long{white-space:normal}"
    "table.jestlab th.group{text-align:center;border-bottom:1px solid}"
    "table.jestlab thead tr:last-child>*,table.jestlab tr.apart>*{border-bottom:1px solid}"
    "table.jestlab tbody+tbody>tr:first-child>*{border-top:1px solid}"
    "table.jestlab tr.apart,table.jestlab tr.section{font-style:italic}"
)
