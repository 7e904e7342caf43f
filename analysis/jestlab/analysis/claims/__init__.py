"""Claims: statements in a spec that the runs of a study confirm or refute.

`claim` defines the keys of a spec and reads specs from a store; `measures` computes the values to compare;
`verdicts` compares the sides of claims seed by seed and judges them, with results in `judged`; `family`
shares an error rate among claims; `evidence` tests differences, by `sign_test`, `signed_rank`, or Student's
t; `forecast` and `rounds` choose the next seeds; `registration` compares a study with its registration.
"""

from .claim import COMPARISONS as COMPARISONS
from .claim import Claim as Claim
from .claim import Side as Side
from .claim import Study as Study
from .claim import Until as Until
from .claim import parse_claims as parse_claims
from .claim import parts_of as parts_of
from .claim import studies as studies
from .family import Family as Family
