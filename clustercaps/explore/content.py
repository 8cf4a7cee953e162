"""The content of the page: for every network its sizes, weights, test images and averages."""

import base64
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from safetensors.torch import load_file, save
from torch import Tensor

from clustercaps import __version__, data
from clustercaps.data.prepare import Prepare, centre
from clustercaps.explore.sources import Source, open_source
from clustercaps.models import AffineCNN, ImageClassifier
from clustercaps.models.affine import STRIDES
from clustercaps.training.batches import balanced
from clustercaps.utils.sizes import map_sizes

PER_CLASS = 20
# Misclassified images on top of these, found among SEARCHED times as many test images.
WRONG, SEARCHED = 20, 10
BATCH = 25

Stored = UInt8[Tensor, "images chans height width"]


def collect(
    names: Sequence[str], dataset: str | None = None, data_dir: str | None = None
) -> dict[str, Any]:
    """Everything the page contains besides code and style.

    Args:
        names: Networks, as `open_source` takes them.
        dataset: Dataset for the images, instead of that of each run.
        data_dir: Folder with the official files of the dataset.
    """
    networks: list[dict[str, Any]] = []
    for name in names:
        source = open_source(name, dataset)
        taken = {network["id"] for network in networks}
        networks.append(record(source, unused(source.id, taken), data_dir))
    return {"version": __version__, "networks": networks}


def unused(id: str, taken: set[str]) -> str:
    """The id, with a number if another network has it."""
    number, found = 1, id
    while found in taken:
        number += 1
        found = f"{id} ({number})"
    return found


@torch.no_grad()
def record(
    source: Source, id: str, data_dir: str | None = None, per_class: int = PER_CLASS
) -> dict[str, Any]:
    """A network as the page reads it."""
    model, prepare = source.model.eval(), source.prepare
    if prepare.standardise:
        raise ValueError(
            f"{id}: images of {source.data} are standardised one by one, which the explorer does "
            "not do; pass a network for another dataset"
        )
    pixels, labels = choose_images(source, data_dir, per_class)
    images = prepare_stored(prepare, pixels)
    predicted = torch.cat([model(part).argmax(1) for part in images.split(BATCH)])
    averages = None if isinstance(model, AffineCNN) else class_averages(model, images, labels)
    return {
        **network(source),
        **{"id": id, "title": source.title, "card": source.card},
        "images": [
            {"pixels": text(one.permute(1, 2, 0).contiguous().numpy().tobytes()), **about}
            for one, about in zip(pixels, describe(labels, predicted), strict=True)
        ],
        "averages": averages and [text(each.numpy().tobytes()) for each in averages],
        "averagedImages": len(labels),
    }


def network(source: Source) -> dict[str, Any]:
    """What the engine needs: sizes, weights, and how pixels are normalised."""
    model, prepare = source.model, source.prepare
    channels, (height, width) = model.in_chans, model.img_size
    size = {"height": height, "width": width, "channels": channels}
    mean, sd = prepare.mean or (0.0,) * channels, prepare.std or (1.0,) * channels
    return {
        "kind": source.kind,
        "classes": list(source.class_names),
        "input": {**size, "mean": list(mean), "sd": list(sd)},
        "layers": layer_shapes(model),
        "decoder": size if hasattr(model, "decoder") else None,
        "config": dict(model.settings),
        "weights": text(save(pack_weights(model))),
    }


def describe(labels: Tensor, predicted: Tensor) -> list[dict[str, int]]:
    """True and predicted class of every image."""
    pairs = zip(labels.tolist(), predicted.tolist(), strict=True)
    return [{"label": label, "predicted": guess} for label, guess in pairs]


def text(content: bytes) -> str:
    """Bytes in base64."""
    return base64.b64encode(content).decode("ascii")


def pack_weights(model: ImageClassifier) -> dict[str, Tensor]:
    """The weights: 16 bits where that changes nothing, and in decoders, which are the largest part.

    A decoder with 16-bit weights changes a pixel by less than a grey level.
    """
    packed = {}
    for name, tensor in model.state_dict().items():
        half = tensor.half()
        small = name.startswith("decoder.") and bool(torch.isfinite(half).all())
        exact = torch.equal(half.float(), tensor)
        packed[name] = (half if small or exact else tensor).contiguous()
    return packed


def layer_shapes(model: ImageClassifier) -> list[dict[str, Any]]:
    """Sizes of every layer; `clusters` are the vote clusters of a parent (I)."""
    if isinstance(model, AffineCNN):
        return convolution_shapes(model)
    shapes = []
    # `sources.py` admits only networks that have `capsules`; their common base does not.
    for layer in model.capsules.layers:  # type: ignore[union-attr]
        shapes.append(
            {
                **{"channels": layer.out_channels, "dim": layer.out_dim, "votes": layer.votes},
                "clusters": layer.in_channels * layer.clusters,
                **{"inChannels": layer.in_channels, "inDim": layer.in_dim},
                **{"kernel": layer.kernel_size, "stride": layer.stride, "padding": layer.padding},
                **map_shape(layer.in_size, layer.out_size(layer.in_size)),
                "norm": layer.norm is not None,
            }
        )
    return shapes


