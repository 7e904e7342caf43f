"""Options of a site's Slurm: partition, account, container; in the user's settings and in studies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_QUOTES = r"\s'\"`$\\;"
_SET_BY_JESTLAB = (
    "--job-name", "--comment", "--output", "--error", "--array", "--requeue", "--signal", "--wrap", "--chdir",
)  # fmt: skip


def _option(text: str) -> str:
    if text.partition("=")[0] in _SET_BY_JESTLAB:
        raise ValueError(f"jestlab sets {text.partition('=')[0]} itself: remove it")
    return text


_Word = Annotated[str, Field(pattern=rf"^[^-{_QUOTES}][^{_QUOTES}]*$")]
_Line = Annotated[str, Field(pattern=r"^[^\r\n]*$")]
_Mount = Annotated[str, Field(pattern=rf"^/[^:{_QUOTES}]*(:/[^:{_QUOTES}]*(:[^:{_QUOTES}]*)?)?$")]
_Option = Annotated[str, Field(pattern=rf"^--[^{_QUOTES}]+$"), AfterValidator(_option)]


class SlurmOptions(BaseModel):
    """How jobs are submitted to Slurm. A study's options override the user's settings.

    Attributes:
        partition: Partition, or several separated by commas; null for the cluster's default.
        account: Account to charge; null for the user's default.
        qos: Quality of service; null for the default.
        constraint: Required features of nodes, such as `a100&nvlink`.
        exclusive: Whether a job's nodes are not shared with other jobs.
        gres: Kind of GPU where the site requires `--gres`, such as `gpu` or `gpu:a100`; null for
            `--gpus-per-node`.
        container: Image that contains jestlab, in the syntax of `runtime`; null to run without a container.
        runtime: Container runtime: pyxis (`srun --container-image`) or apptainer.
        mounts: Folders to mount in the container in addition to the lab, such as `/data:/data`.
        setup: Lines of shell before Python starts, such as `module load cuda`.
        python: Python with jestlab; null for the one that launches, or `python3` in a container.
        options: Further options of sbatch, such as `--reservation=mine`.
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
    mounts: tuple[_Mount, ...] = ()
    setup: tuple[_Line, ...] = ()
    python: _Word | None = None
    options: tuple[_Option, ...] = ()

    def laid_over(self, settings: SlurmOptions) -> SlurmOptions:
        """Return these options, with unset ones from the user's settings."""
        return settings.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    @model_validator(mode="after")
    def _gres_has_no_count(self) -> SlurmOptions:
        if self.gres is not None and self.gres.rpartition(":")[2].isdecimal():
            raise ValueError("`gres` is only a kind, such as gpu:a100: set the number in `resources.gpus`")
        return self
