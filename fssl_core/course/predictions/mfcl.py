"""Predictions in the notebooks of MFCL."""

import math

from scipy.integrate import quad
from scipy.special import comb
from scipy.stats import norm

from fssl_core.costs.modular import (
    ROUNDS,
    SETUPS,
    backbone_sizes,
    client_sizes,
    client_traffic,
    delivery_bits,
    module_sizes,
    representation_values,
    round_bits,
)
from fssl_core.course.exercise import prediction
from fssl_core.experiments.profiles import split_settings
from fssl_core.models.client_module import client_module


@prediction(
    "mfcl/architecture/apart",
    unit="standard deviations",
    within=0.06,
    too_low="Outputs scale with one over the root of the variance: the variance has to be 21 % larger.",
    too_high="Half the difference of the means counts squared: set 1 + d * d / 4 equal to 1.21.",
)
def apart():
    return 2 * math.sqrt(1.1**2 - 1)


@prediction(
    "mfcl/beyond_privacy/views",
    unit="views",
    within=0,
    too_low="Every epoch draws two new views of an image, and the paper has 200 epochs.",
    too_high="Count views, and not the messages about them: two new views in each epoch.",
)
def views():
    return 2 * split_settings("paper", clients=10, cut_layer=11, method="MonAcoSFL").epochs


@prediction(
    "mfcl/fig6/batch",
    unit="",
    within=0.012,
    too_low="Of each class there are 32 images on average, and the number varies by five.",
    too_high="Total variation is half the sum of absolute differences of shares.",
)
def batch():
    return 0.5 * 10 * math.sqrt(2 / math.pi) * math.sqrt(0.1 * 0.9 / 320)


@prediction(
    "mfcl/fig7/effective",
    unit="clients for each class",
    within=0.15,
    too_low="With as many clients as that the largest share of a class is not all of it.",
    too_high="Put the number of clients and the concentration into the formula. It is nearly two clients a class.",
)
def effective():
    return (100 * 0.01 + 1) / (0.01 + 1)


@prediction(
    "mfcl/fig8/left",
    unit="classes",
    within=0.3,
    too_low="A class is lost only if both of its owners are missing.",
    too_high="Seven of ten are missing: both owners of a class are among them more often.",
)
def left():
    return 10 * (1 - comb(8, 5) / comb(10, 7))


@prediction(
    "mfcl/fig9/purity",
    record=("mfcl/fig9", "laptop"),
    unit="percent",
    within=6,
    too_low="Chance is 10 %. Pixels of two images of a class are a little more alike than others.",
    too_high="The digits lie anywhere in the image, so pixels of one class are hardly alike.",
)
def purity(record):
    return 100 * record.set_index("method").purity["raw, all clients"]


@prediction(
    "mfcl/table1/macs",
    unit="times",
    within=4,
    too_low="The first convolution has three input channels, the second 64.",
    too_high="The second convolution has 64 input channels where the first has three: that ratio, and one.",
)
def macs():
    one, two = (module_sizes(client_module("resnet18", cut), 32).products for cut in (1, 2))
    return two / one


@prediction(
    "mfcl/table2/leads",
    table=("mfcl", "table2"),
    unit="columns",
    within=0,
    too_low="It leads in all of the most severe columns.",
    too_high="At 0.1 others are as good or better.",
)
def leads(table):
    severe = table[(table.metric == "top1_accuracy") & (table.xi < 1)]
    names = severe.method + ("(" + severe.normalization + ")").fillna("")
    cells = severe.assign(name=names).pivot_table("value", ["dataset", "xi"], "name")
    return (cells["MFCL(TN)"] > cells.drop(columns="MFCL(TN)").max(axis=1)).sum()


@prediction(
    "mfcl/table3/images",
    unit="images",
    within=300,
    too_low="An image costs 50 million bits with its eight pairs. Divide FedEMA's traffic by that.",
    too_high="With the paper's 5,000 images MFCL already sends more than FedEMA.",
)
def images():
    one, two = (client_traffic("MFCL", "ResNet-18", images=count).alpha_bits for count in (0, 1))
    return (client_traffic("FedEMA", "ResNet-18").alpha_bits - one) / (two - one)


