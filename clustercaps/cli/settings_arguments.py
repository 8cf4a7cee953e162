"""The arguments that choose the settings of a run, for `train` and `lr-find`."""

import argparse
import dataclasses
import math
import typing
from pathlib import Path
from typing import Any

from clustercaps.training.settings import RECIPE_NAMES, TrainSettings, resolve
from clustercaps.utils.json_files import parse_json, read_json

# Settings without a flag of their own.
SPECIAL = ("model", "data", "recipe", "model_settings")
DEFAULT_DATA = "fashion-mnist-mini"


def add_network(parser: argparse.ArgumentParser) -> None:
    """Add network, dataset and recipe."""
    parser.add_argument("model", nargs="?", help="a name from `clustercaps models`")
    parser.add_argument(
        "--data",
        help="a name from `clustercaps data list`, or folder:PATH with one subfolder of images per "
        f"class (default: {DEFAULT_DATA})",
    )
    parser.add_argument(
        "--recipe",
        choices=list(RECIPE_NAMES),
        help="paper: as in the network's paper; fast: few epochs; strong: lowest error (default: "
        "fast for cluster routing, strong on folders; paper for others)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="JSON file with settings, such as settings.json of a run; flags override it",
    )
    parser.add_argument("--data-dir", help="folder with the official files of the dataset")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of the network, for example votes=8; can be repeated",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting that has no flag of its own."""
    settings = parser.add_argument_group("settings, which override the recipe")
    hints = typing.get_type_hints(TrainSettings)
    for each in dataclasses.fields(TrainSettings):
        if each.name in SPECIAL:
            continue
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": each.metadata["help"]}
        if hints[each.name] is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": hints[each.name], "metavar": hints[each.name].__name__.upper()}
        settings.add_argument(f"--{each.name.replace('_', '-')}", **options)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings whose flags were given."""
    return {
        each.name: getattr(arguments, each.name)
        for each in dataclasses.fields(TrainSettings)
        if each.name not in SPECIAL and hasattr(arguments, each.name)
    }


def chosen_settings(arguments: argparse.Namespace) -> TrainSettings:
    """The recipe with the settings of a file and the flags applied, in this order."""
    config = {} if arguments.config is None else read_json(arguments.config)
    for name in ("model", "data", "recipe"):
        if not isinstance(config.get(name, ""), str):
            raise ValueError(f"{arguments.config}: {name} must be text, got {config[name]!r}")
    model = config.pop("model", None)
    model = arguments.model or model
    if model is None:
        raise ValueError("name a model, for example `clustercaps train m1`, or --resume --out RUN")
    if arguments.recipe and "recipe" in config:
        raise ValueError(
            f"{arguments.config} has the settings of the recipe {config['recipe']!r}; remove "
            "--recipe or --config"
        )
    data = config.pop("data", DEFAULT_DATA)
    recipe, network = config.pop("recipe", arguments.recipe), config.pop("model_settings", {})
    if not isinstance(network, dict):
        raise ValueError(f"{arguments.config}: model_settings must be an object, got {network!r}")
    settings = {**config, **given_settings(arguments)}
    network = {**network, **network_arguments(arguments.set)}
    return resolve(model, arguments.data or data, recipe, model_settings=network, **settings)


def network_arguments(given: list[str]) -> dict[str, Any]:
    """The arguments of the network in `--set NAME=VALUE`."""
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--set expects NAME=VALUE, got {name!r}")
    return {name: plain(value) for name, _, value in pairs}


def plain(text: str) -> Any:
    """A value parsed as JSON, or the text itself."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not math.isfinite(number):
        raise ValueError(f"--set expects finite numbers, got {text}")
    try:
        return parse_json(text, "the value")
    except ValueError:
        return text
