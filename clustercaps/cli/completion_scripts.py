"""The scripts of `clustercaps completion`, one function per shell."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Words:
    """What can follow a command.

    Attributes:
        names: Subcommands, networks, datasets.
        flags: Flags.
        values: What can follow a flag; empty for any file.
        help: A short description of some of them.
        files: Whether a file can follow.
    """

    names: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    help: dict[str, str] = field(default_factory=dict)
    files: bool = False


Commands = dict[tuple[str, ...], Words]


def known_paths(commands: Commands) -> str:
    """All commands and subcommands between bars: |train|data|data show|."""
    return "|" + "|".join(" ".join(path) for path in commands if path) + "|"


def bash(commands: Commands) -> str:
    """A completion script for bash."""
    cases, after = [], []
    for path, words in commands.items():
        key, files = shlex.quote(" ".join(path)), int(words.files)
        plain = shlex.quote(" ".join([*words.names, *words.flags]))
        cases.append(f"    {key}) words={plain}; files={files} ;;")
        for option, values in words.values.items():
            place, known = shlex.quote(f"{' '.join(path)}|{option}"), shlex.quote(" ".join(values))
            after.append(f"    {place}) words={known}; files={int(not values)} ;;")
    return BASH.format(
        known=shlex.quote(known_paths(commands)), cases="\n".join(cases), after="\n".join(after)
    )


def zsh(commands: Commands) -> str:
    """A completion script for zsh."""
    cases, after = [], []

    def described(words: Words, which: list[str]) -> str:
        """Quoted WORD:DESCRIPTION, as _describe takes them."""
        texts = []
        for word in which:
            about = words.help.get(word, "")
            texts.append(word.replace(":", r"\:") + (f":{about}" if about else ""))
        return " ".join(map(shlex.quote, texts))

    for path, words in commands.items():
        key, names = shlex.quote(" ".join(path)), described(words, words.names)
        flags = described(words, words.flags)
        cases.append(f"    {key}) names=({names}); flags=({flags}); files={int(words.files)} ;;")
        for option, values in words.values.items():
            place = shlex.quote(f"{' '.join(path)}|{option}")
            known = " ".join(shlex.quote(value.replace(":", r"\:")) for value in values)
            after.append(f"    {place}) names=({known}); flags=(); files={int(not values)} ;;")
    return ZSH.format(
        known=shlex.quote(known_paths(commands)), cases="\n".join(cases), after="\n".join(after)
    )


def fish(commands: Commands) -> str:
    """A completion script for fish."""
    lines = [FISH]
    for path, words in commands.items():
        inner = any(len(other) > len(path) and other[: len(path)] == path for other in commands)
        where = " ".join(["__clustercaps_after", str(int(inner)), "clustercaps", *path])
        start = f"complete -c clustercaps -n {shlex.quote(where)}"
        if not words.files:
            lines.append(f"{start} -f")
        for word in [*words.names, *words.flags]:
            if word.startswith("--"):
                line = f"{start} -l {word[2:]}"
            elif word.startswith("-"):
                line = f"{start} -s {word[1:]}"
            else:
                line = f"{start} -a {shlex.quote(word)}"
            if word in words.values:
                known = words.values[word]
                # Exclusive: only these; otherwise any file.
                line += f" -x -a {shlex.quote(' '.join(known))}" if known else " -r -F"
            if words.help.get(word):
                line += f" -d {quote_for_fish(words.help[word])}"
            lines.append(line)
    return "\n".join(lines) + "\n"


def quote_for_fish(text: str) -> str:
    """Text between single quotes, in which fish knows two escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS: dict[str, Callable[[Commands], str]] = {"bash": bash, "zsh": zsh, "fish": fish}

BASH = """\
_clustercaps() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local path="" words="" files=0 word cur prev known={known}
  # "folder:" and "m1:" are one word.
  if declare -F __ltrim_colon_completions >/dev/null; then
    _get_comp_words_by_ref -n : cur prev 2>/dev/null && current=$cur before=$prev
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$known" in *"|${{path:+$path }}$word|"*) path="${{path:+$path }}$word" ;; *) break ;; esac
  done
  case "$path" in
{cases}
  esac
  case "$path|$before" in
{after}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files = 1 && $current != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$current"
  return 0
}}
complete -o filenames -F _clustercaps clustercaps
"""

# Not called `path`: zsh ties that name to PATH.
ZSH = """\
#compdef clustercaps
_clustercaps() {{
  local command="" files=0 word known={known}
  local -a names flags
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$known" in
      *"|${{command:+$command }}$word|"*) command="${{command:+$command }}$word" ;;
      *) break ;;
    esac
  done
  case "$command" in
{cases}
  esac
  case "$command|${{words[CURRENT-1]}}" in
{after}
  esac
  if (( ${{names[(Ie)folder\\\\:]}} )) && compset -P 'folder:'; then
    _files -/
    return
  fi
  local found=1
  if [[ $PREFIX = -* ]]; then
    _describe -o option flags && found=0
    return found
  fi
  (( $#names )) && _describe name names && found=0
  (( files )) && _files && found=0
  return found
}}
if [[ $funcstack[1] = _clustercaps ]]; then
  _clustercaps "$@"
else
  compdef _clustercaps clustercaps
fi
"""

FISH = """\
# Whether the line starts with these words; first argument 1: and has no others yet.
function __clustercaps_after
    set -l typed clustercaps (commandline -opc)[2..-1]
    set -l wanted $argv[2..-1]
    set -l count (count $wanted)
    test "$typed[1..$count]" = "$wanted"; or return 1
    test $argv[1] = 0; or test (count $typed) -eq $count
end
"""
