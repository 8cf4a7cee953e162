"""Operation counts and memory of votes, computed from shapes."""

from clustercaps.bench.cases import Case, capsule_layers

FLOAT32_BYTES = 4


def vote_macs(case: Case) -> list[int]:
    """Multiply-adds of each layer's vote convolution, for the whole batch.

    Every output position counts all k x k taps, including those on the padding. Statistics,
    routing, norm and head are not counted: they are not convolutions.
    """
    macs = []
    for layer in capsule_layers(case.network()):
        assert layer.in_size is not None
        height, width = layer.out_size(layer.in_size)
        macs.append(case.batch * height * width * layer.vote.weight.numel())
    return macs


def gflop(case: Case, measure: str, recomputes: bool) -> float:
    """Billions of floating-point operations, two per multiply-add.

    A training step counts the vote convolution once forward, once for the gradient of the
    weights, once for the gradient of the input except in the first layer, which reads images, and
    once more if the votes are recomputed instead of stored.

    Args:
        case: The case.
        measure: "training step", "forward" or "one image".
        recomputes: Whether the backend recomputes the votes in the backward pass.
    """
    total = 0
    for number, macs in enumerate(vote_macs(case), 1):
        if case.layer not in (0, number):
            continue
        times = 1
        if measure == "training step":
            times += 1 + (number > 1) + recomputes
        total += times * macs
    return 2 * total / (case.batch if measure == "one image" else 1) / 1e9


def vote_bytes(case: Case) -> list[int]:
    """Size of each layer's votes in float32, for the whole batch."""
    sizes = []
    for layer in capsule_layers(case.network()):
        assert layer.in_size is not None
        height, width = layer.out_size(layer.in_size)
        sizes.append(case.batch * height * width * layer.vote.out_channels * FLOAT32_BYTES)
    return sizes
