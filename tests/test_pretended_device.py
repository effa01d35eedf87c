"""The pretended device refuses what a GPU refuses, and nothing else."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from tests.pretended_device import PretendedDevice


@pytest.fixture
def place():
    with PretendedDevice() as place:
        yield place


def test_tensors_say_where_they_were_asked_for(place):
    gpu, cpu = torch.zeros(3, device=place.device), torch.zeros(3)
    assert gpu.device == place.device
    assert cpu.device == torch.device("cpu")
    made = [gpu + 1, gpu[1:], gpu.new_zeros(2), gpu.new_tensor([1.0]), torch.ones_like(gpu), cpu.to(gpu), cpu.cuda()]
    made += [
        gpu.double(),
        cpu.to(place.device, torch.float64),
        cpu.to(device="cuda"),
        gpu * torch.tensor(2.0),
        gpu.sum(),
    ]
    assert {value.device for value in made} == {place.device}
    back = [
        gpu.cpu(),
        gpu.to("cpu"),
        gpu.to(cpu),
        torch.zeros_like(cpu),
        cpu.to(torch.float64),
        torch.zeros(2).copy_(gpu[:2]),
    ]
    assert {value.device for value in back} == {torch.device("cpu")}
    assert gpu.is_cuda
    assert not cpu.is_cuda


def test_what_functions_make_inside_is_where_their_tensors_are(place):
    classes = torch.tensor([0, 2], device=place.device)
    made = nn.functional.one_hot(classes, 3)
    assert made.device == place.device
    assert nn.functional.one_hot(classes.cpu(), 3).device == torch.device("cpu")
    assert torch.equal(made.cpu(), torch.tensor([[1, 0, 0], [0, 0, 1]]))


def test_moving_copies(place):
    cpu = torch.zeros(3)
    gpu = cpu.to(place.device)
    gpu += 1
    assert cpu.tolist() == [0, 0, 0]
    assert gpu.to(place.device) is gpu
    assert gpu.cpu().tolist() == gpu.tolist() == [1, 1, 1]


def test_a_module_trains_there(place):
    layer = nn.Linear(3, 2).to(place.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, fused=True)
    before = layer.weight.detach().clone()
    with pytest.raises(RuntimeError, match="same device"):
        layer(torch.ones(4, 3))
    layer(torch.ones(4, 3, device=place.device)).sum().backward()
    optimizer.step()
    assert {value.device for value in (layer.weight, layer.weight.grad)} == {place.device}
    assert not torch.equal(layer.weight, before)


@pytest.mark.parametrize(
    "fault",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: cpu @ gpu,
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: torch.stack([gpu.sum(), cpu.sum()]),
        lambda gpu, cpu: torch.equal(gpu, cpu),
        lambda gpu, cpu: gpu.add_(cpu),
        lambda gpu, cpu: torch.where(gpu > 0, gpu, cpu),
        lambda gpu, cpu: cpu[gpu.long()],
        lambda gpu, cpu: gpu.index_select(0, cpu.long()),
        lambda gpu, cpu: gpu.gather(0, cpu.long()),
        lambda gpu, cpu: gpu.masked_fill(cpu > 0, 0.0),
        lambda gpu, cpu: gpu.index_put_((cpu.long(),), cpu),
        lambda gpu, cpu: torch.nn.functional.cross_entropy(gpu[None], cpu[:1].long()),
        lambda gpu, cpu: (gpu.requires_grad_() * 2).backward(cpu),
    ],
)
def test_two_places_in_one_operation_are_refused(place, fault):
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device|same device"):
        fault(torch.ones(3, device=place.device), torch.ones(3))


def test_what_a_gpu_takes_from_the_cpu_is_taken(place):
    gpu, cpu = torch.zeros(3, device=place.device), torch.ones(3)
    assert gpu[cpu.long()].device == place.device  # an index
    gpu[torch.tensor([0, 2])] = 5.0
    gpu[1] = torch.tensor(7.0)  # a single number
    gpu[:2] = cpu[:2]  # a copy
    assert gpu.tolist() == [1, 1, 5]
    assert gpu.max().item() == 5


@pytest.mark.parametrize(
    "fault",
    [
        lambda device, numbers: torch.randn(3, device=device, generator=numbers),
        lambda device, numbers: torch.randperm(3, device=device, generator=numbers),
        lambda device, numbers: torch.zeros(3, device=device).uniform_(generator=numbers),
        lambda device, numbers: torch.bernoulli(torch.zeros(3, device=device), generator=numbers),
    ],
)
def test_a_generator_of_the_cpu_is_refused(place, fault):
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        fault(place.device, torch.Generator())


@pytest.mark.parametrize("fault", [lambda gpu: gpu.numpy(), np.asarray, lambda gpu: np.array([gpu])[0] + np.ones(3)])
def test_an_array_of_a_tensor_there_is_refused(place, fault):
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        fault(torch.ones(3, device=place.device))


def test_memory_that_is_used_again_is_on_the_cpu(place):
    for _ in range(50):
        torch.zeros(1000, device=place.device)
        gc.collect(0)
        assert torch.zeros(1000).device == torch.device("cpu")
    assert torch.zeros(2).numpy().sum() == 0
