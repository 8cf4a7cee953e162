"""Networks for the page: packaged weights, runs, folders of `save_pretrained`, and the Hub.

Folders may come from anyone: sizes are checked before a network is built, and names are only text.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clustercaps.data import Prepare
from clustercaps.explore.assemble import MOST_BYTES
from clustercaps.models import (
    AffineCapsuleNet,
    AffineCNN,
    CapsuleNet,
    ClassCapsuleNet,
    ImageClassifier,
    from_pretrained,
    list_pretrained,
)
from clustercaps.models.locate import CONFIG_FILE, WEIGHTS_FILE, locate
from clustercaps.models.packaged import WEIGHTS
from clustercaps.models.pretrained import read_config
from clustercaps.training.finished import Trained, run_folder_of
from clustercaps.training.preprocessing import prepare_of
from clustercaps.utils.errors import unknown

# The page opens with the first: most panels follow its picture, and digits are easy to draw.
KINDS: dict[str, type[ImageClassifier]] = {
    "class_capsules": ClassCapsuleNet,
    "classifier": CapsuleNet,
    "affine_capsules": AffineCapsuleNet,
    "affine_cnn": AffineCNN,
}
ROUTINGS = ("cluster", "uniform")
# Two bytes for each, more than fit into the page.
MOST_PARAMETERS = MOST_BYTES // 2
LONGEST_TEXT = 200
CARD = ("data", "recipe", "epochs", "test_error", "parameters", "commit")


@dataclass(frozen=True)
class Source:
    """A network with everything that the page states about it.

    Attributes:
        id: A name that no other network of the page has.
        title: How the page calls it.
        kind: A key of `KINDS`.
        model: The network.
        class_names: One per class.
        data: The dataset of its images.
        card: Facts about its training.
        stored: File with test images that ship with the package, if there is one.
    """

    id: str
    title: str
    kind: str
    model: ImageClassifier
    class_names: tuple[str, ...]
    data: str
    card: dict[str, Any]
    stored: Path | None = None

    @property
    def prepare(self) -> Prepare:
        """Preprocessing of test images."""
        assert self.model.preprocessing is not None
        return prepare_of(self.model.preprocessing)


def open_source(name: str, dataset: str | None = None) -> Source:
    """Load a network.

    Args:
        name: Packaged weights such as "m1:fashion-mnist", the folder of a finished run, a folder
            that `save_pretrained` wrote, or a model on the Hub as "user/repo".
        dataset: Dataset for the images; by default the one the network was trained on.
    """
    trained = Trained.open(name, data_name=dataset, load=load_network)
    model, found = trained.model, dataset or trained.data_name
    if not found:
        raise ValueError(f"{name}: its dataset is unknown; pass --data, a dataset for the images")
    run = run_folder_of(name)
    stored = WEIGHTS / f"{found}.safetensors" if run and run.parent == WEIGHTS else None
    short = tuple(each[:LONGEST_TEXT] for each in trained.class_names)
    facts = {"data": found, "parameters": sum(p.numel() for p in model.parameters())}
    facts |= trained.result
    return Source(
        f"{trained.title}:{found}" if run else Path(name).resolve().name,
        f"{trained.title} on {found}",
        kind_of(model, name),
        model,
        short,
        found,
        {key.removeprefix("test_"): plain(facts.get(key)) for key in CARD},
        stored if stored is not None and stored.is_file() else None,
    )


def kind_of(model: ImageClassifier, name: str) -> str:
    """The kind of a network; raises an error for those that the engine does not have."""
    kind = next((kind for kind, each in KINDS.items() if type(model) is each), None)
    if kind is None:
        supported = ", ".join(each.__name__ for each in KINDS.values())
        raise ValueError(f"{name} is a {type(model).__name__}; the explorer has {supported}")
    if getattr(model, "stem", None) is not None:
        raise ValueError(f"{name} has a ResNet stem; the explorer has only networks without one")
    if getattr(model, "global_pool", ""):
        raise ValueError(f"{name} has a pooled head; the explorer has only networks without one")
    routing = model.settings.get("routing", "cluster")
    if routing not in ROUTINGS:
        raise ValueError(f"{name}: {unknown('routing of the explorer', str(routing), ROUTINGS)}")
    if not model.num_classes:
        raise ValueError(f"{name} has no classifier; the explorer needs one")
    return kind


def load_network(folder: Path) -> ImageClassifier:
    """Load a network of a reasonable size with finite weights."""
    config, _ = read_config(folder)
    file = folder / WEIGHTS_FILE
    # Twice the limit of the page, because 32 bits become 16 in decoders.
    if file.is_file() and file.stat().st_size > 2 * MOST_BYTES:
        raise ValueError(
            f"{file} has {file.stat().st_size / 1e6:.0f} MB; the page has room for "
            f"{MOST_BYTES / 1e6:.0f} MB"
        )
    kind_of(without_memory(folder / CONFIG_FILE, config), str(folder))
    model = from_pretrained(folder).float()
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{file}: {name} contains NaN or infinite values; train it again")
    return model


def without_memory(path: Path, config: dict[str, Any]) -> ImageClassifier:
    """The network of a `config.json` on the meta device, to check it before memory is used."""
    settings = {name: value for name, value in config.items() if name != "architecture"}
    known = {each.__name__: each for each in KINDS.values()}
    architecture = str(config.get("architecture"))
    if architecture not in known:
        raise ValueError(f"{path}: {unknown('network of the explorer', architecture, known)}")
    try:
        with torch.device("meta"):
            model = known[architecture](**settings)
    except (TypeError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0][:LONGEST_TEXT]
        raise ValueError(f"{path} does not describe a {architecture}: {reason}") from error
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(
            f"{path} describes a network of {count:,} parameters; the page has room for "
            f"{MOST_PARAMETERS:,}"
        )
    return model


def packaged_sources() -> list[str]:
    """Packaged weights for a page without arguments, in its order: one of a kind and dataset."""
    order = [each.__name__ for each in KINDS.values()]
    chosen: dict[tuple[int, str], str] = {}
    for name in list_pretrained():
        kind = read_config(locate(name))[0]["architecture"]
        if kind in order:
            # The first of each, M1 before M2: all of them would make the page too large.
            chosen.setdefault((order.index(kind), name.partition(":")[2]), name)
    return [chosen[key] for key in sorted(chosen)]


def plain(value: Any) -> str | int | float | None:
    """A value of a JSON file as a short text, a finite number or None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if type(value) in (int, float) else str(value)[:LONGEST_TEXT]
