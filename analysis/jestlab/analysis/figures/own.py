"""Figures of one's own: what a function returns, a Matplotlib figure or a `Plot`, as a figure like any other.

Matplotlib draws what the function asks for, in our style; the files are up to date as long as they show the
same picture.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..own import CodeFailed, OwnCode, Results, stem_of
from .canvas import DPI
from .plot import Plot, Texts
from .style import applied

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class OwnPlot(Plot):
    """A Matplotlib figure of one's own, which does not show its caption itself."""

    @property
    def words_beside(self) -> str:
        """Title and caption, as the content of a text file; empty if there is no caption."""
        return f"{self.texts.title}\n\n{self.texts.caption}\n" if self.texts.caption else ""


def own_plot(code: OwnCode, results: Results, options: Mapping[str, Any]) -> Plot:
    """Make a figure of one's own.

    Args:
        code: `f(results, **options)`, which returns a Matplotlib figure, that with its caption as a pair, or
            a `Plot`.
        results: What it gets.
        options: Its further arguments.

    Returns:
        A plot that is named like the function. Of a Matplotlib figure its data is the digest of the picture.

    Raises:
        NotYet: The experiment lacks results that it asks for.
        CodeFailed: It fails, or returns something else.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with applied(), rc_context({"figure.dpi": DPI}):  # as fine as all others: pages show it by its pixels
        made = code(results, options)
    name = stem_of(code.name)
    if isinstance(made, Plot):
        return replace(made, name=name, code=code.digest)
    figure, caption = made if isinstance(made, tuple) and len(made) == 2 else (made, "")
    if not isinstance(figure, Figure) or not isinstance(caption, str):
        raise CodeFailed(
            f"{code.name} returned {type(made).__name__}: expected a matplotlib.figure.Figure, perhaps with "
            "its caption as a pair, or a Plot"
        )
    _forget(figure)
    texts = Texts(figure.get_suptitle(), caption, x="", y="")
    return OwnPlot(name, _picture(figure, code), texts, lambda *_: figure, code=code.digest)


def _picture(figure: Figure, code: OwnCode) -> pd.DataFrame:
    """Return what the files of a figure depend on: its digest, as it is drawn."""
    import pandas as pd

    content = io.BytesIO()
    try:
        with applied():
            figure.savefig(content, format="png", metadata={"Software": None})
    except Exception as error:  # what it draws is drawn only now
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise CodeFailed(f"the figure of {code.name} cannot be drawn: {told}") from error
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    return pd.DataFrame({"picture": [digest], "function": [stem_of(code.name)], "code": [code.digest]})


def _forget(figure: Figure) -> None:
    """Let pyplot forget a figure that it made: it would keep all of them."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(figure)
