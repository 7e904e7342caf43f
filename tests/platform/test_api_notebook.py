"""The Python API in the kernel of a notebook, and the notebook of the documentation."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import labs_support as labs
import nbformat
import notebook_support as notebooks
import pytest

DOCUMENTED = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
_MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def documented():
    return nbformat.read(DOCUMENTED, as_version=4)


def test_the_documented_notebook_shows_what_it_does(documented, tmp_path):
    """Executed again it shows the same, but for numbers: times differ, and last digits on other machines."""
    assert notebooks.outline(notebooks.executed(documented, tmp_path)) == notebooks.outline(documented)
    assert (tmp_path / "pareto.pdf").stat().st_size > 1_000


def test_the_documented_notebook_is_executed_small_and_of_no_machine(documented):
    assert DOCUMENTED.stat().st_size < _MOST_BYTES
    code = [cell for cell in documented.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds
    assert not any(output.get("name") == "stderr" for cell in code for output in cell.outputs)
    shown = json.dumps([list(cell.outputs) for cell in code])
    assert re.findall(r"(?<![\w/.~])/(?:home|root|tmp|work|usr|Users|var)/[\w/.-]+", shown) == []


def test_a_kernel_launches_shows_progress_in_one_output_and_can_be_interrupted(tmp_path, root):
    hurry = tmp_path / "hurry"
    base = {"steps": 200, "pause": 0.05, "save_every": 1000, "hurry": str(hurry)}
    labs.write_study(tmp_path, base=base, runs={"only": {}, "failing": {"fail_at": 2}})
    notebook = notebooks.cells(
        "import os; from jestlab import api; print(os.getpid())",
        f"study = api.load('toy.yaml', root={str(root)!r})",
        "study.launch()",
        "study.plan().frame().set_index('run').state.to_dict()",
        "outcome = study.launch(reports=False)",
        "outcome.check()",
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
        assert "the next one resumes" in stopped.evalue
        [states] = execute(3)
        assert "'only': 'CANCELLED'" in states.data["text/plain"]

        hurry.touch()
        [progress] = execute(4)  # one output, that has changed in its place
        assert "2 of 2 runs have ended: 1 FAILED" in progress.data["text/plain"]
        assert "diverged at step 2" in progress.data["text/plain"]
        [refused] = execute(5)
        assert refused.traceback == [f"Error: {refused.evalue}"]
        assert "FAILED failing/0: " in refused.evalue
        [missing] = execute(6)
        assert missing.traceback == ["Error: toy.yml: no such file: did you mean toy.yaml?"]

        # A kernel tells its cells where figures go, and that all output takes colours; runs have neither.
        execute(7)
        [seen] = (root / "runs").glob("seeing-*/environment.json")
        environment = json.loads(seen.read_text())["env"]
        assert not {"MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "JPY_PARENT_PID"} & environment.keys()
