"""The pooled head, and the learning rate of a head that is not pooled."""

from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps.models.registry import count_parameters
from clustercaps.training.objective import head_scales, new_optimizer
from clustercaps.training.schedule import set_rates
from clustercaps.training.settings import resolve


def test_a_pooled_network_accepts_images_of_any_size(tmp_path: Path) -> None:
    model = cc.create_model("m1", num_classes=5, img_size=16, global_pool="avg").eval()
    assert model.head.in_features == 24
    images = torch.rand(2, 3, 16, 16)
    pooled = model.forward_features(images).mean((-2, -1)).flatten(1)
    assert torch.allclose(model(images), model.head(pooled), atol=1e-6)
    assert torch.equal(model.forward_head(model.forward_features(images), True), pooled)
    for size in ((16, 16), (9, 20), (40, 33)):
        assert model(torch.rand(2, 3, *size)).shape == (2, 5)
    model.save_pretrained(tmp_path / "model")
    again = cc.from_pretrained(tmp_path / "model")
    assert torch.equal(again(images), model(images))
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)
    with pytest.raises(ValueError, match=r"expected images \[batch, 3, height, width\]"):
        model(torch.rand(2, 1, 16, 16))
    with pytest.raises(KeyError, match="unknown global_pool 'min'"):
        cc.create_model("m1", global_pool="min")


@pytest.mark.parametrize("kind", ["max", "catavgmax"])
def test_heads_on_the_largest_entries(kind: str) -> None:
    model = cc.create_model("m1", num_classes=5, img_size=16, global_pool=kind).eval()
    images = torch.rand(2, 3, 9, 13)
    capsules = model.forward_features(images)
    largest = capsules.flatten(-2).max(-1).values
    wanted = [largest] if kind == "max" else [capsules.mean((-2, -1)), largest]
    # The mean of a capsule comes right before its largest entries.
    flat = torch.stack(
        [torch.cat(list(parts)) for parts in zip(*(w.flatten(0, 1) for w in wanted), strict=True)]
    )
    assert torch.equal(model.forward_head(capsules, True), flat.view(2, -1))
    assert model(images).shape == (2, 5)
    model.reset_classifier(3)
    assert model(torch.zeros(1, 3, 16, 16)).isfinite().all()


def test_without_pooling_nothing_changes() -> None:
    with pytest.raises(ValueError, match="expected images"):
        cc.create_model("m1")(torch.rand(1, 3, 33, 32))
    assert count_parameters("m1", in_chans=1) == 145_738
    # A pooled network has no scale and shift per position, and the same weights at every size.
    counts = [count_parameters("m1", global_pool="avg", img_size=side) for side in (32, 64)]
    assert counts[0] == counts[1] < 145_738


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "radam", "muon"])
def test_the_rate_of_the_head_falls_with_the_positions_it_reads(optimizer: str) -> None:
    settings = resolve("m1", "folder:x", optimizer=optimizer, momentum=0.0, nesterov=False)
    model = cc.create_model("m1", img_size=64)
    assert head_scales(model) == {model.head.weight: 0.25}
    made = new_optimizer(model, settings)
    set_rates(made, settings, 1, 0.0, 0)
    rates = {id(p): group["lr"] for group in made.param_groups for p in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    assert rates[id(model.head.weight)] == pytest.approx(rates[id(model.head.bias)] / 4)


def test_heads_that_read_few_positions_keep_their_rate() -> None:
    assert head_scales(cc.create_model("m1", img_size=32)) == {}
    assert head_scales(cc.create_model("m1", img_size=224, global_pool="avg")) == {}
    assert head_scales(cc.create_model("m1", num_classes=0, img_size=64)) == {}
    assert head_scales(cc.create_model("class_capsules")) == {}
    plain = new_optimizer(cc.create_model("m1"), resolve("m1", "cifar10", "fast"))
    assert len(plain.param_groups) == 1
