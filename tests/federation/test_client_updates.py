import math

import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import Layers
from fssl_core.federation.client_updates import EUC, ClientUpdate, FedEMA, FedU, encoder_divergence
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import SelfSupervisedModel
from fssl_core.random import generator
from tests.objectives.learners import Client, small


def pair(name: str = "simclr", moved: float = 0.1, **values) -> tuple[SelfSupervisedModel, ClientMatrix, ClientMatrix]:
    """A model, and as matrices a client's own, every number of which has moved, and the global one."""
    model = Client(small(name, **values)).model
    own, shared = ClientMatrix(model, 1), ClientMatrix(model, 1)
    for block in own.blocks.values():
        block += moved * torch.randn(block.shape, generator=generator(0, "moved"), dtype=block.dtype)
    return model, own, shared


def chosen(kept: torch.Tensor, layers: Layers) -> list[str]:
    assert set(kept.tolist()) <= {0.0, 1.0}
    return [name for name, share in zip(layers.names, kept.tolist(), strict=True) if share]


def test_divergence_is_the_mean_distance_of_the_encoders_convolutions():
    _model, own, shared = pair("simsiam")
    before, after = (dict(matrix.row_module(0).encoder.named_modules()) for matrix in (shared, own))
    distances = []
    for name, module in before.items():
        if isinstance(module, nn.Conv2d | nn.Linear):
            squares = [(a - b) ** 2 for a, b in zip(*(m.weight.flatten().tolist() for m in (module, after[name])))]  # noqa: B905
            distances.append(math.sqrt(sum(squares)))
    assert len(distances) > 5
    assert encoder_divergence(own, shared) == pytest.approx(sum(distances) / len(distances), rel=1e-12)
    for name, block in own.blocks.items():  # heads, scales and statistics do not count
        if not name.startswith("encoder.") or block.dim() == 2:
            block.fill_(1e3)
    assert encoder_divergence(own, shared) == pytest.approx(sum(distances) / len(distances), rel=1e-12)


def test_divergence_counts_linear_layers_and_no_biases():
    model = nn.ModuleDict({"encoder": nn.Linear(3, 2).double()})  # a transformer has more of them
    own, shared = ClientMatrix(model, 1), ClientMatrix(model, 1)
    own.blocks["encoder.weight"] += 0.5
    own.blocks["encoder.bias"] += 1e3
    assert encoder_divergence(own, shared) == pytest.approx(0.5 * math.sqrt(6), rel=1e-12)


def test_fedavg_keeps_nothing_and_exchanges_everything():
    _, own, shared = pair()
    layers, update = Layers(shared), ClientUpdate()
    assert not update.keeps
    assert not update.kept(own, shared, layers, {}).any()
    assert all(update.skipped(finished, torch.rand(len(layers))) is None for finished in range(4))


# ---------------------------------------------------------------- FedU


@pytest.mark.parametrize("kind", ["tensor", "module"])
def test_fedu_keeps_the_predictor_where_the_encoder_has_moved_far(kind):
    model, own, shared = pair("simsiam")
    layers, divergence = Layers(shared, kind), encoder_divergence(own, shared)
    near, far = (
        FedU(divergence="distance", threshold=divergence * factor).kept(own, shared, layers, {})
        for factor in (1.001, 0.999)
    )
    assert not near.any()
    whole = [f"predictor.{name}" for name in model.predictor.state_dict()]
    expected = whole if kind == "tensor" else list(dict.fromkeys(name.rpartition(".")[0] for name in whole))
    assert sorted(chosen(far, layers)) == sorted(expected)
    assert any("running_mean" in name for name in whole)


@pytest.mark.parametrize(("name", "values"), [("simclr", {}), ("moco-v2", {}), ("supervised", {})])
def test_fedu_keeps_the_last_layer_of_the_head_where_there_is_no_predictor(name, values):
    model, own, shared = pair(name, **values)
    layers = Layers(shared)
    last = [module for module in model.projector.modules() if isinstance(module, nn.Linear)][-1]
    far = FedU(divergence="distance", threshold=0).kept(own, shared, layers, {})
    parameters = dict(model.named_parameters())
    assert {id(parameters[name]) for name in chosen(far, layers)} == {id(p) for p in last.parameters()}
    assert not FedU(divergence="distance", threshold=1e9).kept(own, shared, layers, {}).any()


# ---------------------------------------------------------------- FedEMA


