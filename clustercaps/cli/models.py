"""List every registered network, or print the card of one.

    clustercaps models                  all networks, with their parameters
    clustercaps models capsnet          one network: paper, settings, parameters, recipes, memory
    clustercaps models --pretrained     weights inside the package

In the list, the count printed in the paper follows in brackets; a mark means that it does not match
the network. A card says what the paper leaves open, and ends with an estimate of the memory that a
training step needs, which takes some seconds for large networks.
"""

import argparse
import json
from textwrap import fill, indent, wrap
from typing import TYPE_CHECKING, Any

from clustercaps.cli.json_output import add_json, json_document

if TYPE_CHECKING:
    from clustercaps.models import Preset

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the network, if only one is wanted."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this network's card")
    parser.add_argument("--pretrained", action="store_true", help="list the packaged weights")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the list or the card."""
    if arguments.json:
        from clustercaps.cli.models_json import document

        with json_document(True) as write:
            write(document(arguments.name, arguments.pretrained))
    elif arguments.pretrained:
        print_pretrained()
    elif arguments.name is None:
        print_list()
    else:
        print_card(arguments.name)


def print_pretrained() -> None:
    """All packaged weights: how they were trained, and their test error."""
    from clustercaps.models.packaged import list_pretrained, pretrained_folder
    from clustercaps.utils.tables import text_table

    rows = []
    for name in list_pretrained():
        model, _, data = name.partition(":")
        result = json.loads((pretrained_folder(model, data) / "result.json").read_text("utf-8"))
        error = f"{result['test_error']:.2f} % of {result['test_images']:,}"
        trained = f"{result['recipe']}, {result['epochs']} epochs, seed {result['seed']}"
        rows.append([name, f"{result['parameters']:,}", error, trained])
    print(text_table(["weights", "parameters", "test error", "trained with"], rows))
    print(
        "\nLoad them with cc.create_model(MODEL, pretrained=DATA), or give MODEL:DATA to evaluate"
    )
    print("and predict. The card of each, README.md beside its weights, says how to reproduce it.")


def print_list() -> None:
    """All networks in tables, and the notes."""
    from clustercaps.experiments.harness import counts
    from clustercaps.models import get_preset
    from clustercaps.utils.tables import text_table

    rows = [
        [name, *(str(count) for count in row.values()), get_preset(name).summary]
        for name, row in counts.classifier_table().items()
    ]
    print("Classifiers: parameters on each dataset (in brackets: as printed in the paper)\n")
    print(text_table(["model", *counts.TASKS, "description"], rows))
    others = [
        [name, str(count), images(name), get_preset(name).summary]
        for name, count in counts.other_networks().items()
    ]
    print("\nOther networks, with their default settings\n")
    print(text_table(["model", "parameters", "images", "description"], others))
    peers = [
        [name, str(count), images(name), get_preset(name).summary + marked(name)]
        for name, count in counts.peer_networks().items()
    ]
    print("\nNetworks from other papers, with their default settings\n")
    print(text_table(["model", "parameters", "images", "description"], peers))
    print()
    for mark, note in counts.NOTES.items():
        print(f"{mark} {note}")
    print("  The paper calls affine_capsules C4K4D32; only C4 K8 D4 has the counts it prints.")
    print("  [reconstruction]: the paper or its code leaves parts open, which we filled in.")
    print("\n`clustercaps models NAME` prints the card of one network.")


def images(name: str) -> str:
    """The image size that a network was designed for."""
    from clustercaps.models import get_preset
    from clustercaps.utils.sizes import show_size

    return show_size(get_preset(name).img_size)


def marked(name: str) -> str:
    """A mark for networks that are reconstructions."""
    from clustercaps.models import get_preset

    return " [reconstruction]" if get_preset(name).reconstruction else ""


def print_card(name: str) -> None:
    """Everything about one network; the estimate of its memory last, since it can take seconds."""
    from clustercaps.models import get_preset, list_pretrained
    from clustercaps.utils.sizes import show_size

    preset = get_preset(name)
    published = [f"{data} at {show_size(preset.size_for(data))}" for data in preset.data]
    print(f"{name}: {preset.summary}\n")
    about = {"paper": preset.paper, "published on": ", ".join(published)}
    if preset.reconstruction:
        about["reconstruction"] = (
            "yes: paper or code leave parts open; no published number is claimed"
        )
    if preset.choices:
        about["open points"] = preset.choices
    about["class"] = f"cc.models.{preset.network.__name__}"
    about["build"] = f'cc.create_model("{name}", num_classes=10)'
    weights = [each.partition(":") for each in list_pretrained()]
    loads = [
        f'cc.create_model("{name}", pretrained="{data}")' for m, _, data in weights if m == name
    ]
    if loads:
        about["trained weights"] = ", ".join(loads)
    about["train"] = f"clustercaps train {name} --data {preset.data[0]}"
    for label, text in about.items():
        print(fill(f"{label:<16}{text}", WIDTH, subsequent_indent=" " * 16))
    print("\nSettings (* not the default of the class). The first three follow from the data;")
    print("`clustercaps train --set NAME=VALUE` changes the others.\n")
    print(indent(settings_table(preset), "  "))
    print("\nParameters\n")
    print(indent(parameter_table(name, preset), "  "))
    print("\nRecipes (* used by default; change a setting with a flag such as --lr)\n")
    print(indent(recipe_table(preset), "  "), flush=True)
    print(f"\n{fill(memory_line(name, preset), WIDTH)}")


def settings_table(preset: "Preset") -> str:
    """Every argument of the network's class, with its value and its description."""
    import inspect

    from clustercaps.utils.tables import text_table

    described = argument_docs(preset.network)
    changed = {"img_size": preset.img_size, **preset.settings}
    rows = []
    for argument in inspect.signature(preset.network).parameters.values():
        value = changed.get(argument.name, argument.default)
        mark = "*" if value != argument.default else ""
        rows.append([argument.name + mark, plain(value), described.get(argument.name, "")])
    used = sum(max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    lines = []
    for name, value, text in rows:
        first, *rest = wrap(text, max(40, WIDTH - 2 - used)) or [""]
        lines += [[name, value, first], *(["", "", line] for line in rest)]
    return text_table(["setting", "value", "description"], lines)


def argument_docs(network: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say about each argument."""
    import inspect

    described: dict[str, str] = {}
    for base in reversed(network.__mro__):
        if base.__module__.startswith("clustercaps."):
            described |= described_arguments(inspect.cleandoc(base.__doc__ or ""))
    return described


def described_arguments(docstring: str) -> dict[str, str]:
    """What the `Args:` of a docstring say about each argument."""
    described: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Args:\n")[2].splitlines():
        # A line that is indented further goes on with the argument before it.
        if line.startswith(" " * 8):
            described[name] += " " + line.strip()
        elif ": " in line:
            name, _, text = line.strip().partition(": ")
            described[name] = text
    return {name: text.removesuffix(".") for name, text in described.items()}


def parameter_table(name: str, preset: "Preset") -> str:
    """Parameters on every dataset, those of the paper first."""
    from clustercaps.data.catalogue import SETS
    from clustercaps.models import count_parameters
    from clustercaps.utils.tables import text_table

    others = [data for data, known in SETS.items() if not known.stands_for]
    rows = []
    for data in dict.fromkeys([*preset.data, *others]):
        task = task_of(preset, data)
        chans, side = task["in_chans"], task["img_size"]
        count = f"{count_parameters(name, **task):,}"
        published = "yes" if data in preset.data else ""
        rows.append([data, f"{chans}x{side}x{side}", str(task["num_classes"]), count, published])
    return text_table(["dataset", "images", "classes", "parameters", "in the paper"], rows)


def task_of(preset: "Preset", data: str) -> dict[str, Any]:
    """What a dataset asks of a network: channels, image size, classes."""
    from clustercaps.data.catalogue import info, is_streamed

    size = preset.size_for(data)
    if is_streamed(data):
        return {"in_chans": 3, "img_size": size, "num_classes": 1000}
    known = info(data)
    return {"in_chans": known.shape[0], "img_size": size, "num_classes": known.num_classes}


def recipe_table(preset: "Preset") -> str:
    """What each recipe sets, side by side."""
    import dataclasses

    from clustercaps.training.settings import TrainSettings
    from clustercaps.utils.tables import text_table

    defaults = {each.name: each.default for each in dataclasses.fields(TrainSettings)}
    recipes = {name: preset.get_recipe(name) for name in preset.recipe_names}
    header = [name + ("*" if name == preset.default_recipe else "") for name in recipes]
    # Some papers train differently on another dataset.
    recipes |= {f"paper, {data}": preset.get_recipe("paper", data) for data in preset.recipes}
    header += [f"paper, {data}" for data in preset.recipes]
    rows = []
    for setting in dict.fromkeys(setting for recipe in recipes.values() for setting in recipe):
        values = (recipe.get(setting, defaults[setting]) for recipe in recipes.values())
        rows.append([setting, *map(plain, values)])
    return text_table(["setting", *header], rows)


def memory_line(name: str, preset: "Preset") -> str:
    """How much memory a training step needs, on the first dataset of the paper."""
    import torch

    from clustercaps.models import create_model, memory_estimate

    data = preset.data[0]
    batch = preset.get_recipe(preset.default_recipe, data)["batch_size"]
    with torch.device("meta"):
        model = create_model(name, **task_of(preset, data))
    size = memory_estimate(model, batch=batch)
    return (
        f"A training step on {data} with {batch} images needs about {size / 2**20:,.0f} MiB at its "
        "peak, beside the weights, the images and the state of the optimizer (an estimate; "
        "--accumulate N computes a step in N parts and needs less)."
    )


def plain(value: Any) -> str:
    """A setting as one would type it: text as it is, all else as JSON."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
