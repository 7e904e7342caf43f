"""Claims: what a study states, and what its runs say about it.

`claim` parses a claim; `measures` says what its runs are compared by; `verdicts` judges it by the seeds that
both sides have; `evidence` decides by one look (Student's t, `power`) or by any number of looks (`looks`);
`families` share an error; `stopping` and `rounds` say how many seeds are enough.
"""

from .claim import (
    COMPARISONS,
    MEANINGS,
    Claim,
    ClaimError,
    Comparison,
    Side,
    Study,
    parse_claims,
    parts_of,
    studies,
)

__all__ = [
    "COMPARISONS",
    "MEANINGS",
    "Claim",
    "ClaimError",
    "Comparison",
    "Side",
    "Study",
    "parse_claims",
    "parts_of",
    "studies",
]
