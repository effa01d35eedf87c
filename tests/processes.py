"""Python in processes of its own, forked from a warm one where the session has it: torch is not imported anew."""

import itertools
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fssl_core.experiments.warm import start

PATIENCE = 300  # seconds until another process, on a busy machine, has imported torch and computed a step
_numbers = itertools.count()


class Piped:
    """A process whose output can be read, as text: what tests need of :class:`subprocess.Popen`."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        ends = [os.pipe(), os.pipe()]
        try:
            files = {"stdout": ends[0][1], "stderr": ends[1][1]}
            self._process = start(arguments, environment, folder=folder, **files)
        finally:
            for _, end in ends:
                os.close(end)
        self.stdout, self.stderr = (open(end, encoding="utf-8") for end, _ in ends)  # noqa: SIM115  (closed with it)
        self.pid, self.poll, self.wait = self._process.pid, self._process.poll, self._process.wait
        self.kill, self.send_signal = self._process.kill, self._process.send_signal

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(file.read) for file in (self.stdout, self.stderr)]
            self.wait(timeout)
            return tuple(future.result() for future in reading)

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def __enter__(self) -> "Piped":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def python(code: str, environment: Mapping[str, str], folder: Path) -> Piped:
    """A process that runs this code; ``folder`` is where the code is written, and the working directory."""
    name = f"code_{next(_numbers)}"
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return Piped(["-m", name], environment, folder)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what another process or thread does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def fssl(*arguments: str, environment: Mapping[str, str]) -> Piped:
    """The command with these arguments."""
    return Piped(["-m", "fssl_core.cli", *arguments], environment)
