"""Parameter counts of every network, next to those printed in the paper."""

from dataclasses import dataclass
from typing import Any

from clustercaps.experiments.paper import paper
from clustercaps.models import list_models
from clustercaps.models.peers import PEERS
from clustercaps.models.registry import count_parameters

# Dataset -> the arguments of a network for it.
TASKS: dict[str, dict[str, Any]] = {
    "cifar10": {"in_chans": 3, "num_classes": 10},
    "svhn": {"in_chans": 3, "num_classes": 10},
    "fashion-mnist": {"in_chans": 1, "num_classes": 10},
    "smallnorb": {"in_chans": 2, "num_classes": 5},
    "smallnorb, 10-way": {"in_chans": 2, "num_classes": 10},
}
CLASSIFIERS = ("m1", "m2", "m3", "m4", "s1", "s2", "s3", "s4", "baseline_cnn")


@dataclass(frozen=True)
class Count:
    """One network on one dataset: the count, the printed count, and whether they agree."""

    parameters: int
    printed: str | None = None
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.parameters:,}" + (f" ({self.printed}{self.mark})" if self.printed else "")


NOTES = {
    "*": "The paper counts a 10-way head although smallNORB has 5 classes; its S1, S3 and CNN "
    "have a 5-way head. Ours is 5-way by default; num_classes=10 gives the paper's count.",
    "+": "The paper's count does not match the network with any head; on Fashion-MNIST, S3 should "
    "read 668K. The 686K printed there is its count on CIFAR-10.",
}


def printed_counts() -> dict[str, dict[str, str]]:
    """The paper's printed parameter counts, by network and dataset."""
    counts: dict[str, dict[str, str]] = paper()["parameters"]
    return counts


def split_printed(printed: str) -> tuple[int, float]:
    """A printed count such as "1.34M" as digits and the value of its last digit: 134, 1e4."""
    number = printed.rstrip("KM").replace(",", "")
    unit = {"K": 1e3, "M": 1e6}.get(printed[-1], 1.0)
    return int(number.replace(".", "")), unit / 10 ** len(number.partition(".")[2])


def fits(count: int, printed: str) -> bool:
    """Whether `printed` is `count`, rounded or truncated to its last digit."""
    digits, step = split_printed(printed)
    return digits in (round(count / step), int(count / step))


def classifier_count(name: str, data: str) -> Count:
    """The count of a classifier on a dataset, marked if the paper's does not match."""
    count = count_parameters(name, **TASKS[data])
    printed = printed_counts()[name].get(data)
    if printed is None or fits(count, printed):
        return Count(count, printed)
    ten_way = count_parameters(name, **{**TASKS[data], "num_classes": 10})
    return Count(count, printed, "*" if fits(ten_way, printed) else "+")


def classifier_table() -> dict[str, dict[str, Count]]:
    """Every classifier of the paper's main table on every dataset."""
    return {name: {data: classifier_count(name, data) for data in TASKS} for name in CLASSIFIERS}


def peer_networks() -> dict[str, Count]:
    """The networks of other papers, with their default settings."""
    return {name: Count(count_parameters(name)) for name in PEERS}


def other_networks() -> dict[str, Count]:
    """The remaining networks of the paper, with their default settings."""
    counts = {}
    for name in list_models():
        if name not in CLASSIFIERS and name not in PEERS:
            count = count_parameters(name)
            printed = next(iter(printed_counts().get(name, {}).values()), None)
            counts[name] = Count(count, printed, "" if not printed or fits(count, printed) else "+")
    return counts
