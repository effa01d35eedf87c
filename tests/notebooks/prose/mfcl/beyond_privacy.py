from tests.notebooks.prose.recorded import record, rows

STRONGER = "the search with ten times the total variation, which the exercise runs"
NOT_RECORDED = {"to 0.83:": STRONGER, "to 0.029,": STRONGER, "to 0.69.": STRONGER}


def numbers():
    ours = record("mfcl/beyond_privacy")
    means = ours.groupby(["system", "attack", "layers"])[["explained", "ssim", "psnr", "representation_error"]].mean()
    explained = 100 * means.explained
    unknown = "search, model unknown"
    by_seed = rows(ours, system="MFCL", attack=unknown, layers=1).explained
    zero = rows(ours, seed=0, attack="search").set_index(["system", "layers"])
    nine, one = zero.loc[("MonAcoSFL", 9)], zero.loc[("MonAcoSFL", 1)]
    return {
        "explains 88, 78 and 46 %": [*explained["MonAcoSFL", "decoder"]][-1],
        "100, 100 and 60 %": [*explained["MonAcoSFL", "search"]][-1],
        "for all, explains 32 %": 100 * ours.mean_image_explained.mean(),
        "61, 56 and 35 %": [*explained["MFCL", unknown]][-1],
        "next 40 to 95 % at": 100 * by_seed.max(),
        "SSIM of at most 0.1": means.ssim["MFCL", unknown].max(),
        "95 and 88 %": explained["MFCL", "decoder", 2],
        "explains 66 % of what an MFCL client sends and 78 % of": (
            explained["MFCL", "decoder", 5],
            explained["MonAcoSFL", "decoder", 5],
        ),
        "error of 0.0001 with": means.representation_error["MonAcoSFL", "search", 9],
        "goes from 0.39": nine.explained,
        "representation error 0.0002": nine.representation_error,
        "stays at 1.00": one.explained,
        "from 0.002": one.mse,
        "worse, 0.73": zero.explained["MFCL", 5],
    }
