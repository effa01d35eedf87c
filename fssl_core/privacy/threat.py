"""Who attacks, with what, for what: an attack's figures mean nothing without it."""

import html
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """Assumptions of an attack, in words.

    Args:
        name: of the attack.
        attacker: who it is.
        sees: what passes through its hands while it attacks.
        has: what it brought along.
        wants: what it tries to find out, and of whom.
        cannot: what is out of its reach.
        source: paper and section.
    """

    name: str
    attacker: str
    sees: str
    has: str
    wants: str
    cannot: str
    source: str

    def table(self) -> pd.DataFrame:
        """Two columns, a row for each assumption."""
        rows = {
            "The attacker is": self.attacker,
            "It sees": self.sees,
            "It has": self.has,
            "It wants": self.wants,
            "It cannot": self.cannot,
            "Source": self.source,
        }
        return pd.DataFrame({self.name: rows.keys(), "assumption": rows.values()})

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(question)}</th>'
            f'<td style="text-align:left">{html.escape(answer)}</td></tr>'
            for question, answer in self.table().itertuples(index=False)
        )
        return f"<table><caption>{html.escape(self.name)}</caption>{rows}</table>"


MODEL_INVERSION = ThreatModel(
    name="Model inversion",
    attacker="the server, honest but curious: it follows the protocol and keeps what it receives",
    sees="the activations that a client sends of images which the attacker has never seen, here test images",
    has="the client's model, which every synchronisation passes through its hands, and 1 % of the training images",
    wants="the images: a decoder, trained on its own ones, turns activations back into pixels",
    cannot="change what clients compute, or look at their images, labels or augmentations",
    source="MonAcoSFL, Section 5.3; 1 % as stated there",
)
