"""How threads wait for each other."""

import os
import subprocess
import sys

import pytest

from clustercaps.utils import waits


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without settings of waits."""
    for name in waits.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return dict(os.environ)


def test_waits_are_short(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", environment)
    waits.wait_briefly()
    assert environment[waits.SPIN_COUNT] == str(waits.SPINS)


@pytest.mark.parametrize(
    ("name", "value"), [("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "active")]
)
def test_settings_of_the_user_stay(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    environment[name] = value
    before = dict(environment)
    monkeypatch.setattr(os, "environ", environment)
    waits.wait_briefly()
    assert environment == before


def test_the_command_sets_them_before_torch_is_loaded(environment: dict[str, str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "clustercaps", "kernels"],
        env={**environment, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_" not in shown.stderr:
        pytest.skip("torch uses another OpenMP than GNU's here")
    assert f"GOMP_SPINCOUNT = '{waits.SPINS}'" in shown.stderr
