"""A client's computation by hand and in closed form, its memory against real steps of the engines."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel

from fssl_core.costs.activations import SavedActivations
from fssl_core.costs.client_load import client_load, views_of
from fssl_core.costs.compute import forward_macs
from fssl_core.costs.layerwise import epoch_macs
from fssl_core.costs.parts import build_model, total, vit
from fssl_core.data.datasets import Pixels
from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import ClientUpdate, FedEMA
from fssl_core.objectives import BYOL, FedCA, MoCoV2, MoCoV3, Orchestra, SimCLR, Supervised
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.layerwise import LayerwiseTrainer
from fssl_core.training.split import SplitTrainer
from tests.costs.step_memory import held_bytes, in_each_stage, take
from tests.training.test_layerwise import tiny as layerwise
from tests.training.test_modular import phase1 as autoencoder
from tests.training.test_modular import phase2 as modular
from tests.training.test_moon import tiny as moon
from tests.training.test_split import tiny as split
from tests.training.test_split import tiny_data

DATA = tiny_data()  # 48 images of 8 px, 12 for each of four clients
RESNET = {"architecture": "resnet10", "norm": "batch", "width": 4, "precision": "float32", "batch": 12}
SMALL = {"projector": (16, 8), "output_norm": "plain"}
SMALL_OBJECTIVES = [SimCLR(**SMALL), MoCoV3(**SMALL, predictor=(16, 8)), BYOL(**SMALL, predictor=(16, 8))]
WIDE = {"projector": (512, 512, 256), "output_norm": "plain"}  # the paper's heads
OBJECTIVES = {
    "SimCLR": SimCLR(**WIDE),
    "MoCoV3": MoCoV3(),
    "BYOL": BYOL(**WIDE, predictor=(512, 256), output_bias=False),
}
N, D = 4, 12  # tokens and width of the transformer


# ---------------------------------------------------------------- computation


@pytest.mark.parametrize(("symmetric", "views"), [(True, 2), (False, 1)])
def test_a_split_client_by_hand(symmetric, views):
    load = client_load(split(cut_layer=1, symmetric=symmetric, epochs=3, client_batch=5), DATA)
    (stage,) = load.stages
    forward = 8 * 8 * (9 * 8 + 5 * 8)  # a convolution of 3 x 3 from 1 to 8 channels, and its group norm
    assert stage.image_macs == views * (3 + 1) * forward  # trained, and the momentum model
    assert load.macs == 3 * 10 * stage.image_macs  # two of twelve images make no full batch
    parameters = 9 * 8 + 2 * 8
    memory = stage.memory
    assert memory.model_bytes == memory.gradient_bytes == 8 * parameters  # in float64
    assert memory.optimiser_bytes == memory.momentum_model_bytes == 8 * parameters
    assert load.memory_bytes == 4 * 8 * parameters + memory.saved_bytes
    (without,) = client_load(split(cut_layer=1, momentum=0.0), DATA).stages
    assert without.memory.optimiser_bytes == 0


def test_a_stage_of_a_resnet_by_hand():
    def convolution(size, inputs, outputs, side):
        return side**2 * (size**2 * inputs * outputs + 2 * outputs)  # with its batch norm

    def block(inputs, outputs, side):
        shortcut = convolution(1, inputs, outputs, side) if inputs != outputs else 0
        return convolution(3, inputs, outputs, side) + convolution(3, outputs, outputs, side) + shortcut

    first = convolution(3, 1, 4, 8) + block(4, 4, 8)
    second, third, fourth = block(4, 8, 4), block(8, 16, 2), block(16, 32, 1)
    heads = 32 * 16 + 2 * 16 + 16 * 8 + 8
    ends = [4 * 8**2 + 4 * 32, 8 * 4**2 + 8 * 32, 16 * 2**2 + 16 * 32, 32]  # pooling, and the layer that reshapes
    layers = [first, second, third, fourth]
    for scheme in ("layer-wise", "progressive"):
        load = client_load(layerwise(objective=SMALL_OBJECTIVES[0], scheme=scheme, **RESNET), DATA)
        for number, (stage, end) in enumerate(zip(load.stages, ends, strict=True)):
            frozen = sum(layers[:number])
            trained = layers[number] + (frozen if scheme == "progressive" else 0) + end + heads
            assert stage.image_macs == 2 * (3 * trained + (frozen if scheme == "layer-wise" else 0))
        assert load.macs == 12 * 2 * sum(stage.image_macs for stage in load.stages)  # two rounds a stage


@pytest.mark.parametrize(
    ("scheme", "ssl_method"), [*(("layer-wise", name) for name in OBJECTIVES), ("progressive", "MoCoV3")]
)
def test_a_transformer_in_closed_form(scheme, ssl_method):
    """Beside the paper's count: the final norm and the pooling, both views, the target branch."""
    settings = layerwise(objective=OBJECTIVES[ssl_method], scheme=scheme)
    model = build_model(vit(8, 4, width=D, depth=4, channels=1), ssl_method)
    end = 5 * N * D + N * D
    plan = dict.fromkeys(settings.plan(4))
    for stage, load in zip(plan, client_load(settings, DATA).stages, strict=True):
        units = [model.encoder.units[unit] for unit in stage.active]
        stem = model.encoder.stem.macs * (0 in stage.active)
        target = 0 if ssl_method == "SimCLR" else total(units).macs + stem + end + model.projector.macs
        assert load.image_macs == 2 * (epoch_macs(stage, model) + 3 * end + target)


