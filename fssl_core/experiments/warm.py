"""A warm Python: a process that has imported what all notebooks need, and forks one process for each of them.

Importing torch, pandas, the figures' libraries and Jupyter's takes five seconds of CPU, for each notebook twice over:
once for papermill and once for the kernel. Here it is done once. A forked process then runs a module as ``python -m``
would, in a session of its own, with the environment, folder and output that were asked for; it shares nothing with the
others but memory that nobody writes to. The server only imports, it computes nothing: the threads of torch, which a
fork would lose, and a context of CUDA start in the forked processes alone::

    client                                    server
    connect, environment and command   ->     fork
                                       <-     process id, later its exit status
    close, or die                      ->     kill the process

Linux only: macOS's libraries do not survive a fork, and Windows has none. Elsewhere processes start as ever.
"""

import atexit
import builtins
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

VARIABLE = "FSSL_WARM_PYTHON"  # in the environment of the processes that may use it: the address of the server
MODULES = ("ipykernel.kernelapp", "papermill.cli", "seaborn", "sklearn.datasets", "torchvision.transforms.v2")
PACKAGES = (
    "fssl_core.experiments",
    "fssl_core.figures",
    "fssl_core.reporting",
)  # with all their modules, and what these import
OPTIONAL = ("fssl_core.experiments.cluster",)  # but these, which need what may not be installed
# Variables with these beginnings are read when Python or a library is loaded. Where one of them is to be another than
# the server's, a forked process would not follow it, so none is forked.
READ_AT_START = ("CUDA", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "OMP_", "OPENBLAS_", "PYTHON")
READ_AT_START += ("TORCH", "TZ")
_INLINE = "module://matplotlib_inline.backend_inline"  # of a kernel, which sets it before matplotlib is imported
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def survives_fork() -> bool:
    """Whether what was imported before a fork works after it."""
    return sys.platform.startswith("linux")


def can_fork() -> bool:
    """Whether this system has what a warm Python needs."""
    if not survives_fork():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3, unless forbidden
    except (OSError, AttributeError):
        return False
    return True


@contextmanager
def warm_python(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A server for the block, which ends with it or with this process; where there is one already, that is used.

    Args:
        environment: in which it starts.

    Yields:
        the variables that let a process find it; none where processes cannot be forked.
    """
    if VARIABLE in environment:
        yield {VARIABLE: environment[VARIABLE]}
        return
    # A folder for this user only.
    with tempfile.TemporaryDirectory(prefix="fssl-warm-", ignore_cleanup_errors=True) as folder:
        address = str(Path(folder) / "socket")
        if not can_fork() or len(address) > 100:  # a longer one is no address of a socket
            yield {}
            return
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            command = [sys.executable, "-m", "fssl_core.experiments.warm", str(listener.fileno())]
            server = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.PIPE,  # closed when this process ends, however it does
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is not for the server
            )
        try:
            yield {VARIABLE: address}
        finally:
            server.stdin.close()
            server.wait()


class Forked:
    """A process forked from a warm Python, with as much of :class:`subprocess.Popen` as its users need."""

    stdin = stdout = stderr = None

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection, self.pid, self.returncode = connection, pid, None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; ``None`` while it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The same when it has ended.

        Raises:
            subprocess.TimeoutExpired: it goes on for longer.
        """
        if self._status(timeout) is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended; unlike the others, from any thread."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            status = _receive_number(self._connection)
            self.returncode = -signal.SIGKILL if status is None else status  # the server takes its processes with it
            self._connection.close()
        return self.returncode


Process = Forked | subprocess.Popen


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path | str | None = None,
    stdout: Any = None,
    stderr: Any = None,
) -> Process:
    """``python ARGUMENTS`` in a process of its own, forked where that is possible.

    Args:
        arguments: ``-m``, a module, and what the module is given.
        environment: of the process; :data:`VARIABLE` in it says where the server is.
        folder: the working directory; default: that of this process.
        stdout: an open file, or :data:`subprocess.DEVNULL`; default: that of this process.
        stderr: likewise.
    """
    return fork(arguments, environment, folder=folder, stdout=stdout, stderr=stderr) or subprocess.Popen(
        [sys.executable, *arguments],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )


def fork(arguments, environment, *, folder=None, stdout=None, stderr=None) -> Forked | None:
    """As :func:`start`; ``None`` where there is no server, or none with such an environment."""
    if VARIABLE not in environment or arguments[0] != "-m":
        return None
    request = {"arguments": [*arguments[1:]], "environment": dict(environment), "folder": str(folder or Path.cwd())}
    body = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(environment[VARIABLE])
        with open(os.devnull, "wb") as nowhere:
            given = ((stdout, 1), (stderr, 2))
            files = [default if file is None else _number(file, nowhere) for file, default in given]
            socket.send_fds(connection, [len(body).to_bytes(8)], files)
        connection.sendall(body)
        pid = _receive_number(connection)
    except OSError:  # the server has ended
        pid = None
    if pid:
        return Forked(connection, pid)
    connection.close()
    return None


