"""Claims of the paper, and whether our results support them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clustercaps.experiments.harness.spread import Spread


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and our results for or against it.

    Args:
        claim: What the paper says or shows, as a sentence.
        answers: Whether each comparison agrees; None if the difference is within the noise.
        evidence: The numbers compared, as a sentence.
    """

    claim: str
    answers: Sequence[bool | None]
    evidence: str

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        if all(self.answers):
            return "holds"
        if any(self.answers):
            return "partly holds"
        if all(answer is False for answer in self.answers):
            return "does not hold"
        return "inconclusive"


def below(ours: Spread, others: Spread, *, chance: float = 0.0) -> bool | None:
    """Whether one mean is below another by more than their standard deviations over seeds.

    None if the difference is smaller. With a single seed, only the means are compared.

    Args:
        ours: The value that should be lower.
        others: The value to compare with.
        chance: Additional difference that may be due to chance.
    """
    gap = others.mean - ours.mean
    if abs(gap) <= (ours.sd or 0.0) + (others.sd or 0.0) + chance:
        return None
    return gap > 0


def sampling_sd(percent: float, images: int) -> float:
    """Standard deviation of a percentage measured on this many images."""
    return math.sqrt(percent * (100 - percent) / images)


def judge(claim: str, answers: Sequence[bool | None], evidence: Sequence[str]) -> Finding | None:
    """A finding, or None if there is nothing to compare yet."""
    return Finding(claim, answers, "; ".join(evidence) + ".") if answers else None
