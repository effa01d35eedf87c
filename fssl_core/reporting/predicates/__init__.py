"""Modules by paper with a predicate per claim; importing this package registers them all."""

from fssl_core.reporting.predicates import (
    ldawa,
    ldawa_figures,
    lwfedssl,
    lwfedssl_accuracy,
    lwfedssl_figures,
    mfcl,
    mfcl_accuracy,
    mfcl_figures,
    mocosfl,
    monacosfl,
    monacosfl_attack,
)

__all__ = [
    "ldawa",
    "ldawa_figures",
    "lwfedssl",
    "lwfedssl_accuracy",
    "lwfedssl_figures",
    "mfcl",
    "mfcl_accuracy",
    "mfcl_figures",
    "mocosfl",
    "monacosfl",
    "monacosfl_attack",
]
