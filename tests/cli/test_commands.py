"""The commands as a user types them, on a run that takes seconds."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from clustercaps import data
from clustercaps.cli import main
from clustercaps.training.run_folder import RunFolder

TINY = "--limit 100 --epochs 1 --batch-size 50 --set dim=2 --set votes=4".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "m1", *TINY, "--out", str(out)]) == 0
    return out


def test_train_draws_figures_and_reports(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--out", str(run)]) == 0
    out = capsys.readouterr().out
    assert "m1 on fashion-mnist-mini: test error" in out
    for name in ("learning-curve.png", "confusion.png", "routing.png"):
        assert str(run / name) in out
        with Image.open(run / name) as figure:
            assert min(figure.size) > 300


def test_evaluate_agrees_with_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run)]) == 0
    out = capsys.readouterr().out
    result = RunFolder(run).result
    assert result is not None
    assert f"error {result['test_error']:.2f} %" in out
    assert len([line for line in out.splitlines() if " 200  " in line]) == 10
    assert (run / "confusion-fashion-mnist-mini-test.png").exists()


def test_devices_are_chosen_by_name(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shoe = tmp_path / "shoe.png"
    Image.fromarray(data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()).save(shoe)
    for command in (["predict", str(run), str(shoe)], ["evaluate", str(run)]):
        assert main([*command, "--device", "cpu"]) == 0
        assert capsys.readouterr().out
        assert main([*command, "--device", "cuda:99"]) == 2
        err = capsys.readouterr().err
        assert "device 'cuda:99' is not available; " in err
        assert err.count("\n") == 1


def test_evaluate_refuses_other_classes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run.parent / "pets"
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / split / name / "1.png")
    assert main(["evaluate", str(run), "--data", f"folder:{folder}"]) == 2
    assert "the network was trained on T-shirt/top" in capsys.readouterr().err


def test_predict_files_folders_and_patterns(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shoe = data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()
    Image.fromarray(shoe).save(tmp_path / "grey.png")
    Image.fromarray(shoe).convert("RGB").resize((300, 200)).save(tmp_path / "large.jpg")
    (tmp_path / "sub").mkdir()
    Image.fromarray(shoe).save(tmp_path / "sub" / "x.png")
    (tmp_path / "sub" / "notes.txt").write_text("not an image")
    arguments = [str(tmp_path / "grey.png"), str(tmp_path / "*.jpg"), str(tmp_path / "sub")]
    assert main(["predict", str(run), *arguments, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 3
    assert all(line.count(" %") == 2 for line in lines)
    # The same picture from a file and from a folder: the same answer.
    assert lines[0].split()[1:] == lines[2].split()[1:]


def test_predict_errors(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG but no more")
    for arguments, complaint in [
        ([str(run), str(tmp_path / "none.png")], "no image at"),
        ([str(run), str(broken)], "not a readable image"),
        ([str(tmp_path), str(broken)], "config.json is missing; pass the folder of a finished run"),
    ]:
        assert main(["predict", *arguments]) == 2
        err = capsys.readouterr().err
        assert complaint in err
        assert err.count("\n") == 1


def test_a_network_made_for_28_pixels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    size = "--limit 50 --epochs 1 --batch-size 25 --set width=8 --set types=2".split()  # noqa: SIM905
    size.append("--no-figures")
    assert main(["train", "capsnet", *size, "--out", str(out)]) == 0
    note = "clustercaps: note: capsnet was published on mnist at 28x28; this run has "
    assert capsys.readouterr().err.count(f"{note}fashion-mnist-mini at 28x28\n") == 1
    result = RunFolder(out).result
    assert result is not None
    # 2 types of 6x6; a network for 32x32 would have 2 of 8x8.
    assert (result["img_size"], result["children"]) == (28, 72)
    assert main(["evaluate", str(out)]) == 0
    assert f"error {result['test_error']:.2f} %" in capsys.readouterr().out
    shoe = data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()
    Image.fromarray(shoe).save(tmp_path / "shoe.png")
    assert main(["predict", str(out), str(tmp_path / "shoe.png")]) == 0
    larger = ["--img-size", "32", "--out", str(tmp_path / "larger")]
    assert main(["train", "capsnet", *size, *larger]) == 0
    assert "this run has fashion-mnist-mini at 32x32" in capsys.readouterr().err
    assert RunFolder(tmp_path / "larger").result["children"] == 128


def damaged(run: Path, out: Path, name: str, change: Callable[[Any], Any]) -> Path:
    """A copy of the run in which one JSON file is changed."""
    shutil.copytree(run, out)
    content = json.loads((out / name).read_text())
    (out / name).write_text(json.dumps(change(content)))
    return out


def test_names_and_numbers_of_a_run_are_checked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shoe = tmp_path / "shoe.png"
    Image.fromarray(data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()).save(shoe)
    few = damaged(run, tmp_path / "few", "result.json", lambda r: {**r, "class_names": ["a"]})
    none = damaged(run, tmp_path / "none", "result.json", lambda r: {**r, "class_names": 3})
    deep = tmp_path / "deep"
    shutil.copytree(run, deep)
    (deep / "settings.json").write_text("[" * 100_000)
    broken = tmp_path / "nan"
    shutil.copytree(run, broken)
    weights = load_file(broken / "model" / "model.safetensors")
    weights["head.bias"][0] = float("nan")
    save_file(weights, broken / "model" / "model.safetensors")
    for out, complaint in [
        (few, r"result.json names 1 classes, but the network in"),
        (none, "result.json is corrupt: class_names must be a list of names"),
        (deep, "settings.json is not valid JSON here: it is nested too deeply"),
        (broken, "model.safetensors is damaged: head.bias contains NaN or infinity"),
    ]:
        assert main(["predict", str(out), str(shoe)]) == 2
        err = capsys.readouterr().err
        assert complaint in err
        assert err.count("\n") == 1
    (deep / "settings.json").write_text((run / "settings.json").read_text())
    (deep / "metrics.jsonl").write_text('{"epoch": 1, "train_loss": NaN}\n')
    assert main(["compare", str(deep), "--figure", str(tmp_path / "c.png")]) == 2
    assert "metrics.jsonl, line 1, is not valid JSON: NaN" in capsys.readouterr().err


def test_terminal_escapes_in_names_are_shown(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["\x1b[2J" + str(number) for number in range(10)]

    def rename(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "preprocessing": {**config["preprocessing"], "class_names": names}}

    out = damaged(run, tmp_path / "run", "model/config.json", rename)
    shoe = tmp_path / "\x1b[31mshoe.png"
    Image.fromarray(data.load("fashion-mnist-mini", "test").pixels[9, 0].numpy()).save(shoe)
    assert main(["predict", str(out), str(shoe)]) == 0
    printed = capsys.readouterr().out
    assert "\\x1b[2J" in printed
    assert "\\x1b[31mshoe" in printed
    assert main(["evaluate", str(out)]) == 2
    assert "\x1b" not in printed + capsys.readouterr().err


def test_compare(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "c.png"
    assert main(["compare", str(run), str(run), "--figure", str(figure)]) == 0
    assert capsys.readouterr().out.count("fashion-mnist-mini") == 2
    assert figure.exists()
    assert main(["compare", str(tmp_path)]) == 2
    assert "contains no run" in capsys.readouterr().err


def test_a_folder_of_pictures_can_be_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 3)):
        for label, name in enumerate(("dark", "light")):
            folder = tmp_path / "pictures" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = chance.integers(0, 100, (20, 30, 3)) + 150 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    source, out = f"folder:{tmp_path / 'pictures'}", tmp_path / "run"
    flags = (
        "--img-size 12 --batch-size 5 --epochs 8 --lr 0.02 --set dim=2 --set votes=4 --workers 1"
    )
    assert main(["train", "m1", "--data", source, *flags.split(), "--out", str(out)]) == 0
    result = RunFolder(out).result
    assert result is not None
    assert result["class_names"] == ["dark", "light"]
    assert (result["train_images"], result["test_images"]) == (16, 6)
    assert result["test_error"] == 0
    capsys.readouterr()
    picture = tmp_path / "pictures" / "val" / "light" / "0.png"
    assert main(["predict", str(out), str(picture)]) == 0
    assert "light" in capsys.readouterr().out.splitlines()[-1].split()[1]


def test_data_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    assert "fashion-mnist-mini" in capsys.readouterr().out
    assert main(["data", "check", "fashion-mnist-mini"]) == 0
    assert "1,000 per class" in capsys.readouterr().out
    assert main(["data", "get", "minst"]) == 2
    assert "did you mean 'mnist'" in capsys.readouterr().err


def test_demo_on_a_small_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--limit", "100", "--epochs", "1", "--out", str(out)]) == 0
    assert "clustercaps evaluate" in capsys.readouterr().out
    assert (out / "routing.png").exists()


def test_bad_flags_are_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for flags, complaint in [
        (["m1", "--set", "vots=3"], "did you mean 'votes'"),
        (["m1", "--set", "votes"], "--set expects NAME=VALUE"),
        (["m1", "--track", "wandb"], "pip install wandb"),
        (["m1", "--epochs", "0"], "epochs must be an integer of at least 1"),
        ([], "name a model"),
    ]:
        assert main(["train", *flags, "--out", str(out)]) == 2
        assert complaint in capsys.readouterr().err
        assert not out.exists()
