"""Plain English for the ten reasons of Slurm and Kubernetes that users meet; others are shown unchanged."""

from __future__ import annotations

import re

_NO_NODE = (
    "Insufficient|Unschedulable|no nodes available|BadConstraints|Resources$|ReqNodeNotAvail|are DOWN"
    "|is not available"
)
_TRANSLATIONS = {
    "OUT_OF_ME|OOMKilled": "out of memory: increase `resources.memory_gb`",
    "TIMEOUT|TimeLimit|DeadlineExceeded|time limit": "time limit: see `resources.time`",
    "NODE_FAIL|BOOT_FAIL|LAUNCH_FAIL|NodeDown|DeletionByTaintManager": "a node failed",
    "Preempt": "preempted: the machines went to another job",
    "ImagePull|InvalidImageName": "can't pull the image: check `image`, and access to its registry",
    r"quota|\b(QOS|Assoc|Max)\w*Limit|QOS policy": "quota: wait until other jobs end, or request more",
    "Invalid ?(Account|QOS|Partition)": "invalid account or partition: see `sinfo` and `sacctmgr show assoc`",
    _NO_NODE: "unschedulable: no node has these resources free; wait, or lower `resources`",
    "CANCELLED": "canceled",
    "Evict": "evicted from its node",
}
"""Pattern of reasons → their meaning, and what to do. The first match counts."""


def explained(reason: str) -> str:
    """Return an engine's reason, followed by its translation if it is a common one."""
    for pattern, meaning in _TRANSLATIONS.items():
        if re.search(pattern, reason, re.IGNORECASE):
            return f"{reason} ({meaning})"
    return reason
