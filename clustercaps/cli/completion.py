"""Print a script that completes commands, flags and names in a shell.

    eval "$(clustercaps completion bash)"                       # in ~/.bashrc
    eval "$(clustercaps completion zsh)"                        # in ~/.zshrc, after compinit
    clustercaps completion fish > ~/.config/fish/completions/clustercaps.fish

The script is complete in itself: pressing Tab starts no Python.
"""

import argparse
from collections.abc import Iterator, Sequence

from clustercaps.cli.completion_scripts import SHELLS, Words

# A copy, because the registries import torch, which takes seconds; a test compares them.
MODELS = """
m1 m2 m3 m4 s1 s2 s3 s4 baseline_cnn viewpoint_cnn imagenet_m4 affine_capsules affine_cnn
class_capsules capsnet capsnet_cifar10 capsnet_smallnorb capsnet_svhn em_smallnorb em_small
em_cifar10 em_mnist vb_smallnorb vb_small vb_large frms_capsnet frem_capsnet hitnet dcnet dcnet3
ms_capsnet ms_capsnet_28 nair maxmin_capsnet kernel_capsnet self_routing_1 self_routing_2
ar_capsnet ar_capsnet_cifar10 star star_cifar10 heinsen_smallnorb inverted_attention
inverted_attention_resnet efficient_capsnet efficient_capsnet_smallnorb
"""
DATASETS = """
mnist fashion-mnist fashion-mnist-mini cifar10 svhn smallnorb rendered-norb rendered-norb-25
imagenet folder:
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=list(SHELLS))


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    from clustercaps.cli import build_parser

    print(SHELLS[arguments.shell](dict(walk(build_parser(), ()))), end="")


def walk(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Words]]:
    """The words after every command and subcommand."""
    words = Words()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words.help |= {a.dest: a.help or "" for a in action._choices_actions}
            for name, inner in action.choices.items():
                words.names.append(name)
                yield from walk(inner, (*path, name))
        elif action.option_strings:
            words.flags += action.option_strings
            words.help |= dict.fromkeys(action.option_strings, about(parser, action))
            if action.nargs != 0:
                known = list(action.choices or (DATASETS.split() if action.dest == "data" else ()))
                words.values |= dict.fromkeys(action.option_strings, known)
        else:
            known = list(action.choices or names_of(action.dest, path))
            words.names += known
            words.files |= not known
    yield path, words


def about(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The first part of a flag's help, as `--help` shows it."""
    if action.help is None:
        return ""
    # It fills in the default.
    return parser._get_formatter()._expand_help(action).split(";")[0]


def names_of(argument: str, path: Sequence[str]) -> list[str]:
    """What a positional argument can be, if it is a name."""
    if argument == "model" or (argument == "name" and path[:1] == ("models",)):
        return MODELS.split()
    return DATASETS.split() if argument == "name" else []
