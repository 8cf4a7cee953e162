"""`clustercaps models`: the list, and the card of one network."""

import inspect

import pytest
import torch

import clustercaps as cc
from clustercaps.cli import main, models
from clustercaps.models import count_parameters, get_preset


def test_the_card_of_a_reconstruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "hitnet"]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    preset = get_preset("hitnet")
    for expected in (
        preset.summary,
        preset.paper,
        preset.choices,
        "reconstruction yes: ",
        "published on mnist at 28x28, fashion-mnist at 28x28, svhn at 32x32, cifar10 at 32x32",
        "cc.models.HitNet",
        "clustercaps train hitnet --data mnist",
        "mnist 1x28x28 10 8,216,048 yes",
        f"smallnorb 2x28x28 5 {count_parameters('hitnet', in_chans=2, num_classes=5):,}",
        "setting paper* fast",
        "epochs 100 12",
    ):
        assert expected in said, expected
    with torch.device("meta"):
        model = cc.create_model("hitnet")
    estimate = cc.memory_estimate(model, batch=preset.get_recipe("paper")["batch_size"])
    assert f"on mnist with 128 images needs about {estimate / 2**20:,.0f} MiB" in said
    assert max(map(len, out.splitlines())) <= models.WIDTH


def test_the_card_of_a_network_of_cluster_routing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "m1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for expected in (
        "Zhao and Cheng",
        "setting paper fast* strong",
        "optimizer sgd sgd muon",
        "svhn 3x32x32 10 154,378 yes",
        # Not in the paper's tables.
        "mnist 1x32x32 10 145,738 Recipes",
    ):
        assert expected in said, expected
    assert "reconstruction" not in said


def test_a_recipe_for_another_dataset_is_on_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "self_routing_1"]) == 0
    out = capsys.readouterr().out
    assert "paper, svhn" in out
    assert "100/200,150/200" in out


def test_unknown_names_get_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "capsnt"]) == 2
    err = capsys.readouterr().err
    assert "unknown model 'capsnt'; did you mean 'capsnet'?" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", cc.list_models())
def test_every_network_has_a_whole_card(name: str) -> None:
    preset = get_preset(name)
    docs = models.argument_docs(preset.network)
    arguments = list(inspect.signature(preset.network).parameters)
    assert arguments[:3] == ["num_classes", "in_chans", "img_size"]
    assert all(docs[argument] for argument in arguments)
    settings = models.settings_table(preset)
    for argument, value in {"img_size": preset.img_size, **preset.settings}.items():
        shown = " ".join(settings.split())
        same = value == inspect.signature(preset.network).parameters[argument].default
        assert f"{argument}{'' if same else '*'} {models.plain(value)}" in shown
    parameters = models.parameter_table(name, preset).splitlines()
    published = [line.split()[0] for line in parameters if line.endswith("  yes")]
    assert published == list(preset.data)
    assert len(models.recipe_table(preset).splitlines()) > 5


def test_long_descriptions_are_read_whole() -> None:
    docs = models.described_arguments(
        "A network.\n\nArgs:\n    one: Short.\n    two: Long, with `a: b`\n        and more; end.\n"
    )
    assert docs == {"one": "Short", "two": "Long, with `a: b` and more; end"}
    assert models.described_arguments("A network without arguments.") == {}


def test_arguments_may_be_described_in_a_base_class() -> None:
    class Special(cc.models.CapsNet):
        """A network.

        Args:
            dim: Another size.
        """

    plain = models.argument_docs(cc.models.CapsNet)
    assert models.argument_docs(Special) == plain
    Special.__module__ = "clustercaps.special"
    assert models.argument_docs(Special) == {**plain, "dim": "Another size"}


def test_packaged_weights_are_on_the_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = ["m1:cifar10", "m1:fashion-mnist", "s1:svhn"]
    monkeypatch.setattr(cc.models, "list_pretrained", lambda: weights)
    models.print_card("m1")
    said = " ".join(capsys.readouterr().out.split())
    loads = [f'cc.create_model("m1", pretrained="{data}")' for data in ("cifar10", "fashion-mnist")]
    assert f"trained weights {loads[0]}, {loads[1]}" in said
    assert 'svhn")' not in said


def test_values_are_shown_as_one_types_them() -> None:
    """What the table says can be given to `--set` as it stands."""
    values = [True, None, 5e-4, (3, 7), {"leaky": True, "bias": 1}, "em", 0]
    shown = ["true", "null", "0.0005", "[3, 7]", '{"leaky": true, "bias": 1}', "em", "0"]
    assert [models.plain(value) for value in values] == shown
