import copy

import pytest
import torch

import clustercaps as cc
from clustercaps.layers.windows import Windows
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters, get_preset
from clustercaps.training.settings import resolve

SMALL = {"img_size": 20, "width": 8, "types": [2, 3, 2], "side": 2}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("em_smallnorb", 316_650),
        ("em_small", 68_618),
        ("em_cifar10", 458_900),
        ("em_mnist", 318_420),
        ("vb_smallnorb", 169_642),
        ("vb_small", 68_714),
        ("vb_large", 340_052),
        ("star", 317_734),
        ("star_cifar10", 321_094),
    ],
)
def test_parameters_are_those_of_the_papers_layers(name: str, count: int) -> None:
    assert count_parameters(name) == count


def test_parameters_of_other_channels_and_classes() -> None:
    assert count_parameters("em_smallnorb", width=64) == 335_690
    assert count_parameters("vb_smallnorb", in_chans=1, num_classes=10) == 169_332
    assert count_parameters("vb_smallnorb", in_chans=3, num_classes=10) == 172_532
    assert count_parameters("star", readout="linear") == 317_734 + 17


def test_maps_and_couplings_of_the_smallnorb_network() -> None:
    model = cc.create_model("em_small", types=[2, 3, 4]).eval()
    with torch.no_grad():
        first, second, classes = model.route(torch.rand(1, 2, 32, 32))
    assert first.capsules.shape == (1, 3, 16, 6, 6)
    assert first.coupling.shape == (1, 2 * 9, 3, 6, 6)
    assert second.capsules.shape == (1, 4, 16, 4, 4)
    assert classes.capsules.shape == (1, 5, 16)
    assert classes.coupling.shape == (1, 4 * 16, 5)
    # Every child of the 14x14 and 6x6 maps that a window reaches is shared among all its parents.
    for routed, windows, types in ((first, Windows(14, 3, 2), 2), (second, Windows(6, 3, 1), 3)):
        reached = int((windows.parents() > 0).sum())
        torch.testing.assert_close(routed.coupling.sum(), torch.tensor(float(types * reached)))


@pytest.mark.parametrize(("threshold", "low", "high"), [(-25.0, 0.02, 0.04), (0.0, 0.4, 0.6)])
def test_how_many_capsules_start_active(threshold: float, low: float, high: float) -> None:
    """With the authors' thresholds about 3 in 100; without any, half of them."""
    model = cc.create_model("em_small", threshold=threshold)
    with torch.no_grad():
        images = torch.randn(2, 2, 32, 32)
        _, logits = model.primary(model.conv(images).relu())
        first, second, classes = (r.activations for r in model.route(images))
    assert 0.2 < logits.sigmoid().mean() < 0.6
    assert low < first.mean() < high
    assert low < second.mean() < high
    # Neither on nor off, so that they learn.
    assert 0.1 < classes.mean() < 0.9


@pytest.mark.parametrize("name", ["em_small", "vb_small", "star"])
def test_checkpoint_changes_neither_values_nor_gradients(name: str) -> None:
    plain = cc.create_model(name, **SMALL)
    saving = cc.create_model(name, **SMALL, checkpoint=True)
    saving.load_state_dict(plain.state_dict())
    images, labels = torch.randn(4, 2, 20, 20), torch.tensor([0, 1, 2, 3])
    results = []
    for model in (plain, saving):
        # The same noise for both.
        torch.manual_seed(3)
        loss, scores = model.training_loss(TrainingBatch(images, labels, images))
        loss.sum().backward()
        results.append([loss, scores, *(p.grad for p in model.parameters()), *model.buffers()])
    torch.testing.assert_close(results[0], results[1])
    # Nothing to save where no gradient is wanted.
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(images), saving.eval()(images))


