"""`clustercaps bench models`: whole networks."""

from clustercaps.bench.cases import Options
from clustercaps.bench.compare import MEMORY, compare
from clustercaps.bench.comparison_report import publish

MEASURES = ("forward", "training step", "one image", MEMORY)


def run(options: Options) -> None:
    """Time the networks, and print, store and plot the results."""
    cases = [options.case(model) for model in options.models]
    publish(compare(cases, MEASURES, options), MEASURES, options)
