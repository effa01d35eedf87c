"""Resources of a client in closed form, without training anything."""

from fssl_core.costs.traffic import (
    RULES,
    EngineTraffic,
    SplitTraffic,
    engine_traffic,
    split_traffic,
    traffic_table,
)

__all__ = ["RULES", "EngineTraffic", "SplitTraffic", "engine_traffic", "split_traffic", "traffic_table"]
