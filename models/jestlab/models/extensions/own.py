"""A function of one's own with its options, as the training step calls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jestlab.models.extensions.kinds import Kind, load


@dataclass(frozen=True)
class Own:
    """A function with its options bound; equal ones compile once, so it is hashable.

    Attributes:
        function: The user's.
        options: Its keyword arguments, as JSON.
    """

    function: Callable[..., Any]
    options: str = "{}"

    @classmethod
    def load(cls, kind: Kind, name: str, options: Mapping[str, Any]) -> Own:
        """Import the function of a name; raises as `load`."""
        return cls(load(kind, name), json.dumps(options, sort_keys=True))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with these arguments and its options."""
        return self.function(*args, **kwargs, **json.loads(self.options))
