"""The threat model as a reader sees it."""

import dataclasses

from fssl_core.privacy.threat import MODEL_INVERSION


def test_every_assumption_is_shown_in_full_and_escaped():
    threat = dataclasses.replace(MODEL_INVERSION, has="5 < 6 & " + 100 * "long ", cannot="see <labels>")
    shown = threat.table()["assumption"].tolist()
    assert shown == [getattr(threat, field.name) for field in dataclasses.fields(threat)[1:]]
    page = threat._repr_html_()
    assert "5 &lt; 6 &amp; " + 100 * "long " in page
    assert "<labels>" not in page
    assert page.count("<tr>") == 6
