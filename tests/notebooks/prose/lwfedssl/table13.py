from fssl_core.data.partitions import heterogeneity
from fssl_core.experiments import lwfedssl_settings
from tests.notebooks.prose.recorded import accuracies, ahead, comparisons, record, rows

METHODS = ("FedSimCLR", "LW-FedSSL", "Prog-FedSSL")


def numbers():
    ours = record("lwfedssl/table13")
    ours = ours[ours.protocol == "fine-tuning"].assign(accuracy=100 * ours.accuracy)
    cells = ours.groupby(["method", "beta"]).accuracy
    means, seeds = cells.mean().unstack("beta")[[50, 5, 0.5]], (cells.max() - cells.min()).groupby("method").mean()
    moves = means.max(axis=1) - means.min(axis=1)

    run = lwfedssl_settings("laptop", method="LW-FedSSL", ssl_method="SimCLR")
    data = run.load_data()

    def unevenness(partition, seed):
        return heterogeneity(data.train.labels, run.changed(partition=partition, seed=seed).divide(data))

    here = {beta: [unevenness(f"dirichlet:{beta:g}", seed) for seed in (0, 1)] for beta in (50, 5, 0.5)}
    cells_of_blood = record("lwfedssl/fig10").query("dataset == 'bloodmnist'")
    there = cells_of_blood.groupby("beta").total_variation.mean()

    even = record("lwfedssl/table2").query("seed < 2")
    evenly = [accuracies(even, method=name, ssl_method="SimCLR", protocol="fine-tuning").mean() for name in METHODS]
    farthest = [means.loc[name, [50, 5]].sub(value).abs().max() for name, value in zip(METHODS, evenly, strict=True)]
    sizes = [100] * 9 + [9100]

    real = record("lwfedssl/table13", "workstation")
    by_method = 100 * real.pivot_table("accuracy", ["protocol", "method"], "beta")[[50, 0.5]]
    tuned, probe = by_method.loc["fine-tuning"], by_method.loc["linear probe"]
    untrained = 100 * real.groupby("protocol").untrained.mean()
    _, *moved = comparisons("lwfedssl-table13-heterogeneity", profile="workstation")  # first the order: not judged

    def over(beta, method):
        """By how much a method is ahead of layer-wise training."""
        runs = rows(real, protocol="fine-tuning", beta=beta)
        return ahead(runs, {"method": method}, {"method": "LW-FedSSL"})

    return {
        "uneven (0.5), end-to-end": real.beta.min(),
        "38.0 and 39.2 % by fine-tuning, progressive 38.4 and 37.5, layer-wise 34.8 and 35.3": [
            *tuned.loc[["FedSimCLR", "Prog-FedSSL", "LW-FedSSL"]].to_numpy().flatten()
        ],
        "0.5 to 1.1 points apart": (min(abs(e.value) for e in moved), max(abs(e.value) for e in moved)),
        "reach 2.4 points, so the margin of 1.4": (max(abs(bound) for e in moved for bound in e.interval()), 1.4),
        "by 3.2 points where clients are even and by 3.9 where": [over(b, "FedSimCLR")[0] for b in (50, 0.5)],
        "an interval of 2.2 to 5.5": over(0.5, "FedSimCLR")[1:],
        "by 3.6 and 2.3 points": [over(beta, "Prog-FedSSL")[0] for beta in (50, 0.5)],
        "39.0 and 39.3, 37.1 and 37.8, 32.6 and 33.2 %": [
            *probe.loc[["FedSimCLR", "Prog-FedSSL", "LW-FedSSL"]].to_numpy().flatten()
        ],
        "*Scratch* is at 30.9 %": untrained["fine-tuning"],
        "untrained encoder at 30.2": untrained["linear probe"],
        "64.2, 65.7 and 66.0 %": means.loc["FedSimCLR"].tolist(),
        "58.2, 58.7 and 58.8": means.loc["LW-FedSSL"].tolist(),
        "69.5, 69.6 and 68.3": means.loc["Prog-FedSSL"].tolist(),
        "by 0.6 to 1.8 points": (moves.min(), moves.max()),
        "2.6 to 3.8 apart on average": (seeds.min(), seeds.max()),
        "0.04, 0.13 and 0.40 at": [sum(each) / 2 for each in here.values()],
        "0.05, 0.16 and 0.41 in": [there[beta] for beta in here],
        "0.064 and 0.058 with seeds 0 and 1": [unevenness("iid", seed) for seed in (0, 1)],
        "is 0.043 and 0.041": here[50],
        "66.0, 57.5 and 69.8 %": evenly,
        "within 1.8 points of ours": max(farthest),
        "1.2. It is nearly": sum(sizes) ** 2 / sum(size**2 for size in sizes),
        "on 91 % of the images": 100 * max(sizes) / sum(sizes),
        "there and at 0.5?": ours.beta.min(),
        "0.68 with seed 0": unevenness("dirichlet:0.05", 0),
        "at 0.5 it is 9 or 10": ours.beta.min(),
    }
