"""Predictions in the notebooks of LW-FedSSL."""

import math

import torch

from fssl_core.costs.activations import client_memory
from fssl_core.costs.layerwise import GB, resources
from fssl_core.costs.parts import build_model, vit
from fssl_core.course.exercise import prediction
from fssl_core.evaluation.metrics import classification_metrics
from fssl_core.federation.schedule import schedule


@prediction(
    "lwfedssl/beyond_frontier/images",
    record=("lwfedssl/beyond_frontier", "laptop"),
    unit="images",
    within=4,
    too_low="One image costs two views, three tensors of 16 KiB, and that in each of 24 epochs: about 2 MiB.",
    too_high="One image costs two views, three tensors of 16 KiB, and that in each of 24 epochs.",
)
def images(record):
    sent = record.groupby("method").traffic_bytes.mean()
    cut_1 = record[record.choice == "cut 1"].traffic_bytes.mean()  # of 400 images; models hardly count
    return sent["FedSimCLR"] / (cut_1 / 400)


@prediction(
    "lwfedssl/fig5/heads",
    unit="percent",
    within=6,
    too_low="Compare what is sent in a round: one block, and the heads whole.",
    too_high="A block has 444,288 values, and the heads not twice as many.",
)
def heads():
    model = build_model(vit(), "MoCoV3")
    block = model.encoder.units[0].values + model.encoder.norm.values
    return 100 * model.heads.values / (block + model.heads.values)


@prediction(
    "lwfedssl/fig6/first_stage",
    unit="of end-to-end training's",
    within=0.03,
    too_low="A distance is a root of a sum of squares: it goes with the root of the number of weights.",
    too_high="One block of twelve is in training.",
)
def first_stage():
    return math.sqrt(1 / 12)


@prediction(
    "lwfedssl/fig7/maps",
    unit="times",
    within=3,
    too_low="A map has a number for each pair of patches: the ratio of patches counts twice.",
    too_high="An image of 28 pixels has 7 x 7 patches of 4, where there were 16 x 16.",
)
def maps():
    return (256 / 49) ** 2


@prediction(
    "lwfedssl/fig8/batch",
    unit="images",
    within=200,
    too_low="Only one block of twelve keeps its activations: about twelve times the batch of the others.",
    too_high="What is kept for images, norm and heads does not get less by freezing blocks.",
)
def batch():
    kept = {"image_size": 64, "patch_size": 4, "precision": "mixed"}

    def fits(stage):
        one, two = (client_memory(stage, batch_size=size, **kept).total_bytes for size in (1, 2))
        return (9.7 * GB - one) // (two - one) + 1  # memory is a straight line in the batch

    return min(fits(stage) for stage in schedule("layer-wise", 12, rounds=180))


@prediction(
    "lwfedssl/fig10/meet",
    unit="",
    within=40,
    too_low="At 50 Dirichlet's shares are still more uneven than a shuffle's.",
    too_high="Set Dirichlet's relative spread of a share equal to a shuffle's of a class, and solve.",
)
def meet():
    clients, images = 10, 1495
    spread = (clients - 1) / images  # squared and relative, of a class of so many images
    return ((clients - 1) / spread - 1) / clients


@prediction(
    "lwfedssl/table1/pairs",
    unit="pairs",
    within=0,
    too_low="Stage s trains s layers, for 15 rounds: add them up.",
    too_high="Not all layers are there in all rounds: stage s trains s layers, for 15 rounds.",
)
def pairs():
    return sum(stage.rounds * len(stage.active) for stage in schedule("progressive", 12, rounds=180))


@prediction(
    "lwfedssl/table2/largest",
    table=("lwfedssl", "table2"),
    unit="points",
    within=1,
    too_low="The average hides it. On which set are there many classes with few images?",
    too_high="The printed cells are nearer to each other.",
)
def largest(table):
    rows = table[(table.metric == "accuracy") & (table.ssl_method == "MoCoV3") & (table.dataset != "average")]
    cells = rows.pivot_table("value", "dataset", "method")
    return (cells["FedMoCoV3"] - cells["LW-FedSSL"]).max()


