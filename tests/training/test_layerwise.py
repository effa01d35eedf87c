import copy
import math

import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import EUC, FedU
from fssl_core.objectives import MoCoV3, Orchestra, SimCLR
from fssl_core.objectives.moco_v3 import in_batch_info_nce
from fssl_core.random import generator
from fssl_core.training.layerwise import LayerwiseSettings, LayerwiseTrainer
from tests.training.test_averaging import a_round, plain, trained
from tests.training.test_split import tiny_data

HEADS = {"projector": (16, 8), "predictor": (16, 8)}
SCHEMES = ("layer-wise", "progressive", "end-to-end")


def tiny(**values) -> LayerwiseSettings:
    """A transformer of four blocks that trains in milliseconds: 48 images of 8 px, four clients."""
    defaults = {
        "objective": MoCoV3(**HEADS),
        "seed": 0,
        "dataset": "tiny",
        "image_size": None,
        "clients": 4,
        "augmentation": "digits",
        "architecture": "vit4",
        "width": 4,
        "rounds": 8,
        "local_epochs": 1,
        "batch": 6,
        "learning_rate": 0.01,
        "knn_k": 5,
        "validation_share": 1.0,
        "probe_epochs": 2,
        "precision": "float64",
    }
    return LayerwiseSettings(**defaults | values)


def changed(before: dict, after: dict) -> set[str]:
    """First two parts of the names of values that differ: ``encoder.0.block_1`` or ``projector``."""
    names = {name for name, value in before.items() if not torch.equal(value, after[name])}
    return {".".join(name.split(".")[: 3 if name.startswith("encoder") else 1]) for name in names}


# ---------------------------------------------------------------- the schedule


def test_end_to_end_is_the_averaging_engine_bit_for_bit():
    settings = tiny(scheme="end-to-end", optimizer="sgd")
    federated, staged = trained(plain(settings), rounds=2), trained(settings, rounds=2)
    other = staged.global_model().state_dict()
    assert all(torch.equal(value, other[name]) for name, value in federated.global_model().state_dict().items())
    for ours, theirs in zip(staged.metrics, federated.metrics, strict=True):
        assert theirs.items() <= ours.items()
    assert staged.ledger.table().equals(federated.ledger.table())


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("layer-wise", {1: {"embed", "block_0"}, 2: {"block_1"}, 3: {"block_2"}, 4: {"block_3"}}),
        (
            "progressive",
            {
                1: {"embed", "block_0"},
                2: {"embed", "block_0", "block_1"},
                4: {"embed", "block_0", "block_1", "block_2", "block_3"},
            },
        ),
    ],
)
def test_only_what_the_schedule_says_is_trained(scheme, expected):
    trainer = LayerwiseTrainer(tiny(scheme=scheme), tiny_data())
    for number in range(1, 5):
        before = trainer.global_model().state_dict()
        a_round(trainer)
        a_round(trainer)
        assert trainer.metrics[-1]["stage"] == number
        if number in expected:
            units = {f"encoder.0.{name}" for name in expected[number] | {"norm"}}
            assert changed(before, trainer.global_model().state_dict()) == units | {"projector", "predictor"}


def test_several_layers_a_stage():
    trainer = LayerwiseTrainer(tiny(stages=2), tiny_data())
    assert [stage.number for stage in trainer.plan] == [1] * 4 + [2] * 4
    assert list(dict(trainer.part.encoder[0].named_children())) == ["embed", "block_0", "block_1", "norm"]


# ---------------------------------------------------------------- local training


