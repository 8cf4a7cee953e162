"""What is damaged: every file format, run folder file, archive and command line.

A target writes good files and reads them as a user would. What it returns stands for the content:
the same text means that nothing was lost. `checked` formats have a checksum, so that no other
content may be accepted; in the others, another legal value cannot be told from the original.
"""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from helpers.small_sets import MAKERS
from PIL import Image

from clustercaps import data
from clustercaps.data.archives import tar_members, zip_members
from clustercaps.data.published import PUBLISHED
from clustercaps.data.sources import obtain
from clustercaps.experiments.harness.page import fragments
from clustercaps.models import from_pretrained
from clustercaps.models.packaged import WEIGHTS
from clustercaps.training.checkpoint import load_checkpoint, save_checkpoint
from clustercaps.training.run_folder import RunFolder

ROOT = Path(__file__).parent.parent.parent
RUN = WEIGHTS / "m1-fashion-mnist"


class IllegalError(Exception):
    """A value was accepted that no good file could have."""


@dataclass(frozen=True)
class Target:
    """A format: how to write it, how to read it, and whether it has a checksum.

    Args:
        make: writes good files into an empty folder; returns those to damage, or a command line.
        use: reads the folder; returns a text for its content, or the exit code of a command.
        checked: whether every change of the content must be noticed.
        text: whether files are text.
        share: mutants, relative to other targets.
    """

    make: Callable[[Path], list[Any]]
    use: Callable[[Path], str]
    checked: bool = False
    text: bool = False
    share: int = 4


def digest(*parts: Any) -> str:
    together = hashlib.sha256()
    for part in parts:
        value = part.detach().numpy() if isinstance(part, torch.Tensor) else part
        together.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return together.hexdigest()


def require(holds: bool, what: str) -> None:
    if not holds:
        raise IllegalError(what)


def dataset(name: str, unpacked: bool = False, verify: bool = False) -> Target:
    """The training files of a small set; with `verify`, checksums as if it were published."""

    def make(folder: Path) -> list[Path]:
        contents = MAKERS[name](4, np.random.default_rng(0))
        wanted = {n for file in PUBLISHED[name].train for n in (file.name, *file.aliases)}
        files = []
        for file, blob in contents.items():
            if file in wanted:
                path = folder / (file.removesuffix(".gz") if unpacked else file)
                path.write_bytes(gzip.decompress(blob) if unpacked else blob)
                files.append(path)
        return files

    def use(folder: Path) -> str:
        if verify:
            return verified(name, folder)
        known = data.SETS[name]
        images = data.load(name, "train", folder, verify=False, say=print, fetch=False)
        require(tuple(images.pixels.shape[1:]) == known.shape, "shape")
        require(int(images.labels.min()) >= 0, "labels")
        require(int(images.labels.max()) < known.num_classes, "labels")
        extra = [v for k, v in sorted(images.meta.items()) if isinstance(v, torch.Tensor)]
        return digest(images.pixels, images.labels, *extra)

    # A gzip file ends with the checksum of its content.
    return Target(make, use, checked=verify or (name in ("mnist", "smallnorb") and not unpacked))


def verified(name: str, folder: Path) -> str:
    """Read the files as if their present checksums had been published."""
    good = MAKERS[name](4, np.random.default_rng(0))
    files = []
    for file in PUBLISHED[name].train:
        blob = good.get(file.name) or gzip.decompress(good[f"{file.name}.gz"])
        md5 = hashlib.md5(blob, usedforsecurity=False).hexdigest()
        files.append(replace(file, size=len(blob), digest=f"md5:{md5}"))
    with patch.dict(PUBLISHED, {name: replace(PUBLISHED[name], train=tuple(files))}):
        contents, _ = obtain(name, "train", folder, True, lambda _: None, fetch=False)
    return digest(*(content.data for content in contents))


def make_cifar_archive(folder: Path) -> list[Path]:
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, blob in MAKERS["cifar10"](2, np.random.default_rng(0)).items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    return [path]


def make_plain_tar(folder: Path) -> list[Path]:
    """A tar archive that is damaged before it is compressed, so that no checksum helps."""
    make_cifar_archive(folder)
    packed = folder / "cifar-10-binary.tar.gz"
    (folder / "plain.tar").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return [folder / "plain.tar"]


def use_plain_tar(folder: Path) -> str:
    blob = (folder / "plain.tar").read_bytes() if (folder / "plain.tar").is_file() else b""
    (folder / "plain.tar.gz").write_bytes(gzip.compress(blob, 1))
    names = [f"cifar-10-batches-bin/{file.name}" for file in PUBLISHED["cifar10"].files]
    return digest(tar_members(folder / "plain.tar.gz", names, 10**6))


