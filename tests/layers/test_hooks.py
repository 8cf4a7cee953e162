"""Whoever hooks into the parts of a layer, or replaces them, is heard on every backend."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.nn.utils import parametrizations, parametrize, prune

from clustercaps import ClusterCapsules2d
from clustercaps.utils.hooks import may_bypass

BACKENDS = ("cpu", "chunked")


def make(backend: str) -> ClusterCapsules2d:
    torch.manual_seed(0)
    layer = ClusterCapsules2d(2, 3, 2, 4, votes=3, in_size=5, backend=backend).double()
    nn.init.normal_(layer.norm.weight)
    return layer


def images() -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(3, 2, 3, 5, 5, generator=draw, dtype=torch.float64)


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def old(name: str) -> Callable[[nn.Module], nn.Module]:
    def change(vote: nn.Module) -> nn.Module:
        with warnings.catch_warnings():
            # Deprecated, and still what much code calls.
            warnings.simplefilter("ignore")
            return getattr(nn.utils, name)(vote)

    return change


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "prune": lambda vote: prune.l1_unstructured(vote, "weight", 0.5),
    "prune of the bias": lambda vote: prune.random_unstructured(vote, "bias", 3),
    "weight_norm by hooks": old("weight_norm"),
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm by hooks": old("spectral_norm"),
    "spectral_norm": parametrizations.spectral_norm,
    "a parametrisation": lambda vote: parametrize.register_parametrization(
        vote, "weight", Doubled()
    ),
    "a replaced forward": lambda vote: setattr(
        vote, "forward", lambda x: 1.5 * nn.Conv2d.forward(vote, x)
    ),
    "a hook that changes the votes": lambda vote: vote.register_forward_hook(
        lambda module, given, votes: votes.square()
    ),
    "a hook that changes the input": lambda vote: vote.register_forward_pre_hook(
        lambda module, given: given[0].square()
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_changed_weights_are_used_and_learn(backend: str, change: str) -> None:
    found = []
    for chosen in (backend, "reference"):
        layer = make(chosen)
        before = layer(images())
        CHANGES[change](layer.vote)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        # The second step sees weights that follow from what the first one changed.
        for _ in range(2):
            optimizer.zero_grad()
            capsules = layer(images())
            capsules.pow(3).sum().backward()
            optimizer.step()
        assert not torch.allclose(capsules, before)
        found.append([capsules, layer.eval()(images()), *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


class Standardised(nn.Conv2d):
    """A subclass with a forward of its own."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(input, weight, self.bias)


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_convolution_is_called(backend: str) -> None:
    found = []
    for chosen in (backend, "reference"):
        layer = make(chosen)
        plain = layer.vote
        layer.vote = Standardised(6, len(plain.weight), 3, padding=1, groups=2).double()
        layer.vote.load_state_dict(plain.state_dict())
        found.append(layer(images()))
    torch.testing.assert_close(*found)


HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("part", ["vote", "norm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_hears_the_part(backend: str, part: str, hook: str) -> None:
    layer, heard = make(backend), []
    expected = layer(images())
    handle = getattr(getattr(layer, part), hook)(lambda module, *_: heard.append(module))
    capsules = layer(images().requires_grad_())
    capsules.sum().backward()
    assert heard == [getattr(layer, part)]
    torch.testing.assert_close(capsules, expected)
    handle.remove()
    layer(images())
    assert len(heard) == 1


@pytest.mark.parametrize("hook", [name.replace("register_", "register_module_") for name in HOOKS])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_of_all_modules_hears_the_parts(backend: str, hook: str) -> None:
    layer, heard = make(backend), []
    handle = getattr(modules, hook)(lambda module, *_: heard.append(module))
    try:
        layer(images().requires_grad_()).sum().backward()
    finally:
        handle.remove()
    assert {id(module) for module in heard} == {id(layer), id(layer.vote), id(layer.norm)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_captured_votes_are_those_of_the_trace(backend: str) -> None:
    layer, seen = make(backend), []
    layer.vote.register_forward_hook(lambda module, given, votes: seen.append(votes))
    layer(images())
    votes = layer(images(), trace=True)[1].votes
    torch.testing.assert_close(seen[0].flatten(), votes.flatten())


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_from_outside(backend: str) -> None:
    layer, reference = make(backend), make("reference")
    other = {name: torch.randn_like(p) for name, p in layer.named_parameters()}
    tangents = {name: torch.randn_like(p) for name, p in other.items()}
    stacked = {name: torch.stack([p, 2 * p]) for name, p in other.items()}

    def results(layer: nn.Module) -> list[Tensor]:
        def call(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(layer, parameters, (x,))

        value, tangent, *_ = torch.func.jvp(lambda p: call(p, images()), (other,), (tangents,))
        ensemble = torch.vmap(call, (0, None))(stacked, images())
        each = torch.func.grad(lambda p, x: call(p, x.unsqueeze(0)).pow(3).sum())
        per_sample = torch.vmap(each, (None, 0))(other, images())
        return [call(other, images()), value, tangent, ensemble, *per_sample.values()]

    torch.testing.assert_close(results(layer), results(reference), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_hooks_under_other_routings(routing: str) -> None:
    layer = ClusterCapsules2d(2, 3, 2, 4, votes=3, in_size=5, routing=routing)
    heard = []
    for part in (layer.vote, layer.router, layer.norm):
        part.register_forward_hook(lambda module, *_: heard.append(module))
    layer(torch.randn(1, 2, 3, 5, 5))
    assert heard == [layer.vote, layer.router, layer.norm]


def test_what_may_be_bypassed() -> None:
    convolution = nn.Conv2d(1, 1, 1)
    assert may_bypass(convolution, nn.Conv2d)
    assert not may_bypass(convolution, nn.Conv1d)
    parametrize.register_parametrization(convolution, "weight", Doubled())
    assert may_bypass(convolution, nn.Conv2d)
    prune.identity(convolution, "bias")
    assert not may_bypass(convolution, nn.Conv2d)
