"""Measure time and memory of networks and layers with every backend.

    clustercaps bench                              m1, m3 and s4 on this machine
    clustercaps bench --models m1 --official PATH  compare with the authors' released code
    clustercaps bench --all --compiled             every network, every backend
    clustercaps bench --models m1 --size 96 --batch 16
    clustercaps bench layers --models m3           its five layers, one by one
    clustercaps bench bounds                       every layer and pass against its lower bound
    clustercaps bench precision                    bfloat16 autocast against float32
    clustercaps bench waits                        short waits of threads, on a busy machine too
    clustercaps bench --device cuda                on a GPU, with the Triton layer; also layers
    clustercaps bench scaling                      how time grows with K, D, C, image and batch
    clustercaps bench epoch                        the kernel's share of an epoch of training
    clustercaps bench peers                        every capsule system, images as in its paper
    clustercaps bench peers --against COMMIT       and how much faster and smaller than it was then
    clustercaps bench spread                       whether the eps in the spread of votes matters
    clustercaps bench --quick                      tiny sizes, to check that it works (seconds)
    clustercaps bench --redraw results/bench-layers.csv  draw its figure again, without measuring

Every backend is first compared with the float64 reference on the shapes to be timed; if it is
wrong, nothing is timed and the exit code is 2. Candidates are interleaved and medians compared, so
ratios within one run are meaningful even on a noisy machine. docs/benchmarks.md explains what is
measured and how it is counted.
"""

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustercaps.utils.extras import require

if TYPE_CHECKING:
    import torch

WORDS = {
    "models": "whole networks",
    "layers": "single layers",
    "bounds": "time of every layer and pass against lower bounds",
    "precision": "bfloat16 autocast against float32, with the fused kernel",
    "waits": "short waits of threads against OpenMP's own, alone and on a busy machine",
    "scaling": "how time grows with K, D, C, image and batch",
    "epoch": "the kernel's share of an epoch of training",
    "peers": "every capsule system, on images of the size of its paper",
    "spread": "whether the eps in the spread of votes matters, for M1",
}
# Flags that a benchmark does not support: passing one is an error, since it would have no effect.
UNUSED = {
    "models": ("against",),
    "layers": ("official", "against"),
    "bounds": ("official", "against", "compiled", "device"),
    "precision": ("official", "against", "compiled", "device"),
    "waits": ("official", "against", "compiled", "device"),
    "scaling": ("official", "against", "device"),
    "epoch": ("official", "against", "compiled", "size", "in_chans", "rounds", "seconds", "device"),
    "peers": ("official", "compiled", "device"),
    "spread": (
        *("models", "all", "batch", "official", "against", "compiled", "size", "in_chans"),
        *("rounds", "seconds", "device"),
    ),
}
OUT = {"peers": "peers-bench.csv", "spread": "spread.csv"}
AGAINST_OUT = "peers-against.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to time, on which input, for how long, and where to write it."""
    parser.add_argument(
        "word",
        nargs="?",
        choices=list(WORDS),
        default="models",
        help="; ".join(f"{word}: {summary}" for word, summary in WORDS.items())
        + " (default: %(default)s)",
    )
    parser.add_argument(
        "--models", metavar="M1,S4", help="networks to measure (default: m1,m3,s4; scaling: m1)"
    )
    parser.add_argument("--all", action="store_true", help="m1 to m4 and s1 to s4")
    add_conditions(parser)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that it works")
    parser.add_argument(
        "--redraw",
        type=Path,
        nargs="+",
        metavar="CSV",
        help="only draw the figures of these files of bench models, layers, scaling or peers",
    )
    parser.add_argument(
        "--out", type=Path, help="CSV to write, with the figure next to it (default: in results/)"
    )


def add_conditions(parser: argparse.ArgumentParser) -> None:
    """Add the input, what to compare with, and how and where to measure."""
    parser.add_argument("--batch", type=int, help="batch size (default: 64)")
    parser.add_argument(
        "--size", type=int, help="height and width of the images (default: 32; peers: as published)"
    )
    parser.add_argument(
        "--in-chans", type=int, metavar="N", help="colour channels (default: 1 for m1, else 3)"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="also time the routing with torch.compile"
    )
    parser.add_argument(
        "--official",
        type=Path,
        metavar="PATH",
        help="also time the authors' released code from this checkout (M-variants only)",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT_OR_CSV",
        help="peers only: compare with a commit, interleaved, or with the CSV of another run",
    )
    parser.add_argument("--rounds", type=int, help="rounds per candidate (default: 7)")
    parser.add_argument("--seconds", type=float, help="minimum time per round (default: 0.3)")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="models, layers: where to measure: cpu, cuda, cuda:1, mps, ... (default: cpu)",
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")


