import torch

import clustercaps as cc
from clustercaps import kernels
from clustercaps.training.diagnose import first_not_finite


def test_names_the_layer_and_takes_the_path_that_trained(monkeypatch) -> None:
    model = cc.create_model("m1", in_chans=1, img_size=12, dim=2)
    images = torch.rand(2, 1, 12, 12)
    assert first_not_finite(model, [images]) == "the loss itself"
    first = next(layer for layer in model.modules() if isinstance(layer, cc.ClusterCapsules2d))
    name = next(name for name, module in model.named_modules() if module is first)
    paths = []
    route = kernels._route

    def noted(*given):
        paths.append(given)
        return route(*given)

    monkeypatch.setattr(kernels, "_route", noted)
    with torch.no_grad():
        # Finite weights whose votes overflow.
        first.vote.weight.fill_(3e38)
    assert first_not_finite(model, [images]) == f"the output of {name} (ClusterCapsules2d)"
    # A layer that somebody listens to inside would be computed there.
    assert kernels.choose("auto", "cpu") != "cpu" or not paths
    with torch.no_grad():
        first.vote.weight[0, 0, 0, 0] = torch.nan
    assert first_not_finite(model, [images]) == f"the weights of {name}.vote.weight"
