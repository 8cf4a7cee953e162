"""Datasets as uint8 tensors in memory, or streamed from folders.

Exports the catalogue (`SETS`, `info`), functions that open a dataset (`load("cifar10", "train")`
returns `Images(pixels, labels, meta)`; `open_folder` streams), transforms as in the paper
(`train_transform`, `test_transform`), and splits for validation and novel viewpoints.
"""

from clustercaps.data.arrays import as_images
from clustercaps.data.augment import Augment
from clustercaps.data.catalogue import SETS, SetInfo, info, is_own, is_streamed
from clustercaps.data.datasets import load
from clustercaps.data.errors import DataError
from clustercaps.data.folders import FolderImages, open_folder
from clustercaps.data.image_files import read_image
from clustercaps.data.images import Images
from clustercaps.data.prepare import Prepare
from clustercaps.data.split import validation_split, viewpoint_split
from clustercaps.data.statistics import Statistics, statistics_of
from clustercaps.data.transforms import test_transform, train_transform
from clustercaps.utils.files import data_folder as cache_dir

__all__ = [
    "SETS",
    "Augment",
    "DataError",
    "FolderImages",
    "Images",
    "Prepare",
    "SetInfo",
    "Statistics",
    "as_images",
    "cache_dir",
    "info",
    "is_own",
    "is_streamed",
    "load",
    "open_folder",
    "read_image",
    "statistics_of",
    "test_transform",
    "train_transform",
    "validation_split",
    "viewpoint_split",
]
