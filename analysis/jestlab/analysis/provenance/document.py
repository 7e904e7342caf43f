"""Provenance files: the source of each table and figure of a report, as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..connection import shown
from .checkout import jestlab_version
from .history import History

SUFFIX = ".provenance.json"
"""End of the name of a provenance file."""


@dataclass(frozen=True)
class Sources:
    """The sources of a report, sufficient to make it again and to compare it.

    Attributes:
        url: URL of the store.
        history: History of the experiment.
        options: Options of the report: baseline, scope.
    """

    url: str
    history: History
    options: dict[str, str | None]

    @cached_property
    def common(self) -> dict[str, Any]:
        """The part that all files share. It has no date, so that equal results give equal bytes."""
        version, commit = jestlab_version()
        runs = self.history.runs
        return {
            "store": shown(self.url),  # without its password
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest() or None,
            "jestlab": {"version": version, "commit": commit},
            "runs": dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True)),
        }

    def document(self, data: bytes, files: dict[str, bytes]) -> str:
        """Return the provenance file of one table or figure as JSON.

        Args:
            data: All data that the files show, as CSV.
            files: Content of each file by name.
        """
        content = {
            "files": {name: {"sha256": _sha256(content)} for name, content in sorted(files.items())},
            "data_sha256": _sha256(data),
            **self.common,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
