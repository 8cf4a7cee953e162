"""The datasets by name."""

from dataclasses import dataclass

from clustercaps.utils.errors import unknown


@dataclass(frozen=True)
class SetInfo:
    """Properties of a dataset.

    Args:
        name: its name.
        class_names: one per class, in label order.
        train: number of training images.
        test: number of test images.
        shape: channels, height, width as stored.
        mean: mean of the training pixels, 0 to 1, per channel.
        std: standard deviation, likewise; None for both if each image is standardised.
        licence: terms of use, in a few words.
        stereo: stereo pairs of objects from known viewpoints, which the paper halves, standardises
            pair by pair, and shifts in training.
        stands_for: the published dataset that this is a subset or a replacement of, if any.
    """

    name: str
    class_names: tuple[str, ...]
    train: int
    test: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    licence: str
    stereo: bool = False
    stands_for: str = ""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def count(self, split: str) -> int:
        """Published number of images of a split."""
        return self.train if split == "train" else self.test


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_OBJECTS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_TOYS = ("animal", "human", "plane", "truck", "car")
_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
_MIT = "MIT, Zalando SE"

SETS: dict[str, SetInfo] = {
    info.name: info
    for info in (
        SetInfo(
            "mnist",
            _DIGITS,
            60_000,
            10_000,
            _GREY,
            (0.1307,),
            (0.3081,),
            "CC BY-SA 3.0, Y. LeCun and C. Cortes",
        ),
        SetInfo(
            "fashion-mnist",
            _CLOTHES,
            60_000,
            10_000,
            _GREY,
            (0.2860,),
            (0.3530,),
            _MIT,
        ),
        SetInfo(
            "fashion-mnist-mini",
            _CLOTHES,
            10_000,
            2_000,
            _GREY,
            (0.2860,),
            (0.3530,),
            _MIT,
            stands_for="fashion-mnist",
        ),
        SetInfo(
            "cifar10",
            _OBJECTS,
            50_000,
            10_000,
            _COLOUR,
            (0.4914, 0.4822, 0.4465),
            (0.2470, 0.2435, 0.2616),
            "no licence stated; cite Krizhevsky 2009",
        ),
        SetInfo(
            "svhn",
            _DIGITS,
            73_257,
            26_032,
            _COLOUR,
            (0.4377, 0.4438, 0.4728),
            (0.1980, 0.2010, 0.1970),
            "non-commercial use only",
        ),
        SetInfo(
            "smallnorb",
            _TOYS,
            24_300,
            24_300,
            (2, 96, 96),
            None,
            None,
            "research use only",
            stereo=True,
        ),
        *(
            SetInfo(
                name,
                _TOYS,
                train,
                24_300,
                (2, 96, 96),
                None,
                None,
                "MIT, rendered by clustercaps; not smallNORB",
                stereo=True,
                stands_for="smallnorb",
            )
            for name, train in (("rendered-norb", 24_300), ("rendered-norb-25", 121_500))
        ),
    )
}
"""Properties of every dataset that `load` supports, by name."""

# The dataset that is read image by image, like `folder:PATH`.
STREAMED = "imagenet"
# What recipes and image sizes call `folder:PATH` and `own:NAME`.
OWN = "own"


def is_streamed(name: str) -> bool:
    """Whether a dataset is read image by image (`FolderImages`) instead of loaded into memory."""
    return name == STREAMED or name.startswith("folder:")


def is_own(name: str) -> bool:
    """Whether a dataset is the user's: `folder:PATH`, or `own:NAME` for images given in Python."""
    return name.startswith(("folder:", "own:"))


def info(name: str) -> SetInfo:
    """Look up a dataset that `load` supports.

    Raises:
        KeyError: unknown name; the message suggests the likely one.
    """
    if name not in SETS:
        raise KeyError(unknown("dataset", name, [*SETS, STREAMED, "folder:PATH"]))
    return SETS[name]


def published_name(name: str) -> str:
    """The published dataset for a name: `fashion-mnist` for `fashion-mnist-mini`, or `own`."""
    if is_own(name):
        return OWN
    known = SETS.get(name)
    return known.stands_for or name if known else name
