"""The resource cells of MFCL's Tables 3 and 15, each beside the formulas that reproduce it, or do not.

Motamedi and Kim, TMLR, Section 5.4. The formulas stand in :mod:`fssl_core.costs.modular`, with the symbols ``E``, ``A``
and ``P`` for the parameters of the client module, of the auto-encoder and of a whole backbone. What no formula gives is
here too, with the nearest that was found or with what the text says, so that a reader sees how far off it is.
"""

from functools import partial

import pandas as pd

from fssl_core.costs.modular import (
    CLIENT_BATCH,
    Traffic,
    backbone_sizes,
    client_sizes,
    client_traffic,
    delivery_bits,
    memory_bytes,
    representation_values,
    round_bits,
)

BITS_1, VALUES, BITS_2 = "bits_per_round_phase1", "representation_size", "bits_phase2"
ALPHA, BETA, GAMMA = "alpha_communication", "beta_compute", "gamma_memory"
CELL = ["table", "architecture", "method", "metric"]

Row = tuple[int, str, str, str, str, float]


def resource_table(printed: pd.DataFrame) -> pd.DataFrame:
    """Each resource cell of Tables 3 and 15 beside the formula that comes nearest, and others that suggest themselves.

    Args:
        printed: the cells of both tables, with the columns table, architecture, method, metric and value, as
            :func:`~fssl_core.papers.reference.paper_table` gives them.

    Returns:
        A row for each cell and formula, with the columns table, architecture, method, metric, formula, ours, printed,
        residual (ours / printed - 1, a fraction) and reproduced: whether ours rounds to the two printed digits.
    """
    rows = [*_end_to_end("ResNet-18"), *_modular_18(), *_compute_18()]
    rows += [*_end_to_end("ResNet-50"), *_modular_50(), *_compute_50(), *_vgg()]
    table = pd.DataFrame(rows, columns=[*CELL, "formula", "ours"])
    cells = printed[[*CELL, "value"]].rename(columns={"value": "printed"})
    table = table.merge(cells[cells["metric"].isin(table["metric"])], how="left", on=CELL, validate="many_to_one")
    table["residual"] = table["ours"] / table["printed"] - 1
    table["reproduced"] = table["ours"].map(two_digits) == table["printed"].map(two_digits)
    return table


def two_digits(value: float) -> str:
    """A number to the digits that the tables print, ``"2.1e+09"``."""
    return f"{value:.1e}"


_gamma = partial(memory_bytes, views=2 * CLIENT_BATCH, bytes_per_value=1, relu=True)  # of an end-to-end method


def _end_to_end(name: str) -> list[Row]:
    ema, simclr = client_traffic("FedEMA", name), client_traffic("FedSimCLR", name)
    return [
        (3, name, "FedEMA", BITS_1, "2 P * 32 * 3", ema.bits_per_round),
        (3, name, "FedSimCLR", BITS_1, "2 P * 32 * 3", simclr.bits_per_round),
        (3, name, "FedEMA", ALPHA, "2 P * 32 * 3 * 100", ema.alpha_bits),
        (3, name, "FedSimCLR", ALPHA, "2 P * 32 * 3 * 800", simclr.alpha_bits),
    ]


def _modular_18() -> list[Row]:
    name, method = "ResNet-18", "MFCL"
    alone, both = (client_sizes(name, with_decoder=both).parameters for both in (False, True))
    traffic = client_traffic(method, name)
    literal = client_traffic(method, name, coding="literal")
    one_way = Traffic(round_bits(both, alone), traffic.rounds, traffic.representation_values, traffic.bits_phase2)
    return [
        (3, name, method, BITS_1, "2 A * 32 * 3", traffic.bits_per_round),
        (3, name, method, BITS_1, "(A + E) * 32 * 3: the decoder one way", one_way.bits_per_round),
        (3, name, method, BITS_1, "2 A * 32 / 3: Eq. 4 literally", literal.bits_per_round),
        (3, name, method, VALUES, "32 * 32 * 64 * 5000 * 8", traffic.representation_values),
        (3, name, method, BITS_2, "32 * 32 * 64 * 5000 * 8 * 32 * 3", traffic.bits_phase2),
        (3, name, method, BITS_2, "32 * 32 * 64 * 5000 * 8 * 32 / 3: Eq. 5 literally", literal.bits_phase2),
        (3, name, method, ALPHA, "(A + E) * 32 * 3 * 15 + bits of phase 2", one_way.alpha_bits),
    ]


