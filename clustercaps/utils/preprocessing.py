"""What a network expects of an image, and what its outputs are called.

Stored as `preprocessing` in `config.json`, so that a folder with weights is enough to classify
image files. An image file goes through these steps:

1. read in `colour`, resized to a square of `file_size` (bilinear, aspect ratio not kept);
2. cropped to `file_crop` around the centre, if that is set;
3. resized to `resize` as floating-point numbers (bilinear), if that is set;
4. divided by 255, then standardised by itself if `standardise` is set;
5. cropped or padded with zeros to `img_size` around the centre, unless step 2 has cropped it;
6. `mean` subtracted and divided by `std`, per colour channel, if they are set.

Images of a dataset in memory start at step 3.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from clustercaps.utils.arguments import check_arguments
from clustercaps.utils.errors import at_least, unknown

# Colour channels of each mode. Stereo pairs are two grey images of one object.
CHANNELS = {"grey": 1, "stereo": 2, "rgb": 3}
# No image is divided by less than one grey level.
SMALLEST_STD = 1 / 255


@dataclass(frozen=True)
class Preprocessing:
    """How images become the input of a network, and the names of its classes.

    Args:
        colour: "grey", "rgb", or "stereo" for pairs of grey images, which no image file holds.
        img_size: Height and width of the network's input.
        class_names: One per class, in the order of the outputs; empty if they are not known.
        mean: Mean of the training pixels, 0 to 1, per colour channel; None to subtract nothing.
        std: Their standard deviation; None exactly if `mean` is.
        standardise: Give each image zero mean and unit variance over all its pixels and channels.
        file_size: Height and width to which an image file is resized; `img_size` by default.
        file_crop: Height and width of the centre crop that follows; None for no crop.
        resize: Height and width to which pixels are resized before step 4; None keeps them.
        data: The dataset of the training images, if it has a name that others know.
    """

    colour: str
    img_size: int
    class_names: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    standardise: bool = False
    file_size: int | None = None
    file_crop: int | None = None
    resize: int | None = None
    data: str = ""

    def __post_init__(self) -> None:
        check_arguments(Preprocessing, vars(self), "preprocessing")
        self._check_sizes()
        self._check_normalisation()
        if "" in self.class_names:
            raise ValueError("preprocessing: a class name is empty; name each class, or none")

    def _check_sizes(self) -> None:
        for name in ("img_size", "file_size", "file_crop", "resize"):
            if getattr(self, name) is not None:
                at_least(f"preprocessing: {name}", getattr(self, name), 1)
        if self.file_crop is not None and self.file_crop > self.read_size:
            raise ValueError(
                f"preprocessing: file_crop ({self.file_crop}) must not exceed file_size "
                f"({self.read_size})"
            )
        if self.file_crop is not None and (self.resize or self.file_crop) != self.img_size:
            raise ValueError(
                f"preprocessing: a crop of {self.file_crop} must give images of img_size "
                f"({self.img_size})"
            )

    def _check_normalisation(self) -> None:
        if self.colour not in CHANNELS:
            raise ValueError(f"preprocessing: {unknown('colour', self.colour, CHANNELS)}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("preprocessing: mean and std go together; set both or none")
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != self.in_chans:
                raise ValueError(
                    f"preprocessing: {name} must have {self.in_chans} numbers for {self.colour} "
                    f"images, got {len(numbers)}"
                )
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"preprocessing: std must be positive, got {list(self.std)}")

    @property
    def in_chans(self) -> int:
        """Colour channels of the network's input."""
        return CHANNELS[self.colour]

    @property
    def read_size(self) -> int:
        """Height and width to which an image file is resized."""
        return self.img_size if self.file_size is None else self.file_size

    def check_network(self, num_classes: int, in_chans: int, img_size: tuple[int, int]) -> None:
        """Raise an error unless a network has these classes, channels and this image size."""
        if self.class_names and len(self.class_names) != num_classes:
            raise ValueError(
                f"preprocessing: {len(self.class_names)} class names for a network with "
                f"{num_classes} classes; name each of them once, or none"
            )
        if self.in_chans != in_chans or (self.img_size, self.img_size) != img_size:
            raise ValueError(
                f"preprocessing: {self.colour} images of {self.img_size}x{self.img_size} for a "
                f"network with {in_chans} colour channels and images of "
                f"{img_size[0]}x{img_size[1]}; these must be the same"
            )

    def to_plain(self) -> dict[str, Any]:
        """The content of `preprocessing` in `config.json`."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_plain(cls, content: Any, source: str) -> "Preprocessing":
        """What `to_plain` gave; `source` names its file in errors."""
        if not isinstance(content, Mapping):
            raise ValueError(f"{source}: preprocessing must be an object, got {content!r:.80}")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in content]
        if missing:
            raise ValueError(f"{source}: preprocessing lacks {' and '.join(missing)}")
        try:
            check_arguments(cls, content, "preprocessing")
            # JSON has lists for tuples, and 1 for 1.0.
            numbers = {
                name: tuple(float(number) for number in content[name])
                for name in ("mean", "std")
                if content.get(name) is not None
            }
            names = tuple(content.get("class_names", ()))
            return cls(**{**content, **numbers, "class_names": names})
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
