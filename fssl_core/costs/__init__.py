"""Resources of a client in closed form, without training anything."""

from fssl_core.costs.compute import (
    MOCOSFL_PASSES,
    Macs,
    Memory,
    compute_table,
    fl_moco_model,
    forward_macs,
    saved_bytes,
    training_memory,
)
from fssl_core.costs.traffic import (
    RULES,
    EngineTraffic,
    SplitTraffic,
    engine_traffic,
    split_traffic,
    traffic_table,
)

__all__ = [
    "MOCOSFL_PASSES",
    "RULES",
    "EngineTraffic",
    "Macs",
    "Memory",
    "SplitTraffic",
    "compute_table",
    "engine_traffic",
    "fl_moco_model",
    "forward_macs",
    "saved_bytes",
    "split_traffic",
    "traffic_table",
    "training_memory",
]
