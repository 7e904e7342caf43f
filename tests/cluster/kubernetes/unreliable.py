"""A way to the real API server on which requests fail as a test wants it: refused, lost, late, unheard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import urllib3
from fake_api import FakeApi, Refused
from tests.cluster.kubernetes.api import Api, ApiError, Object


class UnreliableApi(FakeApi):
    """Passes requests on to an API server, as the user that `api` is.

    Attributes:
        api: The API server.
        bodies: Of all requests so far.
        refused: Statuses that the API server has refused requests with.
        after_one: Called after the next request, before its answer is sent.
    """

    created = 201

    def __init__(self, api: Api) -> None:
        self.api = api
        self.bodies: list[Any] = []
        self.refused: list[int] = []
        self.after_one: Callable[[], object] = _nothing
        super().__init__()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        self.bodies.append(body)
        try:
            answer = self.api.call(method, path, body, **query)
        except ApiError as error:
            self.refused.append(error.status)
            raise Refused(error.status, str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise Refused(503, str(error)) from None
        after, self.after_one = self.after_one, _nothing
        after()
        return answer.encode() if isinstance(answer, str) else answer

    def error(self, refused: Refused) -> Object:
        return {"kind": "Status", "status": "Failure", "message": refused.message, "code": refused.status}


def _nothing() -> None:
    """What happens after most requests."""
