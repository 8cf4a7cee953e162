"""What a model card says about the run of a network."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustercaps import data
from clustercaps.models import get_preset
from clustercaps.training.settings import TrainSettings, resolve


def card_facts(settings: TrainSettings, result: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of `model_card`: the result, the command, the paper, and the terms of the dataset.

    Paths on this machine are reduced to their last part: cards are for others.
    """
    shown = replace(settings, data=_public(settings.data), init_from=_public(settings.init_from))
    known = data.SETS.get(settings.data)
    facts = {**result, "data": shown.data, "command": command_of(shown)}
    if "init_from" in result:
        facts["init_from"] = shown.init_from
    facts["paper"] = get_preset(settings.model).paper
    return {**facts, "data_licence": known.licence if known else ""}


def command_of(settings: TrainSettings) -> str:
    """The command that reproduces a run."""
    usual = resolve(settings.model, settings.data, settings.recipe)
    words = [f"clustercaps train {settings.model} --data {settings.data}"]
    words.append(f"--recipe {settings.recipe} --seed {settings.seed}")
    for name, value in vars(replace(settings, test_every=usual.test_every)).items():
        if value != getattr(usual, name) and name not in ("seed", "model_settings"):
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{flag}")
            else:
                words.append(f"--{flag} {value}")
    words += [f"--set {name}={value}" for name, value in settings.model_settings.items()]
    return " ".join(words)


def _public(name: str) -> str:
    """A dataset or the name of weights, without the folders of this machine."""
    if name.startswith("folder:"):
        return f"folder:{Path(name.removeprefix('folder:')).name}"
    return Path(name).name if Path(name).exists() else name
