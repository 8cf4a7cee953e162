"""What scripts and shells use: --json, --config, lr-find."""

import json
from pathlib import Path

import pytest

from clustercaps.cli import main
from clustercaps.data import SETS
from clustercaps.models import list_pretrained
from clustercaps.models.registry import count_parameters
from clustercaps.training import RunFolder

FLAGS = "--limit 20 --test-limit 20 --batch-size 10 --epochs 1 --set dim=2 --set votes=2"
TINY = FLAGS.split()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scripts") / "run"
    assert main(["train", "m1", *TINY, "--out", str(out), "--no-figures"]) == 0
    return out


def document(capsys: pytest.CaptureFixture[str], *words: object) -> object:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return json.loads(capsys.readouterr().out)


def test_commands_print_one_document(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = RunFolder(run).result
    assert result is not None
    again = document(capsys, "train", "m1", *TINY, "--out", tmp_path / "new", "--json")
    assert isinstance(again, dict)
    assert again["test_error"] == result["test_error"]
    assert again["figures"][0] == str(tmp_path / "new" / "learning-curve.png")
    score = document(capsys, "evaluate", run, "--json")
    assert isinstance(score, dict)
    assert score["images"] == sum(map(sum, score["confusion"])) == 2000
    picture = tmp_path / "new" / "confusion.png"
    guess = document(capsys, "predict", run, picture, "--top", "2", "--json")
    assert isinstance(guess, dict)
    (image,) = guess["images"]
    assert image["file"] == str(picture)
    assert [set(each) for each in image["classes"]] == [{"name", "probability"}] * 2
    figure = tmp_path / "compare.png"
    both = document(capsys, "compare", run, tmp_path / "new", "--figure", figure, "--json")
    assert isinstance(both, dict)
    assert [each["error"] for each in both["runs"]] == [result["test_error"]] * 2


def test_lists_as_documents(capsys: pytest.CaptureFixture[str]) -> None:
    sets = document(capsys, "data", "list", "--json")
    assert isinstance(sets, list)
    assert [each["name"] for each in sets] == [*SETS, "imagenet", "folder:PATH"]
    one = document(capsys, "models", "m1", "--json")
    assert isinstance(one, dict)
    assert one["parameters"] == count_parameters("m1")
    packaged = document(capsys, "models", "--pretrained", "--json")
    assert isinstance(packaged, list)
    assert [each["name"] for each in packaged] == list_pretrained()


def test_an_error_prints_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "m0", "--json", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_the_settings_of_a_run_can_be_given_back(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(run / "settings.json")]
    assert main(["train", *config, "--out", str(tmp_path / "same"), "--no-figures"]) == 0
    assert RunFolder(tmp_path / "same").settings == RunFolder(run).settings
    flags = ["--seed", "3", "--set", "votes=3", "--out", str(tmp_path / "other"), "--no-figures"]
    assert main(["train", *config, *flags]) == 0
    changed = RunFolder(tmp_path / "other").settings
    assert changed is not None
    assert (changed.seed, changed.model_settings) == (3, {"dim": 2, "votes": 3})
    assert changed.limit == 20
    part = tmp_path / "part.json"
    for text, complaint in [
        ('{"epochs": 1}', "name a model"),
        ('{"model": "m1", "epoch": 1}', "did you mean 'epochs'"),
        ('{"model": 1}', "model must be text"),
        ('{"model": "m1", "model_settings": 1}', "model_settings must be an object"),
        ("[]", "expected a JSON object"),
    ]:
        part.write_text(text)
        assert main(["train", "--config", str(part), "--out", str(tmp_path / "no")]) == 2
        assert complaint in capsys.readouterr().err
    assert main(["train", *config, "--recipe", "fast", "--out", str(tmp_path / "no")]) == 2
    assert "remove --recipe or --config" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_lr_find_writes_only_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = document(capsys, "lr-find", "m1", *TINY, "--steps", "20", "--to", "100", "--json")
    assert isinstance(found, dict)
    assert found["diverged"]
    assert found["suggested_lr"] == pytest.approx(found["lr_of_lowest_loss"] / 10)
    lowest = found["smoothed_loss"].index(min(found["smoothed_loss"]))
    assert found["lr"][lowest] == found["lr_of_lowest_loss"]
    assert found["lr"][:2] == pytest.approx([0.1, 0.1 * 1000 ** (1 / 19)])
    assert list(tmp_path.iterdir()) == []
    words = ["lr-find", "m1", *TINY, "--steps", "10", "--figure", "lr.png", "--out", "lr.json"]
    assert main(words) == 0
    assert "suggested: --lr" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"lr.png", "lr.json"}
    assert main(["lr-find", "m1", *TINY, "--from", "1", "--to", "0.1"]) == 2
    assert "expected 0 < --from < --to" in capsys.readouterr().err
