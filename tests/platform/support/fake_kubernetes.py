"""The part of Kubernetes' API that JobSets need, as a real server, and what a cluster does with them."""

from __future__ import annotations

import copy
import re
import uuid
from pathlib import Path
from typing import Any

import yaml
from fake_api import FakeApi, Refused

_JOBSETS = re.compile(r"/apis/jobset\.x-k8s\.io/v1alpha2/namespaces/([^/]+)/jobsets(?:/([^/]+))?")
_PODS = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+)(/log)?)?")
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_TIME = "2026-11-20T10:00:00Z"

Object = dict[str, Any]


class FakeKubernetes(FakeApi):
    """JobSets and their pods in memory."""

    def __init__(self) -> None:
        self.jobsets: dict[tuple[str, str], Object] = {}
        self.pods: dict[tuple[str, str], Object] = {}
        self.logs: dict[str, bytes] = {}
        super().__init__()

    def kubeconfig(self, path: Path, context: str = "lab") -> Path:
        """A kubeconfig whose current context is this server."""
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": context,
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": "the-users-token"}}],
                    "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        return path

    # What a cluster does.

    def admit(self, name: str) -> None:
        """Kueue lets a JobSet begin."""
        with self.lock:
            jobset = self._named(name)
            jobset["spec"]["suspend"] = False
            self._schedule(jobset)

    def run(self, name: str) -> None:
        """All pods run."""
        with self.lock:
            for pod in self._pods_of(name):
                pod["status"] = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}

    def wait_for_image(self, name: str) -> None:
        """The image is not to be had."""
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        for pod in self._pods_of(name):
            pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}

    def end(self, name: str, code: int, index: int = 0, reason: str | None = None) -> None:
        """The pods, if any are left, end; the one of that index with the code, the others with success."""
        with self.lock:
            if not (pods := self._pods_of(name)):
                return
            for number, pod in enumerate(pods):
                this = code if number == index else 0
                why = reason if this and reason else ("Error" if this else "Completed")
                ended = {"exitCode": this, "reason": why}
                phase = "Failed" if this else "Succeeded"
                pod["status"] = {"phase": phase, "containerStatuses": [{"state": {"terminated": ended}}]}
            if code:
                self._fail(name, "FailedJobs", "jobset failed due to one or more job failures")
            else:
                self._condition(
                    self._named(name), "Completed", "AllJobsCompleted", "jobset completed successfully"
                )

    def preempt(self, name: str, *, index: int = 0, seen_by: str = "jobset") -> None:
        """The node of a pod is taken away.

        Args:
            name: The JobSet.
            index: Of the pod.
            seen_by: "jobset": the Job saw that pod fail first, by its pod failure policy, and the pod is gone
                with its node. "pod": it saw another host fail first, which lost its peer.
        """
        with self.lock:
            pods = self._pods_of(name)
            if seen_by == "jobset":
                del self.pods[pods[index]["metadata"]["namespace"], pods[index]["metadata"]["name"]]
                message = "applying FailJobSet failure policy action"
                self._fail(name, "FailJobSetFailurePolicyAction", message)
                return
            for number, pod in enumerate(pods):
                code = 143 if number == index else 1
                state = {"terminated": {"exitCode": code, "reason": "Error"}}
                pod["status"] = {"phase": "Failed", "containerStatuses": [{"state": state}]}
            message = "Kubelet terminated the pod: node is shutting down"
            self._condition(pods[index], "DisruptionTarget", "TerminationByKubelet", message)
            self._fail(name, "FailedJobs", "jobset failed due to one or more job failures")

    def finish_deletions(self) -> None:
        """All pods that have to go are gone, and with them what waited for that."""
        with self.lock:
            for key, jobset in list(self.jobsets.items()):
                if "deletionTimestamp" in jobset["metadata"]:
                    del self.jobsets[key]
            for key, pod in list(self.pods.items()):
                if (key[0], pod["metadata"]["labels"][_JOBSET]) not in self.jobsets:
                    del self.pods[key]

    def vanish(self, name: str) -> None:
        """Somebody deletes the JobSet."""
        with self.lock:
            self._named(name)["metadata"]["deletionTimestamp"] = _TIME
            self.finish_deletions()

    def _named(self, name: str) -> Object:
        return next(found for (_, known), found in self.jobsets.items() if known == name)

    def _pods_of(self, name: str) -> list[Object]:
        return [pod for pod in self.pods.values() if pod["metadata"]["labels"][_JOBSET] == name]

    def _fail(self, name: str, reason: str, message: str) -> None:
        self._condition(self._named(name), "Failed", reason, message)

    def _condition(self, thing: Object, kind: str, reason: str, message: str) -> None:
        conditions = thing.setdefault("status", {}).setdefault("conditions", [])
        conditions.append({"type": kind, "status": "True", "reason": reason, "message": message})

    def _schedule(self, jobset: Object) -> None:
        """The JobSet controller and the Job controller make pods."""
        namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
        for replicated in jobset["spec"]["replicatedJobs"]:
            job = replicated["template"]["spec"]
            for index in range(job["completions"]):
                pod = f"{name}-{replicated['name']}-0-{index}-x7k2p"
                template = job["template"]
                labels = template["metadata"]["labels"] | {_JOBSET: name, _INDEX: str(index)}
                self.pods[namespace, pod] = {
                    "metadata": {
                        "name": pod, "namespace": namespace, "labels": labels, "creationTimestamp": _TIME,
                    },
                    "spec": {"containers": template["spec"]["containers"], "nodeName": f"node-{index}"},
                    "status": {"phase": "Pending"},
                }  # fmt: skip

    # What its API answers.

    def error(self, refused: Refused) -> Object:
        return {"kind": "Status", "status": "Failure", "message": refused.message, "code": refused.status}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if match := _JOBSETS.fullmatch(path):
            return self._jobset(method, match[1], match[2], query, body)
        if match := _PODS.fullmatch(path):
            return self._pod(method, match[1], match[2], bool(match[3]), query)
        raise Refused(404, "the server could not find the requested resource")

    def _jobset(self, method: str, namespace: str, name: str | None, query: dict[str, str], body: Any) -> Any:
        if method == "POST":
            key = (namespace, body["metadata"]["name"])
            if key in self.jobsets:
                raise Refused(409, f'jobsets.jobset.x-k8s.io "{key[1]}" already exists')
            self.jobsets[key] = copy.deepcopy(body)
            self.jobsets[key]["metadata"]["uid"] = str(uuid.uuid4())
            if not body["spec"].get("suspend"):
                self._schedule(self.jobsets[key])
            return self.jobsets[key]
        if name is None:
            return self._page(self.jobsets, namespace, query)
        if (namespace, name) not in self.jobsets:
            raise Refused(404, f'jobsets.jobset.x-k8s.io "{name}" not found')
        found = self.jobsets[namespace, name]
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted not in (None, found["metadata"]["uid"]):
                raise Refused(409, f"the UID in the precondition ({wanted}) does not match")
            foreground = (
                query.get("propagationPolicy") or (body or {}).get("propagationPolicy")
            ) == "Foreground"
            if foreground:
                found["metadata"]["deletionTimestamp"] = _TIME
            else:
                del self.jobsets[namespace, name]
        return found

    def _pod(self, method: str, namespace: str, name: str | None, log: bool, query: dict[str, str]) -> Any:
        if name is None:
            page = self._page(self.pods, namespace, query)
            if method == "DELETE":
                for pod in page["items"]:
                    if query.get("gracePeriodSeconds") == "0":
                        del self.pods[namespace, pod["metadata"]["name"]]
            return page
        if (namespace, name) not in self.pods:
            raise Refused(404, f'pods "{name}" not found')
        return self.logs.get(name, b"") if log else self.pods[namespace, name]

    def _page(self, things: dict[tuple[str, str], Object], namespace: str, query: dict[str, str]) -> Object:
        selected = [
            thing
            for (place, _), thing in things.items()
            if place == namespace
            and _selects(query.get("labelSelector", ""), thing["metadata"].get("labels", {}))
        ]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(selected)
        more = {"continue": str(start + limit)} if start + limit < len(selected) else {}
        return {"kind": "List", "metadata": more, "items": selected[start : start + limit]}


def _selects(selector: str, labels: dict[str, str]) -> bool:
    for requirement in re.split(r",(?![^()]*\))", selector):
        if match := re.fullmatch(r"(\S+) in \(([^)]*)\)", requirement):
            if labels.get(match[1]) not in match[2].split(","):
                return False
        elif requirement:
            key, _, value = requirement.partition("=")
            if labels.get(key) != value:
                return False
    return True
