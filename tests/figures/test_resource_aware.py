import numpy as np
import pandas as pd

from fssl_core.figures.style import METHOD_COLOURS
from fssl_core.figures.tradeoffs import COUNTED, quoted_costs
from tests.figures.reading import drawn, key

COSTS = {"traffic": "α (bits)", "memory": "γ (bytes)"}
PRINTED = pd.DataFrame(
    [
        (setting, method, accuracy, method != "MFCL(TN)", traffic, memory)
        for setting, accuracies in {"uneven": (0.5, 0.6, 0.8), "even": (0.9, 0.85, 0.81)}.items()
        for (method, traffic, memory), accuracy in zip(
            [("HeteroFL", 1e13, 5e9), ("FedPAC", 1e11, 2e11), ("MFCL(TN)", 2e11, 1e8)], accuracies, strict=True
        )
    ],
    columns=["setting", "method", "accuracy", "quoted", *COSTS],
)
OURS = pd.DataFrame(
    [("uneven", "MFCL(TN)", 0.2, "digits"), ("uneven", "MFCL(TN)", 0.4, "digits"), ("uneven", "FedAvg", 0.3, "digits")],
    columns=["setting", "method", "accuracy", "data"],
)


def draw():
    return drawn(quoted_costs(PRINTED, OURS, COSTS, {"memory": 1.1e8}, subtitle="profile laptop", title="Table"))


def test_printed_points_stand_over_their_costs_and_the_quoted_ones_are_hollow():
    axes = draw().axes
    assert len(axes) == 6
    for number, panel in enumerate(axes):
        if number % 3 == 2:
            continue
        rows = PRINTED[PRINTED["setting"] == ("uneven", "even")[number // 3]]
        points = [line for line in panel.lines if line.get_marker() != "None"]
        column = list(COSTS)[number % 3]
        assert [line.get_xdata()[0] for line in points] == rows[column].tolist()
        assert [line.get_ydata()[0] for line in points] == rows["accuracy"].tolist()
        faces = [line.get_markerfacecolor() for line in points]
        assert faces == ["white", "white", METHOD_COLOURS["MFCL(TN)"]]
        assert (panel.get_xscale(), panel.get_xlabel()) == ("log", COSTS[column])
        rules = [line for line in panel.lines if line.get_linestyle() == COUNTED["linestyle"]]
        assert [line.get_xdata()[0] for line in rules] == ([1.1e8] if column == "memory" else [])


def test_our_accuracies_stand_apart_from_costs_with_their_data():
    uneven, even = draw().axes[2], draw().axes[5]
    means = [container.lines[0].get_ydata()[0] for container in uneven.containers]
    np.testing.assert_allclose(means, [0.3, 0.3])
    assert [text.get_text() for text in uneven.texts] == ["30.0\nn=2", "30.0\nn=1"]
    assert uneven.get_title("left") == "uneven: ours, digits"
    assert even.get_title("left") == "even: ours, not run"
    assert not even.containers


def test_the_legend_says_what_is_quoted():
    names = key(draw())
    assert names[:4] == [
        "HeteroFL, paper (cost quoted)",
        "FedPAC, paper (cost quoted)",
        "MFCL(TN), paper",
        "cost as counted here",
    ]
    assert names[4:] == ["MFCL(TN), ours", "FedAvg, ours"]
