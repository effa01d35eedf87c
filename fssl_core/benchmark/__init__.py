"""Every method under one protocol: the same images and backbone, one evaluation, and what each asks of a client."""

from fssl_core.benchmark.methods import (
    EVALUATIONS,
    METHODS,
    RATES,
    SIZES,
    TUNED_ON,
    Method,
    Problem,
    attacks,
    averaged,
    chosen_rates,
    evaluation,
    methods_of,
    passes_over,
)
from fssl_core.benchmark.table import BUDGETS, MB, choose, counted_needs, curves, load_of, overview, resources, within

__all__ = [
    "BUDGETS",
    "EVALUATIONS",
    "MB",
    "METHODS",
    "RATES",
    "SIZES",
    "TUNED_ON",
    "Method",
    "Problem",
    "attacks",
    "averaged",
    "choose",
    "chosen_rates",
    "counted_needs",
    "curves",
    "evaluation",
    "load_of",
    "methods_of",
    "overview",
    "passes_over",
    "resources",
    "within",
]
