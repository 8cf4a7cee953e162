"""The network of a run before its first step."""

from typing import Any

from clustercaps import data
from clustercaps.data import FolderImages, Images
from clustercaps.training.settings import TrainSettings


def network_settings(settings: TrainSettings, images: Images | FolderImages) -> dict[str, Any]:
    """Arguments of the network: those that the dataset determines, and `model_settings`."""
    if isinstance(images, FolderImages):
        in_chans, num_classes = 3, images.num_classes
    else:
        in_chans, num_classes = data.info(settings.data).shape[0], images.meta["num_classes"]
    shape = {"in_chans": in_chans, "img_size": settings.side, "num_classes": num_classes}
    return {**shape, **settings.model_settings}
