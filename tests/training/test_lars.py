import numpy as np
import pytest
import torch
from lightly.utils.lars import LARS as LightlyLARS
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.training.lars import LARS


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, rates=None) -> list[float]:
    images = torch.randn(6, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for step in range(steps):
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates[step]
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("decay", [1e-4, 0.3])
def test_at_a_constant_rate_it_is_another_public_implementation(decay):
    """lightly multiplies by the rate after the momentum, which is the same while the rate stays."""
    ours, theirs = network(), network()
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    vectors = [p for p in theirs.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    oracle = LightlyLARS(groups, lr=2.0, momentum=0.9, trust_coefficient=0.001, eps=0.0)
    own = LARS(ours.parameters(), 2.0, momentum=0.9, weight_decay=decay)
    assert losses(ours, own, 8) == pytest.approx(losses(theirs, oracle, 8), rel=1e-12)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_two_steps_by_hand_with_a_rate_that_falls():
    w = nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    b = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = LARS([w, b], 0.5, momentum=0.9, weight_decay=0.1)
    w_np, b_np, v_w, v_b = np.array([3.0, 4.0]), 1.0, np.zeros(2), 0.0
    for rate in (0.5, 0.05):
        optimizer.param_groups[0]["lr"] = rate
        w.grad, b.grad = torch.tensor([[0.6, -0.8]], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
        optimizer.step()
        norm = np.sqrt((w_np**2).sum())
        local = 0.001 * norm / (1.0 + 0.1 * norm)
        v_w = 0.9 * v_w + rate * local * (np.array([0.6, -0.8]) + 0.1 * w_np)
        v_b = 0.9 * v_b + rate * 2.0  # neither decay nor a rate of its own
        w_np, b_np = w_np - v_w, b_np - v_b
    np.testing.assert_allclose(w.detach()[0].numpy(), w_np, rtol=0, atol=1e-15)
    assert b.item() == pytest.approx(b_np, abs=1e-15)


def test_a_larger_gradient_is_the_same_step_of_a_matrix_and_a_zero_one_is_none():
    steps = []
    for scale in (1.0, 1000.0, 0.0):
        w = nn.Parameter(torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64))
        optimizer = LARS([w], 1.0, momentum=0.0)
        w.grad = scale * torch.tensor([[0.0, 3.0], [4.0, 0.0]], dtype=torch.float64)
        before = w.detach().clone()
        optimizer.step()
        steps.append(before - w.detach())
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-12, atol=0)
    assert steps[0].norm().item() == pytest.approx(0.001 * 5.0, rel=1e-12)  # eta times the norm of the weights
    assert not steps[2].any()


def test_weights_that_are_zero_take_the_plain_step():
    w = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))
    w.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    LARS([w], 0.5, weight_decay=0.1).step()
    assert torch.equal(w.detach(), -0.5 * w.grad)


def test_its_state_resumes_to_the_bit():
    whole, half = network(), network()
    first = LARS(whole.parameters(), 1.0, weight_decay=1e-4)
    losses(whole, first, 4, [1.0, 0.7, 0.4, 0.1])
    second = LARS(half.parameters(), 1.0, weight_decay=1e-4)
    losses(half, second, 2, [1.0, 0.7])
    resumed = network()
    resumed.load_state_dict(half.state_dict())
    third = LARS(resumed.parameters(), 1.0, weight_decay=1e-4)
    third.load_state_dict(second.state_dict())
    losses(resumed, third, 2, [0.4, 0.1])
    for mine, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": 1.0, "momentum": 2.0}, "momentum=2.0"),
        ({"lr": 1.0, "weight_decay": -1.0}, "weight_decay=-1.0"),
    ],
)
def test_a_wrong_value_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        LARS([torch.zeros(1)], **values)
