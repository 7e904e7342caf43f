"""Starter studies for `jestlab init`: `train.yaml`, or `command.yaml` with `command.py`, and a schema."""

from pathlib import Path
from typing import Literal, get_args

from jestlab.platform.errors import UserError

Start = Literal["train", "command"]
"""Program of a starter study: jestlab's training, or a custom script."""

STARTS: tuple[Start, ...] = get_args(Start)

SCHEMA = "jestlab.schema.json"
"""Name of the file next to a study with the JSON Schema of specs, which the study names in its first line."""

_HERE = Path(__file__).parent


def files(study: Path, program: Start) -> dict[Path, str]:
    """Return the files of a starter study: path → text; the first is the study.

    Args:
        study: Path of the study's file; its name becomes the name of the study.
        program: The program of the study.

    Raises:
        UserError: The path doesn't end in .yaml or .yml, or the name of the study isn't valid.
    """
    from jestlab.platform.spec.json_schema import spec_schema_text
    from jestlab.platform.spec.schema import StudySpec
    from jestlab.platform.spec.variants import check_names
    from jestlab.platform.spec.yaml import Document
    from jestlab.platform.study_registry import study_names  # `init --help` requires no specs

    if study.suffix not in (".yaml", ".yml"):
        raise UserError(f"{study}: the study is written in YAML: give a path that ends in .yaml")
    script = study.with_name(f"train_{study.stem}.py")
    text = (_HERE / f"{program}.yaml").read_text(encoding="utf-8")
    text = text.replace("STUDY.yaml", str(study)).replace("STUDY", study.stem).replace("SCRIPT", script.name)
    check_names(StudySpec.parse({"name": study.stem, **Document(text).value}), study_names())
    texts = {study: text, study.with_name(SCHEMA): spec_schema_text()}
    if program == "train":
        return texts
    code = (_HERE / "command.py").read_text(encoding="utf-8")
    return texts | {script: code.replace("STUDY.yaml", study.name).replace("SCRIPT", str(script))}
