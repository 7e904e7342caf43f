"""Custom figures: a Matplotlib figure that a function returns becomes a figure like the built-in ones.

Matplotlib draws in jestlab's style. Files from earlier are up to date if the picture hasn't changed.
"""

import hashlib
import io
import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..custom import CodeFailed, CustomCode, Results, one_line, stem_of
from .panels import DPI
from .plot import Plot, Texts
from .style import applied


def custom_plot(code: CustomCode, results: Results, options: Mapping[str, Any]) -> Plot:
    """Make a custom figure.

    Args:
        code: `f(results, **options)`, which returns a Matplotlib figure, or a figure and its caption.

    Returns:
        A plot with the function's name. The data of a Matplotlib figure is a digest of the picture.

    Raises:
        NotYet: Results are missing.
        CodeFailed: The function failed, or returned something else.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with applied(), rc_context({"figure.dpi": DPI}):  # pages show pictures by their pixels
        returned = code(results, options)
        figure, caption = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, "")
        if not isinstance(figure, Figure) or not isinstance(caption, str):
            raise code.unexpected(returned, "a matplotlib.figure.Figure, or a figure and its caption")
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(figure)  # pyplot keeps every figure that it creates
    picture = io.BytesIO()
    try:
        with applied():
            figure.savefig(picture, format="png", metadata={"Software": None})
    except Exception as error:  # Matplotlib draws only now
        raise CodeFailed(f"the figure of {code.name} can't be drawn: {one_line(error)}") from error
    data = pd.DataFrame({"picture": [hashlib.sha256(picture.getvalue()).hexdigest()]})
    texts = Texts(figure.get_suptitle(), caption, x="", y="")
    return Plot(stem_of(code.name), data, texts, lambda *_: figure, code=code.digest)