def test_the_mean_client_sees_the_images_that_the_engines_take():
    s = layerwise(partition="dirichlet:0.5", clients_per_round=3, client_dropout=0.3, batch=5, local_epochs=2)
    trainer, load = LayerwiseTrainer(s, DATA), client_load(s, DATA)
    whole = 0
    for finished, stage in enumerate(trainer.plan):
        for client in s.taking_part(finished).tolist():
            seen = sum(len(rows) for rows, _ in trainer.batches(client, 0)) * s.local_epochs
            whole += seen * load.stages[stage.number - 1].image_macs
    assert load.macs == whole / 4

    s = split(clients_per_epoch=3, epochs=5, client_batch=5)
    load = client_load(s, DATA)
    seen = sum(SplitTrainer(s, DATA).clients.start_epoch(epoch)[0].numel() for epoch in range(5))
    assert load.macs == seen * load.stages[0].image_macs / 4


# ---------------------------------------------------------------- memory


def states(*matrices):
    return [value for matrix in matrices if matrix is not None for value in (matrix.weights, *matrix.blocks.values())]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"objective": SMALL_OBJECTIVES[0], **RESNET}, id="layer-wise, SimCLR"),
        pytest.param({"objective": SMALL_OBJECTIVES[0], "scheme": "progressive", **RESNET}, id="progressive, SimCLR"),
        pytest.param({"objective": SMALL_OBJECTIVES[2], "optimizer": "sgd", **RESNET}, id="layer-wise, BYOL, SGD"),
        pytest.param({"objective": SMALL_OBJECTIVES[1], "precision": "float32"}, id="transformer, MoCoV3"),
    ],
)
def test_memory_is_that_of_real_steps_of_layerwise_training(values):
    settings = layerwise(**values)
    load = client_load(settings, DATA)
    counters = 4 if settings.optimizer == "adamw" else 0  # AdamW's number of steps
    with sdpa_kernel(SDPBackend.MATH):
        for stage, (trainer, batch) in zip(load.stages, in_each_stage(settings, DATA), strict=True):
            assert stage.memory.total_bytes - stage.memory.saved_bytes == held_bytes(trainer) - counters
            own = [*states(trainer.worker, trainer.target), *trainer.frozen.state_dict().values()]
            with SavedActivations(own) as saved:
                take(trainer, batch)
            assert stage.memory.saved_bytes == saved.peak_bytes
    assert load.memory_bytes == max(stage.memory.total_bytes for stage in load.stages)


