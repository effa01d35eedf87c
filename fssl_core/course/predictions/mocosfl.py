"""Predictions in the notebooks of MocoSFL."""

import math

from fssl_core.costs.compute import compute_table
from fssl_core.costs.traffic import engine_traffic
from fssl_core.course.exercise import prediction
from fssl_core.federation.participation import auto_adjust
from fssl_core.models import build_backbone
from fssl_core.objectives.hardness import hardness

GIB = 2**30  # bytes


@prediction(
    "mocosfl/beyond_resistance/fresh_attack",
    record=("mocosfl/beyond_resistance", "laptop"),
    unit="SSIM",
    within=0.08,
    too_low="The client part was hidden from an attacker with a small network and little time. This one has more.",
    too_high="Part of the defence holds: what the client part no longer sends, no attacker can find.",
)
def fresh_attack(record):
    return record[(record.client_part == "against an attacker") & record.frozen].ssim.mean()


@prediction(
    "mocosfl/fig1/similarity",
    unit="",
    within=0.02,
    too_low="At this similarity a thousand negatives still outweigh the positive key. Solve for s.",
    too_high="Divided by 0.1 and put into an exponential, less similarity than that outweighs a thousand negatives.",
)
def similarity():
    return 0.1 * math.log(1000 / math.expm1(0.13))  # ln(1 + 1000 exp(-s / 0.1)) = 0.13


@prediction(
    "mocosfl/fig3/deepest",
    unit="",
    within=0,
    too_low="A deeper client fits, too: with a batch of one its activations are small.",
    too_high="With a batch of one, the model with its gradients, momentum and momentum model is most of the memory.",
)
def deepest():
    table = compute_table(["resnet18"], client_batches=[1])
    whole = table[table.scheme == "FL-SSL"].memory_bytes.item()
    return table[(table.scheme == "MocoSFL") & (table.memory_bytes < whole / 100)].cut_layer.max()


@prediction(
    "mocosfl/fig4/share",
    unit="percent",
    within=0.03,
    too_low="A client of three layers has some 76,000 parameters, and ten syncs move them twenty times.",
    too_high="Every image brings three tensors of 64 x 32 x 32 values. Compare that with the parameters.",
)
def share():
    records = _one_view("resnet18")
    models = sum(record.bytes for record in records if record.purpose == "parameters")
    return 100 * models / sum(record.bytes for record in records)


@prediction(
    "mocosfl/hardness/two_keys",
    unit="percent",
    within=2,
    too_low="The keys are younger: the oldest are half as old as before.",
    too_high="The memory holds as many keys as before. What changes is their age alone.",
)
def two_keys():
    one, two = (hardness(batch, 6000, eta=1, gamma=0.99) for batch in (100, 200))
    return 100 * (two / one - 1)


@prediction(
    "mocosfl/table1/cells",
    table=("mocosfl", "table1"),
    unit="cells",
    within=0,
    too_low="Subtract cell by cell. More of them are in that range.",
    too_high="In one of them the other method is ahead. Subtract cell by cell.",
)
def cells(table):
    ours, theirs = (
        table[(table.method == name) & (table.partition == "non_iid_class")].set_index(["dataset", "clients"]).value
        for name in ("MocoSFL-3", "FL-BYOL")
    )
    return (ours - theirs).between(2, 10).sum()


@prediction(
    "mocosfl/table2/steps",
    unit="steps",
    within=0,
    too_low="Divide the images by the clients, by the batch and by the syncs per epoch.",
    too_high="Fifty are left with 50,000 images. Here are fewer.",
)
def steps():
    return auto_adjust(1000).steps_between_syncs(15_600, 1000)


@prediction(
    "mocosfl/table3/largest",
    table=("mocosfl", "table3"),
    unit="points",
    within=0.5,
    too_low="One pair gains more.",
    too_high="No pair gains as much. The paper says about 3 points, and means an average.",
)
def largest(table):
    cells = table.pivot_table("value", ["method", "dataset", "clients", "partition"], "architecture")
    return (cells["ResNet-50"] - cells["ResNet-18"]).max()


@prediction(
    "mocosfl/table3/traffic",
    unit="GiB",
    within=3,
    too_low="The third layer of a ResNet-50 is the end of a bottleneck, which has four times the channels.",
    too_high="Four times the channels are four times the activations, and the models hardly count.",
)
def traffic():
    return sum(record.bytes for record in _one_view("resnet50")) / GIB


def _one_view(architecture):
    """What a client of the paper's exchanges in an epoch, three layers with it."""
    backbone = build_backbone(architecture)
    return engine_traffic(backbone, 3, images=10_000, syncs=10, momentum_sync=False, symmetric=False)


@prediction(
    "mocosfl/table4/worth",
    record=("mocosfl/table4", "laptop"),
    unit="points",
    within=8,
    too_low="More labels help the head, but they do not make up for features that do not separate the classes.",
    too_high="An untrained backbone is worth something, too: random filters keep much of an image.",
)
def worth(record):
    rows = record[(record.clients == 5) & (record.cut_layer == 1) & (record.label_fraction == 1)]
    return 100 * (rows.accuracy - rows.untrained).mean()
