from math import asin, pi, sqrt

from tests.notebooks.prose.recorded import record

SPREAD = 2  # points between seeds, in exercise 2


def numbers():
    cells = record("monacosfl/fig4").groupby(["cut_layer", "clients"])
    accuracy, identifiability = (100 * cells[name].mean() for name in ("linear_probe_accuracy", "identifiability"))
    worst = 5 / (4 * sqrt(pi)) + 15 / (2 * pi**1.5) * asin(1 / 3)  # expected largest of five normal values
    return {
        "63 to 66 % at cut 1": accuracy[1].max(),
        "45 to 51 % at cut 5": accuracy[5].max(),
        "35 to 45 % at cut 9": accuracy[9].max(),
        "20 to 32 % of them": identifiability[1].max(),
        "99 to 100 %": identifiability[[5, 9]].max(),
        "1.16 standard deviations": worst,
        "2.3 points in favour": worst * SPREAD,
    }
