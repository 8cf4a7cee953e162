"""Time and memory of the networks, for every way to compute them.

    clustercaps bench                              m1, m3 and s4 on this machine
    clustercaps bench --models m1 --official PATH  beside the authors' code, from your checkout
    clustercaps bench --all --compiled             every network, every backend
    clustercaps bench --models m1 --size 96 --batch 16
    clustercaps bench layers --models m3           its five layers, one by one
    clustercaps bench scaling                      how time grows with K, D, C, image and batch
    clustercaps bench epoch                        the kernel's share of an epoch of training
    clustercaps bench peers                        every capsule system on the same images
    clustercaps bench learning                     what each learns in a short run, resumable
    clustercaps bench --quick                      does it work at all? seconds, tiny sizes

Every fast path is first compared with the float64 reference on the shapes that are then timed; if
it is wrong, nothing is timed and the exit code is 2. Candidates take turns and medians are
compared, so ratios of one run mean something even on a noisy machine. docs/benchmarks.md says what
is measured and how it is counted.
"""

import argparse
from pathlib import Path

WORDS = {
    "models": "whole networks",
    "layers": "their layers, one by one",
    "scaling": "how time grows with K, D, C, image and batch",
    "epoch": "the kernel's share of an epoch of training",
    "peers": "every capsule system on the same images",
    "learning": "a short run of every system on real images",
}
# About networks of all papers, whose names they take.
ABOUT_ALL = ("peers", "learning")
# What a word has no use for: giving it is an error, since it would change nothing.
UNUSED = {
    "models": (),
    "layers": ("official",),
    "scaling": ("official",),
    "epoch": ("official", "compiled", "size", "in_chans", "rounds", "seconds"),
    "peers": ("official", "compiled"),
    "learning": ("official", "compiled", "batch", "size", "in_chans", "rounds", "seconds"),
}
OUT = {"peers": "peers-bench.csv", "learning": "peers-fashion-mnist-mini.csv"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to time, on what, for how long, and where it goes."""
    parser.add_argument(
        "word",
        nargs="?",
        choices=list(WORDS),
        default="models",
        help="; ".join(f"{word}: {summary}" for word, summary in WORDS.items())
        + " (default: %(default)s)",
    )
    parser.add_argument(
        "--models", metavar="M1,S4", help="networks (default: m1,m3,s4; for scaling: m1)"
    )
    parser.add_argument("--all", action="store_true", help="m1 to m4 and s1 to s4")
    parser.add_argument("--batch", type=int, help="images at once (default: 64)")
    parser.add_argument("--size", type=int, help="height and width of the images (default: 32)")
    parser.add_argument(
        "--in-chans", type=int, metavar="N", help="colours (default: 1 for m1, 3 otherwise)"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="also time torch.compile of the routing"
    )
    parser.add_argument(
        "--official", type=Path, metavar="PATH", help="checkout of the authors' code, M-variants"
    )
    parser.add_argument("--rounds", type=int, help="turns of each candidate (default: 7)")
    parser.add_argument("--seconds", type=float, help="of a turn, at least (default: 0.3)")
    parser.add_argument("--threads", type=int, help="for torch (default: as torch chooses)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument(
        "--out", type=Path, help="CSV; the figure goes beside it (default: in results/)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run one benchmark."""
    from importlib import import_module

    from clustercaps.bench.cases import PAPER_MODELS, Options
    from clustercaps.models import list_models
    from clustercaps.utils.errors import at_least, unknown

    refuse_unused(arguments)
    known = list_models() if arguments.word in ABOUT_ALL else PAPER_MODELS
    chosen = chosen_models(arguments, PAPER_MODELS)
    for model in chosen:
        if model not in known:
            raise KeyError(unknown("model", model, known))
    quick = {"batch": 2, "size": 8, "rounds": 2, "seconds": 0.001} if arguments.quick else {}
    if arguments.word == "peers":
        from clustercaps.bench.peers import BATCH, ROUNDS

        quick = {"batch": BATCH, "rounds": ROUNDS, **quick, "size": 32}
    names = ("batch", "size", "in_chans", "rounds", "seconds")
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("batch", "size", "in_chans", "rounds"):
        if name in given:
            at_least(f"--{name.replace('_', '-')}", given[name], 1)
    if arguments.threads is not None:
        import torch

        at_least("--threads", arguments.threads, 1)
        torch.set_num_threads(arguments.threads)
    options = Options(
        out=arguments.out
        or Path("results") / OUT.get(arguments.word, f"bench-{arguments.word}.csv"),
        models=chosen,
        compiled=arguments.compiled,
        official=arguments.official,
        quick=arguments.quick,
        **{**quick, **given},
    )
    import_module(f"clustercaps.bench.{arguments.word}").run(options)


def refuse_unused(arguments: argparse.Namespace) -> None:
    """Say so when a flag would change nothing."""
    for name in UNUSED[arguments.word]:
        if getattr(arguments, name) not in (None, False):
            words = [word for word in WORDS if name not in UNUSED[word]]
            raise ValueError(
                f"bench {arguments.word} has no use for --{name.replace('_', '-')}; "
                f"leave it out, or run bench {' or '.join(words)}"
            )


def chosen_models(arguments: argparse.Namespace, every: tuple[str, ...]) -> tuple[str, ...]:
    """The networks that the flags name, or those of the word."""
    if arguments.models is not None and arguments.all:
        raise ValueError("--all takes every network, --models some; give one of them")
    if arguments.word == "scaling":
        if arguments.all or "," in (arguments.models or ""):
            raise ValueError("scaling is about one network, such as --models m1")
        return (arguments.models or "m1",)
    if arguments.all:
        return every
    if arguments.models is not None:
        return tuple(dict.fromkeys(arguments.models.split(",")))
    if arguments.word in ABOUT_ALL:
        return ()
    return (
        ("m1",) if arguments.quick or arguments.word in ("layers", "epoch") else ("m1", "m3", "s4")
    )
