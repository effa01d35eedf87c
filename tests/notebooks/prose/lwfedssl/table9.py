from math import sqrt

import torch

from fssl_core.claims.estimation import Cells, Estimate
from fssl_core.evaluation.metrics import classification_metrics, mean_over_batches
from fssl_core.papers.reference import paper_value
from fssl_core.random import generator
from tests.notebooks.prose.recorded import accuracies, behind_by, record

TEST = {  # test images of each class, MedMNIST v2
    "BloodMNIST": [244, 624, 311, 579, 243, 284, 666, 470],
    "PathMNIST": [1338, 847, 339, 634, 1035, 592, 741, 421, 1233],
}
HEALTHY, PNEUMONIA = 234, 390


def made_up(name):
    """Labels sorted by class, the made-up predictions, how many classes, and 30 orders: as the notebook draws them."""
    sizes = TEST[name]
    draw = generator(0, f"made up {name}")
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    accuracy = paper_value("lwfedssl", "table9", "accuracy", "FedMoCoV3", dataset=name)
    right = torch.rand(len(labels), generator=draw) < accuracy / 100
    others = labels[torch.randint(len(labels), (len(labels),), generator=draw)]
    orders = [torch.randperm(len(labels), generator=draw) for _ in range(30)]
    return labels, torch.where(right, labels, others), len(sizes), orders


def deviation(name, batch):
    """Standard deviation over the orders of recall by batches, in points."""
    labels, predictions, classes, orders = made_up(name)
    recalls = [mean_over_batches(predictions[order], labels[order], classes, batch).recall for order in orders]
    return 100 * torch.tensor(recalls).std().item()


def over_end_to_end(method, protocol) -> Estimate:
    """By how much a method is ahead at `workstation`, in points."""
    real = record("lwfedssl/table9", "workstation").query("protocol == @protocol")
    cells = Cells(real.assign(percent=100 * real.accuracy), "percent", ["method"])
    return (cells.mean(method=method) - cells.mean(method="FedSimCLR")).estimate


def undecided(difference) -> tuple[float, float, float]:
    """Of one whose interval has zero in it: how far ahead, how far it may be behind, and how far ahead."""
    low, high = difference.interval()
    assert low < 0 < high
    return difference.value, -low, high


def numbers():
    ours, real = record("lwfedssl/table9"), record("lwfedssl/table9", "workstation")
    percent = 100 * real.groupby(["protocol", "method"]).accuracy.mean()
    ahead = over_end_to_end("Scratch", "fine-tuning")
    tuned, probe = (
        {name: accuracies(ours, method=name, protocol=protocol).item() for name in methods}
        for protocol, methods in (
            ("fine-tuning", ("FedSimCLR", "LW-FedSSL", "Prog-FedSSL", "Scratch")),
            ("linear probe", ("FedSimCLR", "LW-FedSSL", "Prog-FedSSL")),
        )
    )
    share = tuned["FedSimCLR"] / 100
    standard_error = 100 / 2 * sqrt(share * (1 - share) * (1 / HEALTHY + 1 / PNEUMONIA))

    labels, predictions, classes, _ = made_up("BloodMNIST")
    whole = classification_metrics(predictions, labels, classes)
    by_class = mean_over_batches(predictions, labels, classes, 256)
    ill = torch.tensor([0] * HEALTHY + [1] * PNEUMONIA)
    always = classification_metrics(torch.ones_like(ill), ill, 2)
    return {
        "95 % intervals": 95,
        "accuracy of 85.4 %, progressive training 84.4, layer-wise training 83.7 and end-to-end training 80.8": [
            percent["fine-tuning", name] for name in ("Scratch", "Prog-FedSSL", "LW-FedSSL", "FedSimCLR")
        ],
        "3.6 points, from 0.2 behind to 7.4 ahead": undecided(over_end_to_end("Prog-FedSSL", "fine-tuning")),
        "2.9, from 0.9 behind to 6.7 ahead": undecided(over_end_to_end("LW-FedSSL", "fine-tuning")),
        "by 4.6 points (0.8 to 8.4 where": (ahead.value, *ahead.interval()),
        "end-to-end training 78.8 %, progressive training 72.7 and layer-wise training 70.2": [
            percent["linear probe", name] for name in ("FedSimCLR", "Prog-FedSSL", "LW-FedSSL")
        ],
        "encoder has 66.8 and always answering *pneumonia* 62.5": (
            100 * real.query("protocol == 'linear probe'").untrained.mean(),
            100 * PNEUMONIA / (HEALTHY + PNEUMONIA),
        ),
        "8.6 points behind end-to-end training (2.7 to 14.5)": behind_by(over_end_to_end("LW-FedSSL", "linear probe")),
        "6.1 (0.3 to 12.0)": behind_by(over_end_to_end("Prog-FedSSL", "linear probe")),
        "end-to-end 83.8 %, layer-wise 84.8, progressive 85.3": [
            tuned[name] for name in ("FedSimCLR", "LW-FedSSL", "Prog-FedSSL")
        ],
        "about 1.5 points": standard_error,
        "with 81.9 against 83.7 and 83.7 %": [probe[name] for name in ("LW-FedSSL", "FedSimCLR", "Prog-FedSSL")],
        "*Scratch* reaches 86.4 %": tuned["Scratch"],
        "from 92.4 % to 19.7 %": (100 * whole.recall, 100 * by_class.recall),
        "precision to 20.7 %": 100 * by_class.precision,
        "by batches has 92.5 %": 100 * by_class.mean_per_class_accuracy,
        "62.5 %, 50 %, 31.25 % and 38.5 %": [
            100 * value for value in (always.accuracy, always.mean_per_class_accuracy, always.precision, always.f1)
        ],
        "from 0.5 to 0.07 points": (deviation("PathMNIST", 256), deviation("PathMNIST", 266)),
    }
