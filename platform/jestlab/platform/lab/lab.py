"""A lab: where everything is that a user's experiments write, and the URL of its store.

The URL may hold a password. Where a job's description can be read by others, it names a secret
(`JESTLAB_STORE_SECRET`) in place of the URL, and the worker fetches it from Google's Secret Manager when it
begins, as the service account that it runs as.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jestlab.analysis.address import hidden
from jestlab.models.data.files import own_temporary_folder
from jestlab.platform.errors import StoreUnreachable, UserError, sentence
from jestlab.platform.store.address import STORE

SCRATCH = "JESTLAB_SCRATCH"
"""Where labs in buckets have their folders on this machine."""


@dataclass(frozen=True)
class Lab:
    """Where a lab keeps its things.

    Attributes:
        root: The folder on this machine, absolute. Of a lab in a bucket it is scratch: what has to last is in
            the bucket (see `sync`).
        store_url: SQLAlchemy URL of the results store.
        remote: `gs://bucket/folder`, or the like; None where `root` is the lab.
    """

    root: Path
    store_url: str
    remote: str | None = None

    @classmethod
    def find(cls, root: str | Path | None = None, store_url: str | None = None) -> Lab:
        """Find the lab that the options, else JESTLAB_ROOT and JESTLAB_STORE, else `./lab` name.

        JESTLAB_STORE_SECRET stands for JESTLAB_STORE where that must not be seen. Nothing is created but the
        temporary folder of labs in buckets, where JESTLAB_SCRATCH names none.

        Raises:
            UserError: The folder's path has a character that database URLs give a meaning, the secret cannot
                be read, a lab in a bucket has no store that all its machines see, or its temporary folder may
                be somebody else's.
        """
        place = root or os.environ.get("JESTLAB_ROOT") or "lab"
        if "://" in str(place):
            return cls._in_bucket(str(place).rstrip("/"), store_url or store_url_of() or "")
        folder = Path(place).expanduser().absolute()
        if odd := {"%", "?"} & set(str(folder)):
            raise UserError(
                f"the lab's folder {folder} has {' and '.join(sorted(odd))} in its path: rename it"
            )
        url = store_url or store_url_of() or f"sqlite:///{folder / 'results.db'}"
        return cls(folder, url)

    @property
    def store_is_missing(self) -> bool:
        """Whether the store is a file that does not exist, found out without an import of SQLAlchemy."""
        prefix = "sqlite:///"
        return self.store_url.startswith(prefix) and not Path(self.store_url.removeprefix(prefix)).exists()

    @classmethod
    def _in_bucket(cls, remote: str, store_url: str) -> Lab:
        if remote.startswith(("postgres", "sqlite")):
            raise UserError(f"--root {hidden(remote)} is no folder: a database's URL is for --store")
        if not store_url or store_url.startswith("sqlite"):
            raise UserError(
                f"a lab at {remote} needs its store in PostgreSQL: --store or JESTLAB_STORE; "
                "a SQLite store needs a --root on this machine"
            )
        name = f"{remote.rpartition('/')[2]}-{hashlib.sha256(remote.encode()).hexdigest()[:12]}"
        return cls(_scratch().absolute() / name, store_url, remote)

    @property
    def address(self) -> str:
        """What `--root` says, on any machine."""
        return self.remote or str(self.root)

    def inside(self, path: str | Path) -> Path:
        """Return where a path from the store is on this machine.

        A folder of the lab, such as `runs`, may be a link, to a larger disk; what is in it may not lead out.

        Args:
            path: Relative to the root, or absolute.

        Raises:
            UserError: It, or a link on the way, leads out of the lab: nothing there is to be read.
        """
        whole = self.root / path
        place, allowed = whole.resolve(), [self.root.resolve()]
        parts = whole.relative_to(self.root).parts if whole.is_relative_to(self.root) else ()
        if len(parts) > 1 and ".." not in parts:
            allowed.append((self.root / parts[0]).resolve())
        if not any(place.is_relative_to(folder) for folder in allowed):
            raise UserError(f"{path}: leads out of the lab {self.root}, to {place}: it is not read")
        return place

    def make_folder(self, path: str | Path) -> Path:
        """Make a folder of the lab, if it is not there, and return it; the lab's own folder is not made.

        Args:
            path: Relative to the root.

        Raises:
            StoreUnreachable: The lab's folder is not there: it may come back to its place.
        """
        folder = self.root
        for part in Path(path).parts:
            folder /= part
            try:
                folder.mkdir(exist_ok=True)
            except FileNotFoundError:
                raise StoreUnreachable(f"the lab {self.root} is not there now") from None
        return folder

    def on_this_machine(self, verb: str) -> None:
        """Refuse a verb, by a UserError, that only a lab whose folder is on this machine can do."""
        if self.remote is not None:
            raise UserError(f"{verb} needs a lab whose --root is on this machine, not at {self.remote}")

    @property
    def data(self) -> Path:
        """Data made from settings, one folder a dataset, named by content."""
        return self.root / "data"

    @property
    def cache(self) -> Path:
        """Compiled functions and other things that can be made again."""
        return self.root / "cache"

    @property
    def slurm(self) -> Path:
        """What jobs of Slurm read and leave."""
        return self.root / "slurm"

    @property
    def xmanager(self) -> Path:
        """XManager's own records of launches."""
        return self.root / "xmanager"

    @property
    def reports(self) -> Path:
        """Tables and plots, one folder an experiment: here, where the lab is in a bucket."""
        return self.root / "reports" if self.remote is None else Path("lab-reports").absolute()


