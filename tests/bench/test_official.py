from pathlib import Path

import pytest

from clustercaps.bench.cases import Case
from clustercaps.bench.official import build_official, load_class
from clustercaps.cli import main


def test_wrong_path_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "--quick", "--official", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    )
    err = capsys.readouterr().err
    assert err.startswith("clustercaps: error: --official expects a checkout of the authors'")
    assert str(tmp_path) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", ["class Something: ...", "import nowhere_to_be_found", "def ("])
def test_other_code_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "capsule_network.py").write_text(content)
    with pytest.raises(ValueError, match="is not the authors' released network"):
        load_class(tmp_path)


@pytest.mark.parametrize(
    ("case", "message"),
    [(Case("s1", 3, 32, 2), "only the M-variants"), (Case("m1", 1, 30, 2), "divisible by 4")],
)
def test_cases_it_cannot_do_are_refused(case: Case, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        build_official(case, tmp_path)


@pytest.mark.parametrize("word", ["layers", "scaling", "epoch", "peers"])
def test_only_networks_are_compared(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", word, "--quick", "--official", "somewhere"]) == 2
    err = capsys.readouterr().err
    assert f"--official is not supported by bench {word}; remove it, or run bench models" in err
