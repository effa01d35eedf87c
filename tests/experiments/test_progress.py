"""What is shown of runs, in a terminal, a log and a notebook, with a toy engine that counts."""

import io
import os
import re
import signal
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fssl_core.errors import SettingError
from fssl_core.experiments import display
from fssl_core.experiments import progress as module
from fssl_core.experiments.display import State, duration, reported
from fssl_core.experiments.durations import Durations
from fssl_core.experiments.progress import telling, title_of
from fssl_core.experiments.store import Run, run, run_all
from fssl_core.notices import TRANSIENT
from fssl_core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Count(Settings):
    progress_unit: ClassVar[str] = "epoch"
    seed: int = 0
    method: str = "plain"
    clients: int = 5
    batch: int = 50  # in these tests 250 / clients
    steps: int = 3
    builds_on: Settings | None = None

    def execute(self, run, progress):
        begun = (run.checkpoint.load() or {"step": 0})["step"]
        progress(begun, self.steps)
        if self.builds_on:
            run.result_of(self.builds_on)
        for step in range(begun + 1, self.steps + 1):
            if os.environ.get("COUNT_DIES_AT") == str(step):
                os.kill(os.getpid(), signal.SIGINT)
            if self.method == "wrong":
                raise SettingError("method", self.method, "plain or other")
            run.checkpoint.save({"step": step})
            progress(step, self.steps, loss=1 / step, label="x")
        return {"begun": begun}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("FSSL_PROGRESS", raising=False)
    return tmp_path / "runs"


