"""The parts of Google Cloud's REST APIs that CustomJobs need: Vertex AI, Cloud Logging, Secret Manager."""

import base64
import itertools
import re
from typing import Any

from fake_api import FakeApi, Refused

PROJECT_NUMBER = "123456789"
_JOBS = re.compile(r"/v1/projects/([^/]+)/locations/([^/]+)/customJobs")
_JOB = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+/customJobs/[^/:]+)(:cancel)?")
_SECRET = re.compile(r"/v1/(projects/[^/]+/secrets/[^/]+/versions/[^/]+):access")

_STATUS = {400: "FAILED_PRECONDITION", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


class FakeGoogle(FakeApi):
    """CustomJobs, log entries and secrets in memory."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.secrets: dict[str, str] = {}
        self.page_size = 2
        self.numbers = itertools.count(1)  # never one twice, though jobs be deleted
        super().__init__()

    # What Vertex AI does.

    def set_state(self, handle: str, state: str, code: int = 0, message: str = "") -> None:
        with self.lock:
            self.jobs[handle]["state"] = state
            if code:
                self.jobs[handle]["error"] = {"code": code, "message": message}

    def end(self, handle: str, code: int) -> None:
        message = f"The replica workerpool0-0 exited with a non-zero status of {code}. To find out more, see…"
        if code:
            self.set_state(handle, "JOB_STATE_FAILED", 3, message)
        else:
            self.set_state(handle, "JOB_STATE_SUCCEEDED")

    def preempt(self, handle: str) -> None:
        self.set_state(
            handle, "JOB_STATE_FAILED", 8, "STOCKOUT: resources are insufficient in region us-west4"
        )

    def say(self, handle: str, text: str) -> None:
        self.entries.setdefault(handle.rpartition("/")[2], []).append({"textPayload": text})

    def finish_cancellations(self) -> None:
        with self.lock:
            for job in self.jobs.values():
                if job["state"] == "JOB_STATE_CANCELLING":
                    job["state"] = "JOB_STATE_CANCELLED"

    # What its API answers.

    def error(self, refused: Refused) -> dict[str, Any]:
        status = _STATUS.get(refused.status, "INTERNAL")
        return {"error": {"code": refused.status, "message": refused.message, "status": status}}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if match := _JOBS.fullmatch(path):
            return self._create(match[2], body) if method == "POST" else self._list(match[2], query)
        if match := _JOB.fullmatch(path):
            return self._job(match[1], cancel=bool(match[2]))
        if match := _SECRET.fullmatch(path):
            if match[1] not in self.secrets:
                raise Refused(404, f"Secret [{match[1]}] not found")
            data = base64.b64encode(self.secrets[match[1]].encode()).decode()
            return {"name": match[1], "payload": {"data": data}}
        if path == "/v2/entries:list":
            return self._entries(body)
        raise Refused(404, "no such method")

    def _create(self, region: str, body: dict[str, Any]) -> dict[str, Any]:
        # Importing the client takes two seconds, which tests of other executors need not spend.
        from google.cloud.aiplatform_v1.types import CustomJob
        from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

        try:
            made = MessageToDict(ParseDict(body, CustomJob.pb(CustomJob())))  # as strict as the real one
        except ParseError as error:
            raise Refused(400, str(error)) from None
        number = next(self.numbers)
        name = f"projects/{PROJECT_NUMBER}/locations/{region}/customJobs/{number:04}"
        self.jobs[name] = made | {
            "name": name,
            "state": "JOB_STATE_PENDING",
            "createTime": f"2026-11-20T10:00:{number:02}Z",
        }
        return self.jobs[name]

    def _list(self, region: str, query: dict[str, str]) -> dict[str, Any]:
        here = [job for name, job in self.jobs.items() if f"/locations/{region}/" in name]
        wanted = query.get("filter", "")
        if match := re.fullmatch(r'display_name="([^"]*)"', wanted):
            here = [job for job in here if job["displayName"] == match[1]]
        elif match := re.fullmatch(r"labels\.([a-z0-9_-]+):\*", wanted):
            here = [job for job in here if match[1] in job.get("labels", {})]
        elif wanted:
            raise Refused(400, f"invalid filter: {wanted}")
        return self._page("customJobs", here, query)

    def _page(self, key: str, found: list[Any], query: dict[str, Any]) -> dict[str, Any]:
        start = int(query.get("pageToken") or 0)
        end = start + min(int(query.get("pageSize") or 100), self.page_size)
        return {key: found[start:end], **({"nextPageToken": str(end)} if end < len(found) else {})}

    def _job(self, name: str, *, cancel: bool) -> dict[str, Any]:
        if name not in self.jobs:
            raise Refused(404, f"The CustomJob {name} does not exist")
        job = self.jobs[name]
        if cancel:
            if job["state"] not in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_CANCELLING"):
                raise Refused(400, f"The CustomJob is in state {job['state']}: it cannot be canceled")
            job["state"] = "JOB_STATE_CANCELLING"
            return {}
        return job

    def _entries(self, body: dict[str, Any]) -> dict[str, Any]:
        match = re.search(r'job_id="([^"]+)"', body["filter"])
        return self._page("entries", self.entries.get(match[1] if match else "", []), body)
