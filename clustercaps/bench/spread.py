"""`clustercaps bench spread`: how much the eps in the spread of the votes matters.

The spread is sqrt(variance + eps). For M1 on test images of `fashion-mnist-mini`, in float64: the
variances of every layer, and how capsules, logits and predictions change when eps is 1e-12 instead
of 1e-6. The gradient with respect to a vote is that of plain averaging times
1 - (m_i - s) (v_ik - m_i) / sigma_i^2; `gain` is the largest absolute value of the second term,
which a small eps leaves unbounded.
"""

import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clustercaps.bench.cases import Options, capsule_layers, use_backend
from clustercaps.bench.csv_output import write_csv
from clustercaps.data import load, test_transform
from clustercaps.layers.cluster import ClusterCapsules2d
from clustercaps.models import ImageClassifier, create_model, from_pretrained
from clustercaps.routing.cluster import EPS, cluster_route, vote_statistics
from clustercaps.training.settings import resolve
from clustercaps.utils.machine import machine
from clustercaps.utils.tables import text_table

DATA, SMALL = "fashion-mnist-mini", 1e-12
IMAGES, IMAGES_QUICK = 50, 4
# A short training on one thread; the fast recipe.
EPOCHS, LIMIT_QUICK = 2, 40
QUANTILES = (0.001, 0.01, 0.5)
COLUMNS = (
    *("network", "layer", "images", "variance_min", "variance_q0.001", "variance_q0.01"),
    *("variance_median", "below_eps_percent", "relative_change", "gain", "gain_small_eps"),
    "predictions_changed",
)


def run(options: Options) -> None:
    """Measure every network, and print and store the results."""
    count = IMAGES_QUICK if options.quick else IMAGES
    test = load(DATA, "test")
    images = test_transform(DATA, size=32)(test.pixels[:count]).double()
    rows = [row for name, net in networks(options.quick) for row in measure(name, net, images)]
    shown = [["" if v is None else f"{v:.2g}" if type(v) is float else v for v in r] for r in rows]
    print(f"eps {EPS:g} against {SMALL:g}; {count} test images of {DATA}, float64\n")
    print(text_table(list(COLUMNS), [[str(v) for v in row] for row in shown]))
    write_csv(options.out, COLUMNS, rows, machine())
    print(f"\n{options.out}")


def networks(quick: bool) -> Iterator[tuple[str, ImageClassifier]]:
    """M1 initial and trained, with small weights, and with two votes per cluster."""
    torch.manual_seed(0)
    yield "m1, initial", create_model("m1", in_chans=1)
    trained = create_model("m1", pretrained="fashion-mnist")
    yield "m1, packaged weights", trained
    small = copy.deepcopy(trained)
    with torch.no_grad():
        for layer in capsule_layers(small):
            for parameter in layer.vote.parameters():
                parameter.mul_(0.1)
    yield "m1, packaged weights x 0.1", small
    yield "m1 with K = 2, initial", create_model("m1", in_chans=1, votes=2)
    yield "m1 with K = 2, trained", train_two_votes(quick)


def train_two_votes(quick: bool) -> ImageClassifier:
    """M1 with K = 2 after a short training."""
    from clustercaps.training import train
    from clustercaps.training.run_folder import RunFolder

    epochs, limit = (1, LIMIT_QUICK) if quick else (EPOCHS, 0)
    length = {"epochs": epochs, "limit": limit, "test_limit": limit}
    settings = resolve("m1", DATA, "fast", **length, model_settings={"votes": 2})
    with tempfile.TemporaryDirectory() as folder:
        train(settings, Path(folder) / "run")
        return from_pretrained(RunFolder(Path(folder) / "run").model)


@torch.no_grad()
def measure(name: str, network: ImageClassifier, images: Tensor) -> list[list[Any]]:
    """A row for every capsule layer, and one for the logits."""
    network = network.double().eval()
    use_backend(network, "reference")
    (inputs, usual), (_, small) = (outputs(network, images, eps) for eps in (EPS, SMALL))
    rows: list[list[Any]] = []
    for number, layer in enumerate(capsule_layers(network)):
        votes = layer.cast_votes(inputs[number])
        variance = vote_statistics(votes, 0.0)[1].square().flatten()
        below = 100 * (variance < EPS).double().mean().item()
        gains = [gain(votes, eps) for eps in (EPS, SMALL)]
        change = relative_change(usual[number], small[number])
        least = [variance.min().item(), *quantiles(variance, QUANTILES)]
        rows.append([name, number + 1, len(images), *least, below, change, *gains, None])
    moved = int((usual[-1].argmax(1) != small[-1].argmax(1)).sum())
    change = relative_change(usual[-1], small[-1])
    rows.append([name, "logits", len(images), *[None] * 5, change, None, None, moved])
    return rows


def outputs(
    network: ImageClassifier, images: Tensor, eps: float
) -> tuple[list[Tensor], list[Tensor]]:
    """With this eps: the input of every capsule layer, and all capsules, then the logits."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(layer: ClusterCapsules2d, given: tuple[Tensor], result: Tensor) -> None:
        seen.append((given[0], result))

    layers = capsule_layers(network)
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    for layer in layers:
        layer.eps = eps
    logits = network(images)
    for hook in hooks:
        hook.remove()
    return [given for given, _ in seen], [*(result for _, result in seen), logits]


def gain(votes: Tensor, eps: float) -> float:
    """The largest |(m_i - s) (v_ik - m_i)| / sigma_i^2."""
    centroids, spread = vote_statistics(votes, eps)
    capsules, _ = cluster_route(votes, eps=eps)
    slope = (centroids - capsules.unsqueeze(1)) / spread.square()
    # In place: the votes are the largest tensor by far, and not needed again here.
    offsets = (votes - centroids.unsqueeze(2)).mul_(slope.unsqueeze(2))
    return max(offsets.max().item(), -offsets.min().item())


def relative_change(before: Tensor, after: Tensor) -> float:
    """The norm of the difference over the norm."""
    return ((after - before).norm() / before.norm()).item()


def quantiles(values: Tensor, shares: Sequence[float]) -> list[float]:
    """Quantiles of any number of values; torch.quantile has a limit."""
    ordered = values.sort().values
    return [ordered[int(share * (len(ordered) - 1))].item() for share in shares]
