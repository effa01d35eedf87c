import pandas as pd

from fssl_core.experiments import ldawa_settings
from tests.notebooks.prose.recorded import behind_by, comparisons, kept, record, rows, verdict

STEM = "encoder.0.stem.0.weight"


def layers(profile: str = "laptop") -> pd.DataFrame:
    """Cosine and norm of each layer in each round, of every run."""
    runs = record("ldawa/fig4", profile)[["key", "method", "ssl_method", "seed"]].drop_duplicates()
    table = kept("ldawa", "AveragingSettings", "layers", profile).merge(runs, on=["key", "seed"])
    return table[~table.layer.str.endswith("num_batches_tracked")]


def trained_cosine(seed: int) -> float:
    """Of all trained tensors together after FedAvg's first round, by their squared norms in the untrained model."""
    settings = ldawa_settings("laptop", method="FedAvg", seed=seed)
    untrained = settings.build_model(settings.load_data()).named_parameters()
    squares = pd.Series({name: float(values.detach().square().sum()) for name, values in untrained})
    first = rows(layers(), method="FedAvg", ssl_method="SimCLR", seed=seed, round=1).set_index("layer").cosine
    return (squares * first[squares.index]).sum() / squares.sum()


def first_convolution() -> tuple[pd.DataFrame, dict[str, list[float]]]:
    """At ``workstation``: of every run and round; the least and most of FedAvg's length of it after the first."""
    stem = rows(layers("workstation"), layer=STEM)
    norm = rows(stem, method="FedAvg", round=1).groupby("ssl_method").norm
    return stem, {ssl: [norm.min()[ssl], norm.max()[ssl]] for ssl in ("SimCLR", "Barlow Twins")}