@prediction(
    "mfcl/table4/vectors",
    table=("mfcl", "table4"),
    unit="vectors",
    within=0,
    too_low="More fit below FedPAC's traffic.",
    too_high="With so many MFCL sends more than FedPAC. Count phase 1, too.",
)
def vectors(table):
    rival = table[(table.method == "FedPAC") & (table.metric == "alpha_communication")].value.item()
    both = client_sizes("ResNet-18", with_decoder=True).parameters
    phase_1 = ROUNDS["MFCL"] * round_bits(both, both)
    images = SETUPS["ResNet-18"].images
    sent = {n: phase_1 + delivery_bits(representation_values(32, 32, 64, images, vectors=n)) for n in range(9)}
    return max(count for count, bits in sent.items() if bits < rival)


@prediction(
    "mfcl/table5/modular",
    table=("mfcl", "table5"),
    unit="points",
    within=6,
    too_low="That much modular training does not cost, even with batch norm.",
    too_high="With batch norm modular training is no gain at all: look at that cell.",
)
def modular(table):
    rows = table[(table.xi == 0.01) & (table.normalization == "BN")].set_index("method").value
    return rows["MFCL"] - rows["FedSimCLR"]


@prediction(
    "mfcl/table6/share",
    unit="of the mixture",
    within=0.04,
    too_low="A third is the mean share. The largest of three is larger than that.",
    too_high="With two in a mixture it is 0.75, and three share the same whole.",
)
def share():
    return (1 + 1 / 2 + 1 / 3) / 3


@prediction(
    "mfcl/table7/error",
    unit="points",
    within=0.1,
    too_low="Two accuracies vary, and their variances add up.",
    too_high="Ten thousand images: one accuracy has half a point.",
)
def error():
    return 100 * math.sqrt(2 * 0.62 * 0.38 / 10_000)


@prediction(
    "mfcl/table8/negative",
    record=("mfcl/table8", "laptop"),
    unit="SSIM",
    within=0.1,
    too_low="Not every structure is turned around: the dark background of a digit has none.",
    too_high="Where the image becomes brighter a negative becomes darker: its structure is anticorrelated.",
)
def negative(record):
    return record[(record.attack == "C0D0 fitted") & (record.part == "views")].ssim.mean()


@prediction(
    "mfcl/table14/curves",
    table=("mfcl", "table14"),
    unit="curves",
    within=0,
    too_low="Look at Orchestra, and at FedEMA.",
    too_high="Most of them rise at both steps.",
)
def curves(table):
    rows = table[(table.metric == "top1_accuracy") & (table.xi > 0.05)]
    names = rows.method + ("(" + rows.normalization + ")").fillna("")
    steps = rows.assign(name=names).pivot_table("value", ["name", "dataset"], "xi").diff(axis=1).iloc[:, 1:]
    return (steps <= 0).any(axis=1).sum()


@prediction(
    "mfcl/table15/dense",
    unit="percent",
    within=5,
    too_low="They have 124 million weights, each of which is used once.",
    too_high="They have most of the weights, but a convolution uses each of its weights at every position.",
)
def dense():
    products = 25_088 * 4096 + 4096**2 + 4096 * 1000
    return 100 * products / backbone_sizes("VGG-16-BN").products


@prediction(
    "mfcl/table16/range",
    unit="points",
    within=0.08,
    too_low="The largest of four and the least of four lie further apart than two single runs.",
    too_high="Four runs, not forty: both ends are about one standard deviation out.",
)
def expected_range():
    return 0.3 * 2 * quad(lambda x: 4 * x * norm.pdf(x) * norm.cdf(x) ** 3, -9, 9)[0]


@prediction(
    "mfcl/table17/doubling",
    table=("mfcl", "table17"),
    unit="points",
    within=0.15,
    too_low="It gains a little at some steps. Look along its row.",
    too_high="Group norm hardly gains by more values.",
)
def doubling(table):
    row = table[table.normalization == "GN"].set_index("channels_per_group").value.sort_index()
    return row.diff().max()