@pytest.mark.parametrize("cut_layer", [1, 5])
def test_memory_is_that_of_a_real_step_of_split_learning(cut_layer):
    s = split(cut_layer=cut_layer, backend="loop")
    clients = SplitTrainer(s, DATA).clients
    order, draws = clients.start_epoch(0)
    own = states(clients.online, clients.momentum)
    with SavedActivations(own) as saved:
        clients.forward(DATA.train.images[order[:, 0]], draws[:, 0])
        (stage,) = client_load(s, DATA).stages
        assert saved.live_bytes == 4 * stage.memory.saved_bytes  # four clients
    parts = (clients.online.weights, clients.online.weights.grad, clients.velocity.weights, clients.momentum.weights)
    held = sum(value.nbytes for value in parts)  # group norm has no buffers
    assert held == 4 * (stage.memory.total_bytes - stage.memory.saved_bytes)


# ---------------------------------------------------------------- averaging and modular training


def alike_averaging(**values):
    common = RESNET | {"dataset": "tiny", "augmentation": "digits", "clients": 4, "partition": "iid"}
    return AveragingSettings(**common | {"rounds": 3, "local_epochs": 2} | values)


@pytest.mark.parametrize("objective", SMALL_OBJECTIVES, ids=lambda objective: objective.name)
def test_averaging_is_layerwise_training_in_one_stage(objective):
    staged = layerwise(**RESNET, objective=objective, scheme="end-to-end", rounds=3, local_epochs=2, optimizer="sgd")
    averaged, staged = (client_load(s, DATA) for s in (alike_averaging(objective=objective), staged))
    assert averaged.macs == staged.macs
    (one,), (other,) = averaged.stages, staged.stages
    assert one.image_macs == other.image_macs
    parts = ("model_bytes", "gradient_bytes", "optimiser_bytes", "momentum_model_bytes")
    assert [getattr(one.memory, part) for part in parts] == [getattr(other.memory, part) for part in parts]
    assert 0.9 < one.memory.saved_bytes / other.memory.saved_bytes <= 1  # what the loss itself keeps is left out


@pytest.mark.parametrize(("base", "values"), [(SimCLR, {}), (BYOL, {"predictor": (16, 8)})])
def test_an_own_objective_is_counted_with_its_number_of_views(base, values):
    @dataclass(frozen=True, kw_only=True)
    class Mine(base):
        name: str = "mine"
        views: ClassVar[int] = 4

    (two,), (four,) = (
        client_load(alike_averaging(objective=kind(**SMALL, **values)), DATA).stages for kind in (base, Mine)
    )
    assert four.image_macs == 2 * two.image_macs


@pytest.mark.parametrize(
    ("objective", "others"),
    [(MoCoV2(projector=(16, 8), queue_size=20), 4 * 20 * 8), (BYOL(projector=(16, 8), predictor=(16, 8)), 0)],
    ids=["moco-v2", "byol"],
)
@pytest.mark.parametrize("update", [ClientUpdate(), FedEMA()], ids=["replaced", "FedEMA"])
def test_memory_is_that_of_a_real_step_of_averaging(objective, others, update):
    settings = alike_averaging(objective=objective, client_update=update)
    (stage,) = client_load(settings, DATA).stages
    trainer = AveragingTrainer(settings, DATA)
    trainer.train_client(0, 0)
    own = states(trainer.worker, trainer.target, trainer.velocity)
    with SavedActivations(own) as saved:
        take(trainer, trainer.batches(0, 0)[0])
    assert 0.9 < stage.memory.saved_bytes / saved.peak_bytes <= 1
    model, target = (sum(block.nbytes for block in one.blocks.values()) for one in (trainer.worker, trainer.target))
    assert stage.memory.model_bytes == model
    assert stage.memory.gradient_bytes == trainer.worker.weights.grad.nbytes == stage.memory.optimiser_bytes
    kept = model * (update.keeps + update.follows_training)
    assert stage.memory.momentum_model_bytes == target + others + kept


SEEN = [
    Supervised(classes=4),
    SimCLR(**SMALL),
    BYOL(**SMALL, predictor=(16, 8)),
    MoCoV2(projector=(16, 8), queue_size=20),
    MoCoV2(projector=(16, 8), queue_size=20, symmetric=True),
    Orchestra(projector=(8, 8), local_clusters=3, global_clusters=5, memory_size=12),
]


