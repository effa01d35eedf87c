"""Predictions in the notebooks of MonAcoSFL."""

from fssl_core.costs.traffic import split_traffic
from fssl_core.course.exercise import prediction
from fssl_core.federation.participation import auto_adjust
from fssl_core.models import build_backbone, client_elements, cut_layers
from fssl_core.training.toy import share_followed


@prediction(
    "monacosfl/beyond_tradeoff/cheapest",
    record=("monacosfl/beyond_tradeoff", "laptop"),
    unit="",
    within=0,
    too_low="There the activations are large, and they do not shrink by synchronising.",
    too_high="The deepest client has most of the parameters, and now sends them ten times as often, of two models.",
)
def cheapest(record):
    sent = record.groupby(["method", "cut_layer"]).bytes_per_client_epoch.mean().unstack(0)
    models = sent["MonAcoSFL"] - sent["MocoSFL"]  # one model, up and down, once
    return (sent["MocoSFL"] + (2 * 10 - 1) * models).idxmin()


@prediction(
    "monacosfl/fig1/coarser",
    record=("monacosfl/fig1", "laptop"),
    unit="",
    within=0,
    too_low="That far towards the input activations are still the larger part, even with 4 bits.",
    too_high="With 4 bits the activations take an eighth, and the parameters of a deep client what they took before.",
)
def coarser(record):
    formula = record[record.rule == "two-way"].set_index("cut_layer")
    return (formula.activation_bytes / 8 + formula.sync_bytes).idxmin()


@prediction(
    "monacosfl/fig2/numbers",
    unit="times as many",
    within=0.5,
    too_low="The image has three numbers a pixel, and the activation 64 at a quarter of the positions.",
    too_high="The stem halves both sides: a quarter of the positions is left.",
)
def numbers():
    return 64 * 112**2 / (3 * 224**2)


@prediction(
    "monacosfl/fig3/cheapest",
    unit="",
    within=0,
    too_low="The optimum moves towards the input, but less far.",
    too_high="Activations shrink with the image and the model does not: the model's share grows.",
)
def cheapest_at_32():
    backbone = build_backbone("resnet18", image_size=32)
    traffic = {c: split_traffic(backbone, c, images=250, syncs=10, rule="two-way") for c in cut_layers(backbone)}
    return min(traffic, key=lambda cut: traffic[cut].total_bytes)


@prediction(
    "monacosfl/fig3/rarely",
    record=("monacosfl/fig3", "laptop"),
    unit="synchronisations in an epoch",
    within=0,
    too_low="It is the cheapest with more synchronisations already.",
    too_high="With so many layer 11 is still cheaper. Set the traffic of the two cuts equal.",
)
def rarely(record):
    rows = record[(record.architecture == "resnet18") & (record.rule == "two-way") & (record.strides == "cifar")]
    rows = rows.set_index("cut_layer")
    model = rows.sync_bytes / rows.syncs
    return max(k for k in range(1, 11) if (rows.activation_bytes + k * model).idxmin() == 15)


@prediction(
    "monacosfl/fig4/steps",
    unit="steps",
    within=0,
    too_low="A client passes over all of its images, one at a time, before the next synchronisation.",
    too_high="A client of 1000 has fewer images than that, and a batch of one.",
)
def steps():
    return auto_adjust(1000).steps_between_syncs(50_000, 1000)


@prediction(
    "monacosfl/fig5/late",
    unit="steps",
    within=5,
    too_low="In a window that short the momentum models follow less than half of the drift.",
    too_high="In a late window the momentum models set out apart already: fewer steps are enough than in the first.",
)
def late():
    return next(window for window in range(1, 1000) if share_followed(window, 0.996, first=False) > 0.5)


@prediction(
    "monacosfl/fig6/loss",
    record=("monacosfl/fig6", "laptop"),
    unit="nats",
    within=0.5,
    too_low="Who tells the clients apart has to guess among the keys of one of them, instead of among all.",
    too_high="Telling ten clients apart is worth ln 10 nats, and the other method knows a little of the client, too.",
)
def loss(record):
    deepest = record[record.cut_layer == record.cut_layer.max()].groupby("method").loss.mean()
    return deepest["MonAcoSFL"] - deepest["MocoSFL"]


@prediction(
    "monacosfl/fig7/share",
    unit="percent",
    within=8,
    too_low="The last layers of a network have the most channels, and so most of its values.",
    too_high="One convolution is left to the server, and it is one of the largest.",
)
def share():
    backbone = build_backbone("mobilenetv2")
    return 100 * client_elements(backbone, 15) / client_elements(backbone, cut_layers(backbone)[-1])


@prediction(
    "monacosfl/fig8/mean_image",
    record=("monacosfl/fig8", "laptop"),
    unit="MSE",
    within=0.015,
    too_low="It is the variance of a pixel. Most pixels of a digit are dark, but some differ by nearly 1.",
    too_high="A grey square would have more. The mean image knows where digits have their ink.",
)
def mean_image(record):
    return record.mean_image_mse.mean()


@prediction(
    "monacosfl/fig9/jump",
    record=("monacosfl/fig9", "laptop"),
    unit="times",
    within=2,
    too_low="The momentum models of clients that were away are far from the online models that they are given now.",
    too_high="Momentum models have followed a part of the way, and there was some distance before.",
)
def jump(record):
    rows = record[(record.setting == "paper-like") & (record.method == "MocoSFL") & (record.synced == 1)]
    first = rows.sort_values("step").groupby("seed").first()
    return (first.misalignment / first.misalignment_before_sync).mean()
