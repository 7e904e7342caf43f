"""Claims: statements in a spec that the runs of a study confirm or refute.

`claim` defines the keys of claims in a spec and reads specs from a store; `measures` computes the values that
claims compare; `verdicts` judges claims seed by seed, and `judged` describes the results; `evidence` tests
differences by Student's t or by the test in `sign_test`; `rounds` chooses the next seeds; `registration`
compares a study with its registration.
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
