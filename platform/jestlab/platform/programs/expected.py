"""What a study expects of a run's evaluations, checked at the first one, before the run's budget is spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jestlab.analysis.metrics import Metrics
from jestlab.analysis.units import near, some
from jestlab.platform.errors import UserError
from jestlab.platform.spec import mentions


def check_first(experiment: str, spec: Mapping[str, Any], program: str, scores: Collection[str]) -> None:
    """Check a run's first evaluation against the names that its study declares and needs.

    A name that the study needs may still come, as that of a test at the end. But together with a name that
    nobody declares it is most likely the same metric under another name.

    Args:
        experiment: Name of the study.
        spec: The study, as it is written.
        program: Of the run.
        scores: Names (dataset/metric) that the run has reported.

    Raises:
        UserError: A needed name is missing, and another one is declared by nobody.
    """
    declared = Metrics.of_spec(spec, [program])
    needed = [mention for mention in mentions.metrics(spec) if mention.is_evaluation]
    missing = [mention for mention in needed if mention.name not in scores]
    unknown = [name for name in scores if declared.find(name) is None]
    if not missing or not unknown:
        return
    first = missing[0]
    hint = near(first.name, scores)
    raise UserError(
        f"the first evaluation reports {some(unknown)}, which {experiment} does not declare, and not "
        f"{first.name}, which its {'.'.join(first.path)} needs{f' ({hint})' if hint else ''}: mend the name "
        f"in the spec or in the program; if {first.name} is to come later, declare {unknown[0]}, too, under "
        "`metrics`"
    )
