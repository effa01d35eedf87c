from tests.notebooks.prose.recorded import record, rows


def norms(profile: str, ssl_method: str):
    """Of the first convolution, by method and round, mean over seeds."""
    table = rows(record("ldawa/fig4", profile).dropna(subset="cosine"), ssl_method=ssl_method)
    return table.groupby(["method", "round"]).stem_norm.mean()


def numbers():
    digits, real, barlow = (
        norms("laptop", "SimCLR"),
        norms("workstation", "SimCLR"),
        norms("workstation", "Barlow Twins"),
    )
    last = rows(record("ldawa/fig6", "workstation"), method="L-DAWA", ssl_method="Barlow Twins", round=10)
    return {
        "a norm of 0.8 after the first round and of 0.3 after the tenth": [*digits["L-DAWA"][[1, 10]]],
        "grows from 2.4 to 2.7": [*digits["FedAvg"][[1, 10]]],
        "recovers: 1.8 after the first round and 2.0 after the tenth": [*real["L-DAWA"][[1, 10]]],
        "FedAvg's has 2.5 and 3.5": [*real["FedAvg"][[1, 10]]],
        "from FedAvg's 62.0 to 1.3 in the first round": (barlow["FedAvg", 1], barlow["L-DAWA", 1]),
        "last model is at 10.0 %": 100 * last.accuracy.mean(),
    }
