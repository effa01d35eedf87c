"""When a run is saved, what that costs, and what an interrupt, an error or a full disk leaves."""

import errno
import os
import threading
import time
import tracemalloc

import pytest
import torch

from fssl_core.errors import CheckpointError, FsslError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.rows import Rows, Settled
from fssl_core.models import build_backbone
from fssl_core.random import generator
from fssl_core.training import checkpoint as module
from fssl_core.training import saver as saver_module
from fssl_core.training.checkpoint import Checkpoint, load_tensors, save_tensors
from fssl_core.training.saver import Pace, Saver
from tests.saving import EACH

MEGABYTE = 2**20
AT_ONCE = Pace(share=100.0, shortest=0.0, longest=0.0)
NEVER_AT_2_PERCENT = Pace(shortest=1e9, longest=1e9)
NEVER = Pace(share=100.0, shortest=1e9, longest=1e9)


def state(step):
    return {"step": step, "x": torch.full((3,), float(step))}


def train(saver, state, *, steps, then=lambda: None):
    """Steps of ten milliseconds."""
    with saver:
        for step in range(1, steps + 1):
            time.sleep(0.01)
            saver.offer(lambda step=step: state(step))
        then()


# ---------------------------------------------------------------- how often


@pytest.mark.parametrize(("cost", "wait"), [(0.0, 10.0), (0.1, 10.0), (1.0, 62.5), (4.0, 250.0), (14.0, 300.0)])
def test_a_save_waits_until_it_is_a_fiftieth_of_the_time_and_at_most_five_minutes(cost, wait):
    assert Pace().wait(cost) == pytest.approx(wait)


def test_how_often_can_be_asked_for(tmp_path, monkeypatch):
    assert Saver(Checkpoint(tmp_path)).pace == Pace()
    for seconds, first, cheap, dear in (("60", 10, 10, 60), ("2.5", 2.5, 2.5, 2.5), ("0", 0, 0, 0)):
        monkeypatch.setenv("FSSL_SAVE_EVERY", seconds)
        pace = Saver(Checkpoint(tmp_path)).pace
        assert [pace.wait(cost) for cost in (0.0, 0.1, 100.0)] == [first, cheap, dear]
    for wrong in ("often", "-1", "nan"):
        monkeypatch.setenv("FSSL_SAVE_EVERY", wrong)
        with pytest.raises(SettingError, match=r"FSSL_SAVE_EVERY=.* cannot be used: expected a number of seconds"):
            Saver(Checkpoint(tmp_path))


@pytest.mark.parametrize(
    ("step", "cost", "share", "gap"),
    [
        (0.5, 1.0, 0.017, 70),
        (30.0, 1.0, 0.017, 100),
        (1.0, 0.05, 0.005, 15),
        (12.0, 14.0, 0.05, 330),  # "at least every few minutes" has the last word
    ],
)
def test_saving_takes_its_share_of_a_run(monkeypatch, tmp_path, step, cost, share, gap):
    """An hour of training on a clock that only steps and saves move."""
    now, saves = [0.0], []
    monkeypatch.setattr(saver_module.time, "monotonic", lambda: now[0])

    class Slow(Checkpoint):
        def save(self, state, *check):
            now[0] += cost
            saves.append(now[0])

    with Saver(Slow(tmp_path), Pace(apart=False)) as saver:
        while now[0] < 3600:
            now[0] += step
            saver.offer(dict)
    assert cost * len(saves) <= share * now[0]
    assert max(after - before for before, after in zip([0, *saves], [*saves, now[0]], strict=True)) <= gap


def test_copies_that_are_held_take_a_fifth_of_the_share(monkeypatch, tmp_path):
    now, copies = [0.0], []
    monkeypatch.setattr(saver_module.time, "monotonic", lambda: now[0])

    def state():
        now[0] += 0.1  # to copy it
        copies.append(now[0])
        return {}

    saver = Saver(Checkpoint(tmp_path), NEVER_AT_2_PERCENT)
    while now[0] < 3600:
        now[0] += 0.5
        saver.offer(state)
    assert 0.003 < 0.1 * len(copies) / now[0] <= 0.004
    assert saver._held == {}


def test_a_state_is_not_even_made_where_nothing_is_due(tmp_path):
    saver = Saver(Checkpoint(tmp_path), Pace(apart=False))
    for _ in range(3):
        saver.offer(lambda: pytest.fail("not due"))


# ---------------------------------------------------------------- beside the training


def blocked(monkeypatch):
    """Writing waits for the event."""
    go, save = threading.Event(), Checkpoint.save

    def slow(checkpoint, state, *check):
        assert go.wait(20)
        save(checkpoint, state, *check)

    monkeypatch.setattr(Checkpoint, "save", slow)
    return go


