"""The interface of every routing: from votes (and activations) to capsules (and activations).

Axes: B batch, I children that vote for a parent, J parents, D dimension of a parent capsule. The
remaining axes are positions, such as the height and width of a feature map: each position is routed
independently, unless a routing says otherwise. A fully connected layer has no positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.utils.errors import at_least
from clustercaps.utils.precision import wide_dtype, without_autocast

Votes = Float[Tensor, "batch children parents dim *positions"]
ChildActivations = Float[Tensor, "batch children *positions"]
# From logits [B, I, J, *positions] to log coupling coefficients: who competes for a child.
Competition = Callable[[Tensor], Tensor]
ChildPoses = Float[Tensor, "batch children in_dim *positions"]


class Routed(NamedTuple):
    """The result of a routing.

    Attributes:
        capsules: Parent capsules [B, J, D, *positions].
        activations: Activations of the parents [B, J, *positions]; None for routings without
            activations.
        coupling: Coupling coefficients of the last iteration [B, I, J, *positions], or
            [B, I, J, D, *positions] if every entry of a vote has its own weight.
    """

    capsules: Float[Tensor, "batch parents dim *positions"]
    activations: Float[Tensor, "batch parents *positions"] | None
    coupling: Tensor


class Routing(nn.Module, ABC):
    """A routing as a module: a pure function with its learnable parameters, if it has any.

    Args:
        children: Number of children that vote for a parent (I).
        parents: Number of parents (J).
        dim: Dimension of a parent capsule (D).
    """

    takes_activations: ClassVar[bool] = False
    """Whether children have activations; if so, omitting them means that all are 1."""
    activations_are_logits: ClassVar[bool] = False
    """Whether activations are logits instead of probabilities."""
    takes_poses: ClassVar[bool] = False
    """Whether the coupling depends on the poses of the children, so that poses are required."""
    competes_over: ClassVar[Literal["children", "parents"] | None] = "parents"
    """The axis along which coupling coefficients sum to 1; None if they do not."""
    takes_competition: ClassVar[bool] = False
    """Whether an argument `compete` can make parents at several positions compete for a child."""
    symmetric: ClassVar[bool] = True
    """Whether an untrained module is symmetric in the children and in the parents."""

    def __init__(self, children: int, parents: int, dim: int) -> None:
        super().__init__()
        for name, value in (("children", children), ("parents", parents), ("dim", dim)):
            at_least(name, value, 1)
        self.children_count, self.parents_count, self.dim = children, parents, dim

    def forward(
        self,
        votes: Votes,
        activations: ChildActivations | None = None,
        poses: ChildPoses | None = None,
    ) -> Routed:
        """Route votes to their parents.

        Args:
            votes: The vote of every child for every parent.
            activations: Activations of the children; only for routings with `takes_activations`.
            poses: Poses of the children; required by routings with `takes_poses`, and only there.
        """
        self._check(votes, activations, poses)
        # Routing in half precision overflows squared lengths and rounds variances to zero.
        wide = wide_dtype(votes.dtype)
        if self.takes_activations and activations is None:
            activations = self._full_activations(votes, wide)
        with without_autocast(votes):
            routed = self.route(
                votes.to(wide),
                None if activations is None else activations.to(wide),
                None if poses is None else poses.to(wide),
            )
        return routed._replace(capsules=routed.capsules.to(votes.dtype))

    @abstractmethod
    def route(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> Routed:
        """Route checked inputs in float32 or wider."""

    def _full_activations(self, votes: Tensor, dtype: torch.dtype) -> Tensor:
        shape = (*votes.shape[:2], *votes.shape[4:])
        # sigmoid(20) is 1 to eight digits.
        return torch.full(
            shape, 20.0 if self.activations_are_logits else 1.0, dtype=dtype, device=votes.device
        )

    def _check(self, votes: Tensor, activations: Tensor | None, poses: Tensor | None) -> None:
        name = type(self).__name__
        expected = (self.children_count, self.parents_count, self.dim)
        if votes.ndim < 4 or votes.shape[1:4] != expected:
            raise ValueError(
                f"{name} expects votes [batch, {', '.join(map(str, expected))}, *positions] "
                f"(children, parents, dim), got shape {tuple(votes.shape)}"
            )
        if not votes.is_floating_point():
            raise ValueError(f"votes must be floating point, got {votes.dtype}; call votes.float()")
        if activations is not None:
            if not self.takes_activations:
                raise ValueError(f"{name} takes no activations; remove them")
            wanted = (*votes.shape[:2], *votes.shape[4:])
            if activations.shape != wanted:
                raise ValueError(
                    f"{name} expects activations [batch, children, *positions] = {wanted}, got "
                    f"shape {tuple(activations.shape)}"
                )
        if (poses is not None) != self.takes_poses:
            wish = "needs the poses of the children" if self.takes_poses else "takes no poses"
            raise ValueError(
                f"{name} {wish}; call it with poses={'...' if poses is None else None}"
            )

    def extra_repr(self) -> str:
        """Numbers of children and parents, and dimension."""
        return f"{self.children_count} children -> {self.parents_count}x{self.dim}"


def compete_over_parents(
    logits: Float[Tensor, "batch children parents *positions"],
) -> Float[Tensor, "batch children parents *positions"]:
    """Log coupling coefficients, normalised over the parents of one position (the default)."""
    return logits.log_softmax(2)


def per_parent(numbers: Float[Tensor, " parents"], votes: Votes) -> Tensor:
    """One value per parent, in a shape that broadcasts to [B, J, *positions]."""
    return numbers.view(1, -1, *[1] * (votes.ndim - 4))


def weighted_votes(
    coupling: Float[Tensor, "batch children parents *positions"], votes: Votes
) -> Float[Tensor, "batch parents dim *positions"]:
    """The sum of the votes for each parent, weighted by the coupling coefficients."""
    # einsum does not copy the votes.
    return torch.einsum("bij...,bijd...->bjd...", coupling, votes)


def agreement(
    votes: Votes, capsules: Float[Tensor, "batch parents dim *positions"]
) -> Float[Tensor, "batch children parents *positions"]:
    """Inner product of every vote with its parent."""
    return torch.einsum("bijd...,bjd...->bij...", votes, capsules)