def numbers():
    ours = record("ldawa/fig4").dropna(subset="cosine")
    level = ours.groupby(["ssl_method", "method"]).cosine.mean()
    barlow = comparisons("ldawa-fig4-lower-divergence", "the paper")[1].interval()
    lower = comparisons("ldawa-fig4-lower-divergence", "the authors")[:2]
    real_behind, real_after = (
        behind_by(comparisons("ldawa-fig4-lower-divergence", reading, "workstation")[0])
        for reading in ("the paper", "the authors")
    )
    probe = rows(ours, ssl_method="Barlow Twins", method="L-DAWA")
    stem = rows(layers(), layer=STEM, ssl_method="SimCLR")
    turned = stem[(stem["round"] == 1) & (stem.method == "FedAvg")].cosine
    norm = rows(ours, ssl_method="SimCLR").groupby(["method", "round"]).stem_norm.mean()
    zero = rows(stem, seed=0, method="L-DAWA").set_index("round")
    later = rows(stem, seed=0, method="L-DAWA after FedAvg").set_index("round")
    left = rows(ours, ssl_method="SimCLR", method="L-DAWA", seed=0, round=6).iloc[0]
    right = rows(ours, ssl_method="Barlow Twins", method="L-DAWA", seed=1, round=9).iloc[0]
    whole = rows(ours, ssl_method="SimCLR", seed=0).pivot(index="round", columns="method", values="cosine")
    start = rows(ours, ssl_method="SimCLR", method="FedAvg", round=1).set_index("seed").cosine
    trained = [trained_cosine(seed) for seed in (0, 1, 2)]
    probes = 100 * rows(record("ldawa/table1"), local_epochs=2).groupby("method").accuracy.mean()
    real = record("ldawa/fig4", "workstation").dropna(subset="cosine")
    real_level = real.groupby(["ssl_method", "method"]).cosine.mean()
    ends = rows(real, ssl_method="SimCLR").groupby(["method", "round"])[["model_norm", "stem_norm"]].mean()
    real_barlow = rows(real, ssl_method="Barlow Twins").groupby("method")
    probe_of_nothing = 100 * real_barlow.accuracy.max()["L-DAWA"]
    end_of_barlow = rows(real, ssl_method="Barlow Twins", method="L-DAWA after FedAvg", round=10).accuracy.mean()
    real_stem, lengths = first_convolution()
    simclr_stem, barlow_stem = (rows(real_stem, ssl_method=ssl) for ssl in ("SimCLR", "Barlow Twins"))
    later_rounds = barlow_stem[barlow_stem["round"] > 1]
    held = later_rounds[later_rounds.method == "FedAvg"].cosine.min()
    fedavg = (0.99**2 + (1 - 0.99**2) / 10) ** 0.5  # clients at a cosine of 0.99, ten of them
    return {
        "0.962 with FedAvg, 0.957 with L-DAWA and 0.960 with L-DAWA after FedAvg": [
            *real_level["SimCLR"][["FedAvg", "L-DAWA", "L-DAWA after FedAvg"]]
        ],
        "0.0047 lower, with an interval of 0.0012 to 0.0081": real_behind,
        "0.0014 lower, with one of 0.0011 to 0.0018": real_after,
        "At the 98.75 %": 100 * verdict("ldawa-fig4-lower-divergence", "the authors", "workstation").level,
        "47.5 after ten rounds beside 49.8": [*ends.model_norm.xs(10, level="round")[["L-DAWA", "FedAvg"]]],
        "norm of 1.82 where FedAvg has 2.49": [*ends.stem_norm.xs(1, level="round")[["L-DAWA", "FedAvg"]]],
        "to 2.01 beside FedAvg's 3.49": [*ends.stem_norm.xs(10, level="round")[["L-DAWA", "FedAvg"]]],
        "lowest cosine here is 0.66": simclr_stem[simclr_stem.method == "L-DAWA"].cosine.min(),
        "mean cosine is 0.15 and FedAvg's 0.85": [*real_level["Barlow Twins"][["L-DAWA", "FedAvg"]]],
        "it is 0.87 and 0.99. L-DAWA's": [*real_barlow.trained_cosine.mean()[["L-DAWA", "FedAvg"]]],
        "finds 10.0 %": probe_of_nothing,
        "to a cosine of 0.02": rows(barlow_stem, round=1).cosine.mean(),
        "a norm of 42.0 to 72.0": lengths["Barlow Twins"],
        "2.4 to 2.6 with SimCLR": lengths["SimCLR"],
        "with cosines of 0.95 at the lowest": held,
        "to a norm of 1.3": rows(barlow_stem, round=1, method="L-DAWA").norm.mean(),
        "reach 0.54 at most": barlow_stem[barlow_stem.method == "L-DAWA"].cosine.max(),
        "cosine is 0.83, where FedAvg has 0.85, and the probe finds 34.6 %": [
            *real_level["Barlow Twins"][["L-DAWA after FedAvg", "FedAvg"]],
            100 * end_of_barlow,
        ],
        "0.941 and 0.961 for SimCLR": [*level["SimCLR"][["L-DAWA", "FedAvg"]]],
        "0.838 and 0.936 for Barlow Twins": [*level["Barlow Twins"][["L-DAWA", "FedAvg"]]],
        "the interval is -0.219 to 0.025": (-barlow[0], barlow[1]),
        "is lower by 0.0009 and 0.0006": [-one.value for one in lower],
        "19.2 % of the engine's own probe, an untrained encoder has 16.3": (
            100 * probe.accuracy.mean(),
            100 * probe.untrained.mean(),
        ),
        "0.960 for SimCLR and 0.935 for Barlow Twins": (
            level["SimCLR", "L-DAWA after FedAvg"],
            level["Barlow Twins", "L-DAWA after FedAvg"],
        ),
        "a mean cosine of 0.32 to 0.64": (turned.min(), turned.max()),
        "35 % of the length": 100 * norm["L-DAWA", 1] / norm["FedAvg", 1],
        "seed 0 were between 0.21 and 0.56": (zero.cosine.loc[2:].min(), zero.cosine.loc[2:].max()),
        "2.45 after them, 2.37 in the end, beside 2.73": (
            norm["L-DAWA after FedAvg", 3],
            norm["L-DAWA after FedAvg", 10],
            norm["FedAvg", 10],
        ),
        "it is 7.7 times as long": norm["L-DAWA after FedAvg", 10] / norm["L-DAWA", 10],
        "0.90 in round 6": left.cosine,
        "has a cosine of 0.996": left.trained_cosine,
        "0.71 in round 9": right.cosine,
        "what is trained has 0.989": right.trained_cosine,
        "a cosine of 0.99 and ten clients these are 0.991 and 0.981": (0.99, fedavg, 0.99 * fedavg),
        "0.994 to 0.995, instead of 0.22 to 0.38": (
            later.cosine.loc[4:6].min(),
            later.cosine.loc[4:6].max(),
            zero.cosine.loc[4:6].min(),
            zero.cosine.loc[4:6].max(),
        ),
        "from 2.88 to 2.86, instead of from 0.27 to 0.16": (
            later.norm[4],
            later.norm[6],
            zero.norm[4],
            zero.norm[6],
        ),
        "0.991 and 0.989 in rounds 5 and 6, for 0.990 and 0.990": (
            *whole["L-DAWA after FedAvg"].loc[5:6],
            *whole["FedAvg"].loc[5:6],
        ),
        "62.8 %": probes["L-DAWA after FedAvg"],
        "57.6 % without": probes["L-DAWA"],
        "66.5 %": probes["FedAvg"],
        "0.67, 0.88 and 0.80": [*start],
        "is 0.98 to 0.99 in all three": (min(trained), max(trained)),
        "with 0.32 to 0.64, is too short": (turned.min(), turned.max()),
    }
