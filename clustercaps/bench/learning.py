"""`clustercaps bench learning`: what every capsule system learns in a short run on real images.

All use the same images, order and batch size, and the same number of epochs with one exception;
optimizer, loss and schedule are those of each system. This is far too short to rank them: it shows
that they learn, and what an epoch costs.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustercaps.bench.cases import Options
from clustercaps.bench.csv_output import write_csv
from clustercaps.training.settings import TrainSettings, resolve
from clustercaps.utils.plotting import COLOURS, new_figure, save
from clustercaps.utils.tables import text_table

DATA, IMAGES, EPOCHS, BATCH = "fashion-mnist-mini", 1000, 2, 16
# One variant of every system; the others differ only in size.
SYSTEMS = (
    *("m1", "s1", "capsnet_svhn", "em_small", "vb_small", "frms_capsnet", "frem_capsnet", "hitnet"),
    *("dcnet", "dcnet3", "ms_capsnet", "maxmin_capsnet", "kernel_capsnet"),
    *("self_routing_1", "ar_capsnet", "star", "heinsen_smallnorb", "inverted_attention_resnet"),
    "efficient_capsnet",
)
# Networks that would take too long are made smaller, like `em_small`.
SMALLER: dict[str, dict[str, Any]] = {"star": {"types": [16, 16, 16]}}
# Its recipe starts so slowly that it learns nothing in two epochs of few images.
LONGER = {"heinsen_smallnorb": 12}
COLUMNS = (
    *("model", "settings", "data", "train_images", "epochs", "batch", "seed", "parameters"),
    *("optimizer", "lr", "test_error", "test_images", "train_error", "seconds_per_epoch"),
)


def run(options: Options) -> None:
    """Train what is not trained yet, then print, store and plot all results."""
    from clustercaps.training import train
    from clustercaps.training.run_folder import RunFolder

    rows, results = [], []
    for name in options.models or SYSTEMS:
        settings = short_run(name)
        folder = Path("runs") / "learning" / name
        result = train(settings, folder, resume=folder.exists())
        last = RunFolder(folder).metrics()[-1]
        results.append(result)
        rows.append(
            [
                *(name, json.dumps(settings.model_settings) if settings.model_settings else ""),
                *(DATA, result["train_images"], settings.epochs, BATCH, settings.seed),
                *(result["parameters"], settings.optimizer, settings.lr),
                *(result["test_error"], result["test_images"], last["train_error"]),
                result["train_seconds"] / settings.epochs,
            ]
        )
        publish(rows, results, options.out)


def short_run(name: str) -> TrainSettings:
    """The recipe of the system, on few images for few epochs."""
    usual = resolve(name, DATA, "fast")
    epochs = LONGER.get(name, EPOCHS)
    changes: dict[str, Any] = {"epochs": epochs, "limit": IMAGES, "batch_size": BATCH}
    if usual.warmup_epochs >= EPOCHS:
        changes["warmup_epochs"] = usual.warmup_epochs * EPOCHS / usual.epochs
    if name in SMALLER:
        changes["model_settings"] = SMALLER[name]
    return resolve(name, DATA, "fast", test_every=epochs, **changes)


def publish(rows: Sequence[list[Any]], results: Sequence[dict[str, Any]], out: Path) -> None:
    """Write table, CSV and figure, updated after every system."""
    told = [
        {key: result[key] for key in ("machine", "python", "torch", "clustercaps", "commit")}
        for result in results
    ]
    write_csv(
        out, (*COLUMNS, *told[0]), [[*r, *t.values()] for r, t in zip(rows, told, strict=True)], {}
    )
    header = ["model", "parameters", "test error %", "train error %", "seconds per epoch"]
    shown = [[r[0], f"{r[7]:,}", f"{r[10]:.2f}", f"{r[12]:.2f}", f"{r[13]:.1f}"] for r in rows]
    print(text_table(header, shown), flush=True)
    figure = new_figure(5, 0.2 * len(rows) + 1.2)
    ax = figure.subplots()
    places = range(len(rows), 0, -1)
    names = [row[0] + (" *" if row[0] in LONGER else "") for row in rows]
    ax.plot([row[10] for row in rows], list(places), "o", ms=5, color=COLOURS[0])
    ax.set_yticks(list(places), names, fontsize=7)
    ax.set_xlabel(
        f"test error (%) after {EPOCHS} epochs (* more) of {IMAGES:,} images, one seed", fontsize=8
    )
    ax.set_xlim(0, 100)
    ax.axvline(90, color="grey", lw=0.8, ls=":")
    ax.grid(axis="x", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    save(figure, out.with_suffix(".png"))
