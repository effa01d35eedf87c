"""The command ``fssl``: notebooks listed and reproduced, data, stored outputs, claims, README, course, network."""

import argparse
import csv
import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fssl_core import __version__
from fssl_core.errors import FsslError, RunsFailedError, SettingError
from fssl_core.paths import PROFILES, data_root, figures_root, project_root, records_root, runs_root, shown_path

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = """\
examples:
  fssl list                                            what there is
  fssl plan --profile paper                            what a profile would compute, before it starts
  fssl reproduce                                       every notebook at the smoke profile, in minutes
  fssl reproduce monacosfl --jobs 2                    all notebooks of a paper, two at a time
  fssl reproduce monacosfl/fig6 --profile laptop       one figure, larger
  fssl reproduce monacosfl/fig6 --set 'seeds=[0, 1]'   one figure, other settings
  fssl record monacosfl/fig6 --profile laptop          write the reference record of a figure, with its defaults
  fssl benchmark mine.py --profile laptop              the table of all methods, with one of yours
  fssl data cifar10 --download                         fetch a data set
  fssl claims monacosfl                                what became of the paper's claims
  fssl gallery                                         bring the README up to date with the recorded results
  fssl course export hand-out --without-solutions      the course for students
  fssl course report handed-in > marks.csv             what they handed in: exercises passed, a row a notebook
  fssl serve-split --clients 5 --set cut_layer=3       train over a network: the server ...
  fssl join-split tcp://127.0.0.1:5555                 ... and each of its clients, in a terminal of its own
  fssl keys my-keys --clients 5                        keys for the same between machines
"""

