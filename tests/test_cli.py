"""The command ``fssl``: what it prints, what it refuses, its exit status."""

import json
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import fssl_core
from fssl_core import cli
from fssl_core.data import cifar10_subset
from fssl_core.errors import SettingError
from fssl_core.experiments import notebooks, recording, refresh
from fssl_core.papers.reference import paper_claims
from fssl_core.reporting import index_page


@pytest.fixture
def project(tmp_path, monkeypatch):
    for variable in ("FSSL_RUNS", "FSSL_FIGURES", "FSSL_DATA"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "notebooks" / "monacosfl"
    folder.mkdir(parents=True)
    parameters = new_code_cell('profile: str = "smoke"\nseeds: list = [0]', metadata={"tags": ["parameters"]})
    for name in ("fig6_accuracy_by_cut", "fig10_more"):
        notebook = new_notebook(cells=[new_markdown_cell(f"# The title of {name}"), parameters])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, folder / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def executed(monkeypatch):
    """Calls of :func:`execute`, which is replaced: fig10 fails."""
    calls = []

    def execute(ids, **options):
        calls.append((ids, options))
        rows = [("monacosfl/fig6", "ok", 3.25, 2, "figures/fig6.png"), ("monacosfl/fig10", "failed", 12.0, None, None)]
        columns = ["artifact", "status", "seconds", "claims reproduced", "figure"]
        table = (
            pd.DataFrame(rows, columns=columns).astype({"claims reproduced": "Int64"}).assign(notebook="build/x.ipynb")
        )
        return table[table["artifact"].isin(ids)] if ids else table

    monkeypatch.setattr(notebooks, "execute", execute)
    return calls


def test_list(project, capsys):
    for profile in ("paper", "smoke"):
        path = project / "figures" / "monacosfl" / f"fig6.{profile}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ID               title                              recorded",
        "monacosfl/fig6   The title of fig6_accuracy_by_cut  smoke, paper",
        "monacosfl/fig10  The title of fig10_more",
    ]


