"""Aggregation rules: how the server makes one model of the clients' models.

Rehman et al., "L-DAWA: Layer-wise Divergence Aware Weight Aggregation in Federated Self-Supervised Visual
Representation Learning", ICCV 2023, Section 3. A rule is a table of weights ``beta[client, layer]``; the new global
model is, layer by layer, ``w_g = sum_k beta[k, layer] * w_k`` (Eq. 1). These rules differ in nothing else:

==================  ===========================================================  ========================
rule                ``beta[k, l]``, with n images, loss L, cosine d (Eq. 2)      source
==================  ===========================================================  ========================
fedavg              ``n_k / sum n``                                              McMahan et al., 2017
uniform             ``1 / K``                                                    the middle between both
loss                ``exp(-L_k) / sum exp(-L)``                                  Gao et al., 2022
m-dawa              ``d_k / K``, cosine of the whole model                       Eq. 3
l-dawa              ``d_k^l / K``                                                Eq. 4
l-dawa-fedavg       ``d_k^l n_k / sum n``                                        Eq. 5
l-dawa-loss         ``d_k^l exp(-L_k) / sum exp(-L)``                            Eq. 6
l-dawa-normalised   ``d_k^l / sum_k d_k^l``: l-dawa that shrinks no layer        ours, for comparison
l-dawa-shrinking    ``mean_k(d_k^l) / K``: l-dawa that prefers no client         ours, for comparison
l-dawa-parameters   ``d_k^l / K``, of batch norm's running statistics ``1 / K``  ours, for comparison
l-dawa-statistics   ``1 / K``, of batch norm's running statistics ``d_k^l / K``  ours, for comparison
==================  ===========================================================  ========================

A new rule is a function from :class:`Round` to such a table, and a line in :data:`RULES`.

Robust rules assume that up to f of the K clients may send anything at all (:attr:`Round.faulty`). They ignore numbers
of images and losses, which a client could invent. Two are tables of weights (:data:`ROBUST_RULES`); two look at one
number of the model at a time, in all clients' rows (:data:`COORDINATE_RULES`):

==================  ===========================================================  ========================
rule                new global model                                             source
==================  ===========================================================  ========================
krum                the model nearest to its K - f - 2 nearest others, by the    Blanchard et al., 2017
                    sum of squared distances; ``2 f + 2 < K``
multi-krum          mean of the K - f models with the least such sums            likewise; K - f: ours
median              median of each number; faults are less than half of K        Yin et al., 2018, Def. 1
trimmed-mean        mean of each number, without its f least and its f           Yin et al., 2018, Def. 2
                    greatest values; ``2 f < K``
==================  ===========================================================  ========================

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries: Byzantine tolerant gradient descent",
NeurIPS 2017; Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
rates", ICML 2018. Both aggregate gradients, and prove that the result stays near the honest ones where honest clients
draw from one distribution, which clients of a non-IID federation do not. Here the rules aggregate models: all clients
start from one, so distances and orders are those of their updates. Krum's distance is that of parameters; batch norm's
running statistics, in other units, go with the model that is chosen.

Cosines are at most 1, so the weights of L-DAWA add up to less than one, and a layer that moves loses norm in every
round: ``l-dawa-normalised`` and ``l-dawa-shrinking`` take the two effects of the cosine apart, ``l-dawa-parameters``
and ``l-dawa-statistics`` what it multiplies.

As in the authors' code: every tensor of the state is a layer, batch norm's scales, shifts and running statistics among
them (``layers="tensor"``; with ``"module"`` the tensors of a module are one layer); a negative cosine stays; where a
layer is zero, its cosine is 1. So is that of a single number, such as batch norm's count of batches.

Differs from the paper: the cosine of the whole model is put together from products of layers,
``w_g . w_k = sum_l w_g^l . w_k^l``. The paper computes it on the whole model at once and finds it 60 times slower.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.settings import check_choice, is_own

LAYERS = ("tensor", "module")
PIECE = 2**18  # numbers that are summed in the models' precision; float32 sums of millions are wrong by 1e-4


class Layers:
    """Which tensors of a model's state make a layer.

    Args:
        matrix: any matrix of the model.
        kind: ``"tensor"``: each a layer of its own; ``"module"``: those of one module together.

    Attributes:
        names: of the layers, in the order of the state: that of the tensor, or of the module.
        of: for each tensor of the state, in order, the number of its layer.
    """

    def __init__(self, matrix: ClientMatrix, kind: str = "tensor") -> None:
        check_choice("layers", kind, LAYERS)
        owners = [name if kind == "tensor" else name.rpartition(".")[0] for name in matrix.blocks]
        self.names = list(dict.fromkeys(owners))
        self.of = [self.names.index(owner) for owner in owners]

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the tensors of each layer: ``[..., tensors]`` to ``[..., len(self)]``."""
        members = torch.nn.functional.one_hot(torch.tensor(self.of), len(self))  # [tensors, layers]
        return values @ members.to(values)  # a product repeats bit by bit on a GPU, which an index_add does not


