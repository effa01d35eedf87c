from collections import Counter

from fssl_core.claims.judge import all_verdicts
from tests.notebooks.prose.recorded import verdict


def numbers():
    """The module's sentences on verdicts have no decimals: what they say is asserted here."""
    real = Counter(one.ours for one in all_verdicts(profile="workstation") if one.evidence == "trained")
    decided = real["reproduced"] + real["contradicted"]
    assert round(10 * decided / (decided + real["inconclusive"])) == 3, "three in ten of those that were run"
    text, code = (verdict("ldawa-table3-ldawa-wins", reading) for reading in ("the paper", "the authors"))
    assert (text.ours, text.seeds, code.ours, code.seeds) == ("contradicted", 3, "inconclusive", 3)
    for reading, ours in (("the paper", text.ours), ("the authors", code.ours)):
        on_images = verdict("ldawa-table3-ldawa-wins", reading, "workstation")
        assert (on_images.ours, on_images.seeds) == (ours, 5)
    together, apart = (verdict("mfcl-table17-group-size", f"views normalised {how}") for how in ("together", "apart"))
    assert (together.ours, together.seeds, together.estimate < -20) == ("contradicted", 3, True)
    assert (apart.ours, apart.reason) == ("inconclusive", "both answers are possible")
    return {}