def _compute_18() -> list[Row]:
    """Ten steps of 1024 views are a local epoch of 5000 images in batches of 512; none of these is stated."""
    name = "ResNet-18"
    whole, client = backbone_sizes(name), client_sizes(name)
    gamma = _gamma(whole)
    return [
        (3, name, "FedSimCLR", GAMMA, "(2 P + conv and ReLU maps) * 128", gamma),
        (3, name, "FedEMA", GAMMA, "2 * (2 P + conv and ReLU maps) * 128", 2 * gamma),
        (3, name, "MFCL", GAMMA, "(2 E + conv maps) * 128 * 4", memory_bytes(client)),
        (3, name, "FedSimCLR", BETA, "6 * forward FLOPs * 10 * 1024", 6 * 2 * whole.products * 10 * 1024),
        (3, name, "MFCL", BETA, "forward MACs of the client module * 10 * 128", client.products * 10 * 128),
    ]


def _modular_50() -> list[Row]:
    name, method = "ResNet-50", "MFCL"
    alone, both = (client_sizes(name, with_decoder=both).parameters for both in (False, True))
    traffic = client_traffic(method, name)
    printed_size = representation_values(32, 32, 128, 5000)
    pooled = {images: delivery_bits(representation_values(32, 32, 128, images)) for images in (500, 1000)}
    return [
        (3, name, method, BITS_1, "2 A * 32 * 3", traffic.bits_per_round),
        (3, name, method, BITS_1, "(A + E) * 32 * 3: the decoder one way", round_bits(both, alone)),
        (3, name, method, VALUES, "64 * 64 * 128 * 1000 * 8: as stated", traffic.representation_values),
        (3, name, method, VALUES, "32 * 32 * 128 * 5000 * 8", printed_size),
        (3, name, method, BITS_2, "32 * 32 * 128 * 5000 * 8 * 32 * 3", delivery_bits(printed_size)),
        (3, name, method, BITS_2, "32 * 32 * 128 * 500 * 8 * 32 * 3", pooled[500]),
        (3, name, method, BITS_2, "32 * 32 * 128 * 1000 * 8 * 32 * 3", pooled[1000]),
    ]


def _compute_50() -> list[Row]:
    name = "ResNet-50"
    gamma = _gamma(backbone_sizes(name, stem="imagenet"))
    client, whole = client_sizes(name, 32), backbone_sizes(name)
    return [
        (3, name, "FedSimCLR", GAMMA, "(2 P + conv and ReLU maps, ImageNet stem) * 128", gamma),
        (3, name, "FedEMA", GAMMA, "2 * (2 P + conv and ReLU maps, ImageNet stem) * 128", 2 * gamma),
        (3, name, "MFCL", GAMMA, "(2 E + conv maps at 32 pixels) * 64 * 4", memory_bytes(client, CLIENT_BATCH)),
        (3, name, "MFCL", GAMMA, "(2 E + conv maps at 32 pixels) * 128 * 4", memory_bytes(client)),
        (3, name, "FedSimCLR", BETA, "6 * forward FLOPs * 2 * 1024", 6 * 2 * whole.products * 2 * 1024),
        (3, name, "MFCL", BETA, "forward FLOPs at 32 pixels * 10 * 128", 2 * client.products * 10 * 128),
    ]


def _vgg() -> list[Row]:
    name, method = "VGG-16-BN", "FedSimCLR"
    whole = backbone_sizes(name, 224)
    ratio = whole.parameters / backbone_sizes("ResNet-18").parameters
    return [
        (15, name, method, ALPHA, "2 P * 32 * 3 * 800", client_traffic(method, name).alpha_bits),
        (15, name, method, GAMMA, "(2 P + conv and ReLU maps at 224 pixels) * 128", _gamma(whole)),
        (15, name, method, BETA, "6 * forward FLOPs at 224 pixels * 10 * 1024", 6 * 2 * whole.products * 10 * 1024),
        (15, name, method, BETA, "6.9e13 * P of VGG-16-BN / P of ResNet-18", 69e12 * ratio),
    ]
