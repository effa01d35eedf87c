"""Accuracy in bfloat16 beside float32: `pytest -m benchmark -s tests/benchmarks/test_precision_accuracy.py`.

Five seeds of each engine at `laptop`, in both precisions: 50 runs of half a minute to two, kept in the project's own
`runs/`, so that an interrupted benchmark goes on. The table has the mean of each precision and that of the differences
by seed, with Student's interval of 95 %. Accuracy must not move: the interval has to hold zero.
"""

from statistics import fmean, stdev

import pytest

from fssl_core.claims.estimation import Estimate
from fssl_core.experiments import Run, averaging_settings, lwfedssl_settings, mfcl_settings, run_all, split_settings
from fssl_core.paths import project_root
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.settings import Settings

pytestmark = pytest.mark.benchmark

SEEDS = range(5)


def split(seed: int, precision: str) -> Settings:
    return split_settings("laptop", clients=10, partition="classes:2", seed=seed, precision=precision)


def averaging(seed: int, precision: str) -> Settings:
    federation = {"clients": 10, "partition": "dirichlet:0.1:32", "norm": "batch"}
    return averaging_settings("laptop", objective="simclr", seed=seed, precision=precision, **federation)


def layerwise(seed: int, precision: str) -> Settings:
    return lwfedssl_settings("laptop", method="LW-FedSSL", ssl_method="SimCLR", seed=seed, precision=precision)


def modular(seed: int, precision: str) -> Settings:
    return mfcl_settings("laptop", method="MFCL(GN)", seed=seed, precision=precision, phase1={"precision": precision})


def attack(seed: int, precision: str) -> Settings:
    return InversionSettings(targets=(split(seed, "float32"),), seed=seed, precision=precision)


@pytest.mark.timeout(7200)  # 50 runs
def test_accuracy_does_not_move(monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(project_root() / "runs"))  # and not the folder that is deleted after tests
    measures = {
        split: "knn_accuracy",
        averaging: "knn_accuracy",
        layerwise: "knn_accuracy",
        modular: "linear_probe_accuracy",
        attack: "mse",
    }
    run_all([engine(seed, precision) for engine in measures for seed in SEEDS for precision in ("float32", "bfloat16")])
    print("\nengine     measure                float32  bfloat16  difference, 95 % interval")
    moved = []
    for engine, measure in measures.items():
        exact, rough = ([measured(engine(seed, p), measure) for seed in SEEDS] for p in ("float32", "bfloat16"))
        differences = [b - a for a, b in zip(exact, rough, strict=True)]
        count = len(differences)
        difference = Estimate(fmean(differences), stdev(differences) / count**0.5, freedom=count - 1)
        low, high = difference.interval()
        interval = f"{difference.value:+.4f} [{low:+.4f}, {high:+.4f}]"
        print(f"{engine.__name__:10} {measure:21} {fmean(exact):8.4f}  {fmean(rough):8.4f}  {interval}")
        if not low <= 0 <= high:
            moved.append(engine.__name__)
    assert not moved


def measured(settings: Settings, measure: str) -> float:
    run = Run(settings)
    return run.table("attack")[measure].iloc[0] if isinstance(settings, InversionSettings) else run.summary[measure]
