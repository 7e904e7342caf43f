"""Claims: statements in a spec that the runs of a study confirm or refute.

`claim` defines the keys of a spec and reads specs from a store; `measures` computes the values to compare;
`verdicts` compares the sides of claims seed by seed and judges them, with results in `judged`; `family`
shares an error rate among claims; `evidence` tests differences, by `sign_test`, `signed_rank`, or Student's
t; `forecast` and `rounds` choose the next seeds; `registration` compares a study with its registration.
"""

from .claim import COMPARISONS, Claim, Side, Study, Until, parse_claims, parts_of, studies
from .family import Family

__all__ = [
    "COMPARISONS",
    "Claim",
    "Family",
    "Side",
    "Study",
    "Until",
    "parse_claims",
    "parts_of",
    "studies",
]