def test_reproduce_prints_a_table_and_fails_when_a_notebook_fails(project, executed, capsys):
    assert cli.main(["reproduce"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "artifact         status  seconds  reproduced",
        "monacosfl/fig6   ok         3.25           2",
        "monacosfl/fig10  failed     12.0",
        "",
        "Figures and numbers: build/figures/<artifact>.smoke.*",
    ]
    assert executed == [([], {"profile": "smoke", "parameters": {}, "jobs": None, "cluster": None})]
    assert cli.main(["reproduce", "monacosfl/fig6"]) == 0


def test_reproduce_reads_values_as_yaml(project, executed):
    values = [
        "seeds=[0, 1e-3]",
        "rate=1e-3",
        "small=-.5E-2",
        "method=MocoSFL",
        "plot=true",
        "text=a=b",
        "limit=null",
        "n=3",
    ]
    options = [part for value in values for part in ("--set", value)]
    where = ["--jobs", "2", "--cluster", "tcp://10.0.0.1:8786"]
    cli.main(["reproduce", "monacosfl/fig6", "--profile", "laptop", *where, *options])
    parameters = {
        "seeds": [0, 0.001],
        "rate": 0.001,
        "small": -0.005,
        "method": "MocoSFL",
        "plot": True,
        "text": "a=b",
        "limit": None,
        "n": 3,
    }
    values = {"profile": "laptop", "parameters": parameters, "jobs": 2, "cluster": "tcp://10.0.0.1:8786"}
    assert executed == [(["monacosfl/fig6"], values)]


def test_benchmark_runs_its_table_with_a_file_of_yours(project, executed, monkeypatch, capsys):
    (project / "elsewhere").mkdir()
    (project / "elsewhere" / "mine.py").touch()
    cli.main(["benchmark"])
    monkeypatch.chdir(project / "elsewhere")
    cli.main(["benchmark", "mine.py", "--profile", "laptop", "--set", "seeds=[0]"])
    plain = {"profile": "smoke", "parameters": {}}
    own = {"profile": "laptop", "parameters": {"seeds": [0], "own": "elsewhere/mine.py"}}  # from the project's folder
    assert executed == [(["benchmark/one_table"], plain), (["benchmark/one_table"], own)]
    assert cli.main(["benchmark", "yours.py"]) == 2
    assert "FILE='yours.py' cannot be used: expected a Python file that adds methods" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "--set", "seeds"], "--set='seeds' cannot be used: expected NAME=VALUE"),
        (["reproduce", "--set", "=3"], "--set='=3' cannot be used: expected NAME=VALUE"),
        (["reproduce", "--set", "seeds=[0"], "seeds='[0' cannot be used: expected a value in YAML"),
        (
            ["reproduce", "--set", "seed=3"],
            "seed=3 cannot be used: expected a parameter of monacosfl/fig6: profile, seeds",
        ),
        (["reproduce", "--set", "seeds=3"], "seeds=3 cannot be used: expected a value of type list"),
        (["plan", "--set", "profile=laptop"], "expected the option --profile"),
        (["reproduce", "--profile", "fast"], "profile='fast' cannot be used: expected one of smoke, laptop"),
        (["reproduce", "monacosfl/fig7"], "(did you mean monacosfl/fig6"),
        (["reproduce", "monacosfl/fg6"], "(did you mean monacosfl/fig6"),
        (["reproduce", "monacosf"], "(did you mean monacosfl?); `fssl list` shows them"),
        (["reproduce", "fig6"], "(did you mean monacosfl/fig6?); `fssl list` shows them"),
        (["record", "monacosfl/fig6", "--profile", "smoke"], "profile='smoke' cannot be used: expected one of laptop"),
        (["record", "monacosfl/fig7", "--profile", "laptop"], "ID='monacosfl/fig7' cannot be used"),
        (["refresh", "monacosfl/fig7"], "ID='monacosfl/fig7' cannot be used"),
        (["data", "--download"], "expected a data set to download"),
        (["data", "no-such-set"], "no-such-set"),
        (["data", "--subset", "part"], "NAME=None cannot be used: expected cifar10 with --subset"),
        (["data", "digits", "--subset", "part"], "NAME='digits' cannot be used: expected cifar10 with --subset"),
        (["data", "cifar10", "--subset", "part"], "Get it with: fssl data cifar10 --download"),
        (["claims", "nobody"], "paper='nobody' cannot be used"),
        (["claims", "benchmark"], "paper='benchmark' cannot be used: expected one of mocosfl, monacosfl"),
        (["claims", "benchmark/one_table"], "paper='benchmark' cannot be used: expected one of mocosfl, monacosfl"),
        (["claims", "monacosfl/fig60"], "(did you mean monacosfl/fig6?)"),
        (["claims", "--profile", "fast"], "profile='fast' cannot be used"),
        (["join-split", "nowhere"], "ADDRESS='nowhere' cannot be used: expected an address such as tcp://"),
        (["join-split", "tcp://127.0.0.1:9", "--wait", "0.3"], "No server answered at tcp://127.0.0.1:9 within 0.3"),
        (["serve-split", "--clients", "2", "--set", "clients=3"], "expected the number of clients as --clients"),
        (["serve-split", "--clients", "2", "--set", "cuts=3"], "cuts=3 cannot be used: expected one of the settings"),
        (["serve-split", "--clients", "2", "--set", "epochs=a"], "epochs='a' cannot be used: expected a whole number"),
        (["serve-split", "--clients", "2", "--set", "epochs=1.5"], "epochs=1.5 cannot be used"),
        (
            ["serve-split", "--clients", "2", "--set", "pretrained_client=x"],
            "expected none where clients are processes",
        ),
    ],
)
def test_bad_input_is_a_message_and_status_2(project, capsys, arguments, message):
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("fssl: ")
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--bind", "tcp://1.2.3.4:5", "expected an address of this machine"),
        ("--bind", "here", "expected an address such as"),
        ("--timeout", "0", "timeout=0.0 cannot be used"),
        ("--set", "cut_layer=11", "cut_layer=11 cannot be used: expected one of 1, 3, 5"),
    ],
)
def test_a_server_that_cannot_listen_or_train_says_why(project, monkeypatch, capsys, option, value, message):
    monkeypatch.setenv("FSSL_RUNS", str(project / "runs"))
    assert cli.main(["serve-split", "--clients", "5", "--set", "cut_layer=3", "--insecure", option, value]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("fssl: ")
    assert message in error
    assert not [*project.glob("runs/network/*")]


def test_without_pyzmq_the_network_commands_say_what_to_install(project, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("fssl_core.network")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert cli.main(["join-split", "tcp://127.0.0.1:5555"]) == 2
    assert "pip install 'fssl-core[network]'" in capsys.readouterr().err


def test_data_lists_what_is_there_and_where_it_looked(project, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_DATA", str(project / "sets"))
    assert cli.main(["data"]) == 0
    shown = capsys.readouterr().out
    assert "scattered-digits" in shown
    assert str(project / "sets" / "cifar-10-batches-py") in shown
    assert f"Looked in {project / 'sets'}, which is no folder. Set FSSL_DATA" in shown


def test_data_describes_one_set(project, capsys):
    assert cli.main(["data", "digits"]) == 0
    assert capsys.readouterr().out.startswith("digits: 1347 training and 450 test images of 8 x 8 pixels")


def test_data_says_where_the_subset_is_and_how_to_choose_it(project, monkeypatch, capsys):
    monkeypatch.setattr(cifar10_subset, "write_subset", lambda folder: project / folder / "cifar-10-batches-py")
    assert cli.main(["data", "cifar10", "--subset", "a part"]) == 0
    said, export = capsys.readouterr().out.splitlines()
    assert said.startswith(f"The images of the recorded runs are in {project / 'a part' / 'cifar-10-batches-py'}. ")
    assert export == f"export FSSL_DATA='{project / 'a part'}'"


def test_claims(project, capsys):
    assert cli.main(["claims", "monacosfl"]) == 0
    *rows, blank, total = capsys.readouterr().out.splitlines()
    heads = [row for row in rows if not row.startswith(" ")]
    assert "monacosfl/fig3  ours: not run (exact); paper: prints none" in heads
    assert blank == ""
    assert total.startswith(f"{len(heads)} claims: exact 0 of ")


def test_claims_of_a_notebook(project, capsys):
    assert cli.main(["claims", "monacosfl/fig9", "ldawa/fig3", "monacosfl/fig9", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    expected = [claim.id for claim in paper_claims("monacosfl") if claim.artifact == "fig9"]
    expected += [claim.id for claim in paper_claims("ldawa") if claim.artifact == "fig3"]
    assert [claim["id"] for claim in claims] == expected


def test_options_may_stand_between_names(project, capsys):
    assert cli.main(["claims", "monacosfl/fig9", "--json", "ldawa/fig3"]) == 0
    assert {claim["artifact"] for claim in json.loads(capsys.readouterr().out)} == {"monacosfl/fig9", "ldawa/fig3"}
    assert cli.main(["runs", "export", "monacosfl/fig6", "monacosfl/fig9", "--profile", "laptop", "of both.txt"]) == 2
    assert "FILE='of both.txt' cannot be used" in capsys.readouterr().err


def test_claims_as_data(project, capsys):
    assert cli.main(["claims", "monacosfl", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    names = {"id", "paper", "artifact", "claim", "paper_consistent", "ours", "evidence", "profile", "data", "seeds"}
    assert names | {"estimate", "low", "high", "unit", "printed", "reading"} <= claims[0].keys()
    assert {claim["ours"] for claim in claims} == {"not run"}
    assert [claim["id"] for claim in claims] == [claim.id for claim in paper_claims("monacosfl")]


def test_on_a_terminal_every_line_fits(project, monkeypatch, capsys):
    """Tables once wrapped at 80 columns."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    value = "from here to there, " * 20
    monkeypatch.setattr("fssl_core.claims.verdict.in_words", lambda _: value)
    assert cli.main(["claims", "monacosfl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(lines).split())
    assert value.strip() in words  # nothing is cut
    titles = pd.DataFrame({"ID": ["a"] * 3, "title": ["x" * length for length in (3, 40, 200)], "n": [1, 2, 3]})
    rows = cli._text(titles).splitlines()
    assert {len(row) for row in rows} == {60}
    assert rows[3].endswith("x…  3")


def test_a_reader_who_has_seen_enough_ends_the_command_quietly(project):
    """``fssl list | head`` once ended in a traceback."""
    code = "import sys; from fssl_core.cli import main; sys.exit(main(['claims']))"  # more than a pipe holds
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")


def test_record(project, executed, capsys, monkeypatch):
    monkeypatch.setattr(recording, "record", lambda ids, profile, jobs: notebooks.execute(ids))
    assert cli.main(["record", "monacosfl/fig6", "--profile", "laptop"]) == 0
    assert "Recorded in figures. Now `fssl refresh` and `fssl gallery`" in capsys.readouterr().out


def test_gallery(project, monkeypatch, capsys):
    readme = project / "README.md"
    readme.write_text("<!-- gallery -->\n<!-- /gallery -->\n<!-- claims -->\n<!-- /claims -->\n")
    for said in ("README.md is written anew.\n", "README.md is up to date.\n"):
        assert cli.main(["gallery"]) == 0
        assert capsys.readouterr().out == said
    assert '<a href="notebooks/monacosfl/fig6_accuracy_by_cut.ipynb">' in readme.read_text()
    readme.unlink()
    assert cli.main(["gallery"]) == 2
    assert capsys.readouterr().err == f"fssl: There is no {readme}: call this from inside a clone of the project.\n"


@pytest.mark.parametrize(("failed", "status"), [([], 0), (["monacosfl/fig6"], 1)])
def test_refresh(project, monkeypatch, capsys, failed, status):
    monkeypatch.setattr(refresh, "refresh", lambda ids, jobs: failed)
    path = project / "notebooks" / "monacosfl" / "fig6_accuracy_by_cut.ipynb"
    marks = [new_markdown_cell(f"# {name}\n\n<!-- navigation -->\n<!-- /navigation -->") for name in ("Title", "End")]
    nbformat.write(new_notebook(cells=marks), path)
    assert cli.main(["refresh", "monacosfl/fig6"]) == status
    assert ("left as they were: monacosfl/fig6" in capsys.readouterr().err) == bool(failed)
    assert all("[index](../index.ipynb)" in cell.source for cell in nbformat.read(path, as_version=4).cells)


def test_refresh_refuses_a_number_of_jobs_as_the_others_do(project, monkeypatch, capsys):
    monkeypatch.setattr(refresh, "run_tasks", lambda tasks, jobs: [])
    assert cli.main(["refresh", "--jobs", "0"]) == 2
    assert "jobs=0 cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ids", "written"), [([], True), (["index"], True), (["index", "monacosfl"], True), (["monacosfl"], False)]
)
def test_refresh_writes_the_index_where_it_is_asked_to(project, monkeypatch, ids, written):
    monkeypatch.setattr(refresh, "refresh", lambda ids, jobs: [])
    calls = []
    monkeypatch.setattr(index_page, "update_index", lambda: calls.append("index"))
    assert cli.main(["refresh", *ids]) == 0
    assert calls == ["index"] * written


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt, 130),
        (SettingError("a", 1, "more"), 2),
        (OSError(30, "Read-only file system", "build/fig6.ipynb"), 2),
    ],
)
def test_exit_status_of_errors(project, monkeypatch, capsys, error, status):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(notebooks, "execute", fail)
    assert cli.main(["reproduce"]) == status
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert ("run the same command again to continue" in shown) == (status == 130)


def test_what_has_no_checkpoint_promises_none_when_it_is_interrupted(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_serve_split", interrupted)
    assert cli.main(["serve-split", "--clients", "2"]) == 130
    assert capsys.readouterr().err == "fssl: interrupted; a new run starts from the beginning\n"


def test_a_bug_is_not_hidden(project, monkeypatch):
    monkeypatch.setattr(notebooks, "find_notebooks", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["list"])


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"fssl {fssl_core.__version__}\n"


def test_help_needs_no_torch():
    code = (
        "import sys; from fssl_core.cli import _parser; _parser().format_help(); "
        "print([name for name in ('torch', 'pandas', 'papermill') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == []
