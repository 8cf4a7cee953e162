"""Print a script that completes commands, flags and names in a shell.

    eval "$(clustercaps completion bash)"                       # in ~/.bashrc
    eval "$(clustercaps completion zsh)"                        # in ~/.zshrc, after compinit
    clustercaps completion fish > ~/.config/fish/completions/clustercaps.fish

The script is complete in itself: pressing Tab starts no Python.
"""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
mnist fashion-mnist fashion-mnist-mini cifar10 svhn smallnorb rendered-norb imagenet folder:
"""


@dataclass
class Words:
    """What can follow a command.

    Attributes:
        plain: Subcommands, names and flags.
        values: What can follow a flag; empty for any file.
        help: A short description of some of them.
    """

    plain: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    help: dict[str, str] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    from clustercaps.cli import build_parser

    commands = dict(walk(build_parser(), ()))
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](commands), end="")


def walk(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Words]]:
    """The words after every command and subcommand."""
    words = Words()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words.help |= {a.dest: a.help or "" for a in action._choices_actions}
            for name, inner in action.choices.items():
                words.plain.append(name)
                yield from walk(inner, (*path, name))
        elif action.option_strings:
            words.plain += action.option_strings
            words.help |= {o: (action.help or "").split(";")[0] for o in action.option_strings}
            if action.nargs != 0:
                known = list(action.choices or (DATASETS.split() if action.dest == "data" else ()))
                words.values |= {option: known for option in action.option_strings}
        else:
            words.plain += list(action.choices or names_of(action.dest, path))
    yield path, words


def names_of(argument: str, path: Sequence[str]) -> list[str]:
    """What a positional argument can be, if it is a name."""
    if argument == "model" or (argument == "name" and path[:1] == ("models",)):
        return MODELS.split()
    return DATASETS.split() if argument == "name" else []


def bash(commands: dict[tuple[str, ...], Words]) -> str:
    """A completion script for bash."""
    cases, after = [], []
    for path, words in commands.items():
        key = shlex.quote(" ".join(path))
        cases.append(f"    {key}) words={shlex.quote(' '.join(words.plain))} ;;")
        for option, values in words.values.items():
            place = shlex.quote(f"{' '.join(path)}|{option}")
            after.append(f"    {place}) words={shlex.quote(' '.join(values))}; files=1 ;;")
    names = " ".join(dict.fromkeys(name for path in commands for name in path))
    return BASH.format(names=f" {names} ", cases="\n".join(cases), after="\n".join(after))


def zsh(commands: dict[tuple[str, ...], Words]) -> str:
    """A completion script for zsh: that of bash, through its emulation."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash(commands)


def fish(commands: dict[tuple[str, ...], Words]) -> str:
    """A completion script for fish."""
    lines = []
    for path, words in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in path)
        inner = [p[-1] for p in commands if len(p) == len(path) + 1 and p[: len(path)] == path]
        fresh = f"not __fish_seen_subcommand_from {' '.join(inner)}" if inner else ""
        condition = "; and ".join(part for part in (seen, fresh) if part) or "true"
        for word in words.plain:
            about = words.help.get(word, "").replace("%%", "%")
            parts = ["complete -c clustercaps", f"-n {shlex.quote(condition)}"]
            if word.startswith("--"):
                parts.append(f"-l {word[2:]}")
            elif word.startswith("-"):
                parts.append(f"-s {word[1:]}")
            else:
                parts.append(f"-f -a {shlex.quote(word)}")
            if word in words.values:
                known = words.values[word]
                parts.append(f"-r -a {shlex.quote(' '.join(known))}" if known else "-r")
            if about:
                parts.append(f"-d {shlex.quote(about)}")
            lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


BASH = """\
_clustercaps() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local path="" words="" files="" word known={names!r}
  # "folder:" and "m1:" are one word.
  if declare -F __ltrim_colon_completions >/dev/null; then
    _get_comp_words_by_ref -n : cur prev 2>/dev/null && current=$cur before=$prev
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$known" in *" $word "*) path="${{path:+$path }}$word" ;; *) break ;; esac
  done
  case "$path" in
{cases}
  esac
  case "$path|$before" in
{after}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $files || $current != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$current"
  return 0
}}
complete -o filenames -F _clustercaps clustercaps
"""