def run(arguments: argparse.Namespace) -> None:
    """Run one benchmark."""
    require("train", "figures")
    from clustercaps.bench.cases import PAPER_MODELS, Options
    from clustercaps.models import list_models
    from clustercaps.utils.devices import pick_device
    from clustercaps.utils.errors import at_least, unknown
    from clustercaps.utils.paths import output_path

    if arguments.redraw:
        redraw_only(arguments)
        return
    refuse_unused(arguments)
    known = list_models() if arguments.word == "peers" else PAPER_MODELS
    chosen = chosen_models(arguments, PAPER_MODELS)
    for model in chosen:
        if model not in known:
            raise KeyError(unknown("model", model, known))
    quick = {"batch": 2, "size": 8, "rounds": 2, "seconds": 0.001} if arguments.quick else {}
    if arguments.word == "peers":
        from clustercaps.bench.peers import BATCH, ROUNDS

        quick = {"batch": BATCH, "rounds": ROUNDS, **quick}
    given = given_sizes(arguments)
    if arguments.threads is not None:
        import torch

        at_least("--threads", arguments.threads, 1)
        torch.set_num_threads(arguments.threads)
    device = pick_device(arguments.device or "cpu")
    out = arguments.out or Path("results") / file_name(arguments, device)
    output_path(out)
    for suffix in (".png", ".pdf"):
        output_path(out.with_suffix(suffix))
    options = Options(
        out=out,
        models=chosen,
        compiled=arguments.compiled,
        official=arguments.official,
        against=arguments.against,
        quick=arguments.quick,
        published_size=arguments.word == "peers" and arguments.size is None,
        device=device,
        **{**quick, **given},
    )
    import_module(f"clustercaps.bench.{arguments.word}").run(options)


def given_sizes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Input and length of the measurement, as far as flags give them."""
    from clustercaps.utils.errors import at_least

    names = ("batch", "size", "in_chans", "rounds", "seconds")
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name != "seconds":
            at_least(f"--{name.replace('_', '-')}", value, 1)
    return given


def file_name(arguments: argparse.Namespace, device: "torch.device") -> str:
    """The name of the CSV unless --out gives one."""
    if device.type != "cpu":
        layers = "-layers" if arguments.word == "layers" else ""
        return f"bench-{str(device).replace(':', '-')}{layers}.csv"
    if arguments.against:
        return AGAINST_OUT
    return OUT.get(arguments.word, f"bench-{arguments.word}.csv")


def redraw_only(arguments: argparse.Namespace) -> None:
    """Draw the figures of stored measurements."""
    from clustercaps.bench.figures import redraw

    ignored = {"redraw", "word", "command"}
    for name, value in vars(arguments).items():
        if name not in ignored and value not in (None, False) and not callable(value):
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect with --redraw, which measures nothing; "
                "remove one of them"
            )
    for path in redraw(arguments.redraw):
        print(path)


def refuse_unused(arguments: argparse.Namespace) -> None:
    """Raise an error for flags that would have no effect."""
    for name in UNUSED[arguments.word]:
        if getattr(arguments, name) not in (None, False):
            words = [word for word in WORDS if name not in UNUSED[word]]
            raise ValueError(
                f"--{name.replace('_', '-')} is not supported by bench {arguments.word}; "
                f"remove it, or run bench {' or '.join(words)}"
            )


def chosen_models(arguments: argparse.Namespace, every: tuple[str, ...]) -> tuple[str, ...]:
    """Networks selected by the flags, or the benchmark's default."""
    if arguments.models is not None and arguments.all:
        raise ValueError("--all and --models exclude each other; pass only one")
    if arguments.word == "scaling":
        if arguments.all or "," in (arguments.models or ""):
            raise ValueError("bench scaling takes one network, for example --models m1")
        return (arguments.models or "m1",)
    if arguments.all:
        return every
    if arguments.models is not None:
        return tuple(dict.fromkeys(arguments.models.split(",")))
    if arguments.word == "peers":
        return ()
    return (
        ("m1",) if arguments.quick or arguments.word in ("layers", "epoch") else ("m1", "m3", "s4")
    )
