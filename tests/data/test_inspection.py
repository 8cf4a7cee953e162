"""What `clustercaps data` prints, and what importing the package costs."""

import subprocess
import sys

import pytest

from clustercaps.data import SETS, DataError, errors, load
from clustercaps.data.inspection import check, get, list_sets
from clustercaps.data.published import PUBLISHED


def quiet(_: str) -> None:
    pass


def test_list_names_every_set_and_what_is_cached(cache):
    def cached(name: str) -> str:
        return next(line.split()[5] for line in list_sets().splitlines() if line.startswith(name))

    assert {line.split()[0] for line in list_sets().splitlines()} >= {*SETS, "imagenet"}
    assert str(cache) in list_sets()
    assert cached("fashion-mnist-mini") == "built-in"
    assert cached("svhn") == "no"
    (cache / "svhn").mkdir(parents=True)
    (cache / "svhn" / "train_32x32.mat").touch()
    assert cached("svhn") == "no"
    (cache / "svhn" / "test_32x32.mat").touch()
    assert cached("svhn") == "yes"


def test_check_reports_counts_and_statistics():
    report = check("fashion-mnist-mini", say=quiet).splitlines()
    pixels = load("fashion-mnist-mini").pixels.double() / 255
    mean, std = pixels.mean(), pixels.std(correction=0)
    assert report[0] == (
        "fashion-mnist-mini 10,000 train images, 1,000 per class, "
        f"mean {mean:.4f}, standard deviation {std:.4f}"
    )
    assert report[-1] == ("fashion-mnist-mini: fashion_mnist_mini.xz: has the published checksum")


def test_check_fetches_nothing_and_get_says_what_is_missing(cache):
    with pytest.raises(DataError, match=r"svhn: not found .*data get svhn"):
        check("svhn", say=quiet)
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        get("svhn", say=quiet)
    assert "test_32x32.mat" in str(caught.value)
    assert not cache.exists()


def test_check_refuses_other_files(make_set):
    with pytest.raises(DataError, match="not the published file"):
        check("cifar10", make_set("cifar10"), quiet)


def test_get_of_the_embedded_set():
    assert get("fashion-mnist-mini", say=quiet) == (
        "fashion-mnist-mini: ready, 10,000 train images, 1,000 per class "
        "and 2,000 test images, 200 per class"
    )
    with pytest.raises(KeyError, match="did you mean 'mnist'"):
        get("mnits")


def test_check_of_a_folder(tmp_path):
    from PIL import Image

    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    lines = check(f"folder:{tmp_path}").splitlines()
    assert lines[0].endswith(f": 3 images, 2 classes of 1 to 2 in {tmp_path}, all decoded")
    assert lines[1].startswith("no subfolders train and test")
    (tmp_path / "a" / "2.png").write_bytes((tmp_path / "a" / "2.png").read_bytes()[:-20])
    (tmp_path / "b" / "1.png").write_bytes(b"")
    said: list[str] = []
    with pytest.raises(DataError, match=r"2 of 3 images cannot be read; repair or remove"):
        check(f"folder:{tmp_path}", say=said.append)
    assert [line.partition(": ")[0] for line in said] == [
        str(tmp_path / "a" / "2.png"),
        str(tmp_path / "b" / "1.png"),
    ]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_published_sizes_fit_the_counts(name, split):
    count, files = SETS[name].count(split), PUBLISHED[name].split(split)
    sizes = [file.size for file in files]
    if name == "cifar10":
        assert sum(sizes) == count * (1 + 3 * 32 * 32)
    else:
        assert sizes == [16 + 28 * 28 * count, 8 + count]


def test_missing_packages_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"cannot paint: not installed: pillow; run: pip"):
        errors.need("PIL", "paint")


def test_importing_loads_no_optional_package():
    code = (
        "import sys, clustercaps.data as d; d.load('fashion-mnist-mini', 'test');"
        "print(sorted({'scipy', 'PIL', 'requests'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