def make_wheel(folder: Path) -> list[Path]:
    with zipfile.ZipFile(folder / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in ("a", "b"):
            wheel.writestr(f"in/{name}", np.random.default_rng(0).bytes(3000))
    return [folder / "a.whl"]


def image(suffix: str, mode: str = "RGB", **options: Any) -> Target:
    def make(folder: Path) -> list[Path]:
        noise = np.random.default_rng(0).integers(0, 256, (20, 24, 4), np.uint8)
        picture = Image.fromarray(noise, "RGBA").convert("RGB" if mode == "I;16" else mode)
        if mode == "I;16":
            picture = Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257)
        (folder / "train" / "cat").mkdir(parents=True)
        path = folder / "train" / "cat" / f"a{suffix}"
        picture.save(path, **options)
        return [path]

    def use(folder: Path) -> str:
        pixels, label = data.open_folder(f"folder:{folder}", resize=16, crop=16)[0]
        require(tuple(pixels.shape) == (3, 16, 16) and label == 0, "shape")
        return digest(data.read_image(folder / "train" / "cat" / f"a{suffix}", 16))

    # Only PNG has checksums.
    return Target(make, use, checked=suffix == ".png", share=3)


def model_file(file: str, text: bool) -> Target:
    def make(folder: Path) -> list[Path]:
        for path in (RUN / "model").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        return [folder / file]

    def use(folder: Path) -> str:
        model = from_pretrained(folder)
        size = sum(p.numel() for p in model.parameters())
        require(all(bool(p.isfinite().all()) for p in model.parameters()), "weights")
        require(size == 145_738, "size")
        return digest(*model.parameters(), sorted(model.settings.items()))

    return Target(make, use, text=text)


def run_file(file: str) -> Target:
    def make(folder: Path) -> list[Path]:
        for name in ("settings.json", "result.json"):
            (folder / name).write_bytes((RUN / name).read_bytes())
        train = {"train_loss": 0.5, "train_error": 8.0}
        lines = [{"epoch": n, **train, "test_error": 9.0 - n, "seconds": 2.0} for n in (1, 2, 3)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
        counts = {"confusion": [[3, 1], [0, 4]], "loss_sum": 1.5, "top5_misses": 0}
        content = {"class_names": ["a", "b"], "test": counts}
        (folder / "confusion.json").write_text(json.dumps(content))
        return [folder / file]

    def use(folder: Path) -> str:
        run = RunFolder(folder)
        parts = (run.settings, run.result, run.metrics(), run.last_test)
        for line in parts[2] or ():
            float(line["epoch"] + line["seconds"] + line.get("test_error", 0))
        return digest(*parts)

    return Target(make, use, text=True)


def make_checkpoint(folder: Path) -> list[Path]:
    tensors = {"model.a": torch.arange(6.0).view(2, 3), "optimizer.0.step": torch.ones(1)}
    state, run = {"epoch": 1, "step": 2}, {"settings": {"model": "m1"}}
    save_checkpoint(folder / "checkpoint.safetensors", tensors, state, run)
    return [folder / "checkpoint.safetensors"]


def use_checkpoint(folder: Path) -> str:
    tensors, state, run = load_checkpoint(folder / "checkpoint.safetensors")
    require(isinstance(state, dict) and isinstance(run, dict), "state and identity")
    return digest(*(tensors[name] for name in sorted(tensors)), sorted(tensors), state, run)


def make_results(folder: Path) -> list[Path]:
    name = "ablation-quick.csv"
    (folder / name).write_bytes((ROOT / "results" / name).read_bytes())
    return [folder / name]


def use_results(folder: Path) -> str:
    return digest(sorted(fragments(folder)["ablation"].items()))


TARGETS: dict[str, Target] = {
    "IDX": dataset("mnist", unpacked=True),
    "IDX, gzip": dataset("mnist"),
    "IDX, checksum": dataset("mnist", verify=True),
    "CIFAR batch": dataset("cifar10"),
    "CIFAR batch, checksum": dataset("cifar10", verify=True),
    "CIFAR archive": Target(
        make_cifar_archive,
        lambda folder: digest(
            data.load("cifar10", "train", folder, verify=False, fetch=False).pixels
        ),
        checked=True,
    ),
    "tar headers": Target(make_plain_tar, use_plain_tar),
    "zip archive": Target(
        make_wheel, lambda f: digest(zip_members(f / "a.whl", ["in/a", "in/b"], 6000)), checked=True
    ),
    "NORB matrices": dataset("smallnorb", unpacked=True),
    "NORB matrices, gzip": replace(dataset("smallnorb"), share=2),
    "SVHN .mat": replace(dataset("svhn"), share=8),
    "PNG": image(".png"),
    "PNG, 16-bit": image(".png", "I;16"),
    "PNG, palette": image(".png", "P"),
    "JPEG": image(".jpg"),
    "GIF": image(".gif", "P"),
    "BMP": image(".bmp"),
    "TIFF": image(".tif"),
    "TIFF, 16-bit": image(".tif", "I;16"),
    "WebP": image(".webp", "RGBA"),
    "PPM": image(".ppm"),
    "model.safetensors": model_file("model.safetensors", text=False),
    "config.json": model_file("config.json", text=True),
    "settings.json": run_file("settings.json"),
    "result.json": run_file("result.json"),
    "metrics.jsonl": run_file("metrics.jsonl"),
    "confusion.json": run_file("confusion.json"),
    "checkpoint": Target(make_checkpoint, use_checkpoint, checked=True),
    "results CSV": Target(make_results, use_results, text=True, share=2),
}