def test_fedemas_first_share_is_tau_and_later_ones_grow_with_divergence():
    _, own, shared = pair()
    layers, memory, update = Layers(shared), {}, FedEMA(divergence="distance", tau=0.6)
    first = encoder_divergence(own, shared)
    shares = [update.kept(own, shared, layers, memory)]
    for factor in (0.25, 1.5, 3.0):  # of the first distance
        other = ClientMatrix(own.row_module(0), 1)
        for name, block in other.blocks.items():
            block.copy_(shared.blocks[name] + factor * (own.blocks[name] - shared.blocks[name]))
        assert encoder_divergence(other, shared) == pytest.approx(factor * first)
        shares.append(update.kept(other, shared, layers, memory))
    assert all(share.shape == (len(layers),) and share.unique().numel() == 1 for share in shares)
    assert [share[0].item() for share in shares] == pytest.approx([0.6, 0.15, 0.9, 1.0])
    assert memory == {"scale": pytest.approx(0.6 / first)}


def test_fedemas_clients_have_scales_of_their_own_and_a_client_that_did_not_move_takes_the_global_model():
    _, own, shared = pair()
    near = pair(moved=0.01)[1]
    layers, update = Layers(shared), FedEMA(divergence="distance")
    memories = [{}, {}]
    for matrix, memory in zip((own, near), memories, strict=True):
        assert update.kept(matrix, shared, layers, memory)[0].item() == pytest.approx(0.7)
    assert memories[1]["scale"] == pytest.approx(10 * memories[0]["scale"])
    assert not update.kept(shared, shared, layers, memories[0]).any()
    assert not FedEMA(divergence="distance", tau=0).kept(own, shared, layers, {}).any()


@pytest.mark.parametrize("kind", [FedU, FedEMA])
def test_the_drift_of_a_local_training_decides_as_in_the_authors_code(kind):
    """There, a client that ends a round compares its encoder with the one it began with, shortcuts left out."""
    model, after, before = pair("simsiam")
    layers, memory, update = Layers(before), {}, kind()
    update.trained(before, after, memory)
    began, ended = (dict(matrix.row_module(0).encoder.named_modules()) for matrix in (before, after))
    names = [n for n, module in began.items() if isinstance(module, nn.Conv2d) and "shortcut" not in n]
    drift = sum(torch.dist(began[n].weight, ended[n].weight).item() for n in names) / len(names)
    assert 0 < len(names) < sum(isinstance(module, nn.Conv2d) for module in began.values())
    assert memory == {"drift": pytest.approx(drift, rel=1e-12)}
    anywhere = ClientMatrix(model, 1)  # where the global model is now is another thing
    if kind is FedU:
        near, far = (kind(threshold=drift * factor).kept(after, anywhere, layers, memory) for factor in (1.001, 0.999))
        assert far.any()
        assert not near.any()
        return
    shares = [update.kept(after, anywhere, layers, memory)[0].item()]
    for factor in (0.5, 1.2, 9.0):
        memory["drift"] = factor * drift
        shares.append(update.kept(after, anywhere, layers, memory)[0].item())
    assert shares == pytest.approx([0.7, 0.35, 0.84, 1.0])


# ---------------------------------------------------------------- EUC


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_euc_skips_the_layers_that_moved_least_in_every_second_round(share):
    moved = torch.tensor([0.3, 0.0, 5.0, 0.1, 0.1, 0.2, 0.0, 0.05])
    update = EUC(share=share)
    assert update.skipped(0, None) is None
    assert all(update.skipped(finished, moved) is None for finished in (1, 3, 5))
    order = sorted(range(8), key=lambda layer: (moved[layer].item(), layer))
    expected = [layer in order[: round(8 * share)] for layer in range(8)]
    for finished in (2, 4):
        assert update.skipped(finished, moved).tolist() == expected


# ---------------------------------------------------------------- settings


def test_client_updates_are_known_by_their_names():
    keeps = {kind().name: kind().keeps for kind in (ClientUpdate, FedU, FedEMA, EUC)}
    assert keeps == {"replace": False, "fedu": True, "fedema": True, "euc": True}


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (FedU, {"threshold": -0.1}, "threshold=-0.1 .*at least 0"),
        (FedU, {"divergence": "far"}, "divergence='far' .*drift, distance"),
        (FedEMA, {"tau": 1.5}, "tau=1.5 .*from 0 to 1"),
        (EUC, {"share": -1.0}, "share=-1.0 .*from 0 to 1"),
        (FedU, {"name": "fedema"}, "name='fedema' .*fedu"),
    ],
)
def test_a_wrong_setting_names_itself(kind, values, message):
    with pytest.raises(SettingError, match=message):
        kind(**values)
