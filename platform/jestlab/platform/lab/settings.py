"""The user's settings for all studies: where runs execute, under which accounts, at which prices.

Every command reads them from a YAML file, such as

    on: kubernetes
    kubernetes: {context: lab, namespace: research, store_secret: jestlab-store/url}

The file names the secret with the store's URL, in the cluster or Secret Manager, and doesn't contain the URL.
The URLs of `notify` may contain tokens; errors and logs never show them.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    SecretStr,
    model_validator,
)

from jestlab.platform.errors import SpecError, UserError, nearest, shown
from jestlab.platform.redaction import PARTS, Part
from jestlab.platform.spec.fields import validated
from jestlab.platform.spec.resources import TYPES, ExecutorName, SlurmOptions, pinned_image
from jestlab.platform.spec.yaml import Document


def _matching(pattern: str, form: str) -> AfterValidator:
    """Create a validator for a pattern. Its error says that `form` was expected."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{shown(text)} is not valid: expected {form}")
        return text

    return AfterValidator(check)


def _tpu_type(name: str) -> str:
    if name not in TYPES:
        raise ValueError(f"no TPU type {shown(name)}: {nearest(name, TYPES)}")
    return name


def _services(given: Any) -> Any:
    services = [given] if isinstance(given, str) else given
    is_valid = isinstance(services, list | tuple) and all(isinstance(service, str) for service in services)
    if not is_valid or not all("://" in service for service in services):
        # Without the values, which may contain secrets.
        raise ValueError("must be a URL of apprise, such as slack://TOKEN or json://HOST, or a list of them")
    return services


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_Label = Annotated[str, _matching(_LABEL, "at most 63 lowercase letters, digits, and -")]
_KubernetesSecret = Annotated[
    str, _matching(rf"{_LABEL}(\.{_LABEL})*/[-._A-Za-z0-9]+", "NAME/KEY, a Secret and a key in it")
]
_GoogleSecret = Annotated[
    str,
    _matching(
        r"projects/[-:.a-z0-9]+/secrets/[-_A-Za-z0-9]+/versions/(latest|[1-9][0-9]*)",
        "projects/PROJECT/secrets/SECRET/versions/VERSION",
    ),
]
_Region = Annotated[str, _matching(r"[a-z]+-[a-z]+[0-9]{1,2}", "a region such as us-west4")]
_Folder = Annotated[
    str, _matching(r"(/[-._A-Za-z0-9]+)+", "an absolute path of letters, digits, and - . _ /")
]
_TpuName = Annotated[str, AfterValidator(_tpu_type)]
_Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Kubernetes(_Section):
    """A cluster with JobSet, and optionally Kueue.

    Attributes:
        context: Context of the kubeconfig; None for the current one, or for the surrounding cluster.
        namespace: Namespace of the jobs.
        queue: Kueue's LocalQueue; None without Kueue.
        service_account: Account of the pods; None for the namespace's default.
        store_secret: `NAME/KEY` of the Secret with the store's URL.
        claim: PersistentVolumeClaim for many writers, mounted at `root`; None if the image or the cluster
            provides the folder.
        root: Folder of the lab in pods; it must contain the same files as the lab's folder on this machine
            for checkpoints and logs to be readable here. A lab in a bucket doesn't use it.
    """

    context: str | None = None
    namespace: _Label = "default"
    queue: _Label | None = None
    service_account: _Label | None = None
    store_secret: _KubernetesSecret | None = None
    claim: _Label | None = None
    root: _Folder | None = None

    @model_validator(mode="after")
    def _claim_is_mounted(self) -> "Kubernetes":
        if self.claim is not None and self.root is None:
            raise ValueError("`claim` requires `root`, its mount point")
        return self


class Vertex(_Section):
    """A project of Google Cloud with Vertex AI.

    Attributes:
        project: Id of the project.
        region: Region of its TPU quota.
        service_account: Account of the jobs; None for Vertex AI's default.
        network: Peered VPC of the jobs, `projects/NUMBER/global/networks/NAME`.
        store_secret: Version of a secret in Secret Manager with the store's URL.
        root: Folder of the lab in jobs: /gcs/BUCKET/…, where Vertex AI mounts buckets. A lab in a bucket
            doesn't use it.
    """

    project: str | None = None
    region: _Region | None = None
    service_account: str | None = None
    network: str | None = None
    store_secret: _GoogleSecret | None = None
    root: _Folder | None = None


class Settings(_Section):
    """The user's config file.

    Attributes:
        on: Default executor, for commands and studies that don't name one; None for this machine.
        image: Container image with jestlab, pinned by digest.
        kubernetes: The Kubernetes cluster.
        vertex: The project of Vertex AI.
        slurm: The Slurm cluster.
        prices: TPU type → dollars per chip-hour.
        utilization: TPU type → assumed share of the peak FLOP/s in training, until one of your runs has been
            measured; 0.4 for other types.
        executors: Name of a custom executor → arguments; studies can add others (`resources: {options: …}`).
        notify: Where to send messages about launches: one or several URLs of apprise, such as `slack://…`.
        record: What attempts record: uncommitted changes of jestlab's own checkout, and relevant environment
            variables.
    """

    on: ExecutorName | None = None
    image: Annotated[str, AfterValidator(pinned_image)] | None = None
    kubernetes: Kubernetes = Kubernetes()
    vertex: Vertex = Vertex()
    slurm: SlurmOptions = SlurmOptions()
    prices: dict[_TpuName, PositiveFloat] = {}
    utilization: dict[_TpuName, _Share] = {}
    executors: dict[str, dict[str, Any]] = {}
    notify: Annotated[tuple[SecretStr, ...], BeforeValidator(_services)] = ()
    record: tuple[Part, ...] = PARTS

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read the settings from the file at `path()`, or return the defaults if it is missing.

        Raises:
            UserError: The file of JESTLAB_CONFIG is missing, or the file can't be read or is invalid; the
                message names file, line, and key.
        """
        file = path(environment)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            if environment.get("JESTLAB_CONFIG"):
                raise UserError(f"JESTLAB_CONFIG: {file}: no such file") from None
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{file}: cannot be read: {getattr(error, 'strerror', 'not valid UTF-8')}"
            ) from None
        document: Document | None = None
        try:
            document = Document(text)
            if document.value is None:
                return cls()
            if not isinstance(document.value, dict):
                expected = ", ".join(cls.model_fields)
                raise SpecError((), f"must be a mapping of {expected}, not {shown(document.value)}")
            return validated(cls, document.value)
        except SpecError as error:
            parts = [part for part in error.path if part != "[key]"]
            line = document.line(parts) if document else None
            message = SpecError(parts, error.message)
            raise UserError(f"{file}:{line}: {message}" if line else f"{file}: {message}") from None


def path(environment: Mapping[str, str] = os.environ) -> Path:
    """Locate the config file: JESTLAB_CONFIG, else jestlab/config.yaml in XDG_CONFIG_HOME or ~/.config."""
    if named := environment.get("JESTLAB_CONFIG"):
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME")
    folder = Path(home) if home and Path(home).is_absolute() else Path("~/.config").expanduser()
    return folder / "jestlab" / "config.yaml"
