"""Every method under one protocol: the same images and backbone, one evaluation, and what each asks of a client."""

from fssl_core.benchmark.methods import (
    EVALUATIONS,
    METHODS,
    RATES,
    SIZES,
    TUNED_ON,
    Method,
    Problem,
    add_methods,
    attacks,
    averaged,
    chosen_rates,
    evaluation,
    images_seen,
)
from fssl_core.benchmark.table import BUDGETS, GB, MB, Choice, choose, curves, load_of, overview, resources, within

__all__ = [
    "BUDGETS",
    "EVALUATIONS",
    "GB",
    "MB",
    "METHODS",
    "RATES",
    "SIZES",
    "TUNED_ON",
    "Choice",
    "Method",
    "Problem",
    "add_methods",
    "attacks",
    "averaged",
    "choose",
    "chosen_rates",
    "curves",
    "evaluation",
    "images_seen",
    "load_of",
    "overview",
    "resources",
    "within",
]