class Whole:
    """A stage as the paper writes it: both branches whole, the frozen layers in each of them."""

    def __init__(self, trainer: LayerwiseTrainer, stage: int) -> None:
        online = trainer.global_model()
        self.units = ["embed", *(f"block_{index}" for index in range(stage)), "norm"]
        self.active = {f"block_{stage - 1}", "norm"} | ({"embed"} if stage == 1 else set())
        self.online, self.target = online.train(), copy.deepcopy(online).train()
        chosen = [*online.projector.parameters(), *online.predictor.parameters()]
        for name, unit in online.encoder[0].named_children():
            chosen += unit.parameters() if name in self.active else []
        self.optimizer = torch.optim.AdamW([p.requires_grad_() for p in chosen], lr=0.01, weight_decay=1e-5)

    def embed(self, model, view):
        for name in self.units:
            view = getattr(model.encoder[0], name)(view)
        return model.projector(view.mean((2, 3)))

    def step(self, views) -> float:
        queries = [self.online.predictor(self.embed(self.online, view)) for view in views]
        with torch.no_grad():
            keys = [self.embed(self.target, view) for view in views]
        loss = sum(in_batch_info_nce(q, k, 0.05)[0] for q, k in zip(queries, reversed(keys), strict=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for mine, theirs in zip(
            [*self.target.encoder.parameters(), *self.target.projector.parameters()],
            [*self.online.encoder.parameters(), *self.online.projector.parameters()],
            strict=True,
        ):
            mine.data.mul_(0.99).add_(theirs.data, alpha=0.01)
        return loss.item()


@pytest.mark.parametrize("stage", [1, 3])
def test_the_shared_prefix_gives_the_losses_and_weights_of_two_whole_branches(stage):
    trainer = trained(tiny(clients=1, batch=12), rounds=2 * (stage - 1))
    whole = Whole(trainer, stage)
    losses = []
    for rows, draws in trainer.batches(0, trainer.finished):
        images = trainer.data.train.images[rows]
        views = trainer.augment.two_views(images[None], draws[None])[0]
        losses.append(whole.step(trainer.data.normalise(views, torch.float64)))
    a_round(trainer)
    assert trainer.metrics[-1]["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-10)
    state = whole.online.state_dict()
    for name, value in trainer.global_model().state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def test_frozen_layers_run_once_for_both_branches():
    trainer = trained(tiny(), rounds=6)
    trainer.advance()  # into the last stage
    calls = []
    for stack in (trainer.frozen, trainer.learner.online.encoder[0], trainer.learner.target[0][0]):
        assert "block_0" not in dict(stack.named_children()) or stack is trainer.frozen
    trainer.frozen.block_0.register_forward_hook(lambda *call: calls.append(len(call[1][0])))
    trainer.train_client(0, 0)
    assert calls == [12, 12]  # two steps of six images, both views in one call


def test_frozen_layers_keep_their_running_statistics_and_use_them():
    settings = tiny(architecture="resnet10", norm="batch", width=8, rounds=4)
    trainer = trained(settings, rounds=2)
    frozen = [unit for name, unit in trainer.whole.encoder[0].named_children() if name in ("stem", "layer1_0")]
    before = [{name: value.clone() for name, value in unit.state_dict().items()} for unit in frozen]
    trainer.train_client(0, 0)
    for unit, state in zip(frozen, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in unit.state_dict().items())
    images = torch.randn(2, 6, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = trainer.features(images)
    torch.testing.assert_close(trainer.features(images[:1, :1])[0, 0], features[0, 0])  # whatever else is in a batch


def test_a_resnet_gets_a_layer_that_reshapes_its_features_and_loses_it_again():
    settings = tiny(architecture="resnet10", norm="batch", width=8, rounds=4)
    trainer = LayerwiseTrainer(settings, tiny_data())
    shapes = []
    for _ in range(4):
        a_round(trainer)
        shapes.append([tuple(value.shape) for value in trainer.part.encoder[2].parameters()])
    assert shapes == [[(64, 8), (64,)], [(64, 16), (64,)], [(64, 32), (64,)], []]
    assert not [name for name in trainer.global_model().state_dict() if name.startswith("encoder.2")]
    assert trainer.summary()["linear_probe_accuracy"] >= 0


def test_knn_compares_the_encoder_as_far_as_it_has_grown():
    trainer = trained(tiny(), rounds=3)
    units = dict(trainer.global_model().encoder[0].named_children())
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    maps = images
    for name in ("embed", "block_0", "block_1", "norm"):
        maps = units[name](maps)
    torch.testing.assert_close(trainer.knn_model()(images), maps.mean((2, 3)), rtol=0, atol=1e-12)


def test_the_distance_of_a_client_to_the_others_is_that_of_their_encoders():
    """Fig. 6: the mean over all others of the L2 distance, heads left out."""
    trainer = trained(tiny(), rounds=3)
    names = [name for name, _ in trainer.part.named_parameters() if name.startswith("encoder.")]
    rows = [torch.cat([trainer.trained.state_dict(client)[name].flatten() for name in names]) for client in range(4)]
    distances = torch.cdist(torch.stack(rows), torch.stack(rows))
    one = int(torch.randint(4, (), generator=generator(0, "compared client", 2)))
    assert trainer.metrics[2]["weight_distance"] == pytest.approx(distances[one].sum().item() / 3, rel=1e-9)
    assert trained(tiny(clients=1, batch=12), rounds=1).metrics[0]["weight_distance"] == 0


# ---------------------------------------------------------------- add-ons


def test_depth_dropout_leaves_out_earlier_blocks_and_never_the_patch_projection():
    trainer = trained(tiny(most_layers=2), rounds=6)
    seen = set()
    for client in range(4):
        trainer.advance()
        assert len(trainer.left_out) == 2
        assert trainer.left_out <= {"block_0", "block_1", "block_2"}
        seen.add(frozenset(trainer.left_out))
        assert trainer.memory[client]["left_out"] == sorted(trainer.left_out)
    assert len(seen) > 1  # each client draws for itself


def test_a_client_leaves_out_other_blocks_in_other_rounds():
    trainer = LayerwiseTrainer(tiny(most_layers=2, rounds=32), tiny_data())
    trainer.enter(trainer.plan[-1])
    seen = set()
    for trainer.finished in range(24, 32):
        trainer._start(0)
        seen.add(frozenset(trainer.left_out))
    assert len(seen) > 1


def test_a_layer_is_averaged_over_the_clients_that_had_it():
    trainer = trained(tiny(scheme="progressive", most_layers=2), rounds=7)
    before = trainer.shared.state_dict(0)
    sampled = torch.arange(4)
    for client in range(4):
        trainer.train_client(client, client)
    rows = {name: block.clone() for name, block in trainer.trained.blocks.items()}
    absent = [set(trainer.memory[client]["left_out"]) for client in range(4)]
    trainer.aggregate(sampled, torch.zeros(4))
    for name, value in trainer.shared.state_dict(0).items():
        unit = name.split(".")[2] if name.startswith("encoder") else ""
        had = [client for client in range(4) if unit not in absent[client]]
        expected = rows[name][had].mean(0) if had else before[name]
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


def test_representation_alignment_starts_at_log_two_and_knows_the_last_model():
    trainer = LayerwiseTrainer(tiny(representation_alignment=1.0, rounds=8), tiny_data())
    alignments = []
    for _ in range(4):  # two rounds in each of two stages
        a_round(trainer)
        alignments.append(trainer.metrics[-1]["alignment"])
    # Where a client has no model of its own yet, it is as far from the global one as from itself.
    assert alignments[0] == pytest.approx(math.log(2), abs=1e-10)
    assert alignments[2] == pytest.approx(math.log(2), abs=1e-10)
    assert abs(alignments[1] - math.log(2)) > 1e-6
    plain = trained(tiny(), rounds=2)
    assert trainer.metrics[1]["loss"] != pytest.approx(plain.metrics[1]["loss"] + alignments[1])


@pytest.mark.parametrize("rounds", [1, 3])  # of two a stage: the second one of the first stage, and of the next
def test_representation_alignment_is_the_contrast_of_the_global_model_and_the_last_one_image_by_image(rounds):
    settings = tiny(representation_alignment=0.7, alignment_temperature=0.3, clients=2, batch=8)
    trainer = trained(settings, rounds)
    own = trainer.trained.state_dict(1)
    trainer._start(1)
    noise = torch.randn(trainer.worker.weights.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        trainer.worker.weights += 0.1 * noise  # as after some steps
    inputs = trainer.features(trainer.views(*trainer.batches(1, rounds)[0]))
    loss, figures = trainer.loss(inputs)
    plain, _ = trainer.learner.loss(inputs)
    models = [trainer.shared.row_module(0) for _ in range(2)]
    models[1] = copy.deepcopy(models[1])
    models[1].load_state_dict(own)
    rows = [model.embed(inputs[0]).tolist() for model in (trainer.learner.online, *models)]
    terms = []
    for z, near, far in zip(*rows, strict=True):
        first, second = (
            math.exp(sum(a * b for a, b in zip(z, other, strict=True)) / math.hypot(*z) / math.hypot(*other) / 0.3)
            for other in (near, far)
        )
        terms.append(-math.log(first / (first + second)))
    assert len(terms) == 8
    assert figures["alignment"].item() == pytest.approx(sum(terms) / 8, abs=1e-10)
    assert abs(sum(terms) / 8 - math.log(2)) > 1e-3
    assert (loss - plain).item() == pytest.approx(0.7 * sum(terms) / 8, abs=1e-10)
    (gradient,) = torch.autograd.grad(loss - plain, trainer.learner.online.projector[0].weight)
    assert gradient.norm() > 1e-6


ORCHESTRA = {"objective": Orchestra(projector=(8, 8), local_clusters=3, global_clusters=5, memory_size=12)}
PAIRS = {"objective": SimCLR(projector=(8,)), "norm": "twin"}


@pytest.mark.parametrize("values", [{"norm": "group", **ORCHESTRA}, PAIRS])
def test_representation_alignment_compares_embeddings_of_what_the_objective_embeds_first(values):
    """Of its second view, or of both views together; at a client's first step all models are the same."""
    common = {"scheme": "end-to-end", "architecture": "resnet10", "width": 8, "optimizer": "sgd", "local_epochs": 1}
    trainer = LayerwiseTrainer(tiny(representation_alignment=1.0, batch=12, **common, **values), tiny_data())
    a_round(trainer)
    assert trainer.metrics[0]["alignment"] == pytest.approx(math.log(2), abs=1e-6)


def test_layers_that_clients_withhold_are_not_counted():
    settings = tiny(scheme="end-to-end", optimizer="sgd", client_update=EUC(), rounds=4)
    ours, theirs = (trained(each).ledger.table() for each in (settings, plain(settings)))
    assert ours.equals(theirs)
    assert ours.parameters_up.nunique() == 2


def test_clients_drop_out_and_a_round_keeps_at_least_one():
    trainer = trained(tiny(client_dropout=0.5))
    taking_part = trainer.ledger.table().query("parameters_up > 0").groupby("epoch").size()
    assert len(taking_part) == 8
    assert 1 <= taking_part.min() < 4
    often = tiny(clients=2, client_dropout=0.99)
    assert all(len(often.taking_part(finished)) == 1 for finished in range(30))


# ---------------------------------------------------------------- traffic


def elements(model: nn.Module) -> int:
    """Values that are exchanged when only trained parts are: not the table of positions."""
    return sum(value.numel() for name, value in model.state_dict().items() if not name.endswith("positions"))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("worst_case", [False, True])
def test_the_ledger_equals_the_closed_form_to_the_byte(scheme, worst_case):
    trainer = trained(tiny(scheme=scheme, worst_case=worst_case, precision="float32", local_epochs=1))
    model = trainer.global_model()
    backbone = model.encoder[0]
    blocks = [elements(getattr(backbone, f"block_{index}")) for index in range(4)]
    embed, heads = elements(backbone.embed), sum(map(elements, (backbone.norm, model.projector, model.predictor)))
    positions = backbone.embed.positions.numel()
    up, down = [], []
    for number in [1, 1, 2, 2, 3, 3, 4, 4]:
        active = heads + blocks[number - 1] + (embed if number == 1 else 0)
        whole = heads + embed + positions + sum(blocks[:number])
        everything = heads + embed + positions + sum(blocks)
        if scheme == "layer-wise":
            # The first round of a stage brings the layer that the last one finished.
            fresh = len(up) in (2, 4, 6)
            finished = (blocks[number - 2] + (embed if number == 2 else 0)) if fresh else 0
            up.append(active)
            down.append(whole if worst_case else active + finished)
        else:
            up.append(whole if scheme == "progressive" else everything)
            down.append(up[-1])
    table = trainer.ledger.table().query("client == 0")
    assert table.parameters_up.tolist() == [4 * count for count in up]
    assert table.parameters_down.tolist() == [4 * count for count in down]


# ---------------------------------------------------------------- wrong settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scheme": "staged"}, "scheme='staged' .*layer-wise"),
        ({"optimizer": "adam"}, "optimizer='adam'"),
        ({"target_at_start": "kept"}, "target_at_start='kept' .*copied"),
        ({"selection": "knn"}, "selection='knn' .*last"),
        ({"keep_velocity": True}, "keep_velocity=True"),
        ({"client_update": FedU()}, "client_update='fedu' .*end-to-end"),
        ({"most_layers": 2, "aggregation": "l-dawa"}, "aggregation='l-dawa'"),
        ({"client_dropout": 1.0}, "client_dropout=1.0"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        tiny(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds": 6}, "rounds=6 .*multiple"),
        ({"stages": 3}, "stages=3 .*divisor"),
        ({"architecture": "mobilenetv2", "norm": "batch", "width": 8}, "architecture='mobilenetv2' .*ResNet"),
        ({"architecture": "resnet10", "norm": "batch", "most_layers": 2}, "most_layers=2 .*transformer"),
    ],
)
def test_what_the_encoder_does_not_allow_is_said_before_training(values, message):
    with pytest.raises(SettingError, match=message):
        LayerwiseTrainer(tiny(**values), tiny_data())
