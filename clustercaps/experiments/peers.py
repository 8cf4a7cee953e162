"""Every capsule system on Fashion-MNIST, with equally many images or with equal training time.

Optimizer, peak learning rate and loss are those of each system; images, their size (32x32), their
order and the batch size are the same for all.

- `quick`: 2 epochs of the same 1,000 images. Estimate: 12 minutes on two cores, one run on each.
- `night`: all 60,000 images, and as many steps as fit into 20 minutes of one thread, with a test
  after every quarter. Estimate: 20 cells, 3.5 hours on two cores, one run on each.
- `full`: each system as its paper trains it, with its own image size and number of epochs. Weeks of
  a GPU: the released code of EM routing alone takes 2 million steps.

A run that stops when its time is up would not be reproducible, and its learning rate could not
decay: a schedule must know its last step. So `night` derives the number of images from `SECONDS`,
the measured speed of each system in the quick runs, and trains for that many whatever the speed of
the machine. On a machine that is twice as fast, every run takes half the time; what stays equal is
the time on one and the same machine. The table lists the time that was taken.
"""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustercaps.experiments.harness.cells import ONE_SEED, Cell, Experiment, Row
from clustercaps.experiments.harness.following import train_and_track
from clustercaps.experiments.harness.markdown import markdown_table
from clustercaps.experiments.harness.plots import curve_figure, line_figure
from clustercaps.experiments.harness.spread import Spread, first_rows, set_title, spreads
from clustercaps.experiments.harness.training_cells import training
from clustercaps.training.settings import resolve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One variant of every system; the others differ in size only. Seconds to train on 1,000 images in
# steps of 16 on one thread of an AMD EPYC (Zen 5), two runs side by side: results/peers-quick.csv.
SECONDS = {
    "m1": 0.95,
    "s1": 0.85,
    "capsnet_svhn": 2.05,
    "em_small": 16.35,
    "vb_small": 16.4,
    "frms_capsnet": 2.2,
    "frem_capsnet": 1.6,
    "hitnet": 16.35,
    "dcnet": 50.6,
    "dcnet3": 37.55,
    "ms_capsnet": 26.8,
    "maxmin_capsnet": 13.45,
    "kernel_capsnet": 11.8,
    "self_routing_1": 3.9,
    "ar_capsnet": 6.75,
    "star": 112,
    "heinsen_smallnorb": 2.417,
    "inverted_attention_resnet": 89.3,
    "efficient_capsnet": 2.4,
}
CLUSTER_ROUTING = ("m1", "s1")
# Minutes of a run, and its tests, at equal distances.
BATCH, MINUTES, TESTS = 16, 20, 4
# Networks that would take too long are made smaller, as `em_small` is.
SMALLER: dict[str, dict[str, Any]] = {"star": {"types": [16, 16, 16]}}
# Cells of the night budget that change a setting: the network and the changes. The initial
# thresholds of EM's authors leave about 3 in 100 capsules active, and short runs hardly train them.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "em_small-threshold-0": ("em_small", {"threshold": 0.0}),
}
QUICK_EPOCHS = 2
# Its warm-up is so slow that two epochs of few images have no effect.
LONGER = {"heinsen_smallnorb": 12}
TRAIN_IMAGES = 60_000


def cells(budget: str) -> list[Cell]:
    """One training run per system."""
    if budget == "full":
        return [training(name, name, "fashion-mnist", "paper") for name in SECONDS]
    if budget == "night":
        runs = {name: (name, night(name)) for name in SECONDS}
        for id, (name, changes) in VARIANTS.items():
            runs[id] = name, {**night(name), "model_settings": changes}
        return [
            training(id, name, "fashion-mnist", "fast", train_and_track, **settings)
            for id, (name, settings) in runs.items()
        ]
    data = "fashion-mnist-mini"
    if budget == "smoke":
        few = {"epochs": 1, "limit": 32}
        return [
            training(name, name, data, "fast", **{**quick(name), **few})
            for name in ("m1", "frms_capsnet")
        ]
    return [training(name, name, data, "fast", **quick(name)) for name in SECONDS]


def quick(name: str) -> dict[str, Any]:
    """Settings of a run of equally many images."""
    epochs = LONGER.get(name, QUICK_EPOCHS)
    return {"epochs": epochs, "limit": 1000, "test_every": epochs, **same_for_all(name)}


