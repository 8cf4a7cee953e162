"""`clustercaps models --json`: networks and packaged weights as plain values."""

from typing import Any


def document(name: str | None, pretrained: bool) -> Any:
    """One network, all networks, or the results of all packaged weights."""
    from clustercaps.models import list_models

    if pretrained:
        return packaged_results()
    return network(name) if name is not None else [network(each) for each in list_models()]


def network(name: str) -> dict[str, Any]:
    """What is known about a network without building it."""
    from clustercaps.models import get_preset
    from clustercaps.models.registry import count_parameters

    preset = get_preset(name)
    return {
        **{"name": name, "summary": preset.summary, "class": preset.network.__name__},
        **{"paper": preset.paper, "reconstruction": preset.reconstruction},
        **{"img_size": preset.img_size, "published_on": list(preset.data)},
        "settings": dict(preset.settings),
        # With the default settings.
        "parameters": count_parameters(name),
        "default_recipe": preset.default_recipe,
        "recipes": {each: dict(preset.get_recipe(each)) for each in preset.recipe_names},
    }


def packaged_results() -> list[dict[str, Any]]:
    """The result of the run of each packaged network."""
    from clustercaps.models.packaged import list_pretrained, pretrained_folder
    from clustercaps.utils.json_files import read_json

    found = []
    for name in list_pretrained():
        model, _, data = name.partition(":")
        found.append({"name": name, **read_json(pretrained_folder(model, data) / "result.json")})
    return found
