import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.federation.clients import (
    ClientForward,
    ClientMatrix,
    divergence,
    forward_loop,
    forward_stacked,
    misalignment,
)
from fssl_core.models import build_backbone, cut
from fssl_core.random import generator


def client_model(norm="group", cut_layer=3, dtype=torch.float64) -> nn.Module:
    return cut(build_backbone("resnet10", width=8, norm=norm, image_size=8, channels=1), cut_layer)[0].to(dtype)


def randomised(matrix: ClientMatrix, seed: int = 0) -> ClientMatrix:
    """Every client different."""
    noise = torch.randn(matrix.weights.shape, generator=generator(seed, "test"), dtype=matrix.weights.dtype)
    with torch.no_grad():
        matrix.weights += 0.1 * noise
    return matrix


def images(clients, batch):
    return torch.rand(clients, batch, 1, 8, 8, generator=generator(1, "images"), dtype=torch.float64)


def test_all_clients_start_as_the_model():
    model = client_model("batch")
    matrix = ClientMatrix(model, 3)
    assert matrix.elements == sum(value.numel() for value in model.state_dict().values())
    assert matrix.parameters == sum(value.numel() for value in model.parameters())
    assert sum(block.numel() for block in matrix.blocks.values()) == 3 * matrix.elements
    for client in range(3):
        for name, value in model.state_dict().items():
            assert torch.equal(matrix.state_dict(client)[name], value)


def test_blocks_are_contiguous_views_of_the_buffer():
    matrix = ClientMatrix(client_model(), 3)
    assert all(block.is_contiguous() for block in matrix.blocks.values())
    with torch.no_grad():
        matrix.weights.fill_(7)
    assert all((block == 7).all() for block in matrix.blocks.values())
    module = matrix.module()
    assert all(parameter.data_ptr() == matrix.blocks[name].data_ptr() for name, parameter in module.named_parameters())


def test_a_buffer_of_one_number_has_a_stride_that_cublas_takes():
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(2))
    model.register_buffer("count", torch.tensor(3.0))
    assert ClientMatrix(model, 1).blocks["count"].stride() == (1,)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_stacked_equals_loop_with_gradients_and_statistics(norm):
    results = []
    for run in (
        lambda matrix, x: forward_stacked(matrix.module(), x),
        lambda matrix, x: forward_loop(matrix.row_modules(), x),
    ):
        matrix = randomised(ClientMatrix(client_model(norm), 5)).requires_grad_()
        output = run(matrix, images(5, 4))
        output.square().sum().backward()
        results.append((output, matrix.weights.grad, torch.cat([block.flatten() for block in matrix.blocks.values()])))
    for stacked, loop in zip(*results, strict=True):
        torch.testing.assert_close(stacked, loop, rtol=0, atol=1e-12)


def test_gradients_land_in_one_buffer_that_an_optimiser_steps():
    matrix = randomised(ClientMatrix(client_model(), 2)).requires_grad_()
    before = matrix.weights.clone()
    forward_stacked(matrix.module(), images(2, 3)).sum().backward()
    torch.optim.SGD([matrix.weights], lr=0.5, fused=True).step()
    torch.testing.assert_close(matrix.weights, before - 0.5 * matrix.weights.grad)
    assert matrix.weights.grad.abs().sum() > 0


def test_one_client_is_an_ordinary_module():
    model = client_model()
    module = ClientMatrix(model, 1).module()
    assert {name: p.shape for name, p in module.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}
    x = images(1, 4)
    assert torch.equal(module(x[0]), model(x[0]))


def test_take_and_put_move_rows():
    source, part = randomised(ClientMatrix(client_model("batch"), 5)), ClientMatrix(client_model("batch"), 2)
    part.take(source, torch.tensor([1, 4]))
    for row, client in enumerate((1, 4)):
        assert all(torch.equal(part.state_dict(row)[name], value) for name, value in source.state_dict(client).items())
    others = source.state_dict(3)
    part.load_state_dict({name: torch.zeros_like(value) for name, value in others.items()})
    part.put(source, torch.tensor([1, 4]))
    assert all((value == 0).all() for value in source.state_dict(4).values())
    assert all(torch.equal(source.state_dict(3)[name], value) for name, value in others.items())


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_copy_of_a_row_is_equal_and_keeps_its_values(norm):
    matrix = randomised(ClientMatrix(client_model(norm), 3))
    module, expected = matrix.row_copy(1).train(), matrix.state_dict(1)
    matrix.zero_()
    assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())
    before = {name: block.clone() for name, block in matrix.blocks.items()}
    module(images(1, 4)[0])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert all(torch.equal(block, before[name]) for name, block in matrix.blocks.items())


def test_all_rows_come_back():
    first, second = randomised(ClientMatrix(client_model("batch"), 3)), ClientMatrix(client_model("batch"), 3)
    first.blocks["stem.1.running_mean"].fill_(2.0)
    second.load_all_rows(first.all_rows())
    assert all(torch.equal(second.blocks[name], block) for name, block in first.blocks.items())


