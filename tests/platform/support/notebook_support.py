"""Execute notebooks in a real kernel, each from an empty folder; and keep those of docs/ up to date:

    .venv/bin/python -m tests.platform.support.notebook_support docs/notebook.ipynb

executes the notebook and writes its outputs into it.
"""

import copy
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
_FORMAT: Any = nbformat  # its functions have no types
_USERS = re.compile(r"JESTLAB_(?!TEST)|XDG_CONFIG_HOME")
_LINK = re.compile(r'<a href="lab/[^>]*>(.*?)</a>')
_EMPHASIS = re.compile(r"\\textbf|[-:|*{}]")
_NUMBER = re.compile(r"<?[0-9][0-9,.]*|\b(?:nan|NaN)\b")


def executed(notebook: Any, folder: Path) -> Any:
    """Return a copy of a notebook, executed in a folder by a kernel of this interpreter, as a new user would.

    The kernel doesn't see the settings of this machine, which the outputs would show.
    """
    notebook = copy.deepcopy(notebook)
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=place, record_timing=False,
        coalesce_streams=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        environment = {
            **{name: value for name, value in os.environ.items() if not _USERS.match(name)},
            "HOME": home,
            "IPYTHONDIR": f"{home}/.ipython",
            "MPLCONFIGDIR": matplotlib.get_configdir(),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GIT_CEILING_DIRECTORIES": str(ROOT),
            "JESTLAB_POLL_SECONDS": "0.2",
            "NO_COLOR": "1",  # the page of the documentation would show escape codes
        }
        client.execute(env=environment)
    return notebook


def outline(notebook: Any) -> list[Any]:
    """Return the outputs of each cell without numbers and without the order of printed words, which vary."""
    return [
        [(output.output_type, _forms(output)) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _forms(output: Any) -> Any:
    data = output.get("data", {"text/plain": output.get("text", "")})
    words = _NUMBER.sub("#", _EMPHASIS.sub("", str(data.get("text/plain"))))
    in_order = words.split()
    return sorted(data), " ".join(in_order if "data" in output else sorted(set(in_order)))


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        notebook = executed(_FORMAT.read(path, as_version=4), Path(folder))
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if "text/html" in output.get("data", {}):  # the lab is not kept, so a link into it would lead nowhere
            output.data["text/html"] = _LINK.sub(r"\1", output.data["text/html"])
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    _FORMAT.write(notebook, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
