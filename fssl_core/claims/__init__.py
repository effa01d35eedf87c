"""Verdicts on the papers' claims: what was tested, how sure we are, and what the paper's own numbers say."""
