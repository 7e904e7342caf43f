"""What a step of each method costs, by component, relative to uniform sampling (paper, Figure 4, left)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .cost import EXECUTED
from .step import CONVENTIONS, Convention, Step
from .towers import Forward, text_forward, vision_forward


class Bar(NamedTuple):
    """A part of a bar."""

    convention: Convention
    method: str
    component: str  # as attributes of `Cost` are called
    flops: float  # of one step
    relative: float  # to all of a step under uniform sampling, by the same convention


def step_bars(step: Step) -> list[Bar]:
    """The bars of a figure: IID, JEST, JEST with a cached reference, Flexi-JEST, by both conventions.

    Args:
        step: Of Flexi-JEST, with its sizes, rule, λ and `approximate` pass; the other methods differ from it
            by what they leave out. Its reference, the learner's like where it has none, scores online in JEST
            alone. To have the paper's A, give `approximate=full * 0.28`. A step without an approximate pass
            is JEST's, and there is no Flexi-JEST.

    Returns:
        A row for each convention, method and component, in the order of the figure; components that a method
        does not have are 0.

    Raises:
        ValueError: The step chooses nothing.
    """
    if step.super_batch_size == step.batch_size:
        raise ValueError("the step trains on all of its super-batch: give one that chooses from it")
    jest = replace(step, scoring="full", approximate_share=0.0, reference=step.reference or step.full)
    methods = {
        "IID": step.iid,
        "JEST": jest,
        "JEST, cached reference": replace(jest, reference=None),
    }
    if step.approximate is not None:
        methods["Flexi-JEST, cached reference"] = replace(step, scoring="approximate", reference=None)
    bars = []
    for convention in CONVENTIONS:
        whole = step.iid.cost(convention).total()
        for method, its_step in methods.items():
            cost = its_step.cost(convention)
            for component in EXECUTED:
                flops = float(getattr(cost, component))
                bars.append(Bar(convention, method, component, flops * step.batch_size, flops / whole))
    return bars


def paper_step() -> Step:
    """The paper's Flexi-JEST step: ViT-B/16 at 256 pixels, 64 tokens, 20% of 163,840 in 16 chunks, λ = .5.

    Its approximate pass is at patch size 32, counted by the architecture: .389 of F, since captions cost as
    much as ever. The paper takes .28.
    """
    block = {"width": 768, "depth": 12, "mlp_dim": 3072}
    text = text_forward(length=64, embedding_dim=768, **block)
    full, approximate = (
        Forward(
            vision_forward(image_size=256, patch_size=patch, pooling="map", embedding_dim=None, **block), text
        )
        for patch in (16, 32)
    )
    return Step(
        full=full,
        batch_size=32_768,
        super_batch_size=163_840,
        embedding_dim=768,
        approximate=approximate,
        approximate_share=0.5,
        scoring="approximate",
        rule="joint",
        chunks=16,
        scored_dims=(768, 768),
    )
