"""The Python API in the kernel of a notebook, and the notebook of the documentation."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import notebook_support as notebooks
import plans_support as plans
import pytest

from jestlab.platform.launch.display import Notebook
from jestlab.platform.store.records import RunProgress, RunState

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


def test_progress_is_one_output_that_is_updated(monkeypatch):
    shown: list[dict[str, str]] = []

    def display(content, *, raw, display_id):
        shown.append(content)
        return SimpleNamespace(update=lambda content, raw: shown.__setitem__(0, content))

    monkeypatch.setattr("IPython.display.display", display)
    good, bad = plans.run("good"), plans.run("bad", config={"steps": 1})
    listener = Notebook()
    listener.begin(2)
    listener.state(good, RunState.RUNNING)
    listener.progress({good.fingerprint: RunProgress(3, 10, {"loss": 0.5})})
    listener.note("a <message>")
    assert [content["text/plain"] for content in shown] == [
        "0 of 2 runs have ended\ngood/0  3 of 10 steps, loss 0.5\na <message>"
    ]
    assert "a &lt;message&gt;" in shown[0]["text/html"]
    listener.state(good, RunState.COMPLETED)
    listener.state(bad, RunState.FAILED, "diverged")
    listener.end()
    assert [content["text/plain"] for content in shown] == [
        "2 of 2 runs have ended: 1 FAILED\na <message>\nFAILED: bad/0: diverged"
    ]
