from tests.notebooks.prose.recorded import record


def numbers():
    steps = record("monacosfl/fig9")
    first = steps[(steps.synced == 1) & (steps.step == steps.sync_every)]
    jump = (first.misalignment / first.misalignment_before_sync).groupby([first.setting, first.method]).mean()
    mocosfl, monacosfl = (jump.xs(method, level="method") for method in ("MocoSFL", "MonAcoSFL"))
    return {
        "by 6.5 in the paper's setting": mocosfl["paper-like"],
        "by 2.0 with short windows": mocosfl["short windows"],
        "by 2.4 when all take part": mocosfl["all take part"],
        "by 0.3 when all take part and": mocosfl["all, short windows"],
        "first jump, 1.9 in the paper's setting": monacosfl["paper-like"],
        "of 0.9 the memory is ten steps": 1 - 1 / 10,
    }
