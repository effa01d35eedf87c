"""Modules by paper with a predicate per claim; importing this package registers them all."""

from fssl_core.reporting.predicates import mocosfl, monacosfl, monacosfl_attack

__all__ = ["mocosfl", "monacosfl", "monacosfl_attack"]
