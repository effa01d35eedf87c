from math import asin, pi, sqrt

from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import behind_by, comparisons, record

SPREAD = 2  # points between seeds, in exercise 2


def numbers():
    digits = record("monacosfl/fig4")
    cells, points = digits.groupby(["cut_layer", "clients"]), digits.assign(points=100 * digits.linear_probe_accuracy)
    mean = Cells(points, "points", ["cut_layer", "clients"]).mean
    five, twenty = (mean(cut_layer=1, clients=count) - mean(cut_layer=9, clients=count) for count in (5, 20))
    more = (twenty - five).estimate
    accuracy, identifiability = (100 * cells[name].mean() for name in ("linear_probe_accuracy", "identifiability"))
    worst = 5 / (4 * sqrt(pi)) + 15 / (2 * pi**1.5) * asin(1 / 3)  # expected largest of five normal values
    real = record("monacosfl/fig4", "workstation")
    untrained, real = 100 * real.untrained.mean(), real.groupby("cut_layer")
    probe, named = (100 * real[name].mean() for name in ("linear_probe_accuracy", "identifiability"))
    lost, _ = comparisons("monacosfl-fig4-unreliable-beyond-7", profile="workstation")
    return {
        "42.7 % at cut 1, 36.2 at cut 7 and 34.1 at cut 9": [*probe.loc[:9]],
        "between 31.4 and 32.3": (probe.loc[11:].min(), probe.loc[11:].max()),
        "6.5 points are lost to layer 7, and 4.6 from": (probe[1] - probe[7], probe[7] - probe[17]),
        "7.2 points below that of cuts 1 and 7": probe.loc[[1, 7]].mean() - probe.loc[9:].mean(),
        "a third of the 22.8 points": probe[1] - untrained,
        "is 0.4 points more than that, from 0.8 less to 1.7 more": [abs(part) for part in behind_by(lost)],
        "of 54 %": named[1],
        "63 to 65 % at cut 1": accuracy[1].max(),
        "42 to 53 % at cut 5": accuracy[5].max(),
        "34 to 45 % at cut 9": accuracy[9].max(),
        "which is 9.3 more than with 5 (2.0 to 16.6)": (more.value, *more.interval()),
        "19 to 33 % of them": identifiability[1].max(),
        "99 to 100 %": identifiability[[5, 9]].max(),
        "1.16 standard deviations": worst,
        "2.3 points in favour": worst * SPREAD,
    }
