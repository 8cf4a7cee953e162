"""Image files of every colour mode, and every refusal."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clustercaps.data import DataError, read_image

RAMP = np.linspace(0, 1, 16)
GREY = np.tile((RAMP * 255).round(), (16, 1)).astype(np.uint8)


def read(path: Path) -> torch.Tensor:
    return read_image(path, 16)


def test_sixteen_bits_are_scaled_by_their_range(tmp_path: Path) -> None:
    wide = np.tile((RAMP * 65535).round(), (16, 1)).astype(np.uint16)
    for name in ("a.png", "a.tif", "a.pgm"):
        if name == "a.pgm":
            # Pillow 10 reads this, but does not write it.
            (tmp_path / name).write_bytes(b"P5 16 16 65535\n" + wide.astype(">u2").tobytes())
        else:
            Image.fromarray(wide).save(tmp_path / name)
        pixels = read(tmp_path / name)
        assert pixels[0, 0].tolist() == GREY[0].tolist(), name
        assert torch.equal(pixels[0], pixels[2])
    # The range of the type, not of the image: twelve bits stay dark.
    Image.fromarray(wide // 16).save(tmp_path / "twelve.png")
    assert int(read(tmp_path / "twelve.png").max()) == round(4095 / 257)


def test_floats_in_0_to_1_are_read_and_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for low, high, fine in [(0, 1, True), (0, 255, False), (-1, 1, False), (0, np.nan, False)]:
        values = np.full((16, 16), high, np.float32)
        values[:, :8] = low
        Image.fromarray(values).save(path)
        if fine:
            assert read(path)[1, 0].tolist() == [0] * 8 + [255] * 8
        else:
            with pytest.raises(DataError, match=r"a\.tif: floating-point pixels .*0 to 1; scale"):
                read(path)


def test_integers_of_unknown_range_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 70000, np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: 32-bit .*save them with 8 or 16 bits"):
        read(tmp_path / "a.tif")


def test_transparency_is_shown_over_white(tmp_path: Path) -> None:
    half = np.zeros((16, 16, 4), np.uint8)
    half[:, 8:, 3] = 255
    Image.fromarray(half, "RGBA").save(tmp_path / "rgba.png")
    Image.fromarray(half, "RGBA").convert("LA").save(tmp_path / "la.png")
    palette = Image.fromarray(half[:, :, 3] // 255, "P")
    palette.putpalette([9, 9, 9, 0, 0, 0])
    palette.save(tmp_path / "p.png", transparency=0)
    for name in ("rgba.png", "la.png", "p.png"):
        assert read(tmp_path / name)[0, 0].tolist() == [255] * 8 + [0] * 8, name


def test_other_colour_modes(tmp_path: Path) -> None:
    plain = Image.fromarray(np.stack([GREY, GREY.T, 255 - GREY], -1))
    plain.save(tmp_path / "rgb.png")
    expected = read(tmp_path / "rgb.png")
    assert expected[0, 0].tolist() == GREY[0].tolist()
    plain.convert("CMYK").save(tmp_path / "cmyk.tif")
    assert torch.equal(read(tmp_path / "cmyk.tif"), expected)
    plain.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "p.gif")
    assert (read(tmp_path / "p.gif").float() - expected.float()).abs().mean() < 8
    Image.fromarray(GREY > 127).save(tmp_path / "bits.png")
    assert read(tmp_path / "bits.png")[2, 0].tolist() == [0] * 8 + [255] * 8
    plain.convert("YCbCr").save(tmp_path / "ycc.jpg", quality=95)
    assert (read(tmp_path / "ycc.jpg").float() - expected.float()).abs().mean() < 16


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_camera_is_applied(tmp_path: Path, orientation: int) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    for name, values in (("a.png", GREY), ("b.png", GREY.astype(np.uint16) * 257)):
        Image.fromarray(values).save(tmp_path / name, exif=exif)
        with Image.open(tmp_path / name) as image:
            seen = np.asarray(ImageOps.exif_transpose(image).convert("I")) % 257
        if name == "a.png":
            assert np.array_equal(read(tmp_path / name)[0].numpy(), seen)
        assert torch.equal(read(tmp_path / name), read(tmp_path / "a.png"))


def test_a_changed_byte_in_a_png_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    good = path.read_bytes()
    for place in range(60, len(good) - 30, 97):
        path.write_bytes(good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
        with pytest.raises(DataError, match=r"a\.png: not a readable image") as caught:
            read(path)
        assert "BytesIO" not in str(caught.value)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png: cannot read file .*a named pipe"):
        read(tmp_path / "pipe.png")
    with pytest.raises(DataError, match="a device"):
        read(Path("/dev/zero"))
    with pytest.raises(DataError, match="is a directory"):
        read(tmp_path)
