"""`clustercaps bench epoch`: the share of an epoch of real training spent inside the kernel.

The remainder is the rest of the network and its gradient, the optimizer, the data pipeline and
Python.
"""

import tempfile
from pathlib import Path

from clustercaps.bench.cases import Options, require_kernel
from clustercaps.bench.csv_output import write_csv
from clustercaps.kernels.library import kernel_seconds
from clustercaps.training.settings import resolve
from clustercaps.utils.machine import machine
from clustercaps.utils.tables import text_table

DATA, DATA_QUICK, IMAGES_QUICK = "fashion-mnist", "fashion-mnist-mini", 64
COLUMNS = (
    *("model", "data", "images", "batch", "seconds", "kernel_seconds", "kernel_percent"),
    *("forward_percent", "backward_percent"),
)


def run(options: Options) -> None:
    """Train every network for an epoch, and print and store the kernel's share of the time."""
    from clustercaps.training import train

    require_kernel("epoch")
    data = DATA_QUICK if options.quick else DATA
    limit = IMAGES_QUICK if options.quick else 0
    rows = []
    for name in options.models:
        settings = resolve(name, data, "paper", epochs=1, batch_size=options.batch, limit=limit)
        with tempfile.TemporaryDirectory() as folder, kernel_seconds() as spent:
            result = train(settings, Path(folder) / "run")
        seconds, inside = result["train_seconds"], spent["forward"] + spent["backward"]
        # Without inference, which is the test after the epoch.
        parts = (inside, spent["forward"], spent["backward"])
        shares = [100 * part / seconds for part in parts]
        images = result["train_images"]
        rows.append([name, data, images, settings.batch_size, seconds, inside, *shares])
    header = ["model", "data", "images", "seconds", "in the kernel", "forward", "backward"]
    shown = [
        [r[0], r[1], f"{r[2]:,}", f"{r[4]:.1f}", *(f"{share:.1f} %" for share in r[6:])]
        for r in rows
    ]
    print(text_table(header, shown))
    write_csv(options.out, COLUMNS, rows, machine())
    print(f"\n{options.out}")
