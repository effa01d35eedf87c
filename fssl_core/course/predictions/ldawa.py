"""Predictions in the notebooks of L-DAWA."""

import math

from scipy.integrate import quad
from scipy.special import stdtrit
from scipy.stats import norm

from fssl_core.course.exercise import prediction


@prediction(
    "ldawa/fig2/radius",
    record=("ldawa/fig2", "laptop"),
    unit="percent",
    within=4,
    too_low="Its layers are multiplied by cosines in every round: look at the two norms.",
    too_high="A single layer may shrink to a tenth. Most of the whole model's norm is elsewhere.",
)
def radius(record):
    norms = record[record.ssl_method == "Barlow Twins"].groupby("method").final_norm.mean()
    return 100 * (norms["FedAvg"] / norms["L-DAWA"] - 1)


@prediction(
    "ldawa/fig3/turning",
    unit="of the first length",
    within=0.03,
    too_low="Averaging shortens by the cosine, and the weight is the same cosine: twice in a round, not more often.",
    too_high="Two factors shorten in a round of L-DAWA: the average, and the weight.",
)
def turning():
    return math.cos(math.radians(20)) ** (2 * 10)


@prediction(
    "ldawa/fig4/longer",
    record=("ldawa/fig4", "laptop"),
    unit="times",
    within=2,
    too_low="Under L-DAWA the layer is short after the first round already, and then turns further and loses more.",
    too_high="L-DAWA leaves a tenth of what FedAvg makes of the layer. More than FedAvg's cannot be kept.",
)
def longer(record):
    last = record[(record.ssl_method == "SimCLR") & (record["round"] == record["round"].max())]
    norms = last.groupby("method").stem_norm.mean()
    return norms["L-DAWA after FedAvg"] / norms["L-DAWA"]


@prediction(
    "ldawa/fig5/apart",
    record=("ldawa/fig5", "laptop"),
    unit="points",
    within=2.5,
    too_low="A model that lost most of its loss late is also behind in accuracy.",
    too_high="Three tenths of a nat in the clients' own loss are no abyss in accuracy.",
)
def apart(record):
    last = record[record["round"] == record["round"].max()].groupby("method").knn_accuracy.mean()
    return 100 * (last.max() - last.min())


@prediction(
    "ldawa/fig6/drop",
    unit="standard deviations",
    within=0.15,
    too_low="The best of twenty is far out: it was chosen for it.",
    too_high="That far out is one value in a hundred or a thousand, and there are twenty.",
)
def drop():
    return quad(lambda x: 20 * x * norm.pdf(x) * norm.cdf(x) ** 19, -9, 9)[0]  # expected maximum of 20


@prediction(
    "ldawa/headline/positive",
    record=("ldawa/headline", "laptop"),
    unit="gains",
    within=1,
    too_low="Most gains are larger than what is won by choosing the best of four variants.",
    too_high="With one percent of the labels, and with 100 clients, plain L-DAWA is not ahead everywhere.",
)
def positive(record):
    return (record["L-DAWA over best baseline"] > 0).sum()


@prediction(
    "ldawa/table1/left",
    unit="of the norm",
    within=0.05,
    too_low="Half a percent a round: 200 of them are more than nothing.",
    too_high="Half a percent of what is left, 200 times.",
)
def left():
    return (math.sqrt(1 + 0.1**2 / 10) / math.sqrt(1 + 0.1**2)) ** 200


@prediction(
    "ldawa/table2/gain",
    table=("ldawa", "table2"),
    unit="points",
    within=0.15,
    too_low="The two are nearly equal. Look up EUC's cell.",
    too_high="EUC is a baseline, too, and in this cell it is the best one.",
)
def gain(table):
    rows = table[(table.ssl_method == "SimCLR") & (table.eval_dataset == "CIFAR-100") & (table.label_fraction == 0.01)]
    new = rows.method.str.startswith("L-DAWA")
    return rows[new].value.max() - rows[~new].value.max()


@prediction(
    "ldawa/table3/pairs",
    table=("ldawa", "table3"),
    unit="pairs",
    within=0,
    too_low="There are more. Compare the two partitions' cells pair by pair.",
    too_high="Six pairs are all that there are.",
)
def pairs(table):
    rows = table[table.method == "FedAvg"]
    cells = rows.pivot_table("value", ["ssl_method", "local_epochs"], "partition")
    return (cells["dirichlet"] > cells["single_class_per_client"]).sum()


@prediction(
    "ldawa/table4/down",
    table=("ldawa", "table4"),
    unit="steps",
    within=0,
    too_low="The rows rise from end to end, and not at every step.",
    too_high="Each row rises from 0.1 to 0.2. Count the others.",
)
def down(table):
    steps = table.pivot_table("value", ["ssl_method", "method"], "alpha").diff(axis=1)
    return (steps < 0).sum().sum()


@prediction(
    "ldawa/table5/share",
    table=("ldawa", "table5"),
    unit="percent",
    within=6,
    too_low="Six points are much where the baseline has less than twenty.",
    too_high="Divide the gain by the best baseline's accuracy.",
)
def share(table):
    rows = table[table.local_epochs == 1].set_index("method").value
    return 100 * (rows["L-DAWA"] / rows.drop("L-DAWA").max() - 1)


@prediction(
    "ldawa/table6/never",
    unit="clients",
    within=0.1,
    too_low="It is small, and not quite nothing: forty clients have their chance of it.",
    too_high="A client is left out of each round with probability 3/4, and that 20 times in a row.",
)
def never():
    return 40 * 0.75**20


@prediction(
    "ldawa/table7/smallest",
    table=("ldawa", "table7"),
    unit="points",
    within=0.7,
    too_low="No base gains as little as that.",
    too_high="One base gains less, on the set with fewer classes.",
)
def smallest(table):
    cells = table.pivot_table("value", "method", "eval_dataset")
    bases = {"L-DAWA_FedAvg": "FedAvg", "L-DAWA_Loss": "Loss", "L-DAWA_FedU": "FedU"}
    return min((cells.loc[new] - cells.loc[base]).min() for new, base in bases.items())


@prediction(
    "ldawa/beyond_aggregation/shrinking",
    record=("ldawa/beyond_aggregation", "laptop"),
    unit="points",
    within=4,
    too_low="Look at the standard error, and multiply it by Student's factor and not by 2.",
    too_high="Look at the standard error: three seeds are few, but not as few as that.",
)
def shrinking(record):
    values = record[record.method.isin(["shrinking only", "uniform"])].pivot_table("accuracy", "seed", "method")
    difference = 100 * (values["shrinking only"] - values["uniform"])
    return stdtrit(2, 0.975) * difference.sem()
