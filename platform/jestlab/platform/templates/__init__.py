"""Studies to begin with, as `jestlab init` writes them: `train.yaml`, or `command.yaml` with `command.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from jestlab.platform.errors import UserError
from jestlab.platform.registry import study_names
from jestlab.platform.spec.checks import check_names
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.yaml import Document

Start = Literal["train", "command"]
"""What the runs of the study execute: jestlab's own training, or a script of one's own."""

STARTS: tuple[Start, ...] = get_args(Start)

_HERE = Path(__file__).parent


def files(study: Path, program: Start) -> dict[Path, str]:
    """Return the files of a study to begin with: path → text, the study first.

    Args:
        study: Path of the study's file; its name becomes the study's.
        program: What its runs execute.

    Raises:
        UserError: The file is not one of YAML, or no study can have its name.
    """
    if study.suffix not in (".yaml", ".yml"):
        raise UserError(f"{study}: the study is written in YAML: give a path that ends in .yaml")
    script = study.with_name(f"train_{study.stem}.py")
    text = (_HERE / f"{program}.yaml").read_text(encoding="utf-8")
    text = text.replace("STUDY.yaml", str(study)).replace("STUDY", study.stem).replace("SCRIPT", script.name)
    check_names(Study.parse({"name": study.stem, **Document(text).value}), study_names())
    if program == "train":
        return {study: text}
    code = (_HERE / "command.py").read_text(encoding="utf-8")
    return {study: text, script: code.replace("STUDY.yaml", study.name).replace("SCRIPT", script.name)}