def test_state_dict_of_none_is_the_average():
    matrix = randomised(ClientMatrix(client_model(), 3))
    for name, value in matrix.state_dict().items():
        expected = sum(matrix.state_dict(client)[name] for client in range(3)) / 3
        torch.testing.assert_close(value, expected)


def test_moving_average_leaves_buffers_alone():
    online, momentum = randomised(ClientMatrix(client_model("batch"), 2)), ClientMatrix(client_model("batch"), 2)
    online.blocks["stem.1.running_mean"].fill_(5.0)
    before = momentum.state_dict(1)
    momentum.average_towards_(online, 0.9)
    for name, value in momentum.state_dict(1).items():
        is_parameter = name in dict(client_model("batch").named_parameters())
        expected = 0.9 * before[name] + 0.1 * online.state_dict(1)[name] if is_parameter else before[name]
        torch.testing.assert_close(value, expected)


def test_misalignment_and_divergence_equal_slow_loops():
    online, momentum = randomised(ClientMatrix(client_model("batch"), 3)), ClientMatrix(client_model("batch"), 3)
    names = [name for name, _ in client_model("batch").named_parameters()]
    gaps = [
        sum((online.state_dict(i)[name] - momentum.state_dict(i)[name]).abs().sum().item() for name in names)
        for i in range(3)
    ]
    assert misalignment(online, momentum).item() == pytest.approx(sum(gaps))
    assert misalignment(online, momentum, torch.tensor([0, 2])).item() == pytest.approx(gaps[0] + gaps[2])
    for name, distance in zip(names, divergence(online), strict=True):
        rows = [online.state_dict(i)[name] for i in range(3)]
        expected = sum((row - sum(rows) / 3).norm().item() for row in rows) / 3
        assert distance.item() == pytest.approx(expected)


@pytest.mark.parametrize("clients", [1, 4])
def test_backends_agree(clients):
    matrix, x = randomised(ClientMatrix(client_model(), clients)), images(clients, 3)
    stacked, loop = (ClientForward(matrix, backend)(x) for backend in ("stacked", "loop"))
    assert stacked.shape == (clients, 3, 8, 8, 8)
    torch.testing.assert_close(stacked, loop, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("batch", "size", "backend"), [(8, 32, "stacked"), (9, 32, "loop"), (32, 16, "stacked")])
def test_a_client_with_many_pixels_is_worth_a_call(batch, size, backend):
    forward = ClientForward(ClientMatrix(client_model(), 2))
    assert forward.chosen(torch.empty(2, batch, 3, size, size)) == backend


def test_evaluation_mode_reaches_modules_made_later():
    forward = ClientForward(randomised(ClientMatrix(client_model("batch"), 2)), "stacked")
    forward.train(False)
    before = forward._matrix.blocks["stem.1.running_mean"].clone()
    forward(images(2, 3))
    assert torch.equal(forward._matrix.blocks["stem.1.running_mean"], before)
    forward.train()
    forward(images(2, 3))
    assert not torch.equal(forward._matrix.blocks["stem.1.running_mean"], before)


def test_an_unknown_backend_is_an_error():
    with pytest.raises(SettingError, match=r"backend='vmap' .*auto, stacked, loop"):
        ClientForward(ClientMatrix(client_model(), 2), "vmap")


def test_no_clients_is_an_error():
    with pytest.raises(SettingError, match="clients=0"):
        ClientMatrix(client_model(), 0)


class Operations(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts dispatched operations, views left out: they cost no kernel."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def operations_of_a_client_step(clients: int, cut_layer: int) -> int:
    model = cut(build_backbone("resnet18", width=4, image_size=8), cut_layer)[0]
    online, momentum = ClientMatrix(model, clients).requires_grad_(), ClientMatrix(model, clients)
    run, run_momentum = ClientForward(online, "stacked"), ClientForward(momentum, "stacked")
    optimizer = torch.optim.SGD([online.weights], lr=0.1, momentum=0.9, fused=True)
    x = torch.rand(clients, 2, 3, 8, 8, generator=generator(0, "images"))
    with torch.no_grad():
        _ = run(x), run_momentum(x)  # the modules are made at the first call
    with Operations() as operations:
        momentum.average_towards_(online, 0.99)
        activations = run(x)
        with torch.no_grad():
            run_momentum(x)
        activations.backward(torch.ones_like(activations))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return operations.count


@pytest.mark.parametrize(("cut_layer", "most"), [(3, 80), (13, 300)])
def test_operations_do_not_grow_with_clients(cut_layer, most):
    counts = {clients: operations_of_a_client_step(clients, cut_layer) for clients in (2, 5, 20)}
    assert len(set(counts.values())) == 1, counts
    assert counts[20] <= most, counts
