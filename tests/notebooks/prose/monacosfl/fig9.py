from tests.notebooks.prose.recorded import comparisons, record, verdict


def real() -> dict[str, float | list[float]]:
    """The numbers of ``workstation``."""
    steps = record("monacosfl/fig9", "workstation")
    synced = steps[steps.synced == 1].assign(jump=lambda rows: rows.misalignment / rows.misalignment_before_sync)
    first = synced[synced.step == synced.sync_every].groupby(["method", "setting"]).jump.mean()
    ours = synced[synced.setting == "paper-like"]
    later = ours[(ours.method == "MonAcoSFL") & (ours.step > 125)].groupby("step").jump.mean()
    both = ours.groupby(["step", "method"]).misalignment.mean().unstack()
    ratio = both.MocoSFL / both.MonAcoSFL
    whole = steps[(steps.setting == "paper-like") & (steps.step >= 125)]
    means = whole.groupby(["seed", "method"]).misalignment.mean().unstack()
    change, _ = comparisons("monacosfl-fig9-monacosfl-flat", profile="workstation")
    jumps = first["MocoSFL"]
    return {
        "by 3.9 in the paper's setting": jumps["paper-like"],
        "by 2.1 with short windows": jumps["short windows"],
        "by 0.8 when all take part": jumps["all take part"],
        "by 0.3 when all take part and": jumps["all, short windows"],
        "is multiplied by 2.1 in the paper's": first["MonAcoSFL", "paper-like"],
        "between 0.78 and 0.94 times": [later.min(), later.max()],
        "they raise it 1.07 times (1.06 to 1.07)": (change.value, *change.interval()),
        "and we allow 1.1. The": verdict("monacosfl-fig9-monacosfl-flat", profile="workstation").below,
        "from 1.9 at the first synchronisation to 7.4 at step": [ratio.iloc[0], ratio.iloc[-1]],
        "is 4.1 in the mean of all steps": (means.MocoSFL / means.MonAcoSFL).mean(),
    }


def numbers():
    steps = record("monacosfl/fig9")
    first = steps[(steps.synced == 1) & (steps.step == steps.sync_every)]
    jump = (first.misalignment / first.misalignment_before_sync).groupby([first.setting, first.method]).mean()
    mocosfl, monacosfl = (jump.xs(method, level="method") for method in ("MocoSFL", "MonAcoSFL"))
    change, _ = comparisons("monacosfl-fig9-monacosfl-flat")
    return real() | {
        "inconclusive here, too: 1.06 times in the geometric mean": change.value,
        "by 6.5 in the paper's setting": mocosfl["paper-like"],
        "By 6.5. With 10": mocosfl["paper-like"],
        "by 2.0 with short windows": mocosfl["short windows"],
        "by 2.4 when all take part": mocosfl["all take part"],
        "by 0.3 when all take part and": mocosfl["all, short windows"],
        "first jump, 1.9 in the paper's setting": monacosfl["paper-like"],
        "of 0.9 the memory is ten steps": 1 - 1 / 10,
    }
