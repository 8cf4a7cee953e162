"""The official files of each dataset: names, sizes, checksums, URLs."""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class File:
    """One official file.

    Args:
        name: its name in the cache.
        size: published number of bytes.
        digest: published checksum, `md5:...` or `sha256:...`; None for a file that is not
            published but rendered.
        aliases: other common names; those ending in .gz are compressed.
        download: name at the official URLs, if it differs.
        download_digest: checksum of that download.
        unpacked: name of the decompressed file, for files whose published checksum is that of the
            compressed one; nothing is published for the decompressed bytes.
        unpacked_size: number of decompressed bytes, which follows from counts and shape.
    """

    name: str
    size: int
    digest: str | None
    aliases: tuple[str, ...] = ()
    download: str | None = None
    download_digest: str | None = None
    unpacked: str | None = None
    unpacked_size: int | None = None

    @property
    def content_size(self) -> int:
        """Number of bytes of the decompressed content."""
        return self.size if self.unpacked_size is None else self.unpacked_size

    @property
    def names(self) -> tuple[str, ...]:
        """Every possible name of the file in a folder, preferred first."""
        return (self.name, *self.aliases, *([self.unpacked] if self.unpacked else []))


Files = tuple[File, ...]


@dataclass(frozen=True)
class Archive:
    """An official archive with all files of a dataset.

    Args:
        name: its name.
        size: published number of bytes.
        digest: published checksum.
        folder: the folder of the files in it.
        unpacked: bytes of all files in it.
    """

    name: str
    size: int
    digest: str
    folder: str
    unpacked: int


@dataclass(frozen=True)
class Published:
    """All published files of a dataset.

    Args:
        train: files of the training split.
        test: files of the test split.
        folders: usual subfolders of a data folder.
        addresses: official URLs, each ending in a slash.
        archive: the archive at these URLs, if the files are not separate.
    """

    train: Files
    test: Files
    folders: tuple[str, ...]
    addresses: tuple[str, ...]
    archive: Archive | None = None

    @property
    def files(self) -> Files:
        """Files of both splits."""
        return self.train + self.test

    def split(self, split: str) -> Files:
        """Files of one split."""
        return self.train if split == "train" else self.test


def _idx(name: str, size: int, md5: str, zipped_md5: str) -> File:
    # Some collections have a dot where the official name has a dash.
    dotted = name.replace("-idx", ".idx")
    aliases = (f"{name}.gz", dotted, f"{dotted}.gz")
    return File(name, size, f"md5:{md5}", aliases, f"{name}.gz", f"md5:{zipped_md5}")


def _matrix_size(sizes: tuple[int, ...], item: int) -> int:
    """Number of bytes of a NORB matrix; it has at least three sizes in its header."""
    return 8 + 4 * max(3, len(sizes)) + prod(sizes) * item


# Sizes and bytes per item of the three matrices of a split.
_NORB_PARTS = {"dat": ((24_300, 2, 96, 96), 1), "cat": ((24_300,), 4), "info": ((24_300, 4), 4)}


def _norb(name: str, size: int, sha256: str) -> File:
    stem = f"smallnorb-5x{name}.mat"
    unpacked = _matrix_size(*_NORB_PARTS[name.rpartition("-")[2]])
    return File(f"{stem}.gz", size, f"sha256:{sha256}", unpacked=stem, unpacked_size=unpacked)


def _cifar(name: str, md5: str) -> File:
    return File(name, 30_730_000, f"md5:{md5}")


def _idx_split(stem: str, count: int, images: tuple[str, str], labels: tuple[str, str]) -> Files:
    return (
        _idx(f"{stem}-images-idx3-ubyte", 16 + 28 * 28 * count, *images),
        _idx(f"{stem}-labels-idx1-ubyte", 8 + count, *labels),
    )


MNIST = Published(
    train=_idx_split(
        "train",
        60_000,
        ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    test=_idx_split(
        "t10k",
        10_000,
        ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
        ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    folders=("mnist", "MNIST/raw", "MNIST", "raw", ""),
    addresses=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
)

FASHION_MNIST = Published(
    train=_idx_split(
        "train",
        60_000,
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
    ),
    test=_idx_split(
        "t10k",
        10_000,
        ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "raw", ""),
    addresses=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
)

CIFAR10 = Published(
    train=(
        _cifar("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        _cifar("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        _cifar("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        _cifar("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        _cifar("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    ),
    test=(_cifar("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),),
    folders=("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", ""),
    addresses=("https://www.cs.toronto.edu/~kriz/",),
    archive=Archive(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "cifar-10-batches-bin",
        6 * 30_730_000,
    ),
)

SVHN = Published(
    train=(
        File(
            "train_32x32.mat",
            182_040_794,
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
    ),
    test=(
        File(
            "test_32x32.mat",
            64_275_384,
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    folders=("svhn", "SVHN", ""),
    addresses=("http://ufldl.stanford.edu/housenumbers/",),
)

_NORB_TRAIN, _NORB_TEST = "46789x9x18x6x2x96x96-training", "01235x9x18x6x2x96x96-testing"

SMALLNORB = Published(
    train=(
        _norb(
            f"{_NORB_TRAIN}-dat",
            131_896_188,
            "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
        ),
        _norb(
            f"{_NORB_TRAIN}-cat",
            348,
            "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
        ),
        _norb(
            f"{_NORB_TRAIN}-info",
            71_052,
            "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
        ),
    ),
    test=(
        _norb(
            f"{_NORB_TEST}-dat",
            130_799_817,
            "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
        ),
        _norb(
            f"{_NORB_TEST}-cat",
            347,
            "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
        ),
        _norb(
            f"{_NORB_TEST}-info",
            10_428,
            "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
        ),
    ),
    folders=("smallnorb", "smallNORB", "norb-v1.0-small", ""),
    addresses=(
        "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        "http://www.cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
    ),
)


def _rendered_split(stem: str, pairs: int) -> Files:
    # The first number is the version of the renderer, which changes when its images change.
    return tuple(
        File(f"rendered-norb-1-5x{stem}-{part}.mat", _matrix_size((pairs, *sizes[1:]), item), None)
        for part, (sizes, item) in _NORB_PARTS.items()
    )


def _rendered(name: str, train: str, pairs: int) -> Published:
    return Published(
        train=_rendered_split(train, pairs),
        test=_rendered_split(_NORB_TEST, 24_300),
        folders=(name, ""),
        addresses=(),
    )


PUBLISHED = {
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "svhn": SVHN,
    "smallnorb": SMALLNORB,
}
# Datasets that this package renders on the user's machine.
RENDERED = {
    "rendered-norb": _rendered("rendered-norb", _NORB_TRAIN, 24_300),
    "rendered-norb-25": _rendered("rendered-norb-25", f"25x{_NORB_TRAIN[6:]}", 121_500),
}


def files_of(name: str) -> Published:
    """The files of a dataset, published or rendered."""
    return RENDERED[name] if name in RENDERED else PUBLISHED[name]
