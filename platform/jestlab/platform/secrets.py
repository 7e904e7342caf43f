"""The store's URL, which may hold a password: from the environment, or from Google's Secret Manager.

Where a job's description can be read by others, it names the secret (`JESTLAB_STORE_SECRET`) in place of the
URL, and the worker fetches it when it begins, as the service account that it runs as.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Any

from jestlab.platform.errors import UserError

STORE = "JESTLAB_STORE"
STORE_SECRET = "JESTLAB_STORE_SECRET"

ENDPOINT = "https://secretmanager.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REFERENCE = re.compile(r"projects/[-:.a-z0-9]+/secrets/[-_A-Za-z0-9]+/versions/[-_A-Za-z0-9]+")
_ANSWER_SECONDS = 30.0
_TRIES = 4


def store_url(environment: Mapping[str, str] = os.environ, endpoint: str = ENDPOINT) -> str | None:
    """The store's URL that the environment holds or refers to; None if it says nothing.

    Args:
        environment: JESTLAB_STORE, else JESTLAB_STORE_SECRET.
        endpoint: Of Secret Manager.

    Raises:
        UserError: The secret cannot be had.
    """
    if url := environment.get(STORE):
        return url
    reference = environment.get(STORE_SECRET)
    return fetch(reference, endpoint).strip() if reference else None


def fetch(reference: str, endpoint: str = ENDPOINT, credentials: Any = None) -> str:
    """The value of a secret's version.

    Args:
        reference: `projects/…/secrets/…/versions/…`.
        endpoint: Of Secret Manager.
        credentials: Whose; None for those that Google's libraries find here.

    Raises:
        UserError: The reference is none, or the secret cannot be read; the value is never in the line.
    """
    if not _REFERENCE.fullmatch(reference):
        raise UserError(
            f"{STORE_SECRET}: write projects/PROJECT/secrets/SECRET/versions/VERSION, not {reference!r}"
        )
    import google.auth
    import requests
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import AuthorizedSession
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    try:
        if credentials is None:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        with AuthorizedSession(credentials) as session:
            # The hosts of a pod all ask in the same second.
            again = Retry(
                _TRIES - 1,
                backoff_factor=0.5,
                status_forcelist=(429, 500, 502, 503, 504),
                raise_on_status=False,
            )
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=again))
            answer = session.get(f"{endpoint}/v1/{reference}:access", timeout=_ANSWER_SECONDS)
    except GoogleAuthError as error:
        raise UserError(f"{reference}: no credentials of Google Cloud here: {_line(error)}") from None
    except requests.RequestException as error:
        raise UserError(f"{reference}: Secret Manager cannot be reached: {type(error).__name__}") from None
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


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
