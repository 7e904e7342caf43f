"""What training costs: the only place with arithmetic on FLOPs.

A FLOP is one multiplication or one addition, so a multiply–accumulate is 2. Products of matrices are counted
and nothing else: normalisations, activations, softmax and the losses of single pairs are left out. A backward
pass costs twice its forward pass, so training on an example costs 3F.

    step = Step(full=Forward(image, text), batch_size=b, super_batch_size=B, ...)
    step.cost("counted").total("scoring")     # FLOPs of one example seen

Two conventions, each by its name (`Step.cost`):

- *counted*: what the code executes. Scoring runs a forward pass over the super-batch, and the step runs its
  own over the chosen examples, so an example seen costs 3F + F·B/b, and besides that the loss and selection.
- *paper*: the appendix of Evans et al. (2024), "FLOP calculations for JEST / Flexi-JEST". The scoring pass of
  JEST is kept for the gradient, and neither loss nor selection is priced: C_IID = 3F,
  C_JEST = F(2 + B/b), or F(2 + 2B/b) where the reference is not cached, and
  C_Flexi = 3F((1 − λ) + λA) + A·F·B/b. In F alone: `paper_iid`, `paper_jest`, `paper_flexi`.

Four scopes, each holding the ones before it (`Cost.total`): the learner; and scoring; and the reference's
scoring; and a share in the reference's training.

Letters:
    F  forward pass of one example            B  super-batch    b  sub-batch, what is trained on
    f  filtering ratio, 1 − b/B               A  cost of the approximate model, as a share of F
    λ  share of the sub-batch that is trained on approximately
    N  chunks of joint selection
    n  tokens    D  width    M  hidden width of the MLP    E  width of the embedding space

Nothing but the standard library is imported here: plans of thousands of runs are priced with it.
"""

from .cost import (
    ASSUMED_UTILISATION,
    COMPONENTS,
    COUNTED,
    EXECUTED,
    SCOPES,
    Cost,
    Scope,
    amortised,
    break_even_runs,
    check_scope,
    chip_hours,
    matching_examples,
    planned_flops,
)
from .methods import (
    FREE_RULES,
    LOSSES,
    clip_loss_scores_flops,
    compared_loss_flops,
    deduplication_flops,
    norm_similarity_flops,
)
from .products import (
    RULES,
    Forward,
    encoder_forward,
    head_flops,
    loss_flops,
    selection_flops,
    text_forward,
    vision_forward,
)
from .step import (
    CONVENTIONS,
    Convention,
    Step,
    paper_flexi,
    paper_iid,
    paper_jest,
    paper_run,
    paper_step,
    step_bars,
)

__all__ = [
    "ASSUMED_UTILISATION",
    "COMPONENTS",
    "CONVENTIONS",
    "COUNTED",
    "EXECUTED",
    "FREE_RULES",
    "LOSSES",
    "RULES",
    "SCOPES",
    "Convention",
    "Cost",
    "Forward",
    "Scope",
    "Step",
    "amortised",
    "break_even_runs",
    "check_scope",
    "chip_hours",
    "clip_loss_scores_flops",
    "compared_loss_flops",
    "deduplication_flops",
    "encoder_forward",
    "head_flops",
    "loss_flops",
    "matching_examples",
    "norm_similarity_flops",
    "paper_flexi",
    "paper_iid",
    "paper_jest",
    "paper_run",
    "paper_step",
    "planned_flops",
    "selection_flops",
    "step_bars",
    "text_forward",
    "vision_forward",
]
