"""Bytes counted before a training against the ledger of the training itself."""

import pytest

from fssl_core.costs.client_traffic import client_traffic
from fssl_core.data.datasets import Pixels
from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import EUC, FedEMA
from fssl_core.objectives import FedCA, Orchestra, SimCLR
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from tests.training.test_averaging import tiny as averaging
from tests.training.test_layerwise import tiny as layerwise
from tests.training.test_modular import phase1, phase2
from tests.training.test_modular import trainer as modular_trainer
from tests.training.test_moon import tiny as moon
from tests.training.test_split import tiny as split
from tests.training.test_split import tiny_data

DATA = tiny_data()  # 48 images of 8 px
PLAIN = {"precision": "float32", "local_epochs": 1}
RESNET = {"objective": SimCLR(projector=(16, 8)), "architecture": "resnet10", "norm": "batch", "width": 4}
TRAININGS = {
    "averaging": averaging("moco-v2", **PLAIN),
    "averaging, some take part": averaging("byol", clients_per_round=3, rounds=3, **PLAIN),
    "averaging, FedEMA": averaging("byol", client_update=FedEMA(), **PLAIN),
    "MOON": moon(precision="float32"),
    "autoencoder": phase1(precision="float32"),
    "modular": phase2(phase1(precision="float32"), precision="float32"),
    **{
        f"{scheme}, {name}": layerwise(scheme=scheme, **PLAIN, **values)
        for scheme in ("layer-wise", "progressive", "end-to-end")
        for name, values in {"transformer": {}, "resnet": RESNET, "worst case": {"worst_case": True}}.items()
    },
    **{
        f"{method}, symmetric {symmetric}": split(
            method=method, symmetric=symmetric, clients_per_epoch=3, sync_every=2, client_batch=5, precision="float32"
        )
        for method in ("MocoSFL", "MonAcoSFL")
        for symmetric in (True, False)
    },
    "frozen clients": split(freeze_client=True, precision="float32"),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_it_is_what_the_ledger_has_to_the_byte(name):
    settings, data, before = TRAININGS[name], DATA, 0
    if isinstance(settings, ModularSettings):
        trainer, data = modular_trainer(settings), Pixels.of(DATA)
        before = client_traffic(settings.phase1, data)  # a run of its own
    else:
        data = Pixels.of(DATA) if isinstance(settings, AutoencoderSettings) else DATA
        trainer = settings.trainer(data, None)
    trainer.train(lambda *_, **__: None)
    sent = sum(table.sum().item() for table in trainer.ledger.epochs) / trainer.ledger.clients
    assert sent > 0
    assert client_traffic(settings, data) == pytest.approx(before + sent, rel=1e-12)


@pytest.mark.parametrize(
    "objective",
    [FedCA(projector=(16, 8)), Orchestra(projector=(16, 8), local_clusters=2, global_clusters=4, memory_size=8)],
    ids=lambda objective: objective.name,
)
def test_what_some_methods_exchange_beside_the_model_is_not_counted(objective):
    settings = averaging(objective=objective, **PLAIN)
    trainer = settings.trainer(DATA, None)
    trainer.train(lambda *_, **__: None)
    by_purpose = trainer.ledger.table().drop(columns=["epoch", "client"]).sum() / settings.clients
    assert by_purpose.features_up > 0
    assert client_traffic(settings, DATA) == by_purpose.parameters_up + by_purpose.parameters_down


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (HeteroFLSettings(), "settings='HeteroFLSettings' cannot be used: expected settings of averaging, layer-wise"),
        (averaging(client_update=EUC()), "client_update='euc' cannot be used: expected one that exchanges all layers"),
        (layerwise(most_layers=2), "most_layers=2 cannot be used: expected one of None"),
        (layerwise(client_dropout=0.2), "client_dropout=0.2 cannot be used: expected one of 0.0"),
        (layerwise(clients_per_round=2), "clients_per_round=2 cannot be used: expected None"),
        (phase2(missing=0.5), "missing=0.5 cannot be used: expected one of 0.0"),
    ],
)
def test_what_is_not_known_before_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        client_traffic(settings, DATA)
