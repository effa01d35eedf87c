"""What can go wrong, by name. Every message says the value, what was expected and what to do next."""


class FsslError(Exception):
    """Base of all errors that the kit raises on purpose."""


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


class DataError(FsslError):
    """A data set is missing, damaged, or not what its name says."""


class CheckpointError(FsslError):
    """No checkpoint of a run can be read."""


class OtherRunError(CheckpointError):
    """A checkpoint is of other settings, data or code than the run that would go on from it."""


class NonFiniteLossError(FsslError, FloatingPointError):
    """The loss of a training step is NaN or infinite."""