def _scratch() -> Path:
    """Return the folder of labs in buckets on this machine, which nobody else can have filled or chosen."""
    if given := os.environ.get(SCRATCH):
        return Path(given)
    try:
        return own_temporary_folder("jestlab-scratch", SCRATCH)
    except OSError as error:
        raise UserError(sentence(error)) from None


# ---- the store's URL

STORE_SECRET = "JESTLAB_STORE_SECRET"

SERVE_TOKEN = "JESTLAB_SERVE_TOKEN"
"""Environment variable with the token of `jestlab serve`, where it is to stay the same. No run gets it."""

ENDPOINT = "https://secretmanager.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REFERENCE = re.compile(r"projects/[-:.a-z0-9]+/secrets/[-_A-Za-z0-9]+/versions/[-_A-Za-z0-9]+")
_ANSWER_SECONDS = 30.0
_TRIES = 4
_PAUSE_SECONDS = 0.5  # doubled after each try
_PASSING = (429, 500, 502, 503, 504)


def store_url_of(environment: Mapping[str, str] = os.environ, endpoint: str | None = None) -> str | None:
    """Return the store's URL, from JESTLAB_STORE or the secret that JESTLAB_STORE_SECRET names; None without.

    Args:
        environment: Holds the two.
        endpoint: Of Secret Manager; None for Google's.
    """
    if url := environment.get(STORE):
        return url
    reference = environment.get(STORE_SECRET)
    return fetch_secret(reference, endpoint).strip() if reference else None


def fetch_secret(reference: str, endpoint: str | None = None) -> str:
    """Return the value of a secret's version, `projects/…/secrets/…/versions/…`.

    Raises:
        UserError: The reference is not valid, or the secret cannot be read; its value is never in the line.
        StoreUnreachable: Secret Manager does not answer now.
    """
    if not _REFERENCE.fullmatch(reference):
        raise UserError(
            f"{STORE_SECRET}: write projects/PROJECT/secrets/SECRET/versions/VERSION, not {reference!r}"
        )
    try:
        import google.auth
        import requests
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry
    except ModuleNotFoundError as error:
        raise UserError(
            f"{reference}: reading it needs {error.name}: pip install 'jestlab[vertex]'"
        ) from None

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        with AuthorizedSession(credentials) as session:
            # The hosts of a pod all ask in the same second.
            again = Retry(
                _TRIES - 1,
                backoff_factor=_PAUSE_SECONDS,
                status_forcelist=_PASSING,
                raise_on_status=False,
            )
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=again))
            answer = session.get(f"{endpoint or ENDPOINT}/v1/{reference}:access", timeout=_ANSWER_SECONDS)
    except GoogleAuthError as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(f"{reference}: no credentials of Google Cloud here: {said}") from None
    except requests.RequestException as error:
        raise StoreUnreachable(
            f"{reference}: Secret Manager cannot be reached: {type(error).__name__}"
        ) from None
    if answer.status_code in _PASSING:
        raise StoreUnreachable(f"{reference}: {_refusal(answer.status_code)}")
    if answer.status_code != 200:
        raise UserError(f"{reference}: {_refusal(answer.status_code)}")
    try:
        return base64.b64decode(answer.json()["payload"]["data"], validate=True).decode()
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise UserError(f"{reference}: Secret Manager's answer holds no text") from None


def _refusal(status: int) -> str:
    reasons = {
        401: "the credentials are not accepted",
        403: "not allowed: give the service account the role secretmanager.secretAccessor on it",
        404: "there is no such version of a secret",
    }
    return f"Secret Manager answers {status}" + (f": {reasons[status]}" if status in reasons else "")