def test_the_training_goes_on_while_a_state_is_written_as_it_was(tmp_path, monkeypatch):
    go, checkpoint = blocked(monkeypatch), Checkpoint(tmp_path)
    rows, weights, settled = [{"loss": 1.0}], torch.zeros(4), torch.ones(4)
    values = {"rows": rows, "weights": weights, "nested": [(weights, {"w": weights})], "settled": Settled([settled])}
    saver = Saver(checkpoint, AT_ONCE)
    saver.offer(lambda: values)
    rows[0]["loss"] = 2.0
    rows.append({"loss": 3.0})
    weights += 1
    saver.offer(lambda: {"later": 1})  # while the first is written: held, not written
    go.set()
    saver._join()
    stored = checkpoint.load()
    assert stored["rows"] == [{"loss": 1.0}]
    assert not stored["weights"].any()
    assert not stored["nested"][0][1]["w"].any()
    assert torch.equal(stored["settled"][0], settled)
    saver.offer(lambda: {"last": 1})
    saver._join()
    assert checkpoint.load() == {"last": 1}


@pytest.mark.parametrize("apart", [True, False])
def test_a_full_disk_stops_the_training_and_says_so(tmp_path, monkeypatch, apart):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.save(state(1))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FsslError, match=r"No space left for .*run\. .*free some space"):
        train(Saver(checkpoint, Pace(shortest=0, longest=0, apart=apart)), state, steps=1000)
    monkeypatch.undo()
    assert checkpoint.load()["step"] == 1


def test_a_state_that_could_not_be_read_again_stops_the_training(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint holds"):
        train(Saver(Checkpoint(tmp_path), AT_ONCE), lambda step: {"bad": {1, 2}}, steps=1000)


def test_where_memory_is_short_a_state_is_written_without_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(saver_module, "available_memory", lambda: 20.0)
    saver, threads = Saver(Checkpoint(tmp_path), AT_ONCE), threading.active_count()
    saver.offer(lambda: state(1))  # 12 bytes
    assert threading.active_count() == threads
    assert saver.checkpoint.load()["step"] == 1
    saver.pace = NEVER
    saver.offer(lambda: state(2))
    assert saver._held is None
    saver.pace = AT_ONCE
    saver.offer(lambda: {"settled": Settled([torch.zeros(100)])})  # nothing to copy
    assert saver._writer is not None
    saver._join()


# ---------------------------------------------------------------- interrupts and errors


def test_where_memory_gets_short_an_interrupt_saves_the_copy_of_before(tmp_path, monkeypatch):
    def state_of(step):
        if step == 3:
            monkeypatch.setattr(saver_module, "available_memory", lambda: 20.0)  # the state has 12 bytes
        return state(step)

    def interrupted():
        raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(Saver(checkpoint, NEVER), state_of, steps=4, then=interrupted)
    assert checkpoint.load()["step"] == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_interrupt_or_error_saves_the_last_state(tmp_path, error):
    checkpoint = Checkpoint(tmp_path)

    def ends():
        assert not checkpoint.path.exists()  # nothing is due before ten seconds
        raise error

    with pytest.raises(error):
        train(Saver(checkpoint, Pace(share=100.0)), state, steps=5, then=ends)
    assert checkpoint.load()["step"] == 5


def test_an_interrupt_waits_for_what_is_being_written_and_saves_what_is_newer(tmp_path, monkeypatch):
    go, checkpoint = blocked(monkeypatch), Checkpoint(tmp_path)

    def interrupted():
        threading.Timer(0.2, go.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Saver(checkpoint, AT_ONCE), state, steps=2, then=interrupted)
    assert checkpoint.load()["step"] == 2
    assert load_tensors(checkpoint.previous)["state"]["step"] == 1


def test_a_second_interrupt_leaves_the_last_whole_save(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(state(1))
    replace = os.replace

    def interrupted(source, target):
        if target == checkpoint.path:
            raise KeyboardInterrupt  # while the last state is being saved
        replace(source, target)

    def first():
        monkeypatch.setattr(os, "replace", interrupted)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Saver(checkpoint, NEVER), lambda step: state(step + 1), steps=1, then=first)
    monkeypatch.undo()
    assert checkpoint.load()["step"] == 1


def test_an_interrupt_that_could_not_be_saved_says_so(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def interrupted():
        monkeypatch.setattr(os, "fsync", full)
        raise KeyboardInterrupt

    with pytest.raises(FsslError, match="No space left"):
        train(Saver(Checkpoint(tmp_path), NEVER), state, steps=1, then=interrupted)


def test_a_run_that_ends_does_not_wait_for_its_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 8)
    going, put = threading.Event(), module.Parts.put

    def slow(parts, tensor, *, settled, check):
        going.set()
        while True:
            check()
            time.sleep(0.01)

    monkeypatch.setattr(module.Parts, "put", slow)
    checkpoint = Checkpoint(tmp_path)
    with Saver(checkpoint, AT_ONCE) as saver:
        saver.offer(lambda: state(1))
        assert going.wait(20)
    assert not saver._writing
    assert checkpoint.load() is None
    monkeypatch.setattr(module.Parts, "put", put)


# ---------------------------------------------------------------- what is written


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 64)


def federation(clients=100):
    model = build_backbone("resnet10", width=4, norm="batch", image_size=8, channels=1, generator=generator(0, "m"))
    return Rows(model, clients), ClientMatrix(model, 1)


