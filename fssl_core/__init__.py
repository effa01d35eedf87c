"""Federated self-supervised learning, reproducible: engines, attacks, costs and the figures of five papers."""

import os
import sys

__version__ = "0.1.0"

# libgomp's busy waiting makes two threads slower than one as soon as anything else runs on the machine
# (up to eight times). It reads this variable once, when torch is first imported, so it is set before that.
_too_late = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# pandas imports pyarrow where it is installed, whose allocator would start a thread, and a process that others are
# forked from must have none.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
if _too_late:
    from fssl_core.devices import do_not_wait_busily

    do_not_wait_busily()