def convolution_shapes(model: AffineCNN) -> list[dict[str, Any]]:
    """The same for convolutions: their feature maps are channels of dimension 1 without votes."""
    sizes = map_sizes(model.img_size, [(3, stride, 1) for stride in STRIDES])
    shapes = []
    for number, (conv, stride) in enumerate(zip(model.convs, STRIDES, strict=True)):
        shapes.append(
            {
                **{"channels": conv.out_channels, "dim": 1, "votes": 0, "clusters": 0},
                **{"inChannels": conv.in_channels, "inDim": 1, "norm": False},
                **{"kernel": 3, "stride": stride, "padding": 1},
                **map_shape(sizes[number], sizes[number + 1]),
            }
        )
    return shapes


def map_shape(before: tuple[int, int], after: tuple[int, int]) -> dict[str, int]:
    """Sizes of the feature maps that a layer reads and writes."""
    (in_height, in_width), (height, width) = before, after
    return {"inHeight": in_height, "inWidth": in_width, "height": height, "width": width}


def choose_images(
    source: Source, data_dir: str | None, per_class: int
) -> tuple[Stored, Int[Tensor, " images"]]:
    """Test images as the network sees them, in bytes: some of every class, and misclassified ones.

    Images that ship with the package are taken as they are, so that no dataset is needed.
    """
    prepare, wanted = source.prepare, per_class * source.model.num_classes
    if source.stored is not None:
        kept = load_file(source.stored)
        first = balanced(kept["labels"], min(wanted, len(kept["labels"])))
        return as_stored(prepare, kept["pixels"][first]), kept["labels"][first]
    images: Any
    if data.is_streamed(source.data):
        known = source.model.preprocessing
        assert known is not None
        size, crop = known.read_size, known.file_crop
        images = data.open_folder(source.data, "test", data_dir, resize=size, crop=crop or size)
    else:
        images = data.load(source.data, "test", data_dir)
    labels = images.labels
    if int(labels.max()) >= source.model.num_classes:
        raise ValueError(
            f"{source.id} has {source.model.num_classes} classes, {source.data} has more; pass the "
            "dataset it was trained on"
        )
    some = balanced(labels, min(SEARCHED * wanted, len(labels)))
    shown = some[balanced(labels[some], min(wanted, len(some)))]
    pixels: dict[int, Tensor] = {}
    wrong: list[int] = []
    for part in some.split(BATCH):
        stored = as_stored(prepare, read(images, part))
        guesses = source.model(prepare_stored(prepare, stored)).argmax(1)
        pixels |= dict(zip(part.tolist(), stored, strict=True))
        wrong += part[guesses != labels[part]].tolist()
    chosen = shown.tolist()
    chosen += [index for index in wrong if index not in set(chosen)][:WRONG]
    return torch.stack([pixels[index] for index in chosen]), labels[chosen]


def read(images: Any, indices: Tensor) -> Stored:
    """Pixels of some images of a dataset."""
    if isinstance(images, data.Images):
        return images.pixels[indices]
    return torch.stack([images[index][0] for index in indices.tolist()])


def as_stored(prepare: Prepare, pixels: UInt8[Tensor, "images chans in_height in_width"]) -> Stored:
    """Images at the size of the network, in bytes."""
    scaled = prepare.scale(pixels) * 255
    if prepare.size is not None:
        scaled = centre(scaled, prepare.size)
    return scaled.round().clamp(0, 255).to(torch.uint8)


def prepare_stored(prepare: Prepare, stored: Stored) -> Float[Tensor, "images chans height width"]:
    """Stored images as the network reads them."""
    return prepare.normalise(stored.float().div(255))


def class_averages(
    model: ImageClassifier, images: Tensor, labels: Int[Tensor, " images"]
) -> list[Float[Tensor, "classes clusters channels dim"]]:
    """Routing weights of every layer, averaged over positions and over the images of each class."""
    sums: list[Tensor] = []
    classes = model.num_classes
    for part, own in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        # As above: `capsules` is no attribute of the common base.
        _, traces = model.capsules(part.contiguous(), trace=True)  # type: ignore[operator]
        means = [trace.weights.mean((-2, -1)) for trace in traces]
        sums = sums or [mean.new_zeros(classes, *mean.shape[1:]) for mean in means]
        for total, mean in zip(sums, means, strict=True):
            total.index_add_(0, own, mean)
    counts = torch.bincount(labels, minlength=classes).clamp(min=1)
    return [total / counts.view(-1, 1, 1, 1) for total in sums]
