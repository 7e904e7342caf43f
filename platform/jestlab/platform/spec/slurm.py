"""What a site's Slurm wants to be told: partition, account, container; in settings and in studies."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

_WORD = re.compile(r"[^\s'\"`$\\;]+")
_OURS = (
    "--job-name",
    "--comment",
    "--output",
    "--error",
    "--array",
    "--requeue",
    "--signal",
    "--wrap",
    "--chdir",
)


def _word(text: str) -> str:
    if not _WORD.fullmatch(text) or text.startswith("-"):
        raise ValueError(f"{text!r} is not valid: expected one word without quotes")
    return text


def _line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("expected one line of shell an entry")
    return text


def _option(text: str) -> str:
    if not text.startswith("--") or not _WORD.fullmatch(text):
        raise ValueError(
            f"{text!r} is not valid: expected an option of sbatch in one word, as in --reservation=x"
        )
    if text.partition("=")[0] in _OURS:
        raise ValueError(f"jestlab sets {text.partition('=')[0]} itself: leave it out")
    return text


def _mount(text: str) -> str:
    places = text.split(":")
    if not 1 <= len(places) <= 3 or not all(PurePosixPath(place).is_absolute() for place in places[:2]):
        raise ValueError(f"{text!r} is not valid: expected /HOST/PATH:/CONTAINER/PATH")
    return _word(text)


_Word = Annotated[str, AfterValidator(_word)]


class SlurmOptions(BaseModel):
    """How jobs are submitted to Slurm. What a study says is laid over the user's settings.

    Attributes:
        partition: Partition, or several with commas; null for the cluster's default.
        account: Account that is charged; null for the user's default.
        qos: Quality of service; null for the default.
        constraint: Features that nodes must have, as in `a100&nvlink`.
        exclusive: Whether nodes are shared with no other job.
        gres: Kind of GPU where the site wants `--gres`, as in `gpu` or `gpu:a100`; null for
            `--gpus-per-node`.
        container: Image that the job runs in, as `runtime` names images; null for none. It holds jestlab.
        runtime: What starts the container: pyxis (`srun --container-image`), or apptainer.
        mounts: Folders that the container sees beside the lab, as in `/data:/data`.
        setup: Lines of shell before Python starts, as in `module load cuda`.
        python: Python that runs jestlab; null for the one that launches, or `python3` in a container.
        options: Further options of sbatch, as in `--reservation=mine`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: _Word | None = None
    account: _Word | None = None
    qos: _Word | None = None
    constraint: _Word | None = None
    exclusive: bool = False
    gres: _Word | None = None
    container: _Word | None = None
    runtime: Literal["pyxis", "apptainer"] = "pyxis"
    mounts: tuple[Annotated[str, AfterValidator(_mount)], ...] = ()
    setup: tuple[Annotated[str, AfterValidator(_line)], ...] = ()
    python: _Word | None = None
    options: tuple[Annotated[str, AfterValidator(_option)], ...] = ()

    def laid_over(self, settings: SlurmOptions) -> SlurmOptions:
        """Return these with what they do not set taken from the user's settings."""
        return settings.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    @model_validator(mode="after")
    def _mounts_need_a_container(self) -> SlurmOptions:
        if self.gres is not None and self.gres.rpartition(":")[2].isdecimal():
            raise ValueError("`gres` is the kind alone, as in gpu:a100: `resources.gpus` says how many")
        return self
