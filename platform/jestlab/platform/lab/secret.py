"""The URL of a lab's store, which may contain a password: from the environment or Google's Secret Manager.

The description of a job that other users can read names a secret (`JESTLAB_STORE_SECRET`) and doesn't contain
the URL. The worker fetches the secret when it starts, with its service account.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping

from jestlab.platform.dependencies import of_module
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.store.address import STORE

STORE_SECRET = "JESTLAB_STORE_SECRET"

ENDPOINT = "https://secretmanager.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REFERENCE = re.compile(r"projects/[-:.a-z0-9]+/secrets/[-_A-Za-z0-9]+/versions/[-_A-Za-z0-9]+")
_TIMEOUT_SECONDS = 30.0
_BACKOFF_SECONDS = 0.5
_TRANSIENT = (429, 500, 502, 503, 504)


def store_url_of(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the store's URL from JESTLAB_STORE or from the secret that JESTLAB_STORE_SECRET names."""
    if url := environment.get(STORE):
        return url
    reference = environment.get(STORE_SECRET)
    return fetch_secret(reference).strip() if reference else None


def fetch_secret(reference: str) -> str:
    """Fetch the value of a secret by its reference, `projects/…/secrets/…/versions/…`.

    Raises:
        UserError: The reference is invalid or the secret can't be read. The message never contains the value.
        StoreUnreachable: Secret Manager is not available.
    """
    if not _REFERENCE.fullmatch(reference):
        raise UserError(
            f"invalid {STORE_SECRET} {reference!r}: expected projects/PROJECT/secrets/SECRET/versions/VERSION"
        )
    try:
        import google.auth
        import requests
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry
    except ModuleNotFoundError as error:
        raise UserError(f"reading {reference}: {of_module(error.name) or error}") from None

    retry = Retry(3, backoff_factor=_BACKOFF_SECONDS, status_forcelist=_TRANSIENT, raise_on_status=False)
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        with AuthorizedSession(credentials) as session:
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            url = f"{ENDPOINT}/v1/{reference}:access"
            answer = session.get(url, timeout=_TIMEOUT_SECONDS)
    except GoogleAuthError as error:
        text = " ".join(str(error).split())[:200]
        raise UserError(f"{reference}: can't authenticate with Google Cloud: {text}") from None
    except requests.RequestException as error:
        raise StoreUnreachable(f"{reference}: can't reach Secret Manager: {type(error).__name__}") from None
    if (status := answer.status_code) != 200:
        kind = StoreUnreachable if status in _TRANSIENT else UserError
        role = "; the service account needs the role secretmanager.secretAccessor" if status == 403 else ""
        raise kind(f"{reference}: Secret Manager answers {status}{role}")
    try:
        return base64.b64decode(answer.json()["payload"]["data"], validate=True).decode()
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise UserError(f"{reference}: Secret Manager's answer contains no text") from None