def _number(file: Any, nowhere: Any) -> int:
    if file == subprocess.DEVNULL:
        return nowhere.fileno()
    return file if isinstance(file, int) else file.fileno()


def _send_number(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits for it any more
        connection.sendall(number.to_bytes(8, signed=True))


def _receive_number(connection: socket.socket) -> int | None:
    """``None`` where the other side has gone."""
    text = connection.recv(8, socket.MSG_WAITALL)
    return int.from_bytes(text, signed=True) if len(text) == 8 else None


# -------------------------------------------------------------------------------------------------------- the server


def _serve(listener: socket.socket, *environments: Mapping[str, str]) -> tuple[dict[str, Any], list[int]]:
    """Fork for every request until the lifeline on stdin is cut; returns in the forked processes only.

    A request's variables of :data:`READ_AT_START` are each as in one of the ``environments``, or none is forked.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # a descriptor of the process -> its number, who asked for it
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == sys.stdin.fileno():
                    for pid, _ in running.values():
                        _kill(pid)
                    os._exit(0)
                elif key.fileobj is listener:
                    connection, _ = listener.accept()
                    received = _receive(connection)
                    if received is None or not _follows(received[0]["environment"], environments):
                        _send_number(connection, 0)
                        connection.close()
                    elif (pid := os.fork()) == 0:
                        for other in [listener, connection, *(asked for _, asked in running.values())]:
                            other.close()
                        for descriptor in running:
                            os.close(descriptor)
                        return received
                    else:
                        _send_number(connection, pid)
                        running[descriptor := os.pidfd_open(pid)] = pid, connection
                        selector.register(descriptor, selectors.EVENT_READ)
                        selector.register(connection, selectors.EVENT_READ, pid)
                    for file in received[1] if received else ():
                        os.close(file)
                elif key.fileobj in running:
                    pid, connection = running.pop(key.fileobj)
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    if connection.fileno() >= 0:
                        selector.unregister(connection)
                        _send_number(connection, status)
                        connection.close()
                elif key.fileobj.fileno() >= 0:  # who asked for the process is gone, and has not just been told its end
                    _kill(key.data)
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request and the files of its output; ``None`` of one that gave up before it was whole."""
    size, files, *_ = socket.recv_fds(connection, 8, 2)
    with connection.makefile("rb") as stream:
        body = stream.read(int.from_bytes(size))
    return (json.loads(body), files) if len(size) == 8 and len(body) == int.from_bytes(size) else None


def _kill(pid: int) -> None:
    """A process and those that it has started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):  # not yet in a group of its own, or gone
            kill(pid, signal.SIGKILL)


def _follows(environment: Mapping[str, str], environments: Sequence[Mapping[str, str]]) -> bool:
    """Whether a process with this environment may be forked from one that was started with these."""
    names = {name for one in (environment, *environments) for name in one if name.startswith(READ_AT_START)}
    names -= {"CUDA_VISIBLE_DEVICES"}  # read when CUDA starts, which no forked process has seen
    return all(environment.get(name) in [one.get(name) for one in environments] for name in names)


def _become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Run the module as ``python -m`` does in a process that has just started, and end as Python does.

    But the memory shared with the server is not freed object by object, which copies it first and takes a second.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    os.setsid()
    for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *files]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    module, *sys.argv[1:] = request["arguments"]
    sys.path[0] = os.getcwd()
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # as multiprocessing ends a process: waits for threads that are no daemons
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # closed, or nobody reads it any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _main() -> None:
    environment = dict(os.environ)
    os.environ.setdefault("MPLBACKEND", _INLINE)
    # pandas asks, when it is imported, whether a kernel will show its tables: they have more columns there.
    builtins.get_ipython = lambda: SimpleNamespace(kernel=True)
    importlib.import_module("pandas")
    del builtins.get_ipython
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.iter_modules(path, f"{package}."):
            if module.name not in OPTIONAL:
                importlib.import_module(module.name)
    for name in MODULES:
        importlib.import_module(name)
    from fssl_core.experiments.kernels import use_forked_kernels

    use_forked_kernels()  # in a papermill that is forked from here
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared
    # Libraries set variables when they are imported, as scikit-learn does for OpenMP: who has imported them asks with
    # these, and who has not without.
    _become(*_serve(socket.socket(fileno=int(sys.argv[1])), environment, dict(os.environ)))


if __name__ == "__main__":
    _main()
