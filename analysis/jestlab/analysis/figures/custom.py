"""Custom figures: a function's Matplotlib figure or `Plot` becomes a figure like the built-in ones.

Matplotlib draws in jestlab's style. The files are up to date as long as they show the same picture.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..custom import CodeFailed, CustomCode, Results, one_line, stem_of
from .panels import DPI
from .plot import Plot, Texts
from .style import applied

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def custom_plot(code: CustomCode, results: Results, options: Mapping[str, Any]) -> Plot:
    """Make a custom figure.

    Args:
        code: `f(results, **options)`, which returns a Matplotlib figure, a pair of a figure and its caption,
            or a `Plot`.
        results: Results of the experiment.
        options: Further arguments.

    Returns:
        A plot with the function's name. The data of a Matplotlib figure is a digest of the picture.

    Raises:
        NotYet: Results are missing.
        CodeFailed: The function failed, or returned something else.
    """
    import pandas as pd
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    name = stem_of(code.name)
    with applied(), rc_context({"figure.dpi": DPI}):  # pages show pictures by their pixels
        made = code(results, options)
    if isinstance(made, Plot):
        return replace(made, name=name, code=code.digest)
    figure, caption = made if isinstance(made, tuple) and len(made) == 2 else (made, "")
    if not isinstance(figure, Figure) or not isinstance(caption, str):
        raise code.unexpected(made, "a matplotlib.figure.Figure, a pair of it and its caption, or a Plot")
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(figure)  # pyplot keeps every figure that it made
    data = pd.DataFrame({"picture": [_digest(figure, code)]})
    texts = Texts(figure.get_suptitle(), caption, x="", y="")
    return Plot(name, data, texts, lambda *_: figure, code=code.digest)


def _digest(figure: Figure, code: CustomCode) -> str:
    """Return a digest of the picture, on which the files depend."""
    content = io.BytesIO()
    try:
        with applied():
            figure.savefig(content, format="png", metadata={"Software": None})
    except Exception as error:  # Matplotlib draws only now
        raise CodeFailed(f"the figure of {code.name} can't be drawn: {one_line(error)}") from error
    return hashlib.sha256(content.getvalue()).hexdigest()
