"""Federated self-supervised learning, reproducible: engines, attacks, costs and the figures of five papers."""

import os

# libgomp's busy waiting makes two threads slower than one as soon as anything else runs on the machine
# (up to eight times). It reads this variable once, when torch is first imported, so it is set before that.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
