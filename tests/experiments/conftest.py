import pytest
from helpers.toy_experiment import Toy

from clustercaps.experiments import EXPERIMENTS
from clustercaps.experiments.harness import page, runner


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    toy = Toy()
    monkeypatch.setitem(EXPERIMENTS, "toy", "nothing much")
    for module in (runner, page):
        known = module.get_experiment
        monkeypatch.setattr(
            module,
            "get_experiment",
            lambda name, known=known: toy.experiment if name == "toy" else known(name),
        )
    return toy
