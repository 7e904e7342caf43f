"""The paper's tables as they come with jestlab are those that the paper prints, cell by cell."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from jestlab.analysis import published

TEX = Path(__file__).parents[4] / "shared" / "paper.tex"

SCORES = ["imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1"]
COSTS = ["examples_seen", "flops_per_iteration", "flops_total", "mean_delta"]
SMALL = ["birds/10_shot", "caltech/10_shot", "cars/10_shot", "pets/10_shot", "mean"]
TABLES = {  # name: label in the TeX, and its columns
    "comparison": ("tab:main_table", ["method", "variant", *COSTS, *SCORES]),
    "longer_training": ("tab:appendix_table", ["method", "variant", *COSTS, *SCORES]),
    "specialists": ("tab:appendix_table_2", ["method", "examples_seen", *SCORES, *SMALL]),
    "laion": ("tab:test", ["method", "examples_seen", "imagenet/zero_shot", "coco/mean_r1"]),
    "raw_vs_filtered": ("tab:rawvsfilt", ["method", "filtered", "imagenet/zero_shot", "coco/mean_r1"]),
}


def body(tex: str, label: str) -> str:
    """What stands between the last tabular before a label and its end, without comments."""
    before = tex[: tex.index(f"\\label{{{label}}}")]
    text = before[before.rindex("\\begin{tabular}") : before.rindex("\\end{tabular}")]
    return re.sub(r"(?<!\\)%.*", "", text)


def plain(tex: str) -> str:
    """TeX as a reader sees it, but for bold."""
    tex = re.sub(r"\\coloredcell\{([^}]*)\}\{[^}]*\}\{[^}]*\}", r"\1", tex)
    tex = re.sub(r"\\multirow\{\d\}\{\*\}\{([^}]*)\}", r"\1", tex)
    tex = re.sub(
        r"\\(?:hspace\{[^}]*\}|rowcolor\{[^}]*\}|cite[pt]?\{[^}]*\}|hline|small|text(?:bf)?)", " ", tex
    )
    tex = tex.replace("\\checkmark", "✓").replace("\\xmark", "✗").replace("$+$", "+").replace("--", "−")
    tex = re.sub(r"\\\[[^]]*\]|[{}]", " ", tex)
    tex = re.sub(r"^\[[^]]*\]", " ", tex)
    tex = " ".join(tex.split())
    return re.sub(r"^([+−]) ", r"\1", tex)


def printed_rows(tex: str, table: str):
    """Row by row: method, whether shaded, citation, and (quantity, text, bold) of all that is printed."""
    label, columns = TABLES[table]
    lines = re.split(r"\\\\(?:\[[^]]*\])?", body(tex, label))
    start = next(i for i, line in enumerate(lines) if "Method &" in line)
    method, citation = "", ""
    for line in lines[start:]:
        line = line.split("\\hline")[-1] if "Method &" not in line or "\\hline" in line else ""
        cells = line.split("&")
        if len(cells) != len(columns) or not any(plain(cell) for cell in cells):
            continue
        cite = re.search(r"\\cite[pt]?\{([^}]*)\}", cells[0])
        if plain(cells[0]):  # else the second line of a \multirow
            method, citation = plain(cells[0]), cite[1] if cite else ""
        found = [
            (column, plain(cell), "\\textbf" in cell)
            for column, cell in zip(columns[1:], cells[1:], strict=True)
            if plain(cell)
        ]
        yield method, "\\rowcolor" in line, citation, found


@pytest.fixture(scope="module")
def tex() -> str:
    if not TEX.is_file():
        pytest.skip("the paper is not beside this checkout")
    return TEX.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_is_as_the_paper_prints_it(tex, table):
    ours: dict[int, list[published.PublishedCell]] = {}
    for cell in published.paper():
        if cell.table == table and not (table == "raw_vs_filtered" and cell.quantity == "examples_seen"):
            ours.setdefault(cell.position, []).append(cell)
    theirs = list(printed_rows(tex, table))
    assert list(ours) == list(range(1, len(theirs) + 1))
    for cells, (method, shaded, citation, printed) in zip(ours.values(), theirs, strict=True):
        first = cells[0]
        assert (first.method, first.ours, first.citation_key) == (method, shaded, citation)
        if printed[0][0] == "variant":
            assert (first.variant, first.group) == (printed[0][1], printed[0][1])
        assert [(cell.quantity, cell.printed, cell.bold) for cell in cells] == [
            cell for cell in printed if cell[0] != "variant"
        ]


def test_the_caption_says_how_many_examples(tex):
    caption = tex[: tex.index("\\label{tab:rawvsfilt}")].rpartition("\\captionof")[2]
    assert "All models are trained for 4B examples seen" in caption
    said = [c for c in published.paper() if (c.table, c.quantity) == ("raw_vs_filtered", "examples_seen")]
    assert [cell.printed for cell in said] == ["4B"] * 4


def test_what_is_there():
    """Without the paper at hand: how many cells, and the ones that everybody knows."""
    cells = published.paper()
    assert Counter(cell.table for cell in cells) == {
        "comparison": 97, "longer_training": 72, "specialists": 30, "laion": 18, "raw_vs_filtered": 16,
    }  # fmt: skip
    assert {cell.source for cell in cells} == {published.PAPER}
    value = {(c.table, c.position, c.quantity): (c.printed, c.value) for c in cells}
    assert value["comparison", 1, "mean_delta"] == ("−11.8", -0.118)
    assert value["comparison", 5, "flops_per_iteration"] == ("380", 3.8)
    assert value["comparison", 7, "examples_seen"] == ("4B", 4e9)
    assert value["comparison", 7, "coco/t2i_r1"] == ("53.3", 0.533)
    assert value["comparison", 8, "flops_total"] == ("11", 0.11)
    assert value["laion", 1, "examples_seen"] == ("12.8B", 12.8e9)
    assert value["raw_vs_filtered", 4, "filtered"] == ("✗", 0.0)
    assert value["specialists", 2, "mean"] == ("70.2", 0.702)


def test_each_group_has_its_baseline_and_each_row_its_note():
    cells = published.paper()
    baselines = {(c.table, c.group, c.method) for c in cells if c.baseline}
    assert baselines == {
        *((table, group, "SigLIP") for table in ("comparison", "longer_training") for group in "BL"),
        ("specialists", "B", "SigLIP"), ("laion", "B", "SigLIP"), ("raw_vs_filtered", "B", "IID"),
    }  # fmt: skip
    assert all(cell.note for cell in cells)
    assert all("ViT-B/32 at 224 px" in cell.note for cell in cells if cell.table == "laion")
    readable = {cell.citation_key: cell.citation for cell in cells if cell.citation_key}
    assert len(readable) == 9 and readable["radford2021learning"] == "Radford et al. 2021"
    assert all(re.fullmatch(r"\w+ et al\. 20\d\d", citation) for citation in readable.values())
    assert all(citation[-4:] in key for key, citation in readable.items())


def test_the_file_is_as_it_would_be_written():
    file = Path(published.__file__).with_name("evans2024.csv")
    assert published.render(published.paper()) == file.read_text(encoding="utf-8")
