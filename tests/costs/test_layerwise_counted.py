"""Layer-wise training on the engine, counted step by step and byte by byte, against its closed forms.

Computation: whole federations run, every local step under ``FlopCounterMode``, half of whose number are multiply-adds.
It counts products alone; what fvcore adds for normalisations is counted beside it, a trained one three times. What the
engine does and the closed form, the paper's count, leaves out is known by name and size: see ``by_convention``.
Traffic: the ledger of federations in which clients miss rounds, leave layers out and train a ResNet.
"""

from collections import Counter

import pytest
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fssl_core.costs.layerwise import communication_bytes, epoch_macs, round_bytes, training_macs
from fssl_core.costs.parts import build_model, resnet18, total, vit
from fssl_core.models.layers import BatchNorm2d
from fssl_core.objectives import BYOL, MoCoV3, SimCLR
from fssl_core.training.layerwise import LayerwiseTrainer
from tests.training.test_layerwise import SCHEMES, tiny
from tests.training.test_split import tiny_data

BATCH = 8
N, D = 4, 12  # tokens and width of the transformer that `tiny` trains on images of 8 px
RESNET = {"architecture": "resnet18-imagenet", "norm": "batch", "width": 4, "augmentation": "digits"}
WIDTHS = {1: 4, 2: 8, 3: 16, 4: 32}  # of the features that so many of its stages make
HEADS = {"projector": (512, 512, 256), "output_norm": "plain"}
OBJECTIVES = {
    "MoCoV3": MoCoV3(),
    "BYOL": BYOL(**HEADS, predictor=(512, 256), output_bias=False),
    "SimCLR": SimCLR(**HEADS),
}
LOSS = {  # products of similarities: of each view's queries with keys that take no gradient; of all with all
    "MoCoV3": 2 * 2 * BATCH**2 * 256,
    "BYOL": 0,
    "SimCLR": 3 * (2 * BATCH) ** 2 * 256,
}
PER_ELEMENT = {nn.LayerNorm: 5, BatchNorm2d: 2}  # fvcore, 1 without scale; the paper leaves out the final norm


def closed_form(architecture: str, ssl_method: str):
    encoder = vit(8, 4, width=D, depth=4, channels=1) if architecture == "vit4" else resnet18(32, width=4, channels=1)
    return build_model(encoder, ssl_method)


# ---------------------------------------------------------------- computation


