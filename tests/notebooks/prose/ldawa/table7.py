from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record

BASES = ["FedAvg", "Loss", "FedU"]
SETS = ["CIFAR-10", "CIFAR-100"]


def numbers():
    ours = 100 * record("ldawa/table7").pivot_table("accuracy", "method", "eval_dataset")
    trained = ours.drop(index="untrained")
    there, home = trained["digits"], trained["scattered-digits"]
    printed = printed_cells("ldawa", "table7").pivot(index="method", columns="eval_dataset", values="value")
    variants = printed[printed.index.str.startswith("L-DAWA")]
    combined = variants.loc[[f"L-DAWA_{base}" for base in BASES]]
    bases = printed.loc[BASES]
    gains = combined.to_numpy() - bases
    own = printed_cells("ldawa", "table2").query("label_fraction == 1 and ssl_method == 'SimCLR'")
    own = own.pivot(index="method", columns="dataset", values="value")
    apart = [spread(variants[name]) for name in SETS]
    return {
        "finds 92.6 % on": ours["digits"]["untrained"],
        "95.6 (L-DAWA) to 97.3 % (FedAvg)": (there["L-DAWA"], there["FedAvg"]),
        "54.1 (L-DAWA_Loss) and 67.1 % (FedU)": (home["L-DAWA_Loss"], home["FedU"]),
        "have 29.3 %": ours["scattered-digits"]["untrained"],
        "coefficient (0.1)": record("ldawa/table7").alpha.unique().item(),
        "at most 0.26 and 0.52 points": apart,
        "same 81.87": printed["CIFAR-10"]["L-DAWA_Loss"],
        "has 57.86, the bold number is 57.81": [*printed["CIFAR-100"][["L-DAWA_Loss", "L-DAWA"]]],
        "0.05 points": printed["CIFAR-100"]["L-DAWA_Loss"] - printed["CIFAR-100"]["L-DAWA"],
        "0.82 and 0.57 points": [spread(bases[name]) for name in SETS],
        "0.26 and 0.52. A": [spread(combined[name]) for name in SETS],
        "4.15 points (L-DAWA_FedAvg on": gains.min(axis=None),
        "5.64 (the same": gains.max(axis=None),
        "77.46 against 71.07": (printed["CIFAR-10"]["FedAvg"], own["CIFAR-10"]["FedAvg"]),
        "81.87 against 75.60": (printed["CIFAR-10"]["L-DAWA"], own["CIFAR-10"]["L-DAWA"]),
        "52.11 against 43.85": (printed["CIFAR-100"]["FedAvg"], own["CIFAR-100"]["FedAvg"]),
        "57.81 against 49.88": (printed["CIFAR-100"]["L-DAWA"], own["CIFAR-100"]["L-DAWA"]),
        "4.41 and 5.70 after": [*(printed.loc["L-DAWA"] - printed.loc["FedAvg"])[SETS]],
        "4.53 and 6.03 at": [*(own.loc["L-DAWA"] - own.loc["FedAvg"])[SETS]],
    }


def spread(values) -> float:
    """The largest less the least."""
    return values.max() - values.min()
