"""What the paper says, and what our numbers say about it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clustercaps.experiments.harness.spread import Spread


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, beside results that speak for or against it.

    Args:
        claim: What the paper says or shows, as a sentence.
        answers: Whether each comparison agrees; None if it is too close to tell.
        evidence: The numbers compared, as a sentence.
    """

    claim: str
    answers: Sequence[bool | None]
    evidence: str

    @property
    def verdict(self) -> str:
        """In a few words."""
        if all(self.answers):
            return "holds"
        if any(self.answers):
            return "holds in part"
        if all(answer is False for answer in self.answers):
            return "does not hold"
        return "is not seen"


def below(ours: Spread, others: Spread, *, chance: float = 0.0) -> bool | None:
    """Whether a number is below another by more than their deviations over seeds; None: neither.

    Without deviations, that of a single seed, the means alone decide.

    Args:
        ours: The number that should be lower.
        others: What it is compared with.
        chance: How far apart they may be for reasons other than the seed.
    """
    gap = others.mean - ours.mean
    if abs(gap) <= (ours.sd or 0.0) + (others.sd or 0.0) + chance:
        return None
    return gap > 0


def sampling_sd(percent: float, images: int) -> float:
    """Standard deviation of a percentage that was counted on so many images."""
    return math.sqrt(percent * (100 - percent) / images)


def judge(claim: str, answers: Sequence[bool | None], evidence: Sequence[str]) -> Finding | None:
    """A finding, or None if there is nothing to compare yet."""
    return Finding(claim, answers, "; ".join(evidence) + ".") if answers else None
