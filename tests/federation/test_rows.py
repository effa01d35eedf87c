"""States that wait are those of a matrix, wherever they lie; equal ones are one tensor."""

import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import FedEMA, FedU
from fssl_core.federation.clients import ClientMatrix, misalignment
from fssl_core.federation.rows import Room, Rows
from fssl_core.models import build_backbone
from fssl_core.random import generator
from tests.training import test_averaging, test_split

CLIENTS = 6


def model(norm="batch"):
    return build_backbone("resnet10", width=4, norm=norm, image_size=8, channels=1, generator=generator(0, "model"))


def noisy(clients, seed):
    matrix = ClientMatrix(model(), clients)
    for block in matrix.blocks.values():
        block += torch.rand(block.shape, generator=generator(seed, "noise"))  # variances stay positive
    return matrix


def assert_equal(rows, matrix):
    assert rows.blocks.keys() == matrix.blocks.keys()
    for name, block in matrix.blocks.items():
        assert torch.equal(rows.blocks[name], block), name


def room_of(free, device="cpu"):
    room = Room(torch.device(device))
    room.free = free
    return room


@pytest.fixture(params=[None, 0], ids=["on the device", "in host memory"])
def rows(request):
    return Rows(model(), CLIENTS, room_of(request.param))


def test_what_is_put_and_taken_is_what_a_matrix_holds(rows):
    matrix, some, others = ClientMatrix(model(), CLIENTS), noisy(3, 1), noisy(2, 2)
    for target in (rows, matrix):
        some.put(target, torch.tensor([0, 3, 5]))
        others.put(target, [1, 3])
    assert_equal(rows, matrix)
    taken, expected = ClientMatrix(model(), 3), ClientMatrix(model(), 3)
    taken.take(rows, torch.tensor([5, 2, 3]))
    expected.take(matrix, torch.tensor([5, 2, 3]))
    assert torch.equal(taken.weights, expected.weights)
    for name, value in matrix.state_dict(3).items():
        assert torch.equal(rows.state_dict(3)[name], value)
    images = torch.rand(2, 1, 8, 8, generator=generator(0, "images"))
    assert torch.equal(rows.row_module(3).eval()(images), matrix.row_module(3).eval()(images))


def test_the_misalignment_of_rows_is_that_of_matrices_to_the_bit(rows):
    others = Rows(model(), CLIENTS)
    matrices = [ClientMatrix(model(), CLIENTS) for _ in range(2)]
    for seed, target in enumerate([(rows, matrices[0]), (others, matrices[1])]):
        for each in target:
            noisy(CLIENTS, seed).put(each, range(CLIENTS))
    absent = torch.tensor([0, 2, 3])
    assert torch.equal(misalignment(rows, others, absent), misalignment(*matrices, absent))


def test_a_row_is_never_changed_in_place_and_equal_clients_share_theirs(rows):
    state = rows.all_rows()
    assert len(state["rows"]) == 1
    assert state["of"] == [0] * CLIENTS
    before = [(row, row.clone()) for row in state["rows"]]
    changed = noisy(2, 1)
    changed.put(rows, [1, 4])
    changed.weights.data.zero_()  # a put copies
    state = rows.all_rows()
    assert len(state["rows"]) == 3
    assert state["of"] == [0, 1, 0, 0, 2, 0]
    assert all(torch.equal(*pair) for pair in before)
    rows.zero_()
    assert len(rows.all_rows()["rows"]) == 1
    assert all(torch.equal(*pair) for pair in before)
    assert all(not rows.blocks[name].any() for name in rows.parameter_names)
    rows.load_state_dict(model().state_dict())
    assert_equal(rows, ClientMatrix(model(), CLIENTS))


def test_all_rows_come_back(rows):
    noisy(2, 1).put(rows, [1, 4])
    other = Rows(model(), CLIENTS)
    other.load_all_rows(rows.all_rows())
    assert_equal(other, rows)
    assert other.all_rows()["of"] == rows.all_rows()["of"]


def test_rows_share_a_room_until_it_is_full():
    size = CLIENTS * ClientMatrix(model(), 1).elements * 4
    room = room_of(2 * size + size // 2)
    assert [room.takes(size) for _ in range(3)] == [True, True, False]
    assert room.takes(size // 2)  # what is smaller still fits
    assert all(Room(torch.device("cpu")).takes(10**15) for _ in range(2))
    with pytest.raises(SettingError, match="clients=0 cannot be used"):
        Rows(model(), 0)


@pytest.mark.parametrize("method", ["MocoSFL", "MonAcoSFL"])
def test_a_split_federation_without_room_on_the_device_is_the_same_to_the_bit(method, monkeypatch):
    settings = test_split.tiny(method=method, clients_per_epoch=2, epochs=3, precision="float32")
    plain = test_split.trained(settings)
    monkeypatch.setattr(Room, "takes", lambda *_: False)
    small = test_split.trained(settings)
    test_split.assert_same_state(plain, small)
    assert small.metrics == plain.metrics


@pytest.mark.parametrize("update", [FedU(), FedEMA()])
def test_averaging_without_room_on_the_device_is_the_same_to_the_bit(update, monkeypatch):
    settings = test_averaging.tiny("byol", client_update=update, keep_velocity=True, clients_per_round=2, rounds=3)
    plain = test_averaging.trained(settings)
    monkeypatch.setattr(Room, "takes", lambda *_: False)
    small = test_averaging.trained(settings)
    test_averaging.assert_same_model(plain, small)
    assert small.metrics == plain.metrics


@pytest.mark.gpu
def test_rows_that_do_not_fit_lie_in_pinned_memory_of_the_host():
    device = torch.device("cuda")
    some = noisy(3, 1)
    for free, place in ((0, "cpu"), (2**30, "cuda")):
        rows = Rows(model().to(device), CLIENTS, room_of(free, "cuda"))
        on_cuda = ClientMatrix(model().to(device), 3)
        on_cuda.load_all_rows(some.all_rows())
        on_cuda.put(rows, [0, 3, 5])
        assert {row.device.type for row in rows.all_rows()["rows"]} == {place}
        assert all(row.is_pinned() for row in rows.all_rows()["rows"]) == (place == "cpu")
        taken = ClientMatrix(model().to(device), 3)
        taken.take(rows, [0, 3, 5])
        assert torch.equal(taken.weights.cpu(), some.weights)
