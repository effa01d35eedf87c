from fssl_core.data.partitions import heterogeneity
from fssl_core.experiments import lwfedssl_settings
from tests.notebooks.prose.recorded import accuracies, record

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
    sizes = [100] * 9 + [9100]
    return {
        "64.2, 65.7 and 66.0 %": means.loc["FedSimCLR"].tolist(),
        "58.3, 58.7 and 58.8": means.loc["LW-FedSSL"].tolist(),
        "69.5, 69.6 and 68.4": means.loc["Prog-FedSSL"].tolist(),
        "by 0.6 to 1.8 points": (moves.min(), moves.max()),
        "2.6 to 3.8 apart on average": (seeds.min(), seeds.max()),
        "0.04, 0.13 and 0.40 at": [sum(each) / 2 for each in here.values()],
        "0.05, 0.16 and 0.41 in": [there[beta] for beta in here],
        "0.064 and 0.058 with seeds 0 and 1": [unevenness("iid", seed) for seed in (0, 1)],
        "is 0.043 and 0.041": here[50],
        "66.0, 57.5 and 69.8 %": [
            accuracies(even, method=name, ssl_method="SimCLR", protocol="fine-tuning").mean() for name in METHODS
        ],
        "1.2. It is nearly": sum(sizes) ** 2 / sum(size**2 for size in sizes),
        "on 91 % of the images": 100 * max(sizes) / sum(sizes),
        "there and at 0.5?": ours.beta.min(),
        "0.68 with seed 0": unevenness("dirichlet:0.05", 0),
        "at 0.5 it is 9 or 10": ours.beta.min(),
    }