def night(name: str) -> dict[str, Any]:
    """Settings of a run of equal time: cosine decay for all, since its length is our choice.

    The images are augmented for all, also where the system's own recipe does not.
    """
    images = 60 * MINUTES / SECONDS[name] * 1000
    epochs = TESTS * math.ceil(images / TRAIN_IMAGES / TESTS)
    usual = resolve(name, "fashion-mnist", "fast")
    return {
        "epochs": epochs,
        "epoch_images": round(images / epochs / BATCH) * BATCH,
        "test_every": epochs // TESTS,
        "schedule": "cosine",
        "augment": True,
        "step_decay": 0.0,
        "warmup_epochs": usual.warmup_epochs * epochs / usual.epochs,
        **same_for_all(name),
    }


def same_for_all(name: str) -> dict[str, Any]:
    """Batch and image size, and the settings of networks that are made smaller."""
    return {"batch_size": BATCH, "img_size": 32, "model_settings": SMALLER.get(name, {})}


def images_seen(row: Row) -> int:
    """Training images of a run, counted once per epoch."""
    return row["epochs"] * (json.loads(row["settings"])["epoch_images"] or row["train_images"])


def table(rows: Sequence[Row], _: str) -> str:
    """One line per system."""
    columns = ("test_error", "train_error", "train_seconds")
    errors, train, seconds = (spreads(rows, column) for column in columns)
    lines = [
        [
            id,
            f"{row['parameters']:,}",
            row_settings(row),
            f"{images_seen(row):,}",
            f"{seconds[id].mean:.0f} s",
            str(errors[id]),
            str(train[id]),
        ]
        for id, row in in_order(rows).items()
    ]
    header = ["system", "parameters", "settings", "training images seen", "training time"]
    return markdown_table([*header, "test error %", "training error %"], lines)


def row_settings(row: Row) -> str:
    """Settings of the network that are not those of its preset."""
    changed = json.loads(row["settings"])["model_settings"]
    return ", ".join(f"`{name} {value}`" for name, value in changed.items())


def in_order(rows: Sequence[Row]) -> dict[str, Row]:
    """A row of every system, in the order of `SECONDS`, then `VARIANTS`."""
    found = first_rows(rows)
    return {id: found[id] for id in (*SECONDS, *VARIANTS) if id in found}


def figure(rows: Sequence[Row], budget: str) -> "Figure":
    """Test error over time at night, otherwise that of every system on a line of its own."""
    if budget == "night":
        curves = {id: curve(row) for id, row in in_order(rows).items()}
        xlabel = "minutes of training on one thread"
        return curve_figure(curves, CLUSTER_ROUTING, set_title(rows[0]), xlabel)
    errors, systems = spreads(rows), list(in_order(rows))
    groups: dict[str, dict[str, Spread]] = {}
    for id in systems:
        name = "cluster routing" if id in CLUSTER_ROUTING else "other routings"
        groups.setdefault(name, {})[id] = errors[id]
    xlabel = f"test error (%), {'own recipes' if budget == 'full' else 'short runs'}"
    return line_figure(groups, systems, set_title(rows[0]), xlabel)


def curve(row: Row) -> tuple[list[float], list[float]]:
    """Minutes and errors of the tests of a run."""
    seconds, errors = (
        [float(number) for number in str(row[name]).split()]
        for name in ("seconds_curve", "error_curve")
    )
    return [second / 60 for second in seconds], errors


EXPERIMENT = Experiment(
    title="All capsule systems",
    cells=cells,
    table=table,
    figure=figure,
    seeds=ONE_SEED,
    notes="""\
This experiment is not in the paper. It shows that every system learns and what its training costs;
short runs of one seed do not rank systems. Each has the optimizer, peak learning rate and loss of
its own paper, which were chosen for much longer runs; those of M1 and S1 were chosen for short
ones. In the quick budget, Heinsen's network gets 12 epochs because its recipe starts slowly. EM, VB
and STAR are small variants. EM's recipe is that of its authors' code, whose initial thresholds
leave about 3 in 100 capsules active: it learns slowly at first. The row with threshold 0, which
starts with half of them active, was added after that of the recipe had been seen. In the night
budget, every learning rate decays by a cosine, and the number of images follows from the speeds
measured in the quick runs. A run is shown by its last test; earlier ones are at higher learning
rates, so they are not what a shorter run would reach. Other work on the machine stretched some
runs; their images are those of 20 quiet minutes.""",
)