OF_PROFILES = f"{', '.join(PROFILES[:-1])} or {PROFILES[-1]}; default: {PROFILES[0]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        the exit status: 0, 1 when a notebook or several runs failed, 2 when the command cannot be carried out as given,
        130 after Ctrl-C, 141 when nobody reads what it prints any more.
    """
    arguments = _parser().parse_args(argv)
    try:
        status = arguments.command(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as `fssl list | head` ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more when it exits
        return 141
    except FsslError as error:
        print(f"fssl: {error}", file=sys.stderr)
        return 1 if isinstance(error, RunsFailedError) else 2
    except OSError as error:  # of a file or folder that is not the store's, such as build or FSSL_FIGURES
        print(f"fssl: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        over_network = arguments.command in (_serve_split, _join_split)  # which have no checkpoints
        then = "a new run starts from the beginning" if over_network else "run the same command again to continue"
        print(f"fssl: interrupted; {then}", file=sys.stderr)
        return 130


class _Command(argparse.ArgumentParser):
    """Takes its options anywhere, as in ``export monacosfl/fig1 --profile laptop FILE``: argparse alone gives the first
    names before an option all that is asked for, and refuses those behind it."""

    intermixed = False

    def parse_known_args(self, args=None, namespace=None):
        if self.intermixed or self._subparsers:  # called by the method below, or of a group of commands
            return super().parse_known_args(args, namespace)
        self.intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.intermixed = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fssl",
        description="Reproduce federated self-supervised learning, one notebook for each figure or table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fssl {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Command)

    def add(name: str, function, text: str, group=commands) -> argparse.ArgumentParser:
        command = group.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.set_defaults(command=function)
        return command

    def add_parameters(
        command: argparse.ArgumentParser,
        what: str = "set a parameter of the notebooks",
        example: str = "'seeds=[0, 1]'",
    ) -> None:
        command.add_argument("--profile", default="smoke", metavar="P", help=OF_PROFILES)
        text = f"{what}, the value in YAML, e.g. --set {example}; repeatable"
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)

    def add_ids(command: argparse.ArgumentParser, *, all_by_default: bool = True) -> None:
        text = "a notebook such as monacosfl/fig6, or a paper such as monacosfl for all of its notebooks"
        how, end = ("*", "; default: all") if all_by_default else ("+", "")
        command.add_argument("ids", nargs=how, metavar="ID", help=text + end)

    def add_jobs(command: argparse.ArgumentParser) -> None:
        add_ids(command)
        text = "notebooks at a time; default: one for each GPU, or 1"
        command.add_argument("--jobs", type=int, metavar="N", help=text)

    add("list", _list, "list the notebooks with their IDs and the profiles they are recorded at")

    command = add("plan", _plan, "tell what notebooks would compute: runs, data, hours, memory and disk")
    add_ids(command)
    add_parameters(command)
    command.add_argument("--json", action="store_true", help="print every run with all that is known of it")

    command = add("reproduce", _reproduce, "execute notebooks and tell what became of their claims")
    add_jobs(command)
    add_parameters(command)
    text = "compute the runs on the Dask cluster whose scheduler is there, e.g. tcp://10.0.0.1:8786"
    command.add_argument("--cluster", metavar="ADDRESS", help=text)

    text = "compare all methods under one protocol, with one of your own if you like"
    command = add("benchmark", _benchmark, text)
    text = "a Python file that adds methods to fssl_core.benchmark.METHODS; docs/how_to.md has one"
    command.add_argument("own", nargs="?", metavar="FILE", help=text)
    add_parameters(command)

    text = "execute notebooks with their defaults and keep what they draw in figures/, as the reference"
    command = add("record", _record, text)
    add_jobs(command)
    command.add_argument("--profile", required=True, metavar="P", help="laptop, workstation, gpu or paper")

    command = add("data", _data, "list the data sets that are there, describe one, fetch it, or take a part of it")
    command.add_argument("name", nargs="?", metavar="NAME", help="a data set such as cifar10")
    command.add_argument("--download", action="store_true", help="fetch the set into the data folder")
    text = "write the part of cifar10 that the recorded runs at workstation were made on into this folder"
    command.add_argument("--subset", metavar="FOLDER", help=text)

    text = "compute the runs of notebooks without the notebooks, or hand finished ones on in a file"
    actions = add("runs", None, text).add_subparsers(title="actions", metavar="ACTION", required=True)
    command = add("compute", _runs_compute, "compute the runs of notebooks that are not finished; no Jupyter", actions)
    add_ids(command, all_by_default=False)
    add_parameters(command)
    command = add("export", _runs_export, "write the finished runs of notebooks to a file", actions)
    add_ids(command, all_by_default=False)
    command.add_argument("file", metavar="FILE", help="the file to write, e.g. fig6.zip")
    add_parameters(command)
    text = "take the models along, which are most of the bytes; without them, who needs one computes its run again"
    command.add_argument("--models", action="store_true", help=text)
    text = "take the models of these runs alone, e.g. AutoencoderSettings; may be given several times"
    command.add_argument("--models-of", action="append", default=[], metavar="KIND", help=text)
    text = "leave a table out that nobody reads, such as layers; may be given several times"
    command.add_argument("--without", action="append", default=[], metavar="TABLE", help=text)
    command = add("import", _runs_import, "put the runs of a file into the store, those that are not there", actions)
    text = "of `fssl runs export`; default: all that the project keeps with its records"
    command.add_argument("files", nargs="*", metavar="FILE", help=text)

    text = "execute notebooks at the smoke profile and store their outputs and links in place"
    add_jobs(add("refresh", _refresh, text))

    command = add("claims", _claims, "judge the papers' claims on the recorded results")
    text = "of papers or notebooks, e.g. monacosfl or mfcl/table2; default: all"
    command.add_argument("ids", nargs="*", metavar="ID", help=text)
    command.add_argument("--profile", metavar="P", help="default: each claim's most faithful record that runs it")
    command.add_argument("--json", action="store_true", help="all that is known of each verdict, as JSON")

    add("gallery", _gallery, "write the gallery and the table of claims of README.md from the recorded results")

    command = add("course", None, "the course: a hand-out for students, and what they handed in")
    parts = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "copy the kit, with its notebooks, into a new folder for students"
    command = add("export", _course_export, text, parts)
    command.add_argument("folder", metavar="DIR", help="the new folder")
    command.add_argument("--without-solutions", action="store_true", help="leave out the answers to the exercises")
    text = "print a row of CSV for each notebook with exercises below a folder: exercises passed, predictions made"
    command = add("report", _course_report, text, parts)
    command.add_argument("folder", metavar="DIR", help="with the notebooks that were handed in, at any depth")
    text = "run the notebooks anew in place of believing what they store; this runs the students' code on this machine"
    command.add_argument("--execute", action="store_true", help=text)

    def add_timeout(command: argparse.ArgumentParser, wait: float, text: str) -> None:
        command.add_argument("--wait", type=float, default=wait, metavar="S", help=f"{text}; default: {wait:g}")
        text = "seconds of silence after which the other side is taken for lost; default: 10"
        command.add_argument("--timeout", type=float, default=10.0, metavar="S", help=text)

    def add_keys(command: argparse.ArgumentParser, file: str, text: str) -> None:
        choice = command.add_mutually_exclusive_group()
        choice.add_argument("--keys", metavar="FILE", help=f"{file} of `fssl keys`; needed between machines")
        choice.add_argument("--insecure", action="store_true", help=text)

    command = add("keys", _keys, "make the keys with which a server and its clients know each other")
    command.add_argument("folder", metavar="FOLDER", help="a new one; it gets a file for each machine")
    command.add_argument("--clients", type=int, required=True, metavar="N", help="number of clients")

    command = add("serve-split", _serve_split, "train a split federation whose clients join from other processes")
    command.add_argument("--clients", type=int, required=True, metavar="N", help="number of clients to wait for")
    address = "tcp://127.0.0.1:5555"
    text = f"where to listen; tcp://0.0.0.0:5555 for every address of this machine; default: {address}"
    command.add_argument("--bind", default=address, metavar="ADDRESS", help=text)
    text = "replace a setting of the profile, such as partition, classes:2 unless you say otherwise"
    add_parameters(command, text, "cut_layer=5")
    text = "folder for the results; default: a new one in network/ beside the stored runs"
    command.add_argument("--out", metavar="FOLDER", help=text)
    add_keys(command, "server.json", "without keys: whoever reaches the address can join, and all can be read")
    add_timeout(command, 300.0, "seconds until all clients must be there")
    text = "seconds that a client may take for an answer before it is dropped; default: 120"
    command.add_argument("--deadline", type=float, default=120.0, metavar="S", help=text)

    command = add("join-split", _join_split, "take part in a split federation as one of its clients")
    command.add_argument("address", metavar="ADDRESS", help="of the server, e.g. tcp://192.168.1.5:5555")
    text = "number of this client, from 0; default: that of its key, else the lowest that is free"
    command.add_argument("--client", type=int, metavar="I", help=text)
    add_keys(command, "client-I.json", "without keys: all can be read, and nobody knows who the server is")
    text = "data set that this client trains on, whatever the server says; default: an embedded one, if the server does"
    command.add_argument("--data", metavar="NAME", help=text)
    text = "GiB that the server's settings and messages may take here; default: 4"
    command.add_argument("--memory", type=float, default=4.0, metavar="GIB", help=text)
    add_timeout(command, 60.0, "seconds until the server must have answered")
    return parser


def _list(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.notebooks import find_notebooks
    from fssl_core.papers.records import recorded_profiles

    notebooks = find_notebooks()
    recorded = [reversed(recorded_profiles(book.id)) for book in notebooks]
    columns = {
        "ID": [book.id for book in notebooks],
        "title": [book.title for book in notebooks],
        "recorded": [", ".join(profiles) for profiles in recorded],
    }
    print(_lines(columns))
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from fssl_core.planning.plan import plan

    parameters = _assigned(arguments)
    found = plan(arguments.ids, profile=arguments.profile, parameters=parameters)
    if arguments.json:
        print(found.as_json())
        return 0
    table = found.table()
    numbers = [name for name in table if table[name].dtype.kind == "f"]
    print(_text(table.assign(**{name: table[name].map(_short) for name in numbers}), right=numbers))
    for sentence in dict.fromkeys(found.missing.values()):
        print(f"\n{sentence}")
    for notebook, lines in found.unknown.items():
        print(f"\n{notebook}: not in the table, {'; '.join(lines)}")
    print(f"\n{found.explained()}")
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.notebooks import execute

    parameters = _assigned(arguments)
    table = execute(
        arguments.ids,
        profile=arguments.profile,
        parameters=parameters,
        jobs=arguments.jobs,
        cluster=arguments.cluster,
    )
    return _tell_outcome(table, f"Figures and numbers: {shown_path(figures_root())}/<artifact>.{arguments.profile}.*")


def _benchmark(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.notebooks import execute

    parameters = _assigned(arguments)
    if arguments.own:
        if not os.path.isfile(arguments.own):
            raise SettingError("FILE", arguments.own, "a Python file that adds methods to the benchmark")
        parameters["own"] = os.path.relpath(arguments.own, project_root())  # where notebooks are executed
    table = execute(["benchmark/one_table"], profile=arguments.profile, parameters=parameters)
    return _tell_outcome(table, f"The table: {shown_path(figures_root())}/benchmark/one_table.{arguments.profile}.csv")


def _record(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.recording import record

    table = record(arguments.ids, profile=arguments.profile, jobs=arguments.jobs)
    where = (
        f"Recorded in {shown_path(records_root())}. Now `fssl refresh` and `fssl gallery` bring the texts up to date."
    )
    return _tell_outcome(table, where)


def _tell_outcome(table: "pd.DataFrame", where: str) -> int:
    """What became of notebooks, where their figures are, and the exit status."""
    from fssl_core.experiments.notebooks import CLAIMS

    print(_text(table.drop(columns=["figure", "notebook"]).rename(columns=CLAIMS)))
    if table["figure"].notna().any():
        print(f"\n{where}")
    return int((table["status"] == "failed").any())


def _data(arguments: argparse.Namespace) -> int:
    from fssl_core.data.datasets import download, inventory, load_dataset

    if arguments.subset is not None and arguments.name != "cifar10":
        raise SettingError("NAME", arguments.name, "cifar10 with --subset: recorded runs have a subset of no other set")
    if arguments.name is None:
        if arguments.download:
            raise SettingError("NAME", None, "a data set to download, e.g. fssl data cifar10 --download")
        table = inventory()
        print(_text(table.drop(columns="problem")))
        for row in table[table["problem"] != ""].itertuples():
            print(f"\n{row.name}: {row.problem}")
        there = "" if data_root().is_dir() else ", which is no folder"
        print(f"\nLooked in {data_root().absolute()}{there}. Set FSSL_DATA to look elsewhere.")
        return 0
    if arguments.download:
        print(f"{arguments.name} is in {download(arguments.name)}")
    if arguments.subset is not None:
        from fssl_core.data.cifar10_subset import write_subset

        folder = write_subset(Path(arguments.subset))
        print(f"The images of the recorded runs are in {folder}. Notebooks at workstation take these runs after:")
        print(f"export FSSL_DATA={shlex.quote(str(folder.parent))}")
        return 0
    data = load_dataset(arguments.name)
    print(
        f"{data.name}: {len(data.train)} training and {len(data.test)} test images of {data.image_size} x "
        f"{data.image_size} pixels, {data.channels} channel(s), "
        + (f"{len(data.classes)} classes" if data.labelled else "no labels")
    )
    return 0


def _runs_compute(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.asked import compute

    parameters = _assigned(arguments)
    settings, later = compute(arguments.ids, arguments.profile, parameters)
    print(f"{len(settings)} runs are finished in {shown_path(runs_root())}.")
    if later:
        print(f"Other runs depend on these results; the notebook computes them: {', '.join(later)}.")
        for line in (f"{id}: {line}" for id in later for line in later[id] if parameters):
            print(f"  {line}")
    return 0 if settings else 2


def _runs_export(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.archive import export_runs
    from fssl_core.experiments.asked import runs_of

    path = Path(arguments.file)
    if path.is_dir() or path.suffix != ".zip":
        raise SettingError("FILE", arguments.file, "the name of a file that ends in .zip, after the notebooks")
    settings = runs_of(arguments.ids, arguments.profile, _assigned(arguments))
    models = arguments.models or arguments.models_of
    count = export_runs(settings.values(), path, models=models, without_tables=arguments.without)
    rest = "" if count == len(settings) else "; the others are not finished"
    print(f"{count} of {len(settings)} runs are in {path} ({path.stat().st_size:,} bytes){rest}.")
    return 0


def _runs_import(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.archive import import_runs, recorded_files

    for path in [Path(file) for file in arguments.files] or recorded_files():
        count, new = import_runs(path)
        print(f"{shown_path(path)}: {count} runs, {new} of them new in {shown_path(runs_root())}")
    return 0


def _refresh(arguments: argparse.Namespace) -> int:
    from fssl_core.experiments.refresh import refresh
    from fssl_core.reporting.index_page import update_index
    from fssl_core.reporting.navigation import update_navigation

    failed = refresh(arguments.ids, jobs=1 if arguments.jobs is None else arguments.jobs)
    update_navigation()
    if not arguments.ids or "index" in arguments.ids:
        update_index()
    if failed:
        print(f"fssl: left as they were: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _claims(arguments: argparse.Namespace) -> int:
    from fssl_core.claims.judge import all_verdicts
    from fssl_core.claims.verdict import AS_PRINTED, counts, in_words, paper_in_words

    asked = dict.fromkeys(arguments.ids) or [None]
    verdicts = [verdict for id in asked for verdict in all_verdicts(id, arguments.profile)]
    if arguments.json:
        print(json.dumps([verdict.record() for verdict in verdicts], indent=1, ensure_ascii=False))
        return 0
    for verdict in verdicts:
        scale = ", ".join(filter(None, [verdict.evidence, verdict.profile, verdict.data]))
        head = f"{verdict.artifact}  ours: {verdict.ours} ({scale}); paper: {paper_in_words(verdict)}"
        reading = "" if verdict.reading == AS_PRINTED else f"read as: {verdict.reading}"
        print(textwrap.fill(head, _width(), subsequent_indent="    "))
        for text in filter(None, (verdict.claim, reading, in_words(verdict))):
            print(textwrap.fill(text, _width(), initial_indent="    ", subsequent_indent="    "))
    print(f"\n{counts(verdicts)}")
    return 0


def _gallery(arguments: argparse.Namespace) -> int:
    from fssl_core.reporting.gallery import update_readme

    print("README.md is written anew." if update_readme() else "README.md is up to date.")
    return 0


def _course_export(arguments: argparse.Namespace) -> int:
    from fssl_core.course.handout import export

    course = export(Path(arguments.folder), solutions=not arguments.without_solutions)
    print(f"The course is in {course}; `make lab` in {arguments.folder} installs what it needs and opens it.")
    return 0


def _course_report(arguments: argparse.Namespace) -> int:
    from fssl_core.course.marks import COLUMNS, report

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    for number, row in enumerate(report(Path(arguments.folder), execute=arguments.execute)):
        if not number:
            writer.writeheader()
        writer.writerow(row)
        sys.stdout.flush()
    return 0


def _keys(arguments: argparse.Namespace) -> int:
    from fssl_core.network.keys import make_keys

    server, *clients = make_keys(Path(arguments.folder), arguments.clients)
    print(f"{server}: for `fssl serve-split --keys`, on the server")
    for path in clients:
        print(f"{path}: for `fssl join-split --keys`, on that client")
    print("Give each machine its own file over a safe way, such as scp, and remove the others' from it.")
    return 0


def _serve_split(arguments: argparse.Namespace) -> int:
    import pandas as pd
    from tqdm import tqdm

    from fssl_core.experiments.profiles import split_settings
    from fssl_core.network.handshake import check_split_settings
    from fssl_core.network.keys import server_keys
    from fssl_core.network.server import claim_folder, serve_split, store

    values = _assigned(arguments)
    if "clients" in values:
        raise SettingError("--set", f"clients={values['clients']}", "the number of clients as --clients")
    check_split_settings(values)
    settings = split_settings(arguments.profile, clients=arguments.clients, **values)
    keys = server_keys(Path(arguments.keys)) if arguments.keys else None
    started = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder = Path(arguments.out) if arguments.out else runs_root() / "network" / started
    claim_folder(folder, settings, new=not arguments.out)  # another server may begin in the same second
    with tqdm(total=settings.epochs, unit="epoch", leave=False, dynamic_ncols=True, disable=None) as bar:  # piped: none

        def progress(done: int, total: int, **figures: Any) -> None:
            if not done:
                bar.reset()  # the time until all clients were there does not count
            bar.set_postfix(figures, refresh=False)
            bar.update(done - bar.n)

        try:
            served = serve_split(
                settings,
                bind=arguments.bind,
                keys=keys,
                insecure=arguments.insecure,
                wait=arguments.wait,
                timeout=arguments.timeout,
                deadline=arguments.deadline,
                progress=progress,
            )
        except BaseException:
            if not arguments.out:  # nobody will look for a folder that has a date for a name and no result
                shutil.rmtree(folder, ignore_errors=True)
            raise
    print(_text(pd.DataFrame({"result": served.summary.keys(), "value": map(str, served.summary.values())})))
    print(f"\nStored in {store(served, folder)}.")
    return 0


def _join_split(arguments: argparse.Namespace) -> int:
    from fssl_core.network.client import join_split
    from fssl_core.network.keys import client_keys

    def joined(client: int, settings: Any) -> None:
        print(f"fssl: client {client} of {settings.clients}: {settings.method} on {settings.dataset}", file=sys.stderr)

    client = join_split(
        arguments.address,
        client=arguments.client,
        keys=client_keys(Path(arguments.keys)) if arguments.keys else None,
        insecure=arguments.insecure,
        data=arguments.data,
        memory=arguments.memory,
        wait=arguments.wait,
        timeout=arguments.timeout,
        joined=joined,
    )
    print(f"fssl: client {client}: the server has finished the training", file=sys.stderr)
    return 0


def _assigned(arguments: argparse.Namespace) -> dict[str, Any]:
    """Values by name, of all ``--set``."""
    from fssl_core.experiments.parameters import refuse_profile

    values = dict(map(_assignment, arguments.set))
    refuse_profile(values)
    return values


def _assignment(text: str) -> tuple[str, Any]:
    from fssl_core.experiments.parameters import read_value

    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise SettingError("--set", text, "NAME=VALUE, e.g. --set epochs=5")
    try:
        return name, read_value(value)
    except ValueError as error:
        raise SettingError(name, value, "a value in YAML, e.g. 3, 1e-3, word, true, [0, 1]") from error


def _short(value: float) -> str:
    """Two digits that count; a dot where there is next to nothing."""
    return "." if value < 0.005 else f"{value:,.0f}" if value >= 9.5 else f"{value:.2g}"


def _text(frame: "pd.DataFrame", right: Collection[str] = ()) -> str:
    """A table for the terminal: numbers, and columns ``right``, to the right, all else left, missing values blank."""
    blank = frame.astype(object).where(frame.notna(), "")
    columns = {str(name): [str(value) for value in blank[name]] for name in frame}
    return _lines(columns, right={str(name) for name in frame if frame[name].dtype.kind in "if"} | {*right})


def _lines(columns: dict[str, list[str]], right: Collection[str] = ()) -> str:
    """Columns of texts below their names, these to the right and all others to the left.

    On a terminal too narrow for them, the widest column is cut so that each row keeps its line.
    """
    cells = {name: [name, *column] for name, column in columns.items()}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    widest = max(widths, key=widths.get)
    too_wide = max(0, sum(widths.values()) + 2 * (len(widths) - 1) - _width())
    widths[widest] = max(min(20, widths[widest]), widths[widest] - too_wide)
    aligned = []
    for name, column in cells.items():
        width = widths[name]
        column = [cell if len(cell) <= width else cell[: width - 1] + "…" for cell in column]
        aligned.append([cell.rjust(width) if name in right else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*aligned, strict=True))


def _width() -> int:
    """Characters to a line: those of the terminal; of a file or a pipe as many as there are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


if __name__ == "__main__":
    sys.exit(main())
