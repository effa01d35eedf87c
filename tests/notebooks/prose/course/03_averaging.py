from tests.notebooks.prose.recorded import record, rows


def lost(profile: str) -> float:
    """Points that FedAvg with SimCLR loses from shares of unequal size to one class each, with two local epochs."""
    cells = rows(record("ldawa/table3", profile), method="FedAvg", ssl_method="SimCLR", local_epochs=2)
    mean = 100 * cells.groupby("partition").accuracy.mean()
    return mean["dirichlet:0.1"] - mean["one-class"]


def numbers():
    return {"12.0 points on the digits of": lost("laptop"), "and 2.9 on the real images": lost("workstation")}
