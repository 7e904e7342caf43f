"""A proxy of the real API server: requests fail as a test wants it, refused, lost, late, or unanswered."""

from collections.abc import Callable
from typing import Any

import urllib3
from fake_api import FakeApi, Refused
from tests.cluster.kubernetes.api import Api, ApiError, Object


class UnreliableApi(FakeApi):
    """Passes requests on to an API server, as the user that `api` is.

    Attributes:
        api: The API server.
        after_one: Called after the next request, before its answer is sent.
    """

    created = 201

    def __init__(self, api: Api) -> None:
        self.api = api
        self.after_one: Callable[[], object] | None = None
        super().__init__()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        try:
            answer = self.api.call(method, path, body, **query)
        except ApiError as error:
            raise Refused(error.status, str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise Refused(503, str(error)) from None
        after, self.after_one = self.after_one, None
        if after is not None:
            after()
        return answer.encode() if isinstance(answer, str) else answer

    def error(self, refused: Refused) -> Object:
        return {"kind": "Status", "status": "Failure", "message": refused.message, "code": refused.status}
