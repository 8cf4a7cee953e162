import csv
from pathlib import Path

import pytest

from clustercaps.cli import main


def test_systems_stand_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "peers.csv"
    assert (
        main(["bench", "peers", "--quick", "--models", "m1,capsnet_svhn", "--out", str(out)]) == 0
    )
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["model"] for row in rows] == ["m1", "capsnet_svhn"]
    assert [row["parameters"] for row in rows] == ["145738", "994528"]
    for row in rows:
        for column in ("step_ms", "inference_ms", "one_image_ms", "memory_estimate_mb"):
            assert float(row[column]) > 0, column
    assert out.with_suffix(".png").exists()
    assert "capsnet_svhn" in capsys.readouterr().out


def test_unknown_systems_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "peers", "--models", "capsnets"]) != 0
    assert "did you mean 'capsnet'" in capsys.readouterr().err
