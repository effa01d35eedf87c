"""Who attacks, with what, for what: an attack's figures mean nothing without it."""

import html
from dataclasses import dataclass, replace
from itertools import product

import pandas as pd

from fssl_core.settings import check_choice


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

ACTIVATION_MATCHING = replace(
    MODEL_INVERSION,
    name="Activation matching",
    has="the client's model, which every synchronisation passes through its hands; no image",
    wants="the images: it searches pixels of which the client's model makes these activations",
    source="He et al., ACSAC 2019, white-box attack; on the server of MonAcoSFL, Section 5.3",
)

SURROGATES = {
    "random": "random values, which stay as they are",
    "fitted": "random values to begin with, which are fitted together with the images",
}


def matching_without_model(surrogate: str = "random") -> ThreatModel:
    """Activation matching by one who knows only how the client's model is built: MFCL's rServer.

    Args:
        surrogate: what stands for the client's model, a key of ``SURROGATES``.

    Raises:
        SettingError: there is no such surrogate.
    """
    check_choice("surrogate", surrogate, SURROGATES)
    return replace(
        ACTIVATION_MATCHING,
        name="Activation matching without the model",
        attacker="the rServer, honest but curious: it follows the protocol and keeps what it receives",
        has=f"the architecture of the client's model, with {SURROGATES[surrogate]}; no image",
        wants="the images: it searches pixels of which its own model makes these activations",
        source="MFCL, Section 5.6.2, servers that do not collude",
    )


@dataclass(frozen=True, kw_only=True)
class ReconstructionThreat(ThreatModel):
    """An attacker at MFCL's rServer; :func:`two_servers` makes one of each case.

    Args:
        collusion: the gServer tells the rServer what it knows.
        datamix: clients send mixtures.
        knows_module: the attacker has the client module; else it has to do with a surrogate.
        knows_gradient: it has the gradient that a single client sent in phase 1.
    """

    collusion: bool
    datamix: bool
    knows_module: bool
    knows_gradient: bool

    @property
    def case(self) -> str:
        """As the columns of Table 8 are called, e.g. ``"C1D0"``."""
        return f"C{self.collusion:d}D{self.datamix:d}"


def two_servers(
    *, collusion: bool, datamix: bool, secure_aggregation: bool = False, surrogate: str = "random", unmix: bool = False
) -> ReconstructionThreat:
    """A case of MFCL, Section 5.6.2.

    The paper says of C1 that the gServer passes on "averaged gradients", and of C0 that decoding starts from noise in
    their place. Here C1 means the client module and its decoder, which are what all averaged gradients have led to,
    and without secure aggregation also the gradient of a single client. The attack is given the latter at its best:
    the gradient is of the attacked views and of no others. A client's batch in phase 1 has more images, and other
    views of them.

    Args:
        collusion: C, the two servers share what they know.
        datamix: D, clients send mixtures of representations.
        secure_aggregation: the gServer itself has no single client's gradient.
        surrogate: what stands for the client module where it is not known, a key of ``SURROGATES``.
        unmix: where clients mix, the attacker makes use of the zeros behind a ReLU, see
            :mod:`fssl_core.privacy.unmixing`. The paper's attacker does not.

    Raises:
        SettingError: there is no such surrogate.
    """
    without = matching_without_model(surrogate)
    gradient = collusion and not secure_aggregation
    mixtures = "mixtures of the representations of a batch's views" if datamix else "representations of both views"
    secret = "who is mixed with whom and how much"
    if unmix:
        hidden = [f"{secret}, but finds it out: maps are zero where all that is in them is"]
    else:
        hidden = [f"{secret}, and takes a mixture for a representation"] if datamix else []
    hidden += [] if gradient else ["the gradient of any single client"]
    return ReconstructionThreat(
        name=f"Reconstruction, case C{collusion:d}D{datamix:d}",
        attacker=without.attacker + (". The gServer tells it what it knows" if collusion else ""),
        sees=f"{mixtures} of a client's images"
        + (", and the gradient of phase 1's loss for these views" if gradient else ""),
        has="the client module and its decoder, as phase 1 left them; no image" if collusion else without.has,
        wants="the views, by searching pixels that give the same; from the mean of an image's two views the image",
        cannot="; ".join(["know how images were augmented", *(f"know {what}" for what in hidden)]),
        source="MFCL, Section 5.6.2 and Table 8, which has pictures and no attack's name; the search is our choice",
        collusion=collusion,
        datamix=datamix,
        knows_module=collusion,
        knows_gradient=gradient,
    )


CASES = {
    threat.case: threat
    for threat in (two_servers(collusion=c, datamix=d) for c, d in product((True, False), (False, True)))
}
"""The columns of Table 8 in its order, without secure aggregation."""
