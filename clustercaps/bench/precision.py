"""`clustercaps bench precision`: networks in float32 and under bfloat16 autocast.

Both use the fused kernel and take turns. A training step is forward, loss and backward, as `train
--precision bf16` runs them; the optimizer, which stays in float32, is not included. `difference` is
that of the logits before any training, relative to float32.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clustercaps.bench.cases import Case, Options, Workload, build, require_kernel
from clustercaps.bench.csv_output import write_csv
from clustercaps.bench.measure import Timing, show_timing, take_turns
from clustercaps.kernels.library import bfloat16_products
from clustercaps.utils.machine import machine
from clustercaps.utils.progress import StepBar
from clustercaps.utils.tables import text_table

COLUMNS = (
    *("model", "in_chans", "image_side", "batch", "measure", "float32_ms", "float32_iqr_ms"),
    *("bf16_ms", "bf16_iqr_ms", "measurements", "times_float32", "difference", "products"),
)
MEASURES = ("forward", "training step", "one image")
PRECISIONS = ("float32", "bf16")


class Autocast(nn.Module):
    """A network whose forward pass runs under bfloat16 autocast, or not; logits are float32."""

    def __init__(self, network: nn.Module, enabled: bool) -> None:
        super().__init__()
        self.network, self.enabled = network, enabled

    def forward(self, images: Tensor) -> Tensor:
        """Images to logits."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            logits: Tensor = self.network(images)
        return logits.float()


def run(options: Options) -> None:
    """Time every network in both precisions, and print and store the results."""
    require_kernel("precision")
    cases = [options.case(model) for model in options.models]
    works = {(case, name): in_precision(case, name) for case in cases for name in PRECISIONS}
    # Both precisions of a measure run directly after each other.
    functions = {
        (case, measure, name): works[case, name].calls()[measure]
        for case in cases
        for measure in MEASURES
        for name in PRECISIONS
    }
    with StepBar(len(functions) * options.rounds) as bar:
        timings = take_turns(functions, options.rounds, options.seconds, bar)
    told, products = machine(), bfloat16_products()[1]
    rows, shown = [], []
    for case in cases:
        changed = difference(*(works[case, name] for name in PRECISIONS))
        for measure in MEASURES:
            usual, short = (timings[case, measure, name] for name in PRECISIONS)
            ratio = usual.median / short.median
            rows.append([*row(case, measure, usual, short), ratio, changed, products])
            times = (show_timing(usual), show_timing(short))
            shown.append([case.name, measure, *times, f"{ratio:.2f}x", f"{changed:.1e}"])
    write_csv(options.out, COLUMNS, rows, told)
    print(
        f"{told['machine']}; torch {told['torch']}; commit {told['commit']}; batch {options.batch}"
    )
    print(f"products under bfloat16 autocast: {products}; medians in ms (interquartile range)\n")
    header = ["network", "measure", "float32", "bf16", "times float32", "difference"]
    print(f"{text_table(header, shown)}\n\n{options.out}")


def in_precision(case: Case, name: str) -> Workload:
    """The case with the fused kernel, in one of `PRECISIONS`."""
    work = build(case, "cpu")
    return Workload(Autocast(work.module, name == "bf16"), work.x, work.target)


@torch.no_grad()
def difference(usual: Workload, short: Workload) -> float:
    """The norm of the difference of the logits over their norm in float32."""
    logits = usual.module(usual.x)
    return ((short.module(short.x) - logits).norm() / logits.norm()).item()


def row(case: Case, measure: str, usual: Timing, short: Timing) -> list[Any]:
    """The columns up to the number of measurements."""
    times = (usual.median, usual.iqr, short.median, short.iqr)
    return [
        *(case.model, case.in_chans, case.size, case.batch, measure),
        *(1e3 * seconds for seconds in times),
        short.measurements,
    ]
