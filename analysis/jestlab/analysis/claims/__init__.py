"""Claims: statements in a spec that the runs of a study confirm or refute.

`claim` defines the keys of a spec and reads specs from a store; `measures` computes the values to compare;
`verdicts` judges claims seed by seed, with results in `judged`; `evidence` tests differences, by `sign_test`
or Student's t; `rounds` chooses the next seeds; `registration` compares a study with its registration.
"""

from .claim import COMPARISONS, Claim, Family, Side, Study, Until, parse_claims, parts_of, studies

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
