import pytest
import torch

import clustercaps as cc
from clustercaps.layers.gaussian_process import ClassProcesses, rbf_kernel, sparse_process
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters

TINY = {"width": 6, "types": 3, "primary_dim": 4, "dim": 5, "num_classes": 3, "inducing": 6}


def exact(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_parameter_count() -> None:
    assert count_parameters("kernel_capsnet") == 8_247_268
    processes = ClassProcesses(10, 16)
    count = sum(p.numel() for p in processes.parameters())
    assert count == 10 * (64 * 16 + 64 + 64 * 65 // 2 + 2) == 31_700


def test_kernel() -> None:
    points, variance, scale = exact(2, 5, 3), exact(2).exp(), exact(2).exp()
    gram = rbf_kernel(points, points, variance, scale)
    torch.testing.assert_close(gram, gram.mT)
    torch.testing.assert_close(gram.diagonal(dim1=1, dim2=2), variance[:, None].expand(2, 5))
    assert (torch.linalg.eigvalsh(gram) > -1e-10).all()
    # exp(-25 / (2 * 4)) between (0, 0) and (3, 4).
    apart = rbf_kernel(
        torch.zeros(1, 1, 2), torch.tensor([[[3.0, 4.0]]]), torch.tensor([1.5]), torch.tensor([2.0])
    )
    assert apart.item() == pytest.approx(1.5 * 0.0439369)


def process(points: torch.Tensor, factor: float, mean: float = 0.0, jitter: float = 1e-8):
    inducing = torch.arange(4, dtype=torch.float64).view(1, 4, 1)
    eye = factor * torch.eye(4, dtype=torch.float64).unsqueeze(0)
    means = torch.full((1, 4), mean, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    return sparse_process(points, inducing, means, eye, 2 * one, one, jitter)


def test_certain_values_leave_no_variance_at_their_points() -> None:
    at = torch.arange(4, dtype=torch.float64).view(1, 4, 1)
    _, variance = process(at, factor=0.0)
    torch.testing.assert_close(variance, torch.zeros_like(variance), rtol=0, atol=1e-6)
    _, between = process(at + 0.3, factor=0.0)
    assert (between <= 2).all()


def test_far_away_the_process_is_its_prior() -> None:
    far = torch.full((1, 3, 1), 50.0, dtype=torch.float64)
    mean, variance = process(far, factor=0.0, mean=3.0)
    torch.testing.assert_close(mean, torch.zeros_like(mean))
    torch.testing.assert_close(variance, torch.full_like(variance, 2.0))


def test_the_prior_as_posterior_is_the_prior_everywhere() -> None:
    mean, variance = process(exact(1, 7, 1), factor=1.0)
    torch.testing.assert_close(mean, torch.zeros_like(mean))
    torch.testing.assert_close(variance, torch.full_like(variance, 2.0))


def test_processes_against_dense_algebra() -> None:
    points, inducing = exact(2, 5, 3), exact(2, 4, 3)
    mean, factor = exact(2, 4), exact(2, 4, 4).tril()
    variance, scale = exact(2).exp(), exact(2).exp()
    ours = sparse_process(points, inducing, mean, factor, variance, scale, jitter=1e-6)
    for j in range(2):
        v, s = variance[j : j + 1], scale[j : j + 1]

        def k(a: torch.Tensor, b: torch.Tensor, v=v, s=s) -> torch.Tensor:
            return v * (-torch.cdist(a, b).square() / (2 * s.square())).exp()

        gram = k(inducing[j], inducing[j]) + 1e-6 * v * torch.eye(4, dtype=torch.float64)
        root = torch.linalg.cholesky(gram)
        cross = k(inducing[j], points[j])
        value = root @ mean[j]
        spread = root @ factor[j] @ factor[j].T @ root.T
        solve = gram.inverse() @ cross
        torch.testing.assert_close(ours[0][j], solve.T @ value)
        covariance = k(points[j], points[j]) - cross.T @ solve + solve.T @ spread @ solve
        torch.testing.assert_close(ours[1][j], covariance.diagonal())


def test_identical_inducing_points_stay_finite() -> None:
    processes = ClassProcesses(2, 3, inducing=4)
    torch.nn.init.zeros_(processes.inducing)
    mean, variance = processes(torch.zeros(2, 2, 3))
    (mean.sum() + variance.sum()).backward()
    assert all(p.grad.isfinite().all() for p in processes.parameters() if p.grad is not None)


def test_gradcheck() -> None:
    arguments = [exact(1, 2, 2), exact(1, 3, 2), exact(1, 3), exact(1, 3, 3).tril()]
    arguments += [torch.ones(1).double(), torch.ones(1).double()]
    for argument in arguments:
        argument.requires_grad_()
    assert torch.autograd.gradcheck(sparse_process, arguments)


def test_divergence_starts_near_zero_and_is_zero_at_the_prior() -> None:
    processes = ClassProcesses(2, 3, inducing=4)
    torch.testing.assert_close(processes.factor(), torch.eye(4).expand(2, 4, 4))
    torch.nn.init.zeros_(processes.mean)
    assert processes.divergence().item() == pytest.approx(0, abs=1e-6)


def test_probabilities_and_variances() -> None:
    model = cc.create_model("kernel_capsnet", **TINY, img_size=19).eval()
    images = torch.rand(4, 1, 19, 19)
    probabilities, variances = model.predict(images)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(4))
    assert (variances >= 0).all()
    # The same answer every time, and from a saved network.
    torch.testing.assert_close(model.predict(images), (probabilities, variances))


def test_the_same_answer_after_saving(tmp_path) -> None:
    model = cc.create_model("kernel_capsnet", **TINY, img_size=19).eval()
    model.save_pretrained(tmp_path)
    images = torch.rand(4, 1, 19, 19)
    torch.testing.assert_close(cc.from_pretrained(tmp_path).eval()(images), model(images))


def test_the_bound_reaches_the_backbone_without_decoder() -> None:
    model = cc.create_model("kernel_capsnet", **TINY, img_size=19, decoder=False)
    images = torch.rand(2, 1, 19, 19)
    loss, _ = model.training_loss(
        TrainingBatch(images, torch.tensor([0, 2]), images, train_images=10)
    )
    loss.sum().backward()
    assert model.conv.weight.grad.abs().sum() > 0
    # More images, less of the divergence for each.
    torch.manual_seed(0)
    few, _ = model.training_loss(
        TrainingBatch(images, torch.tensor([0, 2]), images, train_images=1)
    )
    torch.manual_seed(0)
    many, _ = model.training_loss(
        TrainingBatch(images, torch.tensor([0, 2]), images, train_images=10)
    )
    torch.testing.assert_close(few - many, 0.9 * model.processes.divergence().expand(2))
