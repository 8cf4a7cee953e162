"""`clustercaps export`: what is written, verified and refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.untrained import untrained
from PIL import Image

from clustercaps.cli import main
from clustercaps.export import programs, samples, verify, write
from clustercaps.export.card import FUSED, PLAIN
from clustercaps.export.classifier import ExportedClassifier
from clustercaps.export.onnx_file import positive_digamma
from clustercaps.export.reading import open_exported
from clustercaps.export.samples import draw_samples
from clustercaps.export.write import Exported, export
from clustercaps.training.finished import Trained

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "TURNS", 1)


# Small sizes, of the networks whose operators differ: routing by clusters, iterations, pooling.
@pytest.fixture(scope="module")
def trained() -> Trained:
    return untrained("m1", dim=2, votes=3)


@pytest.fixture(scope="module")
def onnx(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    out = tmp_path_factory.mktemp("onnx") / "new folder" / "m1.onnx"
    return export(trained, "onnx", out, draw_samples(trained))


@pytest.fixture(scope="module")
def pt2(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    out = tmp_path_factory.mktemp("pt2") / "m1.pt2"
    return export(trained, "pt2", out, draw_samples(trained))


def draw_files(folder: Path) -> list[Path]:
    """Grey and colour, not square, upright and not."""
    colours = np.random.default_rng(0).integers(0, 256, (20, 33, 3), dtype=np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(colours[..., 0]).save(folder / "grey.png")
    Image.fromarray(colours).save(folder / "colour.png")
    Image.fromarray(colours).save(folder / "turned.jpg", exif=turned)
    return sorted(folder.iterdir())


def test_probabilities_are_those_of_the_network(
    trained: Trained, onnx: Exported, pt2: Exported, tmp_path: Path
) -> None:
    files = draw_files(tmp_path)
    expected = torch.stack(list(trained.predict(files)))
    for path in (onnx.path, pt2.path):
        actual = torch.from_numpy(np.stack(list(open_exported(path).predict(files))))
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_probabilities_of_images_in_colour(tmp_path: Path) -> None:
    trained = untrained("affine_cnn", in_chans=3)
    path = export(trained, "onnx", tmp_path / "net.onnx", draw_samples(trained)).path
    (tmp_path / "images").mkdir()
    files = draw_files(tmp_path / "images")
    expected = torch.stack(list(trained.predict(files)))
    actual = torch.from_numpy(np.stack(list(open_exported(path).predict(files))))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_predict_with_onnx_does_not_import_torch(
    trained: Trained, onnx: Exported, tmp_path: Path
) -> None:
    files = [str(path) for path in draw_files(tmp_path)]
    command = ["predict", str(onnx.path), *files]
    code = (
        f"import sys; from clustercaps.cli import main; assert main({command}) == 0; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *table, last = done.stdout.splitlines()
    assert last == "False"
    best = next(trained.predict([Path(files[0])])).argmax()
    assert f"class {int(best)} " in next(line for line in table if files[0] in line)


def test_onnx_is_one_file_of_standard_operators(onnx: Exported) -> None:
    import onnx as package

    assert [path.name for path in onnx.path.parent.iterdir()] == ["m1.onnx"]
    model = package.load(onnx.path, load_external_data=False)
    package.checker.check_model(model)
    assert {node.domain for node in model.graph.node} == {""}
    assert [entry.domain for entry in model.opset_import] == [""]
    (batch, *shape) = model.graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_param
    assert [side.dim_value for side in shape] == [1, 12, 12]
    # No path of the machine that wrote it.
    assert str(Path(write.__file__).parent.parent).encode() not in onnx.path.read_bytes()
    assert onnx.card.operators == PLAIN


def test_pt2_keeps_the_fused_operator(trained: Trained, pt2: Exported) -> None:
    assert pt2.card.operators == FUSED
    assert "import clustercaps.kernels" in write.describe(pt2)
    assert pt2.verified.difference == 0
    program = torch.export.load(pt2.path)
    called = {str(node.target) for node in program.graph.nodes if "capsules" in str(node.target)}
    assert "clustercaps.inferred_capsules.default" in called
    assert str(Path(write.__file__).parent.parent).encode() not in pt2.path.read_bytes()


def test_plain_pt2_needs_no_clustercaps(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / "m1.pt2"
    done = export(trained, "pt2", path, draw_samples(trained), plain=True)
    assert done.card.operators == PLAIN
    code = (
        f"import sys, torch; program = torch.export.load({str(path)!r}).module(); "
        "print(tuple(program(torch.zeros(3, 1, 12, 12)).shape), 'clustercaps' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "(3, 10) False"


def test_without_the_kernel_the_operators_are_plain_and_it_says_so(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "why_not_fused", lambda: "there is no compiler")
    done = export(trained, "pt2", tmp_path / "m1.pt2", draw_samples(trained))
    assert done.card.operators == PLAIN
    assert "(no fused operator, because there is no compiler)" in write.describe(done)


@pytest.mark.parametrize("change", [1e-2, float("nan")])
def test_a_file_that_disagrees_is_not_written(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    def opened(path: Path, threads: int) -> ExportedClassifier:
        right = open_exported(path, threads)
        # Only the last image of the larger batch is wrong.
        return ExportedClassifier(right.card, lambda images: spoilt(right.run(images)))

    def spoilt(logits: np.ndarray) -> np.ndarray:
        logits = logits.copy()
        logits[15:, 0] += change * np.abs(logits).max()
        return logits

    monkeypatch.setattr(write, "open_exported", opened)
    out = tmp_path / "folder" / "m1.pt2"
    with pytest.raises(ValueError, match=r"differs from the original by .* nothing was written"):
        export(trained, "pt2", out, draw_samples(trained))
    assert not out.parent.exists()


def test_an_existing_file_stays_until_the_new_one_is_verified(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m1.pt2"
    out.write_text("before")
    for name in ("TOLERANCE", "NEGLIGIBLE"):
        monkeypatch.setattr(verify, name, -1.0)
    with pytest.raises(ValueError, match="nothing was written"):
        export(trained, "pt2", out, draw_samples(trained))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
    monkeypatch.undo()
    export(trained, "pt2", out, draw_samples(trained))
    assert open_exported(out).class_names[0] == "class 0"
    assert [path.name for path in tmp_path.iterdir()] == ["m1.pt2"]


def test_what_it_is_compared_on(trained: Trained, tmp_path: Path) -> None:
    drawn = draw_samples(trained)
    assert drawn.origin.startswith("noise")
    assert torch.equal(drawn.images, draw_samples(trained).images)
    own = draw_samples(trained, [str(path) for path in draw_files(tmp_path)])
    assert own.origin == "3 of your images"
    assert own.images.shape == drawn.images.shape == (max(samples.BATCHES), 1, 12, 12)
    packaged = draw_samples(Trained.open("m1:fashion-mnist"))
    assert packaged.origin == "16 test images of fashion-mnist"
    assert packaged.images.flatten(1).unique(dim=0).shape[0] == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m1:fashion-mnist", "--format", "onnx", "--out", "m1.pt2"], "must end in .onnx"),
        (["m1:fashion-mnist", "--format", "pt2", "--out", "folder.pt2"], "it is a folder"),
        (["m1:no-data", "--format", "pt2"], "unknown dataset for weights of m1"),
        (["missing", "--format", "pt2"], "missing is "),
        (["m1:fashion-mnist", "--format", "pt2", "--images", "no.png"], "no image at no.png"),
    ],
)
def test_refused_before_any_work(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.pt2").mkdir()
    assert main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder.pt2"]


def test_aoti_without_a_compiler_is_refused(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    with pytest.raises(OSError, match="--format aoti compiles C"):
        export(trained, "aoti", tmp_path / "m1.pt2", draw_samples(trained))
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_onnx_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = untrained("affine_cnn")
    monkeypatch.setattr(
        type(trained.model), "forward_head", lambda self, x: torch.special.i0(x.flatten(1)[:, :10])
    )
    with pytest.raises(ValueError, match=r"no operator for .*i0, which AffineCNN needs; use"):
        export(trained, "onnx", tmp_path / "net.onnx", draw_samples(trained))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["net.onnx", "net.pt2"])
@pytest.mark.parametrize("content", [b"", b"no network", b"PK\x05\x06" + b"\0" * 18])
def test_other_files_are_refused_by_predict(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("L", (12, 12)).save(tmp_path / "image.png")
    (tmp_path / name).write_bytes(content)
    assert main(["predict", str(tmp_path / name), str(tmp_path / "image.png")]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / name) in error
    assert error.count("\n") == 1


def test_digamma_of_positive_numbers() -> None:
    x = torch.logspace(-3, 5, 500)
    torch.testing.assert_close(positive_digamma(x), torch.digamma(x), rtol=1e-5, atol=2e-6)


def test_the_program_takes_batches_of_any_size(trained: Trained, pt2: Exported) -> None:
    run = open_exported(pt2.path).run
    images = np.random.default_rng(0).random((5, 1, 12, 12), np.float32)
    for size in (1, 2, 5):
        assert run(images[:size]).shape == (size, 10)
    assert programs.operators_of(torch.export.load(pt2.path)) == FUSED