@pytest.fixture
def every_state(monkeypatch):
    """All states are shown, however fast they follow each other."""
    for where, pause in (
        (module, "DRAW_SECONDS"),
        (module, "START_SECONDS"),
        (display, "REPORT_SECONDS"),
        (display, "LOG_SECONDS"),
    ):
        monkeypatch.setattr(where, pause, 0.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_in_a_terminal(settings, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with redirect_stderr(Terminal()) as terminal:
        run_all(settings)
    return terminal.getvalue()


def sweep(methods=("plain", "other"), seeds=(0, 11)):
    return [
        Count(method=method, seed=seed, clients=5 + seed, batch=250 // (5 + seed))
        for method in methods
        for seed in seeds
    ]


# ---------------------------------------------------------------- terminal and log


def test_a_terminal_shows_bars_with_names_and_keeps_one_line(monkeypatch, every_state):
    states = re.split(r"[\r\n]+", shown_in_a_terminal(sweep(), monkeypatch))
    shown = [state.partition("| ")[2].partition("\x1b")[0].strip() for state in states]
    assert any(re.fullmatch(r"3 of 4 runs( · about \d+ s left)?", text) for text in shown)
    assert "method other, clients 16 · epoch 2 of 3 · loss 0.5, label x" in shown  # the batch and the seed follow
    assert re.fullmatch(r"fssl: 4 runs computed in \d+ s", states[-2])
    assert states[-1] == ""


def test_a_file_gets_few_lines_and_no_carriage_return(capsys):
    run_all(sweep())
    shown = capsys.readouterr().err
    assert re.fullmatch(r"fssl: 0 of 4 runs · method plain, clients 5\nfssl: 4 runs computed in \d+ s\n", shown)


def test_a_file_gets_a_line_now_and_then(capsys, every_state):
    run_all([Count(seed=0), Count(seed=11)])
    lines = capsys.readouterr().err.splitlines()
    assert "fssl: 1 of 2 runs · seed 11 · epoch 2 of 3 · loss 0.5, label x" in [
        re.sub(r" · about \d+ s left", "", line) for line in lines
    ]


def test_a_file_says_of_one_run_that_another_process_has_that_it_is_not_done(capsys, every_state):
    [view] = display.views(show=True)
    view.draw(State(runs=1, done=0))
    assert capsys.readouterr().err == "fssl: 0 of 1 run\n"


def test_nothing_is_shown_of_what_is_stored_or_not_to_be_shown(capsys, every_state):
    run_all([Count(seed=2)], progress=False)
    run_all([Count(seed=2)])
    run(Count(builds_on=Count(seed=3)), progress=False)  # nor of the run that it builds on
    captured = capsys.readouterr()
    assert captured.err + captured.out == ""


def test_the_line_that_stays_is_true(capsys, monkeypatch):
    def last():
        return re.sub(r"\d+ s\b", "0 s", capsys.readouterr().err.splitlines()[-1])

    run(Count())
    assert last() == "fssl: 1 run computed in 0 s"
    run_all([Count(seed=seed) for seed in range(4)])
    assert last() == "fssl: 4 runs: 3 computed in 0 s, 1 was stored"
    with pytest.raises(SettingError):
        run_all([Count(seed=0), Count(seed=4), Count(method="wrong"), Count(seed=5), Count(seed=6)])
    assert last() == "fssl: 5 runs: 3 computed in 0 s, 1 was stored, 1 is left"  # the others were not held up


def test_runs_that_build_on_others_are_one_display(monkeypatch, every_state):
    inner = Count(seed=7)
    shown = shown_in_a_terminal([Count(builds_on=inner), Count(seed=1, builds_on=inner), inner], monkeypatch)
    assert f"Count {inner.key}" not in shown  # it is one of the sweep and has a name there
    assert shown.index("seed 7 · epoch 1 of 3") < shown.index("seed 0 · epoch 1 of 3")
    assert shown.count("computed in") == 1
    assert "3 runs computed in" in shown


def test_a_run_that_another_asks_for_unexpectedly_is_in_its_display(monkeypatch, every_state):
    inner = Count(seed=7)
    monkeypatch.setattr(Count, "needs", ())
    shown = shown_in_a_terminal([Count(builds_on=inner), Count(seed=1, builds_on=inner), inner], monkeypatch)
    assert "seed 0 › seed 7 · epoch 1 of 3" in shown
    assert "seed 7 · epoch 3 of 3" not in re.findall(r"\| (seed 7.*?3 of 3)", shown)  # not by itself
    assert shown.count("computed in") == 1
    assert "3 runs computed in" in shown


# ---------------------------------------------------------------- words


def test_titles_name_what_tells_runs_apart():
    rows = [
        {
            "kind": "A",
            "seed": seed,
            "method": method,
            "clients": n,
            "batch": 100 // n,
            "deep.seed": seed,
            "deep.method": deep,
            "long": "x" * 50 + method,
        }
        for seed in (0, 1)
        for method, deep in (("a", "b"), ("b", "b"), ("b", None))
        for n in (5, 20)
    ]
    names = telling(rows, [name for name in rows[0] if name != "kind"])
    assert names == ["method", "clients", "deep.method", "seed"]  # not the batch and deep.seed, which follow
    assert title_of(rows[0], names) == "method a, clients 5, deep.method b, seed 0"
    assert title_of(rows[-1], names) == "method b, clients 20, seed 1"
    assert telling(rows[:1], []) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5000, "83 min"), (9000, "2.5 h")]
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


# ---------------------------------------------------------------- time left


def test_runs_that_have_most_in_common_tell_how_long_one_takes():
    rows = [
        {"seed": 0, "cut": cut, "method": method, "epochs": 10, "marks": (1, 2)} for cut in (1, 5) for method in "ab"
    ]
    known = [
        ({**rows[0], "seed": 8, "marks": [1, 2]}, 10.0),  # lists, as they come from JSON
        ({**rows[0], "seed": 9}, 20.0),
        ({**rows[3], "epochs": 99}, 1e6),  # another sweep's
        ({"other": 1}, 1e6),
    ]
    durations = Durations(rows, ["seed", "cut", "method"], known)
    assert durations.expected(rows[0]) == 15
    assert durations.expected(rows[3]) == 15  # the best there is
    durations.add(rows[2], 40.0)  # cut 5, method a
    assert durations.expected(rows[3]) == 40
    assert Durations(rows, ["cut", "method"], []).expected(rows[0]) is None


def test_what_a_training_takes_is_not_told_by_what_prepares_it():
    training, first_phase = {"kind": "Training", "seed": 0, "norm": "batch"}, {"kind": "Phase", "norm": "batch"}
    durations = Durations([training, first_phase], ["kind", "seed"], [])
    durations.add(first_phase, 30.0)
    assert durations.expected(training) is None
    durations.add({**training, "seed": 1}, 4000.0)
    assert (durations.expected(training), durations.expected(first_phase)) == (4000, 30)


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


class Still:
    """Shows nothing, keeps the states."""

    def __init__(self):
        self.states = []

    def draw(self, state):
        self.states.append(state)

    def close(self, outcome):
        pass


def test_time_left(every_state, monkeypatch):
    """Runs of 4 steps: 10 s each with method plain as stored runs say, 20 s with other as turns out."""
    clock, view = Clock(), Still()
    monkeypatch.setattr(module, "time", clock)
    handles = [
        run(Count(method=method, seed=seed, steps=4), progress=False)
        for method in ("plain", "other")
        for seed in (0, 1)
    ]
    monkeypatch.setattr(type(handles[0]), "finished", False)
    monkeypatch.setattr(type(handles[0]), "provenance", {"seconds": 20.0})
    rows = [handle.settings.as_dict() for handle in handles]
    durations = Durations(rows, ["method", "seed"], [({**rows[0], "seed": 9}, 10.0)])
    shown = module.Sweep(handles, rows, ["method", "seed"], durations, [view])
    shown.draw()
    assert view.states[-1] == State(4, 0, left=40.0)
    with shown.run(handles[0]) as progress:
        progress(0, 4)
        clock.now += 2
        progress(1, 4)  # by its own pace 6 s are left, by the stored run 8
        assert view.states[-1].running[0].left == pytest.approx(0.25 * 6 + 0.75 * 8)
        clock.now += 6  # half a step later four fifths of what was expected are over, and the stored run says 2
        assert shown.state(clock.now).running[0].left == pytest.approx(0.8 * 24 + 0.2 * 2)
        assert shown.state(clock.now).left == pytest.approx(0.8 * 24 + 0.2 * 2 + 30)
        clock.now += 12
        progress(4, 4)
        assert view.states[-1].running[0].left == 0
    shown.stored(handles[1])  # another process has computed it
    with shown.run(handles[2]) as progress:
        state = view.states[-1]
        assert (state.done, state.running[0].title) == (2, "method other, seed 0")
        assert state.running[0].left == 15  # the mean of the stored run and of the first, which took 20
        progress(0, 4)
        clock.now += 16
        assert shown.state(clock.now).running[0].left is None  # more than was expected, and not a step yet
        progress(1, 4)
        assert shown.state(clock.now).running[0].left == 48
    assert shown.expected == {handles[3].settings.key: 20}


def test_a_resumed_run_has_less_left(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    current = module.Current(Run(Count()), "", None)
    assert current.left(clock.now) is None
    current.tell(8, 10, {})
    clock.now += 3
    current.tell(9, 10, {})
    assert current.left(clock.now) == 3
    current.expected = 100.0
    assert current.left(clock.now) == pytest.approx(0.9 * 3 + 0.1 * 17)


# ---------------------------------------------------------------- the file for another process


def test_another_process_can_read_how_far_it_is(tmp_path, monkeypatch, every_state):
    path, states = tmp_path / "state.json", []
    monkeypatch.setenv("FSSL_PROGRESS", str(path))
    write = display.write_json
    monkeypatch.setattr(display, "write_json", lambda *args: (write(*args), states.append(reported(path))))
    run_all([Count(seed=0), Count(seed=11)], progress=False)
    last = states[-1]
    run = last.running[0]
    assert (last.runs, last.done, run.title, run.unit, run.step, run.steps) == (2, 1, "seed 11", "epoch", 3, 3)
    assert run.figures == {"loss": pytest.approx(1 / 3), "label": "x"}
    assert reported(path) is None  # computing no more
    path.write_text('{"runs": 3')
    assert reported(path) is None


def test_the_share_of_the_work_never_falls(tmp_path, monkeypatch, every_state):
    """The steps of a run that the two need first count for neither."""
    monkeypatch.setenv("FSSL_PROGRESS", str(tmp_path / "state.json"))
    states = []
    monkeypatch.setattr(display, "write_json", lambda path, state: states.append(State(**state)))
    run_all([Count(seed=seed, builds_on=Count(seed=11)) for seed in (0, 1)], progress=False)
    seen = [State(state.runs, state.done, tuple(display.Running(**run) for run in state.running)) for state in states]
    shares = [state.share() for state in seen]
    assert shares == sorted(shares)
    assert {0, 1 / 6, 1 / 3, 1 / 2, 1} <= set(shares)
    assert seen[-1].lines()[0][:2] == (2, 2)


def test_a_report_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch, every_state):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FSSL_PROGRESS", str(tmp_path / "file" / "state.json"))
    assert run(Count(), progress=False).finished


# ---------------------------------------------------------------- a notebook


class Kernel:
    """A kernel in which this file's engine is there."""

    def __init__(self, folder):
        from jupyter_client.manager import start_new_kernel

        environment = {**os.environ, "FSSL_RUNS": str(folder / "runs")}
        environment.pop("FSSL_PROGRESS", None)
        self.manager, self.client = start_new_kernel(kernel_name="python3", startup_timeout=240, env=environment)
        self.run(f"import os, runpy, sys; Count = runpy.run_path({__file__!r})['Count']")
        self.run("from fssl_core.experiments import run_all; from fssl_core.notices import notice")

    def run(self, *cells):
        """Run cells as "Run all" does: the status of each, and the messages that make outputs."""
        asked = [self.client.execute(cell) for cell in cells]
        replies, sent = {}, []
        while not replies.keys() >= set(asked):  # others answered what start_new_kernel asked
            message = self.client.get_shell_msg(timeout=240)
            replies[message["parent_header"]["msg_id"]] = message["content"]["status"]
        while True:
            message = self.client.get_iopub_msg(timeout=240)
            kind, content = message["msg_type"], message["content"]
            if kind in ("stream", "display_data", "update_display_data", "execute_result", "error"):
                sent.append((kind, content))
            if content == {"execution_state": "idle"} and message["parent_header"].get("msg_id") == asked[-1]:
                return [replies[one] for one in asked], sent

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


def test_twelve_runs_leave_one_line_in_a_notebook(kernel):
    """There were 48 lines on stderr, four for each run."""
    _, sent = kernel.run("frame = run_all([Count(method=m, seed=s) for m in ('plain', 'other') for s in range(6)])")
    kinds = [kind for kind, _ in sent]
    assert kinds == ["display_data"] + ["update_display_data"] * (len(sent) - 1)
    assert len({content["transient"]["display_id"] for _, content in sent}) == 1
    assert all(content["metadata"] == TRANSIENT for _, content in sent)
    first, last = sent[0][1]["data"], sent[-1][1]["data"]
    assert "<progress" in first["text/html"]
    assert list(last) == ["text/plain"]
    assert re.fullmatch(r"12 runs computed in \d+ s", last["text/plain"])
    _, sent = kernel.run("frame = run_all([Count(method=m, seed=s) for m in ('plain', 'other') for s in range(6)])")
    assert [(kind, content["data"]) for kind, content in sent] == [
        ("display_data", {"text/plain": "12 runs, stored already"})
    ]


def test_a_display_in_a_notebook_names_settings_and_escapes_them(kernel):
    _, sent = kernel.run(
        "import fssl_core.experiments.progress as p; p.DRAW_SECONDS = 0\n"
        "frame = run_all([Count(method='<b>', seed=s, steps=2) for s in (7, 8)])\n"
        "frame = run_all([Count(method=m, steps=2) for m in ('<i>', 'b')])"
    )
    markup = [content["data"].get("text/html", "") for _, content in sent]
    assert any("seed 8 · epoch 1 of 2" in text for text in markup)
    assert any("method &lt;i&gt; · epoch 1 of 2" in text for text in markup)


def test_a_notice_in_a_notebook_is_a_plain_line(kernel):
    _, sent = kernel.run("notice('five neighbours'); notice('five neighbours')")
    assert [(kind, content["data"]) for kind, content in sent] == [
        ("display_data", {"text/plain": "fssl: five neighbours"})
    ]


def test_interrupting_a_notebook_is_one_line_and_the_run_resumes(kernel):
    """There were 10,000 characters of frames, and no word of what to do."""
    cell = "run_all([Count(seed=s, steps=5) for s in (20, 21)])['begun'].tolist()"
    kernel.run("os.environ['COUNT_DIES_AT'] = '3'")
    replies, sent = kernel.run(cell, "print('the next cell')")
    assert replies == ["error", "aborted"]
    (error,) = (content for kind, content in sent if kind == "error")
    assert error["traceback"] == ["interrupted; run again to continue (seed 20 resumes from its last checkpoint)"]
    assert sent[-2][1]["data"] == {"text/plain": "2 runs: 2 are left"}
    assert [kind for kind, _ in sent if kind == "stream"] == []
    _, sent = kernel.run("del os.environ['COUNT_DIES_AT']", cell)
    assert sent[-1][1]["data"]["text/plain"] == "[2, 0]"
    replies, _ = kernel.run(
        "os.environ['COUNT_DIES_AT'] = '1'",
        f"try:\n    {cell.replace('5)', '6)')}\nexcept KeyboardInterrupt:\n    del os.environ['COUNT_DIES_AT']",
    )
    assert replies == ["ok", "ok"]


def test_an_error_in_a_notebook_is_its_message_and_the_users_line(kernel):
    _, sent = kernel.run("settings = [Count(method='wrong')]\n\nresults = run_all(settings)  # here")
    assert sent[-1][1]["traceback"] == [
        "SettingError: method='wrong' cannot be used: expected plain or other.",
        "in line 3: results = run_all(settings)  # here",
    ]
    assert sent[-1][1]["ename"] == "SettingError"
    assert sent[-2][1]["data"] == {"text/plain": "1 run: 1 is left"}
