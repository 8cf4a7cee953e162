"""Networks as a scikit-learn classifier.

Exports `CapsuleClassifier`: `CapsuleClassifier("m1").fit(X, y).predict(X)`. It trains with the
recipes, optimizers and schedules of `clustercaps.training`, but in memory: no run folder, no
checkpoints, no augmentation. For those, use `clustercaps.training.train`.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clustercaps.data.prepare import Prepare
from clustercaps.models import ImageClassifier, create_model
from clustercaps.training.batches import BATCH
from clustercaps.training.diagnose import first_not_finite
from clustercaps.training.objective import Objective, new_optimizer
from clustercaps.training.schedule import WeightAverage, set_rates
from clustercaps.training.settings import TrainSettings, resolve
from clustercaps.utils.devices import pick_device
from clustercaps.utils.errors import unknown
from clustercaps.utils.preprocessing import SMALLEST_STD

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "cc.sklearn needs scikit-learn 1.6 or later: pip install 'clustercaps[sklearn]'"
    ) from error

__all__ = ["CapsuleClassifier"]

# What `settings` may have: the training settings that matter without run folder and augmentation.
SETTINGS = (
    *("adamw_lr", "average", "beta1_low", "clip_norm", "decay_epochs", "drops", "label_smoothing"),
    *("lr_decay", "lr_floor", "momentum", "nesterov", "optimizer", "scale_head", "schedule"),
    *("step_decay", "warmup_epochs", "warmup_fraction", "weight_decay"),
)


class CapsuleClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network of this library as a scikit-learn classifier.

    X has images as [N, H, W], [N, H, W, C] or flat rows [N, H*W] or [N, H*W*C], of any type and
    range: they are scaled by the range of the training images, then standardised per channel. Flat
    rows without `image_shape` are square grey images, or images of a single row if their length is
    not a square number.

    Args:
        model: A name from `clustercaps.list_models()`.
        image_shape: Height and width, or height, width and channels, of flat rows.
        recipe: "paper", "fast" or "strong"; the default of `clustercaps train` if None.
        epochs: Passes over the training set; those of the recipe if None.
        batch_size: Images per step; that of the recipe if None.
        lr: Peak learning rate; that of the recipe if None.
        settings: Other settings of optimizer, schedule and loss that differ from the recipe, such
            as `{"optimizer": "adam", "label_smoothing": 0.0}`; see `clustercaps train --help`.
        model_settings: Arguments of the network, such as `{"votes": 3, "routing": "dynamic"}`.
        device: "auto", or a device as torch names it.
        random_state: Seed of the initial weights and of the order of images.
        verbose: Whether to print the loss of every epoch.

    Attributes:
        classes_: Labels, in the order of the columns of `predict_proba`.
        n_features_in_: Numbers per image.
        image_shape_: Height, width and channels of the training images.
        model_: The trained network, on the CPU.
        loss_curve_: Mean training loss of every epoch.
    """

    def __init__(
        self,
        model: str = "m1",
        *,
        image_shape: Sequence[int] | None = None,
        recipe: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        settings: Mapping[str, Any] | None = None,
        model_settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.image_shape = image_shape
        self.recipe = recipe
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.model_settings = model_settings
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "CapsuleClassifier":
        """Train a new network on images and their labels, which may be numbers or strings."""
        settings, device = self._train_settings(), pick_device(self.device)
        flat, shape = flat_rows(X)
        flat, y = validate_data(self, flat, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "CapsuleClassifier needs images of at least 2 classes, but y has only one class: "
                f"{self.classes_[0]}"
            )
        self.image_shape_ = image_shape_of(flat.shape[1], self.image_shape, shape)
        self._fit_scale(flat)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        # The caller's random numbers are left alone.
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self._new_model().to(device)
            images, classes = self._images(flat, device), torch.from_numpy(labels).to(device)
            self.loss_curve_, trained = self._train(model, images, classes, settings)
        self.model_ = trained.cpu().eval()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class [N, classes], in the order of `classes_`."""
        check_is_fitted(self)
        flat, shape = flat_rows(X)
        flat = validate_data(self, flat, dtype=np.float32, reset=False)
        if shape is not None:
            image_shape_of(flat.shape[1], self.image_shape_, shape)
        device = pick_device(self.device)
        images, model = self._images(flat, device), self.model_.to(device)
        with torch.no_grad():
            logits = [model(batch).double().cpu() for batch in images.split(BATCH)]
        # A fitted estimator stays on the CPU, so that it can be unpickled on any machine.
        model.cpu()
        return torch.cat(logits).softmax(1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of every image."""
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]

    def _train_settings(self) -> TrainSettings:
        own = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        given: dict[str, Any] = {name: own[name] for name in own if own[name] is not None}
        for name in self.settings or {}:
            if name not in SETTINGS:
                raise ValueError(unknown("setting", name, SETTINGS))
        given |= {**(self.settings or {}), "model_settings": dict(self.model_settings or {})}
        return resolve(self.model, "own:images", self.recipe, **given)

    def _fit_scale(self, flat: NDArray[np.float32]) -> None:
        """Remember the range, and then the mean and standard deviation of every channel."""
        low, high = float(flat.min()), float(flat.max())
        self.range_ = (low, high if high > low else low + 1.0)
        pixels = self._pixels(flat)
        mean = pixels.mean(axis=(0, 2, 3), dtype=np.float64)
        std = pixels.std(axis=(0, 2, 3), dtype=np.float64).clip(min=SMALLEST_STD)
        self.prepare_ = Prepare(mean=tuple(mean.tolist()), std=tuple(std.tolist()))

    def _pixels(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows as images [N, C, H, W], in 0 to 1 for training images."""
        low, high = np.array(self.range_, np.float32)
        images = flat.reshape(-1, *self.image_shape_).transpose(0, 3, 1, 2)
        return (images - low) / (high - low)

    def _images(self, flat: NDArray[np.float32], device: torch.device) -> Tensor:
        """Rows as the network reads them."""
        pixels = torch.from_numpy(np.ascontiguousarray(self._pixels(flat)))
        return self.prepare_.normalise(pixels.to(device))

    def _new_model(self) -> ImageClassifier:
        *size, in_chans = self.image_shape_
        given: dict[str, Any] = {"num_classes": len(self.classes_), "in_chans": in_chans}
        return create_model(self.model, img_size=size, **given, **(self.model_settings or {}))

    def _train(
        self, model: ImageClassifier, images: Tensor, labels: Tensor, settings: TrainSettings
    ) -> tuple[list[float], nn.Module]:
        """The loss of every epoch, and the network: the averaged one if the recipe averages."""
        objective = Objective(model, settings, self.prepare_, len(images)).train()
        optimizer = new_optimizer(model, settings)
        average = WeightAverage(model, settings.average) if settings.average else None
        steps, curve = 0, []
        for epoch in range(settings.epochs):
            batches = torch.randperm(len(images)).split(settings.batch_size)
            total = 0.0
            for number, chosen in enumerate(batches):
                rate = set_rates(optimizer, settings, epoch, number / len(batches), steps)
                batch = images[chosen]
                loss, _ = objective(batch, labels[chosen], steps)
                optimizer.zero_grad()
                (loss / len(chosen)).backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)
                if not (norm.isfinite() and loss.isfinite()):
                    raise ValueError(
                        f"loss or gradient is not finite in epoch {epoch + 1}, at learning rate "
                        f"{rate:.4g}; first seen in {first_not_finite(model, [batch])}; use a "
                        "smaller lr, settings={'clip_norm': 1.0} or another random_state"
                    )
                optimizer.step()
                steps, total = steps + 1, total + float(loss.detach())
                if average is not None:
                    average.update(model, steps)
            curve.append(total / len(images))
            if self.verbose:
                print(f"epoch {epoch + 1} of {settings.epochs}: loss {curve[-1]:.4f}")
        return curve, model if average is None else average.model


def flat_rows(X: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Images as rows, and their height, width and channels if X has more axes than rows have."""
    # Lists are read; tables and sparse matrices are left to scikit-learn.
    array = np.asarray(X) if isinstance(X, list | tuple) else X
    if not isinstance(array, np.ndarray | Tensor) or array.ndim not in (3, 4):
        return X, None
    shape = tuple(array.shape[1:])
    return array.reshape(len(array), -1), shape if len(shape) == 3 else (*shape, 1)


def image_shape_of(
    features: int, wanted: Sequence[int] | None, seen: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Height, width and channels of images of `features` numbers, as wanted or as seen in X."""
    if wanted is not None:
        shape = (*wanted, 1) if len(wanted) == 2 else tuple(wanted)
        if len(shape) != 3 or math.prod(shape) != features or seen not in (None, shape):
            got = f"{features} numbers" if seen is None else f"the shape {seen}"
            raise ValueError(
                f"image_shape is {tuple(wanted)}, but images have {got}; give height and width, or "
                "height, width and channels, of the images in X"
            )
        return shape
    if seen is not None:
        return seen
    side = math.isqrt(features)
    if side * side == features:
        return (side, side, 1)
    warnings.warn(
        f"rows of {features} numbers are not square images; each is read as an image of one row. "
        f"Set image_shape, such as image_shape=(1, {features})",
        stacklevel=3,
    )
    return (1, features, 1)
