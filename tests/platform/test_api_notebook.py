"""The Python API in the kernel of a notebook, and the notebook of the documentation."""

import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import labs_support as labs
import nbformat
import notebook_support as notebooks
import plans_support as plans
import pytest

from jestlab.platform.launch.notebook import Notebook
from jestlab.platform.store.records import Progress, RunState

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
    listener.progress({good.fingerprint: Progress(3, 10, {"loss": 0.5})})
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


@pytest.mark.full
def test_a_launch_in_a_kernel_can_be_interrupted(tmp_path, root):
    hurry = tmp_path / "hurry"
    base = {"steps": 6_000, "pause": 0.05, "save_every": 10_000, "hurry": str(hurry)}
    labs.write_study(tmp_path, base=base, runs={"only": {}, "failing": {"fail_at": 2}})
    notebook = notebooks.cells(
        "import os; from jestlab import api; print(os.getpid())",
        f"study = api.load('toy.yaml', root={str(root)!r})",
        "study.launch()",
        "study.plan().frame().set_index('run').state.to_dict()",
        "study.launch(reports=False)",
        "api.load('toy.yml')",
        "seeing = {'name': 'seeing', 'program': 'toy_programs:environment', 'runs': {'seeing': {}}}\n"
        f"api.load(seeing, root={str(root)!r}).launch(progress=False, reports=False).check()",
    )
    with notebooks.client(notebook, tmp_path, allow_errors=True) as client, client.setup_kernel():

        def execute(index):
            return client.execute_cell(notebook.cells[index], index).outputs

        pid = int(execute(0)[0].text)
        execute(1)

        def interrupt():
            labs.wait_until(lambda: labs.starts(root, "only") and labs.starts(root, "failing"))
            os.kill(pid, signal.SIGINT)  # what Jupyter does

        with labs.meanwhile(interrupt):
            progress, stopped = execute(2)
        assert "stopping the runs" in progress.data["text/plain"]
        assert "<progress " in progress.data["text/html"]
        assert (stopped.output_type, stopped.ename) == ("error", "KeyboardInterrupt")
        assert "launch again to resume" in stopped.evalue
        [states] = execute(3)
        assert "'only': 'CANCELLED'" in states.data["text/plain"]

        hurry.touch()
        progress, *_ = execute(4)
        assert "2 of 2 runs have ended: 1 FAILED" in progress.data["text/plain"]
        assert "diverged at step 2" in progress.data["text/plain"]
        [missing] = execute(5)
        assert missing.traceback == ["Error: toy.yml: no such file: did you mean toy.yaml?"]

        # A kernel's variables say where figures go, and that all output takes colors; runs have neither.
        execute(6)
        [seen] = (root / "runs").glob("seeing-*/environment.json")
        environment = json.loads(seen.read_text())["env"]
        assert not {"MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "JPY_PARENT_PID"} & environment.keys()