@prediction(
    "lwfedssl/table3/dominated",
    table=("lwfedssl", "table3"),
    unit="rows",
    within=0,
    too_low="Compare each row with layer-wise training with six layers, too.",
    too_high="A row has to be no better in any of the four. Some save computation alone.",
)
def dominated(table):
    costs = table[table.metric.isin(["peak_memory", "flops", "communication"])]
    index = ["method", "layers_per_stage"]
    rows = costs.fillna({"layers_per_stage": 0}).pivot_table("value", index, "metric")
    accuracy = table[(table.metric == "accuracy") & (table.dataset == "average")].fillna({"layers_per_stage": 0})
    rows["loss"] = -accuracy.set_index(index).value
    values = rows.to_numpy()
    return sum(any((other <= row).all() and (other < row).any() for other in values) for row in values)


@prediction(
    "lwfedssl/table4/ratio",
    unit="",
    within=0.03,
    too_low="Four layers, and not twelve: a stage sends more of the model. And the heads go in every round.",
    too_high="A quarter of the layers on average, and the heads, which are small beside a ResNet.",
)
def ratio():
    sent = [
        resources(method, "MoCoV3", architecture="ResNet-18", rounds=120).communication_bytes
        for method in ("LW-FedSSL", "FedMoCoV3")
    ]
    return sent[0] / sent[1]


@prediction(
    "lwfedssl/table5/worst",
    unit="GB",
    within=0.2,
    too_low="Down comes the whole sub-model in every round, as in progressive training.",
    too_high="Up goes only what is trained, as in layer-wise training.",
)
def worst():
    return resources("LW-FedSSL", "MoCoV3", stages=3, worst_case=True).communication_gb


@prediction(
    "lwfedssl/table6/alignment",
    unit="times",
    within=0.1,
    too_low="The layer in training differs in all three models, so two more passes through it are needed.",
    too_high="Frozen layers are equal in the three models: one pass through them gives what all three need.",
)
def alignment():
    without = resources("LW-FedSSL", "MoCoV3").macs
    return 1 + 180 * 3 * 2 * vit().units[0].macs / without


@prediction(
    "lwfedssl/table7/misses",
    unit="percent",
    within=4,
    too_low="It has to be left out in each of three rounds, with probability 3/4 in each.",
    too_high="It has three rounds to be drawn in.",
)
def misses():
    return 100 * (1 - 5 / 20) ** 3


@prediction(
    "lwfedssl/table8/traffic",
    unit="times",
    within=0,
    too_low="They have received for nothing: the download is not saved.",
    too_high="They do not send: half of the upload is saved, as before.",
)
def traffic():
    return (1 + 0.5) / (2 * 0.5)  # down and up, after dropping out and before


@prediction(
    "lwfedssl/table9/f1",
    unit="percent",
    within=3,
    too_low="One class has an F1 of 0, the other a good one: it finds every case of pneumonia.",
    too_high="Macro F1 is a mean over both classes, and one of them is never answered.",
)
def f1():
    labels = torch.tensor([0] * 234 + [1] * 390)
    return 100 * classification_metrics(torch.ones_like(labels), labels, 2).f1


@prediction(
    "lwfedssl/table10/ratio",
    record=("lwfedssl/table10", "laptop"),
    unit="",
    within=0.01,
    too_low="Most of a block is linear in the tokens, and only its attention quadratic.",
    too_high="The products of the attention go with the square of the tokens.",
)
def size_ratio(record):
    macs = record[record.method == "FedMoCoV3"].set_index("image_size").macs
    return macs[224] / macs[128]


@prediction(
    "lwfedssl/table11/error",
    unit="points",
    within=0.08,
    too_low="It goes with one over the root of the number of images, not with one over the number.",
    too_high="Near 91 % an accuracy varies less than near 50 %.",
)
def error():
    return 100 * math.sqrt(0.91 * 0.09 / 3421)


@prediction(
    "lwfedssl/table12/used",
    unit="percent",
    within=3,
    too_low="One whole batch of 512 fits into 900 images.",
    too_high="An incomplete batch is left out. How many whole ones are there?",
)
def used():
    return 100 * (900 // 512 * 512) / 900


@prediction(
    "lwfedssl/table13/clients",
    unit="clients",
    within=0.15,
    too_low="If one client had everything it would be 1. The others count for something.",
    too_high="One client has 91 % of the weight. The other nine hardly count.",
)
def clients():
    held = torch.tensor([9100.0] + [100.0] * 9)
    return (held.sum() ** 2 / held.square().sum()).item()
