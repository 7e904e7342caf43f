"""Import figures and tables of one's own, if they may be executed.

They are no part of a run's identity. What an imported study names is executed only once its user trusts it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from jestlab.models import extensions
from jestlab.platform.errors import UserError
from jestlab.platform.spec.own_reports import digest
from jestlab.platform.store.store import Store
from jestlab.platform.store.trust import refuse_untrusted

if TYPE_CHECKING:
    from jestlab.analysis.own import Kind, OwnCode


class Loader:
    """Imports figures and tables of one's own, unless the experiment that names them is not trusted."""

    def __init__(self, store_url: str, asked: str | None = None) -> None:
        """Create it; nothing is read yet.

        Args:
            store_url: URL of the store that knows where experiments came from.
            asked: The name that the user has given, which is executed as any command of theirs is.
        """
        self._url = store_url
        self._asked = asked
        self._trusted: set[str] = set()

    def __call__(self, experiment: str, kind: Kind, name: str) -> OwnCode:
        """Import code; ValueError, one line, if it may not be executed or cannot be imported."""
        from jestlab.analysis.own import OwnCode

        if name != self._asked:
            self._check_trusted(experiment)
        function = extensions.load(kind, name)
        if not callable(function):
            raise ValueError(f"{kind} {name!r} is {type(function).__name__}: expected a function")
        return OwnCode(name, function, digest(kind, name))

    def _check_trusted(self, experiment: str) -> None:
        if experiment in self._trusted:
            return
        try:
            if (store := Store.open_readonly(self._url)) is not None:
                with closing(store):
                    refuse_untrusted(store, experiment)
        except UserError as error:
            raise ValueError(str(error)) from None
        self._trusted.add(experiment)
