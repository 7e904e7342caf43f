"""Import figures and tables of one's own, if they may be executed.

They are no part of a run's identity. What an imported study names is executed only once its user trusts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.models import extensions
from jestlab.models.extensions import references
from jestlab.platform.errors import UserError
from jestlab.platform.spec.own_reports import check_code, digest, named_in
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


@dataclass(frozen=True)
class Asked:
    """Code of one's own that is asked for.

    Attributes:
        name: Where it is, or the name of an entry point.
        options: Its arguments.
        loader: Imports it.
    """

    name: str
    options: dict[str, Any]
    loader: Loader


def asked(
    store_url: str,
    experiment: str | None,
    kind: Kind,
    name: str,
    options: Mapping[str, Any],
    builtin: Sequence[str],
    place: str,
) -> Asked | None:
    """Find the code of one's own that a name stands for.

    Args:
        store_url: URL of the store.
        experiment: Name of the study.
        kind: What the code is used as.
        name: What a report of the study is called, whose options then hold; a reference; an entry point.
        options: Its arguments.
        builtin: Names that are built in.
        place: Where the options are given, in words.

    Returns:
        None if the name stands for none.

    Raises:
        UserError: Options are given, and there is no code that takes them; or they are no options.
    """
    if name in builtin and options:
        raise UserError(f"{place} is for a {kind} of your own, and {name} is built in")
    if name in builtin:
        return None
    named = _in_spec(store_url, experiment, kind, name) if experiment else None
    if named is not None:
        return Asked(named[0], {**named[1], **options}, Loader(store_url))
    if references.is_reference(name) or name in extensions.installed(kind):
        name = references.anchored(name, Path.cwd())
        check_code(kind, name, options, place)
        return Asked(name, dict(options), Loader(store_url, asked=name))
    if options:
        raise UserError(f"{place} is for a {kind} of your own, and {name} is none")
    return None


def _in_spec(store_url: str, experiment: str, kind: str, name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Find a figure or table of one's own by what its files are called, with its options."""
    from jestlab.analysis.claims import studies
    from jestlab.analysis.connection import connect
    from jestlab.analysis.own import stem_of

    with connect(store_url) as connection:
        known = studies(connection)
    spec = known[experiment].spec if experiment in known else {}
    found = ((own, options) for what, own, options in named_in(spec) if what == kind and stem_of(own) == name)
    return next(found, None)
