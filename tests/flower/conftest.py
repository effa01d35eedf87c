import contextlib
import os
import warnings

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
with warnings.catch_warnings(), contextlib.suppress(ImportError):  # where it is missing the tests say so
    warnings.simplefilter("ignore")  # Flower's own imports use what their libraries have deprecated
    import flwr  # noqa: F401
