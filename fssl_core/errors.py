"""What can go wrong, by name. Every message says the value, what was expected and what to do next.

In a notebook the message is all that is shown, with the line that led to it: IPython asks ``_render_traceback_``.
"""

import linecache
import traceback


class FsslError(Exception):
    """Base of all errors that the kit raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        lines = [f"{type(self).__name__}: {self}"]
        own = [at for at in traceback.walk_tb(self.__traceback__) if at[0].f_globals.get("__name__") == "__main__"]
        if own:  # the user's code; all further frames are ours
            frame, number = own[-1]
            code = linecache.getline(frame.f_code.co_filename, number).strip()
            lines.append(f"in line {number}: {code}")
        return lines


def first_line(error: BaseException) -> str:
    """What an error of others says, in one line; its name where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a notebook: one line where the frames would be, and the cells that follow do not run."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class SettingError(FsslError, ValueError):
    """A setting has a value that cannot be used.

    Args:
        name: the setting's name.
        value: what it was given.
        expected: what is allowed, in words.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        shown = " ".join(repr(value).split())  # an array's takes several lines
        shown = shown if len(shown) <= 300 else f"{shown[:297]}..."
        super().__init__(f"{name}={shown} cannot be used: expected {expected}.")
        self.name, self.value, self.expected = name, value, expected

    def __reduce__(self) -> tuple:  # from another process it comes back as what it was
        return type(self), (self.name, self.value, self.expected)


class RunsFailedError(FsslError):
    """Several runs of those that were asked for could not be computed; each error is in the message."""


class DataError(FsslError):
    """A data set is missing, damaged, or not what its name says."""


class ArchiveError(FsslError):
    """A file of finished runs is missing, damaged, or none."""


class CheckpointError(FsslError):
    """No checkpoint of a run can be read."""


class OtherRunError(CheckpointError):
    """A checkpoint is of other settings, data or code than the run that would go on from it."""


class NonFiniteLossError(FsslError, FloatingPointError):
    """The loss of a training step is NaN or infinite."""
