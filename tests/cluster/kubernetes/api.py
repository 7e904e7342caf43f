"""Requests to an API server, as plain as they are: paths, JSON, and watches."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

Object = dict[str, Any]

JSONS = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The server refused; `status` is its code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class Api:
    def __init__(
        self,
        url: str,
        authority: Path,
        certificate: Path | None = None,
        key: Path | None = None,
        token: str | None = None,
    ) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            ca_certs=str(authority),
            cert_file=str(certificate) if certificate else None,
            key_file=str(key) if key else None,
            maxsize=32,
            retries=False,
            timeout=urllib3.Timeout(connect=10.0, read=60.0),
        )

    def call(self, method: str, path: str, body: Any = None, kind: str = JSONS, **query: str) -> Any:
        """Return the answer: an object, or text where it is none.

        Raises:
            ApiError: The server refused.
            urllib3.exceptions.HTTPError: Nobody answered.
        """
        answer = self._pool.request(
            method,
            self._address(path, query),
            body=None if body is None else json.dumps(body),
            headers={**self._headers, "Content-Type": kind},
        )
        text = answer.data.decode()
        if answer.status >= 400:
            with contextlib.suppress(ValueError):
                text = json.loads(text).get("message", text)
            raise ApiError(answer.status, text)
        return json.loads(text) if answer.headers.get("Content-Type", "").startswith(JSONS) else text

    def get(self, path: str, **query: str) -> Any:
        return self.call("GET", path, **query)

    def create(self, path: str, body: Object) -> Any:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Object, kind: str = MERGE) -> Any:
        return self.call("PATCH", path, body, kind)

    def delete(self, path: str, body: Object | None = None, **query: str) -> Any:
        return self.call("DELETE", path, body, **query)

    def watch(self, path: str, version: str, fields: str) -> Iterator[tuple[str, Object]]:
        """Yield (kind of change, object) of what happens after a version, until the server ends it."""
        seconds = 300
        options = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        options["fieldSelector"] = fields
        answer = self._pool.request(
            "GET",
            self._address(path, options),
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=10.0, read=seconds + 10.0),
        )
        try:
            rest = b""
            for chunk in answer.stream(amt=None):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                    yield event["type"], event["object"]
        finally:
            answer.close()

    def _address(self, path: str, query: dict[str, str]) -> str:
        return f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
