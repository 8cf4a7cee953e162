"""Folders of class sub-folders, streamed."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from clustercaps.data import DataError, FolderImages, open_folder, read_image, statistics_of
from clustercaps.data.memory import decode, decoded_bytes


def picture(path, size=(40, 30), mode="RGB", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"RGB": 3, "L": 1, "RGBA": 4}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], channels))
    Image.fromarray(pixels.astype(np.uint8).squeeze(), mode).save(path)


@pytest.fixture
def root(tmp_path):
    """Two classes; 3 and 2 training images, 1 and 1 validation images, in several formats."""
    root = tmp_path / "pictures"
    for i, file in enumerate(("cat/a.png", "cat/b.JPEG", "cat/c.bmp", "dog/a.png", "dog/z.jpg")):
        picture(root / "train" / file, seed=i, size=(40 + i, 30))
    picture(root / "val" / "cat" / "x.png", mode="L", seed=8)
    picture(root / "val" / "dog" / "x.png", mode="RGBA", seed=9)
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / ".hidden").mkdir()
    return root


def small(name, split="train", **options):
    return open_folder(name, split, resize=16, crop=12, **options)


def test_classes_labels_and_sizes(root):
    train = small(f"folder:{root}")
    assert train.class_names == ("cat", "dog")
    assert train.num_classes == 2
    assert train.labels.tolist() == [0, 0, 0, 1, 1]
    assert [train.path(i).name for i in range(5)] == ["a.png", "b.JPEG", "c.bmp", "a.png", "z.jpg"]
    pixels, label = train[3]
    assert pixels.shape == (3, 12, 12)
    assert pixels.dtype == torch.uint8
    assert label == 1


def test_test_images_are_the_centre_of_the_resized_image(root):
    test = small(f"folder:{root}", "test")
    pixels, _ = test[0]
    with Image.open(root / "val" / "cat" / "x.png") as image:
        resized = np.asarray(image.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    assert np.array_equal(pixels.permute(1, 2, 0).numpy(), resized[2:14, 2:14])
    # Grey becomes three equal channels.
    assert torch.equal(pixels[0], pixels[1])
    assert test[1][0].shape == (3, 12, 12)


def test_training_crops_are_parts_of_the_resized_image(root):
    train = small(f"folder:{root}")
    whole = read_image(train.path(0), 16)
    seen = set()
    for epoch in range(60):
        train.set_epoch(epoch)
        pixels, _ = train[0]
        found = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(
                whole[:, top : top + 12, left : left + 12].flip(-1)
                if mirrored
                else whole[:, top : top + 12, left : left + 12],
                pixels,
            )
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 20
    assert {top for top, _, _ in seen} == {left for _, left, _ in seen} == set(range(5))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def test_training_crops_of_random_area(root):
    train = small(f"folder:{root}")
    train.crop_area = 0.3
    whole = read_image(train.path(0), 16)
    crops = []
    for epoch in range(30):
        train.set_epoch(epoch)
        pixels, label = train[0]
        assert (pixels.dtype, pixels.shape, label) == (torch.uint8, (3, 12, 12), 0)
        # Between pixels, no value is outside those of the image.
        assert whole.min() <= pixels.min() <= pixels.max() <= whole.max()
        assert torch.equal(pixels, train[0][0])
        crops.append(pixels)
    assert len({crop.numpy().tobytes() for crop in crops}) == 30
    # Test images are not cropped at random.
    assert torch.equal(train.unaugmented()[0][0], whole[:, 2:14, 2:14])


def epoch_of(loader):
    return torch.cat([pixels for pixels, _ in loader])


def test_workers_do_not_change_the_images(root):
    train = small(f"folder:{root}", seed=1)
    workers = DataLoader(train, 2, num_workers=2, persistent_workers=True)
    results = []
    for epoch in (0, 1):
        train.set_epoch(epoch)
        alone = epoch_of(DataLoader(train, 3))
        # The same workers live through both epochs, and must notice the second.
        assert torch.equal(epoch_of(workers), alone)
        results.append(alone)
    assert not torch.equal(*results)
    train.set_epoch(0)
    assert torch.equal(epoch_of(DataLoader(train, 5)), results[0])
    assert not torch.equal(epoch_of(DataLoader(small(f"folder:{root}", seed=2), 5)), results[0])


def test_imagenet_is_looked_for_in_the_given_folder_or_the_cache(root, cache):
    assert len(small("imagenet", data_dir=root)) == 5
    with pytest.raises(DataError, match=r"imagenet: cannot read folder .no such file"):
        small("imagenet")
    cache.mkdir()
    (cache / "imagenet").symlink_to(root)
    assert len(small("imagenet", "test")) == 2


def test_class_folders_directly(root):
    everything = small(f"folder:{root / 'train'}", "all")
    assert len(everything) == 5
    assert torch.equal(everything[0][0], everything[0][0])
    assert not everything.augment


def test_a_fifth_of_an_undivided_folder_is_held_out(root):
    for number in range(20):
        picture(root / "train" / "cat" / f"more-{number}.png", seed=number)
    name = f"folder:{root / 'train'}"
    train, test = small(name, "train", seed=1), small(name, "test", seed=2)
    assert train.augment
    assert not test.augment
    # 23 cats and 2 dogs: round(0.2 * 23) and round(0.2 * 2).
    assert torch.bincount(test.labels, minlength=2).tolist() == [5, 0]
    paths = [{part.path(i) for i in range(len(part))} for part in (train, test)]
    assert len(paths[0] | paths[1]) == 25
    assert not paths[0] & paths[1]
    assert paths[1] == {test.path(i) for i in range(len(small(name, "test")))}
    few = root / "val"
    with pytest.raises(DataError, match="too few images to hold out a fifth"):
        small(f"folder:{few}")
    (root / "other").mkdir()
    (root / "train").rename(root / "other" / "train")
    with pytest.raises(DataError, match=r"no subfolder test or val.*a fifth is then held out"):
        small(f"folder:{root / 'other'}", "test")


def test_decoded_folders_are_the_same_images(root):
    train, test = small(f"folder:{root}"), small(f"folder:{root}", "test")
    whole, centre = decode(train, "mine"), decode(test, "mine")
    assert whole.pixels.shape == (5, 3, 16, 16)
    assert torch.equal(whole.pixels[1], read_image(train.path(1), 16))
    assert torch.equal(centre.pixels, torch.stack([test[i][0] for i in range(2)]))
    assert decoded_bytes(train) == whole.pixels.numel()
    assert decoded_bytes(test) == centre.pixels.numel()
    assert whole.meta["class_names"] == ("cat", "dog")
    part = train.subset(torch.tensor([4, 0]))
    assert [part.path(i).name for i in range(2)] == ["z.jpg", "a.png"]
    (root / "train" / "cat" / "b.JPEG").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"b\.JPEG: not a readable image"):
        decode(train, "mine")


def test_statistics_of_streamed_and_decoded_images(root):
    test = small(f"folder:{root}", "test")
    mean, std = statistics_of(test)
    pixels = decode(test, "mine").pixels.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())
    assert statistics_of(decode(test, "mine")) == (mean, std)


def test_class_numbers_are_those_of_the_training_folder(root):
    (root / "val" / "cat" / "x.png").unlink()
    (root / "val" / "cat").rmdir()
    assert small(f"folder:{root}", "test").labels.tolist() == [1]
    picture(root / "val" / "bird" / "x.png")
    with pytest.raises(DataError, match=r"bird: not a class of the training folder.*cat, dog"):
        small(f"folder:{root}", "test")


def test_refusals(root, tmp_path, monkeypatch):
    (root / "train" / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no images"):
        small(f"folder:{root}")
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="bare: no class subfolders"):
        small(f"folder:{tmp_path / 'bare'}")
    with pytest.raises(DataError, match=r"cannot read folder .no such file"):
        small(f"folder:{tmp_path / 'nowhere'}")
    with pytest.raises(KeyError, match="did you mean 'imagenet'"):
        small("image-net")
    with pytest.raises(ValueError, match="split must be"):
        small(f"folder:{root}", "val")
    with pytest.raises(ValueError, match="crop must be between 1 and resize, got 20 and 10"):
        FolderImages(root / "val", resize=10, crop=20)

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(DataError, match="permission denied"):
        small(f"folder:{root}", "test")


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x89PNG\r\n\x1a\n", None])
def test_an_unreadable_image_is_named(root, content):
    path = root / "train" / "cat" / "a.png"
    path.write_bytes(path.read_bytes()[:-200] if content is None else content)
    train = small(f"folder:{root}")
    with pytest.raises(DataError, match=r"cat/a\.png: not a readable image") as caught:
        train[0]
    assert "\n" not in str(caught.value)
    assert train[1][0].shape == (3, 12, 12)


def test_an_error_in_a_worker_process_is_one_line(root):
    (root / "train" / "cat" / "a.png").write_bytes(b"no image")
    train = small(f"folder:{root}")
    with pytest.raises(DataError) as caught:
        epoch_of(DataLoader(train, 2, num_workers=1))
    assert str(caught.value).startswith(f"{root / 'train' / 'cat' / 'a.png'}: not a readable image")
    assert "\n" not in str(caught.value)
