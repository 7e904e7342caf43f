"""What FLOPs take on accelerators and what that costs, by a share of the peak that somebody has to assume."""

from __future__ import annotations

ASSUMED_UTILISATION = 0.4
"""Share of a chip's peak FLOP/s that training is taken to reach. An assumption, not a measurement: dense
transformers are reported between .3 and .6, by their size and by how their batches are fed."""

_SECONDS_PER_HOUR = 3600


def chip_hours(flops: float, peak_flops: float, utilisation: float = ASSUMED_UTILISATION) -> float:
    """How long one chip would compute, in hours. On n chips it takes an n-th of the time, and costs the same.

    Args:
        flops: What is computed. Of a run, whatever it executes itself: learner, scoring, selection and
            reference scoring that is not cached (`Cost.total("reference_scoring")`), and not the runs that it
            needs.
        peak_flops: FLOP/s of one chip at its peak, such as 197e12 of a TPU v5e in bfloat16.
        utilisation: Share of the peak that is reached, in (0, 1].

    Returns:
        flops / (peak_flops · utilisation), in hours.

    Raises:
        ValueError: The peak is not positive, or the utilisation no share.
    """
    if not peak_flops > 0:
        raise ValueError(f"peak FLOP/s are {peak_flops:g}: a chip computes something")
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation is {utilisation:g}: it is a share of the peak, above 0 and at most 1")
    return flops / (peak_flops * utilisation) / _SECONDS_PER_HOUR


def dollars(chip_hours: float, dollars_per_chip_hour: float) -> float:
    """What chip-hours cost.

    Args:
        chip_hours: As `chip_hours` gives them.
        dollars_per_chip_hour: Price of one.
    """
    return chip_hours * dollars_per_chip_hour
