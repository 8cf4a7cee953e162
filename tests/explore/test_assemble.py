"""The page as one file: what is inside, what is refused, and what texts from a run can do."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clustercaps import create_model, data
from clustercaps.cli import main
from clustercaps.explore import assemble
from clustercaps.explore.content import as_stored, pack_weights, record
from clustercaps.explore.sources import open_source, plain
from clustercaps.models import ClassCapsuleNet
from clustercaps.models.packaged import WEIGHTS
from clustercaps.training.run_folder import RESULT, SETTINGS, RunFolder
from clustercaps.training.settings import resolve

HOSTILE = "</script><img src=x onerror=alert(1)><!--"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run as `train` leaves it, with class names of its own."""
    folder = tmp_path / "run"
    folder.mkdir()
    settings = resolve("m1", "fashion-mnist-mini", model_settings={"dim": 2, "votes": 2})
    (folder / SETTINGS).write_text(settings.to_json())
    model = create_model("m1", in_chans=1, dim=2, votes=2)
    model.save_pretrained(folder / "model")
    names = [HOSTILE, *map(str, range(9))]
    result = {"class_names": names, "test_error": None, "commit": HOSTILE, "epochs": 3}
    (folder / RESULT).write_text(json.dumps(result))
    return folder


def small(folder: Path | str, dataset: str | None = None) -> dict[str, Any]:
    return record(open_source(str(folder), dataset), "id", per_class=2)