def test_spread_loss_with_the_margin_of_the_step() -> None:
    model = cc.create_model("em_small", **SMALL, margin_pace=10.0)
    images, labels = torch.rand(2, 2, 20, 20), torch.tensor([0, 1])
    early, late = (
        model.training_loss(TrainingBatch(images, labels, images, step))[0] for step in (0, 1000)
    )
    assert (late > early).all()
    scores = model(images)
    lead = scores.gather(1, labels.unsqueeze(1)) - scores
    short = (0.2 + 0.79 / (1 + torch.e**-10) - lead).relu().square()
    wrong = 1 - torch.nn.functional.one_hot(labels, 5)
    torch.testing.assert_close(late, (short * wrong).sum(1))


def test_vb_scores_are_probabilities_and_its_loss_has_a_floor() -> None:
    model = cc.create_model("vb_small", **SMALL)
    images, labels = torch.rand(4, 2, 20, 20), torch.tensor([0, 1, 2, 3])
    loss, scores = model.training_loss(TrainingBatch(images, labels, images))
    assert ((scores > 0) & (scores < 1)).all()
    # One class on, four off: ln(e + 4) - 1.
    assert (loss > 0.9048).all()


def test_star_is_noisy_in_training_only_and_labelled_as_our_reconstruction() -> None:
    model = cc.create_model("star", **SMALL)
    images = torch.rand(2, 2, 20, 20)
    assert not model(images).equal(model(images))
    model.eval()
    assert model(images).equal(model(images))
    assert get_preset("star").reconstruction
    assert not get_preset("em_small").reconstruction


@pytest.mark.parametrize("name", ["em_small", "vb_small", "star"])
@pytest.mark.parametrize("size", [17, 28, (18, 31)])
def test_any_image_size(name: str, size: int | tuple[int, int]) -> None:
    model = cc.create_model(name, **{**SMALL, "img_size": size}, in_chans=3, num_classes=2).eval()
    images = torch.rand(1, 3, *model.img_size)
    assert model(images).shape == (1, 2)
    assert model(images[:0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("name", "data", "rate", "batch"),
    [
        ("em_smallnorb", "smallnorb", 3e-3, 64),
        ("em_cifar10", "cifar10", 3e-3, 64),
        ("em_mnist", "mnist", 3e-3, 64),
        ("vb_smallnorb", "smallnorb", 1e-3, 128),
        ("star_cifar10", "cifar10", 1e-3, 64),
    ],
)
def test_recipes(name: str, data: str, rate: float, batch: int) -> None:
    recipe = resolve(name, data)
    assert (recipe.recipe, recipe.optimizer) == ("paper", "adam")
    assert (recipe.lr, recipe.batch_size) == (rate, batch)


def test_copies_and_other_dtypes() -> None:
    model = cc.create_model("em_small", **SMALL).eval()
    images = torch.rand(2, 2, 20, 20)
    twin = copy.deepcopy(model).double()
    torch.testing.assert_close(twin(images.double()).float(), model(images), rtol=1e-4, atol=1e-5)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"small: .* layer 3 of 3, whose input is 2x2; .* 17x17"):
        cc.create_model("em_small", img_size=16)
    with pytest.raises(ValueError, match=r"layer 1 of 3, whose input is 4x4"):
        cc.create_model("em_small", img_size=4)
    with pytest.raises(ValueError, match=r"three integers.*, got \[8, 16\]"):
        cc.create_model("em_small", types=[8, 16])
    with pytest.raises(KeyError, match="did you mean 'centres'"):
        cc.create_model("star", coordinates="centers")
    with pytest.raises(KeyError, match="unknown readout"):
        cc.create_model("star", readout="mean")
    with pytest.raises(ValueError, match="num_classes"):
        cc.create_model("vb_small", num_classes=0)
    with pytest.raises(ValueError, match="at least 1"):
        cc.create_model("vb_small", **SMALL).reset_classifier(0)
    with pytest.raises(ValueError, match="margin_pace must be positive"):
        cc.create_model("em_small", margin_pace=0.0)
