"""Claims of MFCL (Motamedi and Kim, TMLR) that closed forms and identities decide: no result of ours is needed.

Each rule restates the ``check`` text of its claim in ``mfcl_claims.yaml`` and is judged at every profile. Traffic is
counted by Equations 4 and 5 with the stated sizes, memory by Equation 6 as it reproduces the cells
(:mod:`fssl_core.costs.modular_cells`); what the same rule finds in the printed cells of Table 3 stands beside it. The
column beta follows from no rule, so its ratios are the printed ones, and our count of a local epoch decides orders
alone.

What notebooks provide, for all claims of the paper (rows may have more columns):

mfcl.py            nothing; one row of anything
mfcl_accuracy.py   method, dataset, xi, accuracy and of seed, clients, architecture, cut, K, channels_per_group,
                   secure_aggregation, datamix, those that a table varies
mfcl_figures.py    what stands above each group of claims there
"""

from collections.abc import Callable
from functools import cache, partial

import pandas as pd
import torch
import torch.nn.functional as F

from fssl_core.costs.modular import SETUPS, client_sizes, client_traffic, epoch_macs
from fssl_core.costs.modular_cells import ALPHA, BETA, GAMMA, resource_table, two_digits
from fssl_core.models.twin_norm import TwinNorm
from fssl_core.random import generator
from fssl_core.reporting.predicate import Outcome, listed, predicate, stated
from fssl_core.reporting.reference import paper_table, paper_value

MODULAR, SIMCLR, EMA = "MFCL", "FedSimCLR", "FedEMA"
BACKBONES = ("ResNet-18", "ResNet-50")  # of Table 3
PARAMETERS = {  # of the client module and of the auto-encoder, mfcl-table9-10-modules
    "ResNet-18": (38_976, 77_853),
    "ResNet-50": (260_928, 521_565),
}

Quantity = Callable[[str, str], float]  # of a method and a backbone


printed_cell = partial(paper_value, "mfcl")


def _printed(metric: str) -> Quantity:
    return lambda method, architecture: printed_cell("table3", metric, method, architecture=architecture)


@cache
def counted_cells() -> pd.DataFrame:
    """Tables 3 and 15, ours beside the printed cells."""
    return resource_table(pd.concat([paper_table("mfcl", "table3"), paper_table("mfcl", "table15")]))


def _beside(ours: Outcome, printed: Outcome) -> Outcome:
    """The verdict on ours, with what the printed cells say."""
    return ours[0], f"{ours[1]}; {stated('printed', printed)}"


# --------------------------------------------------------------------------------------------------- table3: resources


def _alpha(method: str, architecture: str) -> float:
    return client_traffic(method, architecture).alpha_bits


@predicate("mfcl-table3-alpha-vs-fedsimclr")
def traffic_against_simclr(_: pd.DataFrame) -> tuple[bool, str]:
    def rule(alpha: Quantity) -> tuple[bool, str]:
        ratios = {name: alpha(MODULAR, name) / alpha(SIMCLR, name) for name in BACKBONES}
        holds = round(ratios["ResNet-18"], 3) == 0.147 and round(ratios["ResNet-50"], 3) == 0.014
        return holds, f"alpha {listed(ratios, '.3f')} of {SIMCLR}'s"

    return _beside(rule(_alpha), rule(_printed(ALPHA)))


@predicate("mfcl-table3-alpha-vs-fedema")
def traffic_against_ema(_: pd.DataFrame) -> tuple[bool, str]:
    def rule(alpha: Quantity) -> tuple[bool, str]:
        ratios = {name: alpha(EMA, name) / alpha(MODULAR, name) for name in BACKBONES}
        holds = ratios["ResNet-18"] < 1 < ratios["ResNet-50"]
        return holds, f"{EMA}'s alpha {listed(ratios, '.2f')} of {MODULAR}'s"

    return _beside(rule(_alpha), rule(_printed(ALPHA)))


@predicate("mfcl-table3-frequency")
def frequency(_: pd.DataFrame) -> tuple[bool, str]:
    exchanges = {method: client_traffic(method, "ResNet-18").exchanges for method in (MODULAR, EMA, SIMCLR)}
    rounds = {method: printed_cell("table3", "fl_rounds", method, architecture="ResNet-18") for method in (EMA, SIMCLR)}
    ratios = {method: exchanges[method] / exchanges[MODULAR] for method in rounds}
    same = all(exchanges[method] == printed for method, printed in rounds.items())
    holds = same and exchanges[MODULAR] == 16 and (ratios[EMA], ratios[SIMCLR]) == (6.25, 50)
    return holds, f"{exchanges[MODULAR]} exchanges; {listed(ratios, 'g')} times as many"