@pytest.mark.parametrize("objective", SEEN, ids=lambda objective: objective.name)
def test_views_are_those_that_pass_through_the_encoders_of_a_step(objective):
    settings, passed = alike_averaging(objective=objective, precision="float32"), {"online": 0, "target": 0}
    trainer = AveragingTrainer(settings, DATA)
    trainer.train_client(0, 0)
    branches = {"online": trainer.learner.online.encoder}
    if trainer.learner.target is not None:
        branches["target"] = trainer.learner.target[0]
    for name, encoder in branches.items():

        def count(_, inputs, name=name):
            passed[name] += len(inputs[0])

        encoder.register_forward_pre_hook(count)
    rows, draws = trainer.batches(0, 0)[0]
    trainer.step(rows, trainer.views(rows, draws))
    assert views_of(objective) == (passed["online"] / len(rows), passed["target"] / len(rows))


def test_a_client_of_fedca_makes_its_dictionary_once_a_round_and_holds_that_of_all():
    simclr, fedca = (alike_averaging(objective=kind(projector=(16, 8))) for kind in (SimCLR, FedCA))
    plain, ours = (client_load(settings, DATA) for settings in (simclr, fedca))
    forward = forward_macs(fedca.build_model(DATA), (1, 8, 8)).total
    assert ours.macs - plain.macs == 3 * 12 * 2 * forward  # rounds, images, views
    assert ours.memory_bytes - plain.memory_bytes == 48 * 8 * 4


def test_a_client_of_moon_or_fedprox_holds_the_models_that_it_compares_with():
    free, contrasting = (client_load(moon(objective={"contrast_weight": mu}), DATA) for mu in (0.0, 5.0))
    model = moon().build_model(DATA)
    whole = sum(value.nbytes for value in model.state_dict().values())
    forward = forward_macs(model, (1, 8, 8)).total
    assert free.stages[0].image_macs == 3 * forward
    assert contrasting.stages[0].image_macs == (3 + 2) * forward  # the global and the last model
    assert contrasting.memory_bytes - free.memory_bytes == 2 * whole
    settings = alike_averaging(objective=SimCLR(**SMALL))
    plain, proximal = (client_load(settings.changed(proximal=mu), DATA) for mu in (0.0, 0.1))
    assert proximal.macs == plain.macs
    assert proximal.memory_bytes - plain.memory_bytes == plain.stages[0].memory.model_bytes


def test_a_client_of_modular_training_passes_each_image_forward_once_for_each_view_that_it_sends():
    first = autoencoder(rounds=3, clients=4, partition="iid")
    data = Pixels.of(DATA)
    alone, both = (client_load(s, data) for s in (first, modular(first, pairs=5)))
    forward = forward_macs(first.build_model(data).client_module, (1, 8, 8)).total
    assert both.macs - alone.macs == 12 * 5 * 2 * forward  # 12 images, 5 pairs
    assert both.memory_bytes == alone.memory_bytes
    assert alone.stages[0].memory.optimiser_bytes == 2 * alone.stages[0].memory.gradient_bytes  # Adam


# ---------------------------------------------------------------- both


def test_end_to_end_is_layerwise_training_in_one_stage():
    values = {"objective": SMALL_OBJECTIVES[1], **RESNET}
    whole = client_load(layerwise(scheme="end-to-end", **values), DATA)
    assert whole == client_load(layerwise(stages=1, **values), DATA)
    four = client_load(layerwise(scheme="progressive", **values), DATA)
    assert four.stages[-1].memory == whole.stages[0].memory
    assert four.peak.number == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (HeteroFLSettings(), "settings='HeteroFLSettings' cannot be used: expected settings of averaging, layer-wise"),
        (layerwise(most_layers=2), "most_layers=2 cannot be used: expected one of None"),
        (layerwise(representation_alignment=1.0), "representation_alignment=1.0 cannot be used"),
        (layerwise(objective=MoCoV2(projector=(16, 8))), "objective.name='moco-v2' cannot be used: expected one of"),
        (layerwise(scheme="end-to-end", client_update=FedEMA()), "client_update='fedema' cannot be used"),
        (split(freeze_client=True), "freeze_client=True cannot be used: expected one of False"),
        (split(client_batch=13), "client_batch=13 cannot be used: expected a number from 1 to 12"),
    ],
)
def test_what_is_not_counted_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        client_load(settings, DATA)