def data_of(page: str) -> dict[str, Any]:
    found = re.findall(r'id="explorer-data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def test_texts_of_a_run_stay_texts(run: Path) -> None:
    page = assemble.assemble({"networks": [small(run)]})
    network = data_of(page)["networks"][0]
    assert network["classes"][0] == HOSTILE
    assert network["card"]["commit"] == HOSTILE
    assert network["card"]["error"] is None
    assert "onerror" in page
    assert "<img" not in page
    # The markup has the same elements whatever the content is.
    elements = re.compile(r"<[a-zA-Z!/][^>]*>")
    assert elements.findall(page) == elements.findall(assemble.assemble({"networks": []}))


def test_the_page_allows_no_request(run: Path) -> None:
    page = assemble.assemble({"networks": [small(run)]})
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert len(policy) == 1
    assert "default-src 'none'" in policy[0]
    assert "connect-src 'none'" in policy[0]
    assert "unsafe" not in policy[0]
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(script) == 1
    assert assemble.digest(script[0]) in policy[0]
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_images_and_predictions_are_what_torch_sees(run: Path) -> None:
    source = open_source(str(run))
    network = record(source, "id", per_class=2)
    shape = (32, 32, 1)
    stored = [
        torch.frombuffer(bytearray(base64.b64decode(image["pixels"])), dtype=torch.uint8)
        .view(shape)
        .permute(2, 0, 1)
        for image in network["images"]
    ]
    labels = [image["label"] for image in network["images"]]
    assert all(labels[:20].count(label) == 2 for label in range(10))
    wrong = [image for image in network["images"] if image["label"] != image["predicted"]]
    assert len(network["images"]) == 20 + 20
    assert len(wrong) >= 20
    images = data.load("fashion-mnist-mini", "test")
    first = int((images.labels == labels[0]).nonzero()[0])
    assert torch.equal(stored[0], as_stored(source.prepare, images.pixels[first : first + 1])[0])
    expected = source.model(source.prepare(images.pixels[first : first + 1])).argmax(1)
    assert network["images"][0]["predicted"] == int(expected)


def test_averages_are_means_of_routing_weights(run: Path) -> None:
    network = small(run)
    layers = network["layers"]
    assert len(network["averages"]) == len(layers) == 5
    for average, layer in zip(network["averages"], layers, strict=True):
        found = torch.frombuffer(bytearray(base64.b64decode(average)), dtype=torch.float32)
        found = found.view(10, layer["clusters"], layer["channels"], layer["dim"])
        torch.testing.assert_close(found.sum(1), torch.ones_like(found[:, 0]))
        assert found.std() > 0


def test_only_weights_that_stay_as_they_are_and_decoders_have_16_bits() -> None:
    model = ClassCapsuleNet(dim=2, votes=2, channels=2)
    packed = pack_weights(model)
    assert packed["decoder.layers.2.weight"].dtype == torch.float16
    assert packed["capsules.layers.0.vote.weight"].dtype == torch.float32
    # Ones.
    assert packed["capsules.layers.0.norm.weight"].dtype == torch.float16
    model.decoder.layers[0].weight.data[0, 0] = 1e6
    assert pack_weights(model)["decoder.layers.0.weight"].dtype == torch.float32


def replace_weight(run: Path, name: str, tensor: torch.Tensor | None) -> None:
    file = run / "model" / "model.safetensors"
    tensors = load_file(file)
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    save_file(tensors, file)


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


BIASES = "capsules.layers.1.vote.bias"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: replace_weight(run, BIASES, torch.full((64,), torch.nan)), "NaN or infinity"),
        (lambda run: replace_weight(run, BIASES, None), f"{BIASES} is missing"),
        (lambda run: replace_weight(run, BIASES, torch.ones(3)), "has shape (3,)"),
        (lambda run: (run / "model" / "model.safetensors").write_bytes(b"\xff" * 40), "corrupt"),
        (lambda run: (run / "model" / "model.safetensors").unlink(), "is missing"),
        (lambda run: (run / "model" / "config.json").write_text("[1]"), "expected a JSON object"),
        (lambda run: change_json(run / "model" / "config.json", dim=10**5), "parameters; the page"),
        (lambda run: change_json(run / "model" / "config.json", dim=10**12), "not describe"),
        (lambda run: change_json(run / "model" / "config.json", dim="x"), "not describe"),
        (lambda run: change_json(run / "model" / "config.json", routing="em"), "routing of the"),
        (
            lambda run: change_json(run / "model" / "config.json", architecture="Evil"),
            "unknown network of the explorer 'Evil'",
        ),
        (
            lambda run: change_json(run / RESULT, class_names=["one"]),
            "names 1 classes, but the network in",
        ),
        (lambda run: change_json(run / RESULT, class_names=7), "must be a list of names"),
        (lambda run: (run / RESULT).unlink(), "is not finished"),
        (lambda run: (run / SETTINGS).unlink(), "has no preprocessing"),
    ],
)
def test_broken_runs_are_refused_in_one_line(
    damage: Any, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run)
    out = tmp_path / "page.html"
    assert main(["explore", str(run), "--no-open", "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("out", "message"),
    [("folder.html", "is a folder"), ("page.txt", ".html"), ("no/page.html", "does not exist")],
)
def test_bad_outputs_are_refused_before_any_work(
    out: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.html").mkdir()
    assert main(["explore", "nothing", "--no-open", "--out", str(tmp_path / out)]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_too_large_a_page_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "MOST_BYTES", 100_000)
    with pytest.raises(ValueError, match=r"limit is 0 MB \(id 0\.\d MB\); pass fewer or smaller"):
        assemble.write_page({"networks": [small(run)]}, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_folders_of_save_pretrained_need_a_dataset(run: Path) -> None:
    alone = run.with_name("alone")
    (run / "model").rename(alone)
    with pytest.raises(ValueError, match=r"has no preprocessing .*; pass --data"):
        open_source(str(alone))
    found = small(alone, "fashion-mnist-mini")
    assert found["classes"][0] == "T-shirt/top"
    assert found["card"]["parameters"] > 0
    create_model("m1", in_chans=2, num_classes=5, dim=2).save_pretrained(run / "stereo")
    with pytest.raises(ValueError, match="standardised one by one"):
        small(run / "stereo", "smallnorb")


def test_the_command_writes_the_page_and_opens_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    # For time: fewer images.
    monkeypatch.setattr("clustercaps.explore.content.SEARCHED", 1)

    def open_address(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_address)
    out = tmp_path / "page.html"
    # Twice, because both have the same name.
    assert main(["explore", str(run), str(run), "--out", str(out)]) == 0
    assert opened == [out.as_uri()]
    assert "MB, m1 on fashion-mnist-mini" in capsys.readouterr().out
    found = data_of(out.read_text(encoding="utf-8"))["networks"]
    assert [network["id"] for network in found] == [
        "m1:fashion-mnist-mini",
        "m1:fashion-mnist-mini (2)",
    ]
    assert out.stat().st_size < assemble.MOST_BYTES


def test_packaged_weights_need_no_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    from clustercaps.explore.sources import packaged_sources

    monkeypatch.setattr(data, "load", lambda *_: pytest.fail("a dataset was read"))
    assert "m1:fashion-mnist" in packaged_sources()
    assert "s1:fashion-mnist" not in packaged_sources()  # of the same kind
    source = open_source("m1:fashion-mnist")
    network = record(source, source.id, per_class=1)
    result = RunFolder(WEIGHTS / "m1-fashion-mnist").result
    assert result is not None
    assert network["card"]["error"] == result["test_error"]
    assert len(network["images"]) == 10


def test_values_of_json_become_short_texts_or_finite_numbers() -> None:
    assert [plain(value) for value in (None, float("inf"), 3, 2.5)] == [None, None, 3, 2.5]
    assert plain(["x" * 1000]) == str(["x" * 1000])[:200]
    assert plain(True) == "True"
