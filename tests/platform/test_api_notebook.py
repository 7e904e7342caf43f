"""The Python API in the kernel of a notebook, and the notebook of the documentation."""

import json
import re
from pathlib import Path

import nbformat
import notebook_support as notebooks
import pytest

DOCUMENTED = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
_MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def documented():
    return nbformat.read(DOCUMENTED, as_version=4)


@pytest.mark.full
def test_the_documented_notebook_is_up_to_date(documented, tmp_path):
    assert notebooks.outline(notebooks.executed(documented, tmp_path)) == notebooks.outline(documented)
    assert (tmp_path / "pareto.pdf").stat().st_size > 1_000


def test_the_documented_notebook_is_small_and_names_no_machine(documented):
    assert DOCUMENTED.stat().st_size < _MOST_BYTES
    code = [cell for cell in documented.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds
    assert not any(output.get("name") == "stderr" for cell in code for output in cell.outputs)
    shown = json.dumps([list(cell.outputs) for cell in code])
    assert re.findall(r"(?<![\w/.~])/(?:home|root|tmp|work|usr|Users|var)/[\w/.-]+", shown) == []