def test_a_round_of_5_of_100_clients_writes_5_rows(tmp_path, small_parts):
    rows, worker = federation()
    checkpoint, size = Checkpoint(tmp_path), worker.elements * 4

    def saved() -> int:
        before = checkpoint.parts.written
        checkpoint.save({"rows": rows.all_rows()})
        return checkpoint.parts.written - before

    assert saved() == size  # all alike
    for number in range(3):
        for client in range(5 * number, 5 * number + 5):
            worker.weights.data.add_(0.01)
            worker.put(rows, [client])
        assert saved() == 5 * size
    assert saved() == 0
    loaded, _ = federation()
    loaded.load_all_rows(Checkpoint(tmp_path).load()["rows"])
    assert all(torch.equal(block, rows.blocks[name]) for name, block in loaded.blocks.items())
    # A resumed run does not write again what it finds, and what nothing needs any more is gone.
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save({"rows": loaded.all_rows()})
    assert checkpoint.parts.written == 0
    rows.load_state_dict(worker.state_dict(0))
    checkpoint.save({"rows": rows.all_rows()})
    checkpoint.save({"rows": rows.all_rows()})
    assert len(list(checkpoint.parts.folder.iterdir())) == 1


def test_a_matrix_of_equal_rows_is_stored_as_one():
    matrix = ClientMatrix(federation()[0].row_module(0), 7)
    assert len(matrix.all_rows()["weights"]) == matrix.parameters
    other = ClientMatrix(federation()[0].row_module(0), 7)
    other.weights.data.uniform_()
    for block in other.blocks.values():
        block += 1
    other.load_all_rows(matrix.all_rows())
    assert all(torch.equal(block, matrix.blocks[name]) for name, block in other.blocks.items())
    name = next(iter(matrix.parameter_blocks))
    for value, bits in ((0.0, -0.0), (float("nan"), float("nan"))):
        matrix.blocks[name].fill_(value)
        matrix.blocks[name][3] = bits
        equal = len(matrix.all_rows()["weights"]) == matrix.parameters
        assert equal == (value != 0)  # -0.0 is not 0.0, a NaN is itself


def test_a_damaged_or_missing_part_is_found_and_the_state_before_is_used(tmp_path, small_parts):
    checkpoint = Checkpoint(tmp_path)
    same = torch.arange(100.0)
    for step in (1, 2):
        checkpoint.save({"step": step, "same": same, "own": torch.full((100,), float(step))})
    assert len(list(checkpoint.parts.folder.iterdir())) == 3
    own = load_tensors(checkpoint.path)["parts"]["state['own']"]["sha256"]
    content = (checkpoint.parts.folder / own).read_bytes()
    for damaged in (content[:-1], b"x" + content[1:], None):
        path = checkpoint.parts.folder / own
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="Going on from the checkpoint before it"):
            assert Checkpoint(tmp_path).load()["step"] == 1
        checkpoint.path.replace(checkpoint.previous)
        checkpoint = Checkpoint(tmp_path)
        checkpoint.save({"step": 2, "same": same, "own": torch.full((100,), 2.0)})
        checkpoint = Checkpoint(tmp_path)
        assert checkpoint.load()["step"] == 2
    for path in checkpoint.parts.folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"truncated or damaged.*Delete the folder"):
        Checkpoint(tmp_path).load()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_large_tensors_of_all_types_and_layouts_come_back(tmp_path, small_parts, dtype):
    values = torch.randint(0, 2, (20, 90), generator=generator(0, "values")).to(dtype)
    whole = {"a": values, "t": values.T, "part": values[3:, ::2], "in": [(values[0], {"x": ~values.bool()})]}
    Checkpoint(tmp_path).save(whole)
    loaded = Checkpoint(tmp_path).load()
    assert loaded["t"].shape == (90, 20)
    for found, given in (
        (loaded["a"], values),
        (loaded["t"], values.T),
        (loaded["part"], values[3:, ::2]),
        (loaded["in"][0][0], values[0]),
        (loaded["in"][0][1]["x"].to(dtype), (~values.bool()).to(dtype)),
    ):
        assert found.dtype == dtype
        assert torch.equal(found, given)


def test_a_small_view_is_stored_without_what_it_is_a_view_of(tmp_path):
    Checkpoint(tmp_path).save({"view": torch.zeros(MEGABYTE)[:3]})
    assert Checkpoint(tmp_path).path.stat().st_size < 20_000


@pytest.mark.parametrize("save", [lambda path, state: Checkpoint(path.parent).save(state), save_tensors])
def test_tensors_are_streamed_to_the_file(tmp_path, save):
    tensors = {"a": torch.zeros(16 * MEGABYTE), "b": torch.ones(8 * MEGABYTE)}  # 96 MiB
    tracemalloc.start()
    try:
        save(tmp_path / "x.tensors", tensors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEGABYTE


def test_each_state_is_saved_where_tests_want_that(tmp_path):
    saver = Saver(Checkpoint(tmp_path), EACH)
    for step in range(3):
        saver.offer(lambda step=step: state(step))
        assert saver.checkpoint.load()["step"] == step