class Counted(LayerwiseTrainer):
    """Counts the multiply-adds of the first client's steps: the stage, products by operation, normalisations."""

    def enter(self, stage) -> None:
        super().enter(stage)
        if stage.number == 1:
            self.steps, self.hooks = [], []
        for hook in self.hooks:  # a block that is frozen now stays so
            hook.remove()
        target = self.learner.target or nn.Identity()
        for branch, passes in ((self.frozen, 1), (self.learner.online, 3), (target, 1)):
            norms = [module for module in branch.modules() if type(module) in PER_ELEMENT]
            for norm in norms:
                each = PER_ELEMENT[type(norm)] if norm.weight is not None else 1
                self.hooks.append(norm.register_forward_hook(self.count(passes * each)))

    def count(self, each: int):
        def hook(_norm, inputs, _output) -> None:
            self.norms += each * inputs[0].numel()

        return hook

    def step(self, rows, views):
        if self.rows:  # counting takes longer than training
            return super().step(rows, views)
        self.norms = 0
        with FlopCounterMode(display=False) as counter:
            result = super().step(rows, views)
        products = Counter(counter.get_flop_counts()["Global"])
        macs = Counter({str(operation).removeprefix("aten."): flops // 2 for operation, flops in products.items()})
        self.steps.append((self.stage, +macs, self.norms))
        return result


def counted(ssl_method: str, *, size: int = 8, attention=SDPBackend.MATH, **values) -> Counted:
    """A federation of two clients, run to the end: a step each in a round, a round in a stage."""
    values |= {"objective": OBJECTIVES[ssl_method], "clients": 2, "batch": BATCH}
    values["rounds"] = 1 if values["scheme"] == "end-to-end" else 4
    trainer = Counted(tiny(precision="float32", probe_epochs=0, **values), tiny_data(train=2 * BATCH, size=size))
    with sdpa_kernel(attention):
        while trainer.finished < trainer.total:
            trainer.advance()
    assert len(trainer.steps) == trainer.total
    return trainer


def by_convention(stage, ssl_method: str, model, *, resnet: bool) -> dict[str, int]:
    """Multiply-adds of a step that the closed form does not count, or counts and nobody does."""
    views = 2 * BATCH
    encoder, has_target = model.encoder, ssl_method != "SimCLR"
    units = [encoder.units[unit] for unit in stage.active]
    trained = total(units[0 if stage.frozen else stage.dropped :]).macs + encoder.stem.macs * (0 in stage.active)
    first, reshape = N * 16 * D * (0 in stage.active), 0  # the patch projection; a frozen block's reader is its norm
    if resnet:
        width = WIDTHS[stage.active.stop]
        first, reshape = 16**2 * 7**2 * 4, width * 32 * (width < 32)  # the stem
        if stage.frozen:  # the first convolution, and that of the shortcut
            first = (32 // width) ** 2 * (9 + 1) * width // 2 * width
    return {
        "target branch, forward": views * has_target * (trained + model.projector.macs),
        "layer that reshapes the features": views * reshape * (3 + has_target),
        "similarities in the loss": LOSS[ssl_method],
        "gradient of images or frozen features, which nobody needs": -views * first,
    }


@pytest.mark.parametrize(
    ("scheme", "ssl_method", "values"),
    [
        *(pytest.param(scheme, "MoCoV3", {}, id=f"{scheme}, MoCoV3") for scheme in SCHEMES),
        *(pytest.param("layer-wise", name, {}, id=f"layer-wise, {name}") for name in ("BYOL", "SimCLR")),
        *(pytest.param(scheme, "MoCoV3", RESNET, id=f"{scheme}, ResNet") for scheme in SCHEMES),
        *(pytest.param(scheme, "MoCoV3", {"most_layers": 2}, id=f"{scheme}, depth dropout") for scheme in SCHEMES[:2]),
        *(pytest.param(scheme, "MoCoV3", {"stages": 2}, id=f"{scheme}, two a stage") for scheme in SCHEMES[:2]),
    ],
)
def test_every_step_costs_what_the_closed_form_says(scheme, ssl_method, values):
    """One view of an image is what the paper counts for MoCoV3 and BYOL: here it is both, as for SimCLR."""
    resnet = values == RESNET
    trainer = counted(ssl_method, scheme=scheme, size=32 if resnet else 8, **values)
    model = closed_form(trainer.settings.architecture, ssl_method)
    for stage, products, norms in trainer.steps:
        others = by_convention(stage, ssl_method, model, resnet=resnet)
        assert products.total() + norms == 2 * BATCH * epoch_macs(stage, model) + sum(others.values())
    plan = list(dict.fromkeys(trainer.plan))
    whole = sum(2 * BATCH * epoch_macs(stage, model) for stage, *_ in trainer.steps)
    assert whole == BATCH * training_macs(plan, model, local_epochs=1, views=2, head_views=2)


def operations(stage, *, alignment: bool) -> Counter:
    """A step with MoCoV3 by hand: multiply-adds by operation.

    The frozen blocks run forward once for both branches, trained ones forward in each, for alignment once more with
    the weights of two other models, of one view. Backward is twice a forward pass, but no image needs a gradient.
    """
    views, frozen, active = 2 * BATCH, len(stage.frozen), len(stage.active)
    patch, qkv, others, attention = N * 16 * D, 3 * N * D**2, 9 * N * D**2, 2 * N**2 * D
    projector, predictor = D * 512 + 512 * 512 + 512 * 256, 256 * 512 + 512 * 256
    forward = 3 if alignment else 2
    stem = 0 in stage.active
    heads = forward * projector + predictor + 2 * (projector + predictor)
    return Counter(
        {
            "convolution": views * patch * (forward if stem else 1),
            "convolution_backward": views * patch * stem,
            "addmm": views * others * (frozen + forward * active),  # layers with a bias, forward
            "bmm": views * attention * (frozen + (forward + 2) * active),
            "mm": views * (qkv * (frozen + forward * active) + 2 * (qkv + others) * active + heads) + LOSS["MoCoV3"],
        }
    )


@pytest.mark.parametrize(("scheme", "alignment"), [*((scheme, 0.0) for scheme in SCHEMES), ("layer-wise", 1.0)])
def test_every_operation_is_accounted_for(scheme, alignment):
    trainer = counted("MoCoV3", scheme=scheme, representation_alignment=alignment)
    for stage, products, _ in trainer.steps:
        assert products == +operations(stage, alignment=alignment > 0)


def test_fused_attention_computes_its_weights_once_more():
    """Which is why the paper's count needs it switched off: backward takes five products for four."""
    trainer = counted("MoCoV3", scheme="progressive", attention=SDPBackend.FLASH_ATTENTION)
    name = "_scaled_dot_product_flash_attention_for_cpu"
    for stage, products, _ in trainer.steps:
        blocks, one = len(stage.active), 2 * BATCH * N**2 * D  # one product
        assert (products[name], products[f"{name}_backward"]) == (2 * 2 * one * blocks, 5 * one * blocks)
        expected = operations(stage, alignment=False)
        assert products.total() == expected.total() + one * blocks


# ---------------------------------------------------------------- traffic


def ledger(values) -> tuple[LayerwiseTrainer, list[dict[int, set[int]]]]:
    """A finished federation, and for each round the blocks that each of its clients left out."""
    values = {"rounds": 4, "batch": 4} | values
    settings = tiny(objective=MoCoV3(), precision="float32", probe_epochs=0, **values)
    size = 8 if settings.architecture == "vit4" else 32
    trainer = LayerwiseTrainer(settings, tiny_data(train=4 * settings.clients, size=size))
    rounds: list[dict[int, set[int]]] = [{} for _ in range(settings.rounds)]
    while trainer.finished < trainer.total:
        finished, place = trainer.finished, len(trainer.rows)
        client = int(settings.taking_part(finished)[place])
        trainer.advance()
        rounds[finished][client] = {int(name.removeprefix("block_")) for name in trainer.left_out}
    return trainer, rounds


def expected_traffic(trainer: LayerwiseTrainer, rounds) -> dict[tuple[int, int], tuple[int, int]]:
    """Bytes down and up by round and client: the closed form of a round, and what the paper's traffic leaves out.

    That is the layer that reshapes the features of a ResNet, and finished layers, each sent once to each client, in the
    first round in which the client uses it.
    """
    s, model = trainer.settings, closed_form(trainer.settings.architecture, "MoCoV3")
    sizes = {unit: part.values + part.counters for unit, part in enumerate(model.encoder.units)}
    sizes["stem"] = model.encoder.stem.values + model.encoder.stem.counters
    held: dict[int, set] = {client: set() for client in range(s.clients)}
    result = {}
    for finished, stage in enumerate(trainer.plan):
        width = WIDTHS[stage.active.stop]
        reshapes = s.architecture != "vit4" and width < 32
        sent, reshape = round_bytes(stage, model, counters=True), 4 * reshapes * (width + 1) * 32
        for client, left_out in rounds[finished].items():
            frozen = {*stage.frozen, *(["stem"] if stage.frozen else [])}
            missing = set() if s.worst_case else frozen - left_out - held[client]
            held[client] |= missing
            fresh = 4 * sum(sizes[unit] for unit in missing)
            result[finished + 1, client] = (sent.down + fresh + reshape, sent.up + reshape)
    return result


PARTIAL = {"clients": 3, "clients_per_round": 2}
CASES = [
    pytest.param({"rounds": 8, **PARTIAL}, id="layer-wise, sampled"),
    *(pytest.param({"scheme": scheme, **PARTIAL}, id=f"{scheme}, sampled") for scheme in SCHEMES[1:]),
    *(pytest.param({"scheme": scheme, **RESNET, **PARTIAL}, id=f"{scheme}, ResNet") for scheme in SCHEMES),
    pytest.param({"rounds": 8, "client_dropout": 0.5}, id="layer-wise, clients drop out"),
    pytest.param({"worst_case": True, **PARTIAL}, id="layer-wise, worst case"),
    pytest.param({"worst_case": True, **RESNET}, id="layer-wise, ResNet, worst case"),
    pytest.param({"stages": 2, **PARTIAL}, id="layer-wise, two blocks a stage"),
    pytest.param({"scheme": "progressive", "most_layers": 2}, id="progressive, depth dropout"),
    pytest.param({"worst_case": True, "most_layers": 2}, id="layer-wise, depth dropout, worst case"),
    pytest.param({"rounds": 8, "most_layers": 2, **PARTIAL}, id="layer-wise, depth dropout"),
]


@pytest.mark.parametrize("values", CASES)
def test_every_byte_is_in_the_closed_form_or_has_a_name(values):
    trainer, rounds = ledger(values)
    table = trainer.ledger.table().query("parameters_up > 0")
    counted = {(row.epoch, row.client): (row.parameters_down, row.parameters_up) for row in table.itertuples()}
    assert counted == expected_traffic(trainer, rounds)


def test_the_whole_traffic_is_the_closed_form_of_the_training():
    """Where nothing is left out of it: progressive training, and layer-wise in the worst case."""
    for values in ({"scheme": "progressive"}, {"worst_case": True}):
        trainer, _ = ledger(values | {"clients": 2})
        plan, model = list(dict.fromkeys(trainer.plan)), closed_form("vit4", "MoCoV3")
        table = trainer.ledger.table()
        sent = table.parameters_down.sum() + table.parameters_up.sum()
        assert sent == 2 * communication_bytes(plan, model, counters=True)
