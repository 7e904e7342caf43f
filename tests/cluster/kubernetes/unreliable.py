"""A way to the real API server on which requests fail as a test wants it: refused, lost, late, unheard."""

from __future__ import annotations

from typing import Any

import urllib3
from fake_api import FakeApi, Refused
from tests.cluster.kubernetes.api import Api, ApiError, Object


class UnreliableApi(FakeApi):
    """Passes requests on to an API server, as the user that `api` is.

    Attributes:
        bodies: Of all requests so far.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.bodies: list[Any] = []
        super().__init__()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        self.bodies.append(body)
        try:
            answer = self._api.call(method, path, body, **query)
        except ApiError as error:
            raise Refused(error.status, str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise Refused(503, str(error)) from None
        return answer.encode() if isinstance(answer, str) else answer

    def error(self, refused: Refused) -> Object:
        return {"kind": "Status", "status": "Failure", "message": refused.message, "code": refused.status}