@dataclass(frozen=True, eq=False)
class Round:
    """What the server knows when the clients of a round have answered. K clients, L layers.

    Args:
        previous: the global model that they started from, a matrix of one row.
        received: their models, a row each.
        images: how many each trained on, ``[K]``.
        losses: mean training loss of each in its last local epoch, ``[K]``.
        layers: of the models.
        faulty: f, how many of these clients a robust rule assumes to be faulty.
    """

    previous: ClientMatrix
    received: ClientMatrix
    images: Tensor
    losses: Tensor
    layers: Layers = field(repr=False)
    faulty: int = 0

    def __post_init__(self) -> None:
        clients = self.received.clients
        for name in ("images", "losses"):
            values = getattr(self, name)
            if not isinstance(values, Tensor) or values.shape != (clients,):
                shown = list(values.shape) if isinstance(values, Tensor) else values
                raise SettingError(name, shown, f"a tensor with one number for each of {clients} clients")
        if not (self.images > 0).all():
            raise SettingError("images", self.images.tolist(), "at least one image on each client")
        if not self.losses.isfinite().all():
            raise SettingError("losses", self.losses.tolist(), "finite losses")

    @property
    def clients(self) -> int:
        return self.received.clients

    @cached_property
    def products(self) -> Tensor:
        """``w_g . w_k`` by client and tensor, ``[K, tensors]`` float64. A single number counts as nothing."""
        return _by_tensor(self.received, self.previous, torch.mv)

    @cached_property
    def norms(self) -> Tensor:
        """``|w_k|`` by client and tensor, ``[K, tensors]`` float64."""
        return _by_tensor(self.received, self.previous, lambda rows, _: _squares(rows)).sqrt()

    @cached_property
    def previous_norms(self) -> Tensor:
        """``|w_g|`` by tensor, ``[1, tensors]`` float64."""
        return _by_tensor(self.previous, self.previous, lambda rows, _: _squares(rows)).sqrt()

    @cached_property
    def trained(self) -> Tensor:
        """Which layers hold a parameter, bool ``[L]``; the others are running statistics."""
        blocks = self.previous.blocks
        return self.layers.sums(torch.tensor([float(name in self.previous.parameter_blocks) for name in blocks])) > 0

    @cached_property
    def cosines(self) -> Tensor:
        """Eq. 2 of each layer, ``[K, L]`` in [-1, 1]."""
        sums = self.layers.sums
        return _cosine(sums(self.products), sums(self.norms.square()), sums(self.previous_norms.square()))

    @cached_property
    def model_cosines(self) -> Tensor:
        """Eq. 2 of the whole model, ``[K, 1]``: the sum of the layers' cosines, each weighted by its norms."""
        return _cosine(*(x.sum(-1, keepdim=True) for x in (self.products, self.norms**2, self.previous_norms**2)))

    @cached_property
    def distances(self) -> Tensor:
        """Mean squared difference of a client's layer and the global one, ``[K, L]`` float64."""
        # Not from norms and products: of layers that moved little, nothing would be left of their difference.
        squares = _by_tensor(self.received, self.previous, lambda rows, row: _squares(rows - row))
        numbers = torch.tensor([block[0].numel() for block in self.previous.blocks.values()]).to(squares)
        return self.layers.sums(squares) / self.layers.sums(numbers)

    @cached_property
    def gaps(self) -> Tensor:
        """Squared distances between the clients' parameters, ``[K, K]`` float64."""
        products = self.previous.weights.new_zeros(self.clients, self.clients, dtype=torch.float64)
        for name, block in self.received.parameter_blocks.items():
            # Updates and float64: of norms and products of whole models little would be left of a difference.
            rows, row = block.reshape(self.clients, -1), self.previous.blocks[name].reshape(-1)
            size = max(1, PIECE // self.clients)
            for piece, start in zip(rows.split(size, dim=1), row.split(size), strict=True):
                updates = piece.double() - start.double()
                products.addmm_(updates, updates.T)
        squares = products.diagonal()
        return (squares[:, None] + squares - 2 * products).clamp(min=0)


def _by_tensor(matrix: ClientMatrix, other: ClientMatrix, value: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The sum over pieces of ``value(rows [clients, piece], row [piece])`` by tensor, ``[clients, tensors]`` float64.

    ``rows`` are those of ``matrix``, ``row`` that of ``other``.
    """
    zeros = matrix.weights.new_zeros(matrix.clients, dtype=torch.float64)
    columns = []
    for name, block in matrix.blocks.items():
        if block.dim() > 1:
            rows, row = block.reshape(matrix.clients, -1), other.blocks[name].reshape(-1)
            pieces = zip(rows.split(PIECE, dim=1), row.split(PIECE), strict=True)
            columns.append(torch.stack([value(*piece).double() for piece in pieces]).sum(0))
        else:
            columns.append(zeros)
    return torch.stack(columns, dim=1)


def _squares(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).double().square()


def _cosine(products: Tensor, squares: Tensor, previous_squares: Tensor) -> Tensor:
    lengths = (squares * previous_squares).sqrt()
    return torch.where(lengths > 0, products / lengths, 1).clamp(-1, 1)


# ---------------------------------------------------------------- the rules
# Each gives the weights of clients and layers, [K, L], or [K, 1] where they are those of all layers.

SHARES: dict[str, Callable[[Tensor], Tensor]] = {  # of rules that only look at numbers of images ``[K]``
    "fedavg": lambda images: images.double() / images.sum(),
    "uniform": lambda images: torch.full((len(images),), 1 / len(images), dtype=torch.float64),
}


def fedavg(r: Round) -> Tensor:
    return SHARES["fedavg"](r.images)[:, None]


def uniform(r: Round) -> Tensor:
    return SHARES["uniform"](r.images)[:, None]


def loss(r: Round) -> Tensor:
    return torch.softmax(-r.losses.double(), 0)[:, None]


def m_dawa(r: Round) -> Tensor:
    return r.model_cosines / r.clients


def l_dawa(r: Round) -> Tensor:
    return r.cosines / r.clients


def l_dawa_fedavg(r: Round) -> Tensor:
    return r.cosines * fedavg(r).to(r.cosines)


def l_dawa_loss(r: Round) -> Tensor:
    return r.cosines * loss(r).to(r.cosines)


def l_dawa_normalised(r: Round) -> Tensor:
    # Where cosines add up to nearly nothing the weights explode; in the runs recorded here they never do.
    return r.cosines / r.cosines.sum(0)


def l_dawa_shrinking(r: Round) -> Tensor:
    return r.cosines.mean(0).expand_as(r.cosines) / r.clients


def l_dawa_parameters(r: Round) -> Tensor:
    return torch.where(r.trained.to(r.cosines.device), r.cosines, 1) / r.clients


def l_dawa_statistics(r: Round) -> Tensor:
    return torch.where(r.trained.to(r.cosines.device), 1, r.cosines) / r.clients


def krum(r: Round) -> Tensor:
    return _most_central(r, 1)


def multi_krum(r: Round) -> Tensor:
    return _most_central(r, r.clients - r.faulty)


def _most_central(r: Round, count: int) -> Tensor:
    """Equal weights for the clients with the least scores of Krum; of equal scores the first ones'."""
    others = r.gaps.clone().fill_diagonal_(torch.inf).sort(1).values
    scores = others[:, : r.clients - r.faulty - 2].sum(1)
    beta = torch.zeros_like(scores)
    beta[scores.argsort(stable=True)[:count]] = 1 / count
    return beta[:, None]


RULES: dict[str, Callable[[Round], Tensor]] = {
    "fedavg": fedavg,
    "uniform": uniform,
    "loss": loss,
    "m-dawa": m_dawa,
    "l-dawa": l_dawa,
    "l-dawa-fedavg": l_dawa_fedavg,
    "l-dawa-loss": l_dawa_loss,
    "l-dawa-normalised": l_dawa_normalised,
    "l-dawa-shrinking": l_dawa_shrinking,
    "l-dawa-parameters": l_dawa_parameters,
    "l-dawa-statistics": l_dawa_statistics,
}
AVERAGES = ("fedavg", "uniform", "loss")  # rules whose weights add up to one, and are those of all layers alike
BY_KIND = ("l-dawa-parameters", "l-dawa-statistics")  # rules that need layers of parameters alone, or of statistics
ROBUST_RULES: dict[str, Callable[[Round], Tensor]] = {"krum": krum, "multi-krum": multi_krum}


def trimmed_mean(values: Tensor, faulty: int) -> Tensor:
    """``[K, numbers]`` to ``[numbers]``; a NaN counts as greater than all numbers."""
    clients = len(values)
    return values.T.contiguous().sort(1).values[:, faulty : clients - faulty].mean(1)


def median(values: Tensor, faulty: int) -> Tensor:
    """Likewise, whatever ``faulty`` says; of an even number of values the mean of the two in the middle."""
    return trimmed_mean(values, (len(values) - 1) // 2)


COORDINATE_RULES: dict[str, Callable[[Tensor, int], Tensor]] = {"median": median, "trimmed-mean": trimmed_mean}
MORE_THAN_TWICE = {"trimmed-mean": 1, "krum": 3, "multi-krum": 3}  # by rule that needs f: K is at least so much + 2 f


def check_faulty(rule: str, faulty: int, clients: int) -> None:
    """Raise :class:`SettingError` where a robust rule cannot do with ``faulty`` of so many clients."""
    if rule not in MORE_THAN_TWICE:
        return
    least, most = MORE_THAN_TWICE[rule] + 2, (clients - MORE_THAN_TWICE[rule]) // 2
    if most < 1:
        raise SettingError("aggregation", rule, f"another rule for {clients} clients in a round: it needs {least}")
    if not 1 <= faulty <= most:
        expected = f"1 to {most}, which {rule} can take of {clients} clients in a round"
        raise SettingError("assumed_faulty", faulty, expected)


def weights(rule: str, r: Round) -> Tensor:
    """The table ``beta[client, layer]`` of a rule, float64 ``[K, L]``.

    Raises:
        SettingError: there is no such rule, it cannot do with ``r.faulty`` of so many clients, or one of yours returns
            no table of weights.
    """
    rules = RULES | ROBUST_RULES
    check_choice("aggregation", rule, rules)
    check_faulty(rule, r.faulty, r.clients)
    beta, layers = rules[rule](r), len(r.layers)
    if not isinstance(beta, Tensor) or tuple(beta.shape) not in ((r.clients, layers), (r.clients, 1)):
        expected = f"a rule that returns a tensor [{r.clients} clients, {layers} layers] or [{r.clients}, 1]"
        raise SettingError("aggregation", rule, f"{expected}, not {_kind(beta)}")
    if is_own(rules[rule]) and not beta.isfinite().all():  # of ours a model that has diverged is told elsewhere
        bad = int((~beta.isfinite()).sum())
        raise SettingError("aggregation", rule, f"a rule of finite weights, of which {bad} are nan or inf")
    return beta.expand(r.clients, layers)


def _kind(returned: object) -> str:
    return f"of shape {[*returned.shape]}" if isinstance(returned, Tensor) else f"a {type(returned).__name__}"


@torch.no_grad()
def combine(beta: Tensor, r: Round, into: ClientMatrix, skipped: Tensor | None = None) -> None:
    """Eq. 1: write ``sum_k beta[k, layer] * w_k`` into a matrix of one row, which may be ``r.previous``.

    Args:
        beta: ``[K, L]``.
        r: the round.
        into: where the new global model goes.
        skipped: bool ``[L]``: layers to leave as they are; None for none.
    """
    beta = beta.to(into.weights)
    for layer, (name, block) in zip(r.layers.of, r.received.blocks.items(), strict=True):
        if skipped is None or not skipped[layer]:
            out = into.blocks[name].view(-1)
            torch.mv(block.reshape(r.clients, -1).T, beta[:, layer], out=out)  # one read of the clients' models


@torch.no_grad()
def combine_coordinates(rule: str, r: Round, into: ClientMatrix, skipped: Tensor | None = None) -> None:
    """The like of :func:`combine` for a rule of :data:`COORDINATE_RULES`.

    Raises:
        SettingError: there is no such rule, it cannot do with ``r.faulty`` of so many clients, or one of yours returns
            something else than a number for each coordinate.
    """
    check_choice("aggregation", rule, COORDINATE_RULES)
    check_faulty(rule, r.faulty, r.clients)
    for layer, (name, block) in zip(r.layers.of, r.received.blocks.items(), strict=True):
        if skipped is None or not skipped[layer]:
            size = max(1, PIECE // r.clients)
            pieces = block.reshape(r.clients, -1).split(size, dim=1)
            for out, values in zip(into.blocks[name].view(-1).split(size), pieces, strict=True):
                found = COORDINATE_RULES[rule](values, r.faulty)
                if not isinstance(found, Tensor) or found.shape != out.shape:
                    expected = f"a rule that makes [{len(out)}] of [{r.clients} clients, {len(out)}]"
                    raise SettingError("aggregation", rule, f"{expected}, not {_kind(found)}")
                if is_own(COORDINATE_RULES[rule]) and not found.isfinite().all():
                    raise SettingError("aggregation", rule, "a rule of finite numbers, of which some are nan or inf")
                out.copy_(found)
