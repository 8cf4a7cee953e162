"""What is checked of smallNORB when only uncompressed files are there, without checksums."""

import numpy as np
import pytest

from clustercaps.data import DataError
from clustercaps.data.inspection import _verified
from clustercaps.data.norb import check_views
from clustercaps.data.rendering import FULL

CODES = ("instance", "elevation", "azimuth", "lighting")


def tiny():
    """Five classes and objects in two views each, with noise as images."""
    grid = np.meshgrid(range(5), FULL.train, [0], [0, 2], [3], indexing="ij")
    labels, *codes = (axis.reshape(-1) for axis in grid)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 2, 4, 4), np.uint8)
    return pixels, labels, dict(zip(CODES, codes, strict=True))


def test_complete_views_pass_and_others_do_not():
    pixels, labels, codes = tiny()
    check_views(FULL.train, pixels, labels, codes, "here")
    with pytest.raises(DataError, match=r"here: objects \[4, 6, 7, 8, 9\], expected \[0, 1, 2"):
        check_views(FULL.test, pixels, labels, codes, "here")
    with pytest.raises(DataError, match="40 images repeat the object and view of another"):
        check_views(FULL.train, pixels, labels * 0, codes, "here")
    with pytest.raises(DataError, match="50 images of a single grey level"):
        check_views(FULL.train, pixels * 0, labels, codes, "here")
    pixels[7] = 9
    with pytest.raises(DataError, match="1 images of a single grey level"):
        check_views(FULL.train, pixels, labels, codes, "here")


def test_the_report_says_what_was_verified():
    both = _verified("smallnorb", {"a.mat.gz": "checksum", "b.mat": "size", "c.mat": "size"})
    assert both[0] == "smallnorb: a.mat.gz: has the published checksum"
    assert both[1].startswith("smallnorb: b.mat, c.mat: each has the published size and header")
    assert both[1].endswith("so the pixels themselves are not verified")
