"""Set-up shared by all tests: one thread per worker, no windows, nothing written into the repository."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import matplotlib
import pytest

from fssl_core.experiments.warm import warm_python

# Set before torch is imported, whatever the caller has, and inherited by the kernels that run notebooks. One thread
# each, because there are as many pytest workers as cores, and because the order of floating-point sums then does not
# depend on the machine. On the CPU, as the stored outputs are; what is of a GPU asks for it and is marked so.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "FSSL_DEVICE": "cpu"}
os.environ["FSSL_WORKERS"] = "1"  # a run at a time, which sees what a test has patched; tests of workers ask for them
os.environ["FSSL_RECORDED"] = "0"  # what is tested is computed
for name in ("MKL_NUM_THREADS", "DASK_SCHEDULER_ADDRESS"):
    os.environ.pop(name, None)
if "FSSL_DATA" in os.environ:  # a kernel starts in the folder of its notebook
    os.environ["FSSL_DATA"] = str(Path(os.environ["FSSL_DATA"]).resolve())

matplotlib.use("Agg")  # here only: a notebook's kernel keeps its inline figures


def pytest_configure(config: pytest.Config) -> None:
    """Send runs and figures to a folder of this session, shared by its pytest-xdist workers, which inherit it.

    Kernels find nothing of the user's there either: no start-up files, no kernels of the same name, no home at all.
    """
    notebooks = config.getoption("nbval", False) or config.getoption("nbval_lax", False)
    if notebooks:
        from fssl_core.experiments.kernels import use_forked_kernels

        use_forked_kernels()  # nbval's, if there is a process that they can be forked from
    if hasattr(config, "workerinput"):
        return
    folder = Path(tempfile.mkdtemp(prefix="fssl-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["FSSL_RUNS"] = str(folder / "runs")
    os.environ["FSSL_FIGURES"] = str(folder / "figures")
    os.environ["FSSL_CACHE"] = str(folder / "cache")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        (folder / name).mkdir(mode=0o700)
        os.environ[name] = str(folder / name)
    if notebooks:
        started = ExitStack()
        os.environ |= started.enter_context(warm_python(os.environ))  # one for all workers
        config.add_cleanup(started.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch  # not before the variables above are set

    no_gpu = pytest.mark.skip(reason="needs a CUDA device")
    by_hand = pytest.mark.skip(reason="measures speed; run by hand with `pytest -m benchmark tests/benchmarks`")
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if item.get_closest_marker("benchmark") and "benchmark" not in config.option.markexpr:
            item.add_marker(by_hand)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What tests write need not outlive a power failure, and a slow disk takes 10 ms a file to promise that it does.

    In this process; those that tests start wait, as users' do. A test of what the disk answers patches it once more.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def warm_environment() -> Iterator[dict[str, str]]:
    """An environment in which processes and kernels are forked, where the system can."""
    from fssl_core.experiments.kernels import use_forked_kernels

    use_forked_kernels()
    with warm_python(os.environ) as address:
        os.environ |= address  # for what looks for it there
        yield dict(os.environ)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; a test that needs it is skipped where there is none."""
    root = os.environ.get("FSSL_DATA")
    if root is None or not Path(root).is_dir():
        pytest.skip("needs real data: set FSSL_DATA to their folder")
    return Path(root)
