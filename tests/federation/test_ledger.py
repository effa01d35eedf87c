import pytest
import torch

from fssl_core.federation.ledger import Ledger


def test_bytes_are_counted_by_client_purpose_and_direction():
    ledger = Ledger(3)
    tensor = torch.zeros(2, 5, 4)
    assert ledger.send(tensor, "activations", "up", torch.tensor([0, 2])) is tensor
    ledger.send(tensor.double(), "gradients", "down", torch.tensor([0, 2]))
    ledger.send(torch.zeros(7).expand(3, 7), "parameters", "down", torch.arange(3))
    ledger.close_epoch()
    ledger.close_epoch()
    table = ledger.table()
    assert len(table) == 6
    first = table[table.epoch == 1].set_index("client")
    assert first.activations_up.tolist() == [80, 0, 80]
    assert first.gradients_down.tolist() == [160, 0, 160]
    assert first.parameters_down.tolist() == [28, 28, 28]
    assert table[table.epoch == 2].drop(columns=["epoch", "client"]).to_numpy().sum() == 0


def test_a_tensor_for_other_clients_is_refused():
    with pytest.raises(ValueError, match="2 clients has a first dimension of 3"):
        Ledger(4).send(torch.zeros(3, 1), "activations", "up", torch.tensor([0, 1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_only_some_devices_compute_in_half_is_refused(dtype):
    with pytest.raises(ValueError, match=f"activations of {dtype} would cross"):
        Ledger(1).send(torch.zeros(1, 1, dtype=dtype), "activations", "up", torch.tensor([0]))


def test_an_unknown_purpose_is_refused():
    with pytest.raises(ValueError, match="labels"):
        Ledger(1).send(torch.zeros(1, 1), "labels", "up", torch.tensor([0]))