@predicate("mfcl-table3-memory-compute")
def memory_and_compute(_: pd.DataFrame) -> tuple[bool, str]:
    """Two-digit cells leave room in a ratio: that of ours may lie anywhere in it. Order of beta by our count."""
    gamma, beta = _printed(GAMMA), _printed(BETA)
    cells = counted_cells().query("metric == @GAMMA").drop_duplicates(["architecture", "method"])
    ours = cells.set_index(["method", "architecture"])["ours"]
    ratios = {name: ours[MODULAR, name] / ours[SIMCLR, name] for name in BACKBONES}
    printed = {name: gamma(MODULAR, name) / gamma(SIMCLR, name) for name in BACKBONES}
    betas = {name: beta(MODULAR, name) / beta(SIMCLR, name) for name in BACKBONES}
    holds = (round(printed["ResNet-18"], 3), round(printed["ResNet-50"], 3)) == (0.035, 0.037)
    holds = holds and max(betas.values()) < 0.004
    epochs = {}
    for name in BACKBONES:
        low, high = _room(gamma(MODULAR, name), gamma(SIMCLR, name))
        order = [epoch_macs(method, name) for method in (EMA, SIMCLR, MODULAR)]
        holds &= low <= ratios[name] <= high and ours[EMA, name] > ours[SIMCLR, name]
        holds &= gamma(EMA, name) > gamma(SIMCLR, name) and beta(EMA, name) > beta(SIMCLR, name)
        holds &= order[0] > order[1] > order[2]
        epochs[name] = order[2] / order[1]
    value = f"gamma {listed(ratios, '.4f')} of {SIMCLR}'s; our count of a local epoch {listed(epochs, '.2f')}"
    return bool(holds), f"{value}; printed: gamma {listed(printed, '.4f')}, beta {listed(betas, '.4f')}"


def _room(numerator: float, denominator: float) -> tuple[float, float]:
    """Bounds of a ratio whose two numbers are known to two digits."""
    halves = [0.05 * 10 ** int(f"{number:e}"[-3:]) for number in (numerator, denominator)]
    return (numerator - halves[0]) / (denominator + halves[1]), (numerator + halves[0]) / (denominator - halves[1])


@predicate("mfcl-alpha-linear-in-data")
def linear_in_data(_: pd.DataFrame) -> tuple[bool, str]:
    holds, shown = True, {}
    for name in BACKBONES:
        images = SETUPS[name].images
        bits = {factor * images: client_traffic(MODULAR, name, images=factor * images).bits_phase2 for factor in (1, 2)}
        holds &= bits[2 * images] == 2 * bits[images]
        shown |= {f"{name}, {count} images": value for count, value in bits.items()}
    return holds, f"alpha_2 in bits: {listed(shown, '.3g')}"


@cache
def same_client_costs() -> bool:
    """Table 15: a client of MFCL costs with VGG-16-BN what it costs with ResNet-18, counted and printed."""
    first, second = "ResNet-18", "VGG-16-BN"
    counted = client_traffic(MODULAR, first) == client_traffic(MODULAR, second)
    counted = counted and client_sizes(first) == client_sizes(second)
    counted = counted and epoch_macs(MODULAR, first) == epoch_macs(MODULAR, second)
    cells = [
        (
            printed_cell("table3", metric, MODULAR, architecture=first),
            printed_cell("table15", metric, MODULAR, architecture=second),
        )
        for metric in (ALPHA, BETA, GAMMA)
    ]
    return counted and all(three == fifteen for three, fifteen in cells)


def vgg_traffic() -> tuple[bool, float]:
    """Table 15: alpha of FedSimCLR with VGG-16-BN in bits, and whether it is the stated one."""
    alpha = _alpha(SIMCLR, "VGG-16-BN")
    printed = printed_cell("table15", ALPHA, SIMCLR, architecture="VGG-16-BN")
    return two_digits(alpha) == two_digits(2 * 138.36e6 * 32 * 3 * 800) == two_digits(printed), alpha


# -------------------------------------------------------------------------------------------- architecture: the modules


@predicate("mfcl-table9-10-modules")
def module_sizes(_: pd.DataFrame) -> tuple[bool, str]:
    ours = {
        name: tuple(client_sizes(name, with_decoder=both).parameters for both in (False, True)) for name in PARAMETERS
    }
    return ours == PARAMETERS, "; ".join(f"{name}: {alone:,} and {both:,}" for name, (alone, both) in ours.items())


@predicate("mfcl-table18-code-vs-equation")
def code_against_equation(_: pd.DataFrame) -> tuple[bool, str]:
    """On random maps in double precision; a group's moments are over its channels and all positions."""
    maps = _random_maps()
    views = maps.unflatten(0, (2, -1)).unflatten(2, (2, -1))  # [2, K, G, Lambda, H, W]
    variances, means = torch.var_mean(views, dim=(3, 4, 5), correction=0)  # [2, K, G]
    equation = views.var(dim=(0, 3, 4, 5), correction=0)  # [K, G]
    listing = variances.mean(0)
    error = (equation - listing - ((means[0] - means[1]) / 2) ** 2).abs().max().item()
    apart = (equation - listing).abs().max().item()
    return error <= 1e-12 < apart, f"largest difference {error:.0e}; the variances are up to {apart:.2g} apart"


def _random_maps() -> torch.Tensor:
    """Of 3 images, the second views brighter than the first: ``[6, 8, 5, 4]``."""
    maps = torch.randn(6, 8, 5, 4, generator=generator(0, "twin norm"), dtype=torch.float64)
    return torch.cat([maps[:3], 2 * maps[3:] + 1])


# ------------------------------------------------------------------------------------------------- fig3: normalisations


@predicate("mfcl-gn-with-one-channel")
def one_channel_per_group(_: pd.DataFrame) -> tuple[bool, str]:
    """In double precision; TN is the layer that is trained."""
    maps = _random_maps()
    channels = maps.shape[1]
    group, instance = F.group_norm(maps, channels), F.instance_norm(maps)
    twin = TwinNorm(channels, channels_per_group=1).double()(maps)
    same, apart = (group - instance).abs().max().item(), (twin - instance).abs().max().item()
    return same <= 1e-12 and apart > 0.1, f"GN differs from instance norm by {same:.0e}, TN by up to {apart:.2g}"
