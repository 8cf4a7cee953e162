"""`clustercaps bench layers`: the layers of a network, one by one."""

from dataclasses import replace

from clustercaps.bench.cases import Options, capsule_layers
from clustercaps.bench.compare import compare
from clustercaps.bench.comparison_report import publish

MEASURES = ("forward", "training step")


def run(options: Options) -> None:
    """Time the layers, and print, store and plot the results."""
    cases = [
        replace(case, layer=number)
        for case in map(options.case, options.models)
        for number in range(1, 1 + len(capsule_layers(case.network())))
    ]
    publish(compare(cases, MEASURES, options), MEASURES, options)
