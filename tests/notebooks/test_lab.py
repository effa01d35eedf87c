"""``make lab`` shows the index and every picture: the server is started as it does and asked for them over HTTP."""

import json
import os
import posixpath
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
STARTED = 120  # seconds; on an idle machine it takes two
ANSWERED = 30
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know this machine's ports

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
]


@dataclass(frozen=True)
class Server:
    """A running server: its address, its token, and the page that a browser is sent to."""

    url: str
    token: str
    landing: str

    def get(self, path: str) -> tuple[str, bytes]:
        """Type and bytes of a file, by its path from the server's root, as JupyterLab asks for an embedded picture."""
        request = urllib.request.Request(f"{self.url}files/{quote(path)}", headers=_authorized(self.token))
        with DIRECTLY.open(request, timeout=ANSWERED) as answer:
            return answer.headers.get_content_type(), answer.read()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """What ``make lab`` starts, on the first port that is free, without a browser and without the user's settings."""
    folder = tmp_path_factory.mktemp("jupyter")
    for name, application in (("lab", "LabApp"), ("server", "ServerApp")):
        settings = {application: {"open_browser": False}}
        (folder / f"jupyter_{name}_config.json").write_text(json.dumps(settings))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "MAKE", "MFL"))}
    for name in ("CONFIG", "RUNTIME", "DATA", "LAB_SETTINGS", "LAB_WORKSPACES"):
        environment[f"JUPYTER{'' if name.startswith('LAB') else '_'}{name}_DIR"] = str(folder)
    # -o: this Python's environment takes the place of .venv, which is not made.
    command = ["make", "lab", "-o", ".venv/.installed", f"BIN={Path(sys.executable).parent}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _running(process, folder)
    finally:
        _stop(process)


def _running(process: subprocess.Popen, folder: Path) -> Server:
    """The server, as soon as it answers; it leaves a file with its address and token when it starts."""
    end = time.monotonic() + STARTED
    while time.monotonic() < end and process.poll() is None:
        for path in folder.glob("jpserver-*.json"):
            try:
                state = json.loads(path.read_text())
                request = urllib.request.Request(state["url"], headers=_authorized(state["token"]))
                with DIRECTLY.open(request, timeout=ANSWERED) as answer:
                    return Server(state["url"], state["token"], urlsplit(answer.url).path)
            except (OSError, ValueError):  # not written or not listening yet
                pass
        time.sleep(0.1)
    why = f"did not answer in {STARTED} s" if process.poll() is None else f"ended with status {process.returncode}"
    pytest.fail(f"`make lab` {why}:\n{(folder / 'log').read_text(errors='replace')[-3000:]}")


def _stop(process: subprocess.Popen) -> None:
    """End make and the server that it has started, which are a group of their own."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def _authorized(token: str) -> dict[str, str]:
    return {"Authorization": f"token {token}"}


def pictures(path: Path) -> list[str]:
    """The files that a notebook's Markdown embeds, as they are written there."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text) + re.findall(r'<img[^>]*\bsrc="([^"]+)"', text)
    return [unquote(target) for target in found if not urlsplit(target).scheme]


def test_the_browser_opens_the_index(server):
    assert server.landing.endswith("/index.ipynb")
    _, content = server.get(server.landing.partition("/lab/tree/")[2])
    assert content == (FOLDER / "index.ipynb").read_bytes()


def test_every_embedded_picture_of_every_notebook_is_served(server):
    # Where the notebooks are, seen from the server's root.
    folder = posixpath.dirname(server.landing.partition("/lab/tree/")[2])
    missing, count = [], 0
    for path in NOTEBOOKS:
        for target in pictures(path):
            count += 1
            here = posixpath.join(folder, path.parent.relative_to(FOLDER).as_posix())
            wanted = posixpath.normpath(posixpath.join(here, target))
            try:
                kind, content = server.get(wanted)
            except urllib.error.HTTPError as error:
                missing.append(f"{path.relative_to(ROOT)}: {target} is {wanted} to the server: {error}")
                continue
            if kind != "image/png" or content != (path.parent / target).read_bytes():
                missing.append(f"{path.relative_to(ROOT)}: {target} is {len(content)} bytes of {kind}")
    assert not missing, "\n".join(missing)
    assert count >= 55, "the notebooks embed the pictures of their records"


def test_only_who_has_the_token_is_served(server):
    _, content = Server(server.url, "", server.landing).get("README.md")
    assert content != (ROOT / "README.md").read_bytes()  # the page that asks for the token


def test_a_notebook_that_is_only_opened_stays_as_it_was(server):
    """JupyterLab writes the kernel's name and version into it and saves it by itself."""
    path = FOLDER / "monacosfl" / "fig6_accuracy_by_cut.ipynb"
    before = path.read_bytes()
    address = f"{server.url}api/contents/{path.relative_to(ROOT).as_posix()}"
    with DIRECTLY.open(urllib.request.Request(address, headers=_authorized(server.token)), timeout=ANSWERED) as answer:
        model = json.load(answer)
    content = model["content"]
    content["metadata"]["kernelspec"] = {"display_name": "fssl", "language": "python", "name": "python3"}
    content["metadata"]["language_info"] |= {"version": "3.14.0", "nbconvert_exporter": "python", "pygments_lexer": "x"}
    body = json.dumps({"type": "notebook", "format": "json", "content": content}).encode()
    headers = {**_authorized(server.token), "Content-Type": "application/json"}
    request = urllib.request.Request(address, data=body, headers=headers, method="PUT")
    try:
        with DIRECTLY.open(request, timeout=ANSWERED):
            assert path.read_bytes() == before
    finally:
        path.write_bytes(before)
