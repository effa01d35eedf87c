import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import (
    COORDINATE_RULES,
    RULES,
    Layers,
    Round,
    combine,
    combine_coordinates,
    weights,
)
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models.layers import BatchNorm2d, Conv2d
from fssl_core.random import generator

State = dict[str, Tensor]
IMAGES = (30, 7, 11, 52)
LOSSES = (0.3, 2.0, 1.1, 0.7)
CLIENTS = len(IMAGES)
SUM_TO_ONE = ["fedavg", "uniform", "loss", "l-dawa-normalised"]
SHRINKING = ["m-dawa", "l-dawa", "l-dawa-fedavg", "l-dawa-loss", "l-dawa-shrinking"]

IN_PART = ["l-dawa-parameters", "l-dawa-statistics"]  # shrink some layers


def network() -> nn.Module:
    """Layers of all kinds: filters, scales, running statistics, a single number, a matrix, a bias that is zero."""
    model = nn.Sequential(Conv2d(2, 6, 3), BatchNorm2d(6), nn.Flatten(), nn.Linear(24, 5)).double()
    nn.init.zeros_(model[3].bias)
    return model


def filled(value: float | None = None, *, near: State | None = None, seed: int = 0, spread: float = 1.0) -> State:
    """A state of one value, or a random one: noise, or another state with noise on it."""
    random = generator(seed, "state")
    state = {}
    for name, tensor in network().state_dict().items():
        if value is not None:
            state[name] = torch.full_like(tensor, value)
        else:
            noise = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
            state[name] = spread * noise + (0 if near is None else near[name])
    return state


def federation(spread: float = 0.8, clients: int = CLIENTS) -> tuple[State, list[State]]:
    """A global model with a layer that is zero, and what clients made of it: some layers point backwards."""
    previous = filled(seed=1)
    previous["3.bias"].zero_()
    return previous, [filled(near=previous, seed=2 + client, spread=spread) for client in range(clients)]


def a_round(previous: State, received: list[State], *, images=IMAGES, losses=LOSSES, layers="tensor") -> Round:
    """What a server does that gets plain states."""
    matrices = [ClientMatrix(network().to(previous["0.weight"]), count) for count in (1, len(received))]
    for matrix, states in zip(matrices, ([previous], received), strict=True):
        for name, block in matrix.blocks.items():
            for row, state in zip(block, states, strict=True):
                row.copy_(state[name])
    images, losses = torch.tensor(images[: len(received)]), torch.tensor(losses[: len(received)], dtype=torch.float64)
    return Round(*matrices, images, losses, Layers(matrices[0], layers))


def aggregated(rule: str, previous: State, received: list[State], **values) -> State:
    r = a_round(previous, received, **values)
    into = ClientMatrix(network().to(previous["0.weight"]), 1)
    combine(weights(rule, r), r, into)
    return into.state_dict(0)


def whole(state: State, names=None) -> Tensor:
    """The values of these tensors, or of all but single numbers, in one vector."""
    names = [name for name, value in state.items() if value.dim()] if names is None else names
    return torch.cat([state[name].flatten() for name in names])


# ---------------------------------------------------------------- the rules, slowly


def cosine(one: State, other: State, names=None) -> float:
    """Eq. 2 with PyTorch's cosine; 1 where a vector is zero."""
    first, second = whole(one, names), whole(other, names)
    if not first.any() or not second.any():
        return 1.0
    return F.cosine_similarity(first, second, dim=0).item()


def slowly(rule: str, previous: State, received: list[State], layers: list[list[str]]) -> State:
    """Equations 1 and 3 to 6 with loops over clients and layers."""
    total = sum(IMAGES)
    exponentials = [math.exp(-loss) for loss in LOSSES]
    new = {name: torch.zeros_like(value) for name, value in previous.items()}
    for names in layers:
        numbers = [name for name in names if previous[name].dim()]
        deltas = [cosine(previous, state, numbers) if numbers else 1.0 for state in received]
        for client, state in enumerate(received):
            delta, share, soft = deltas[client], IMAGES[client] / total, exponentials[client] / sum(exponentials)
            beta = {
                "fedavg": share,
                "uniform": 1 / CLIENTS,
                "loss": soft,
                "m-dawa": cosine(previous, state) / CLIENTS,
                "l-dawa": delta / CLIENTS,
                "l-dawa-fedavg": delta * share,
                "l-dawa-loss": delta * soft,
                "l-dawa-normalised": delta / sum(deltas),
                "l-dawa-shrinking": sum(deltas) / CLIENTS / CLIENTS,
                "l-dawa-parameters": (1.0 if all("running" in name for name in numbers) else delta) / CLIENTS,
                "l-dawa-statistics": (delta if all("running" in name for name in numbers) else 1.0) / CLIENTS,
            }[rule]
            for name in names:
                new[name] += beta * state[name]
    return new


@pytest.mark.parametrize("layers", ["tensor", "module"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_equals_the_papers_equation_written_as_loops(rule, layers):
    previous, received = federation()
    together = [[name] for name in previous]
    if layers == "module":
        together = [[name for name in previous if name.startswith(f"{module}.")] for module in (0, 1, 3)]
    expected = slowly(rule, previous, received, together)
    for name, value in aggregated(rule, previous, received, layers=layers).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_layers_have_the_names_of_their_tensors_or_modules():
    matrix = ClientMatrix(network(), 1)
    by_tensor, by_module = Layers(matrix), Layers(matrix, "module")
    assert by_tensor.names == list(matrix.blocks)
    assert by_module.names == ["0", "1", "3"]
    assert [by_module.names[layer] for layer in by_module.of] == [name[0] for name in matrix.blocks]
    ones = torch.ones(2, len(by_module.of))
    assert by_module.sums(ones).tolist() == [[1, 5, 2]] * 2  # batch norm has two parameters and three statistics


# ---------------------------------------------------------------- cosines


def test_cosines_of_closed_cases():
    """A client that stays, one that turns round, one at a right angle, and one at 45 degrees."""
    previous = filled(0.0)
    received = [filled(0.0) for _ in range(4)]
    previous["0.weight"].view(-1)[0] = 2.0
    for state, (along, across) in zip(received, [(5.0, 0.0), (-0.1, 0.0), (0.0, 3.0), (4.0, 4.0)], strict=True):
        state["0.weight"].view(-1)[:2] = torch.tensor([along, across])
        state["1.num_batches_tracked"].fill_(1000.0)  # must not count
        state["1.weight"].fill_(1.0)  # was zero before: its cosine is 1, but it is a part of the whole model
    r = a_round(previous, received)
    column = r.layers.names.index("0.weight")
    expected = torch.tensor([1, -1, 0, math.sqrt(0.5)], dtype=torch.float64)
    torch.testing.assert_close(r.cosines[:, column], expected, rtol=0, atol=1e-15)
    others = [layer for layer in range(len(r.layers)) if layer != column]
    assert (r.cosines[:, others] == 1).all()
    lengths = torch.tensor([math.hypot(5, 0), 0.1, 3, math.hypot(4, 4)], dtype=torch.float64)
    numbers = previous["1.weight"].numel()
    torch.testing.assert_close(r.model_cosines[:, 0], expected * lengths / (lengths.square() + numbers).sqrt())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layers", ["tensor", "module"])
def test_cosines_stay_within_their_range_where_rounding_would_leave_it(dtype, layers):
    previous = {name: value.to(dtype) for name, value in filled(seed=1).items()}
    scales = [1.0, -1.0, 1e-3, -1e3, 1 / 3, -0.7, 1.1, 5e-10]
    received = [{name: scale * value for name, value in previous.items()} for scale in scales]
    r = a_round(previous, received, layers=layers, images=range(1, 9), losses=range(8))
    signs = torch.tensor(scales, dtype=torch.float64).sign()[:, None]
    for cosines in (r.cosines, r.model_cosines):
        assert cosines.abs().max() <= 1
        several = cosines[:, [layer for layer in range(cosines.shape[1]) if (cosines[:, layer] < 0).any()]]
        torch.testing.assert_close(several, signs.expand_as(several), rtol=0, atol=1e-6)
        assert several.shape[1] == cosines.shape[1] - (layers == "tensor" and cosines.shape[1] > 1)  # the number


def test_the_whole_models_cosine_is_that_of_one_long_vector_and_the_sum_of_weighted_layers():
    previous, received = federation()
    r = a_round(previous, received)
    lengths = r.norms / r.norms.norm(dim=1, keepdim=True)
    previous_lengths = r.previous_norms / r.previous_norms.norm()
    weighted = (lengths * previous_lengths * r.cosines).sum(1, keepdim=True)
    torch.testing.assert_close(r.model_cosines, weighted, rtol=0, atol=1e-14)
    for client, state in enumerate(received):
        expected = F.cosine_similarity(whole(previous), whole(state), dim=0)
        torch.testing.assert_close(r.model_cosines[client, 0], expected, rtol=0, atol=1e-14)
    by_module = a_round(previous, received, layers="module")
    torch.testing.assert_close(by_module.model_cosines, r.model_cosines, rtol=0, atol=1e-14)


@pytest.mark.parametrize("layers", ["tensor", "module"])
def test_distances_are_mean_squared_differences(layers):
    previous, received = federation(spread=0.1)
    r = a_round(previous, received, layers=layers)
    for client, state in enumerate(received):
        for layer, name in enumerate(r.layers.names):
            names = [other for other in previous if other == name or other.startswith(f"{name}.")]
            squares = [(state[n] - previous[n]).square().flatten() for n in names]
            counted = [square if previous[n].dim() else 0 * square for n, square in zip(names, squares, strict=True)]
            torch.testing.assert_close(r.distances[client, layer], torch.cat(counted).mean(), rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- what the weights imply


@pytest.mark.parametrize("rule", SUM_TO_ONE)
def test_weights_add_up_to_one(rule):
    sums = weights(rule, a_round(*federation())).sum(0)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rule", SHRINKING)
def test_weights_with_a_cosine_add_up_to_less(rule):
    r = a_round(*federation())
    for name, total in zip(r.layers.names, weights(rule, r).sum(0).tolist(), strict=True):
        if rule != "m-dawa" and name in ("1.num_batches_tracked", "3.bias"):  # a single number; zero before
            assert total == pytest.approx(1, abs=1e-14)
        else:
            assert total < 0.99


def test_a_client_that_turned_round_is_turned_back():
    """Eq. 3 and 4 with one client at -w_g: the cosine of -1 makes it w_g; FedAvg would keep -w_g."""
    previous, _ = federation()
    back = {name: -value for name, value in previous.items()}
    for rule, sign in (("m-dawa", 1), ("l-dawa", 1), ("l-dawa-fedavg", 1), ("l-dawa-loss", 1), ("fedavg", -1)):
        for name, value in aggregated(rule, previous, [back]).items():
            single = sign if rule in ("fedavg", "m-dawa") or name != "1.num_batches_tracked" else -1
            torch.testing.assert_close(value, single * previous[name], rtol=1e-14, atol=0)


@pytest.mark.parametrize("rule", RULES)
def test_clients_that_did_not_move_leave_the_model_as_it_is(rule):
    previous, _ = federation()
    for name, value in aggregated(rule, previous, [previous] * CLIENTS).items():
        torch.testing.assert_close(value, previous[name], rtol=1e-14, atol=0)


@pytest.mark.parametrize("rule", SUM_TO_ONE)
def test_clients_that_agree_get_their_model(rule):
    previous, (one, *_) = federation()
    for name, value in aggregated(rule, previous, [one] * CLIENTS).items():
        torch.testing.assert_close(value, one[name], rtol=1e-13, atol=0)


@pytest.mark.parametrize("rule", ["l-dawa", "l-dawa-fedavg", "l-dawa-loss", "l-dawa-shrinking"])
def test_clients_that_agree_and_moved_get_less_of_their_model(rule):
    previous, (one, *_) = federation()
    for name, value in aggregated(rule, previous, [one] * CLIENTS).items():
        delta = 1.0 if name == "1.num_batches_tracked" else cosine(previous, one, [name])
        torch.testing.assert_close(value, delta * one[name], rtol=1e-13, atol=0)


@pytest.mark.parametrize("rule", ["l-dawa", "l-dawa-shrinking"])
def test_layers_shrink_below_the_clients_mean_norm_strictly_where_clients_disagree(rule):
    previous, received = federation()
    received = [state | {"3.weight": abs(1 + client) * previous["3.weight"]} for client, state in enumerate(received)]
    for name, value in aggregated(rule, previous, received).items():
        mean = sum(state[name].norm().item() for state in received) / CLIENTS
        if name == "3.weight":  # all parallel to the global layer: nothing is lost
            assert value.norm().item() == pytest.approx(mean, rel=1e-14)
        elif value.dim():
            assert value.norm().item() < 0.999 * mean


def test_the_two_effects_of_the_cosine_taken_apart():
    """l-dawa-shrinking is the uniform average, shorter; l-dawa-normalised is l-dawa, longer."""
    previous, received = federation()
    result = {rule: aggregated(rule, previous, received) for rule in RULES}
    for name in previous:
        if name == "1.num_batches_tracked":
            continue
        mean = sum(cosine(previous, state, [name]) for state in received) / CLIENTS
        torch.testing.assert_close(result["l-dawa-shrinking"][name], mean * result["uniform"][name])
        torch.testing.assert_close(result["l-dawa"][name], mean * result["l-dawa-normalised"][name])


@pytest.mark.parametrize("rule", ["uniform", "m-dawa", "l-dawa", "l-dawa-normalised", "l-dawa-shrinking"])
def test_image_counts_and_losses_do_not_matter(rule):
    """Section 5.3: agnostic to what a client says of its data, to the last bit."""
    problem = federation()
    result, other = aggregated(rule, *problem), aggregated(rule, *problem, images=(1, 900, 3, 5), losses=(9, 0, 4, 1))
    assert all(torch.equal(value, other[name]) for name, value in result.items())


@pytest.mark.parametrize("rule", ["fedavg", "loss", "l-dawa-fedavg", "l-dawa-loss"])
def test_a_client_with_nearly_all_images_or_the_lowest_loss_decides(rule):
    previous, received = federation()
    values = {"images": (10**12, 1, 1, 1), "losses": (0.0, 60.0, 60.0, 60.0)}
    for name, value in aggregated(rule, previous, received, **values).items():
        dawa = rule.startswith("l-dawa") and name != "1.num_batches_tracked"
        delta = cosine(previous, received[0], [name]) if dawa else 1.0
        torch.testing.assert_close(value, delta * received[0][name], rtol=0, atol=1e-9)


def test_losses_of_any_size_give_finite_weights():
    beta = weights("loss", a_round(*federation(), losses=(1e4, 1e4 + 1, 2e4, 1e4)))
    e = math.exp(-1)
    expected = torch.tensor([1, e, 0, 1], dtype=torch.float64) / (2 + e)
    torch.testing.assert_close(beta[:, 0], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_clients_does_not_matter(rule):
    previous, received = federation()
    order = [2, 0, 3, 1]
    shuffled = {"images": [IMAGES[i] for i in order], "losses": [LOSSES[i] for i in order]}
    other = aggregated(rule, previous, [received[i] for i in order], **shuffled)
    for name, value in aggregated(rule, previous, received).items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-14)


def test_equal_clients_make_rules_equal():
    previous, received = federation()
    same = {"images": (12,) * CLIENTS, "losses": (0.5,) * CLIENTS}
    pairs = [("fedavg", "uniform"), ("loss", "uniform"), ("l-dawa-fedavg", "l-dawa"), ("l-dawa-loss", "l-dawa")]
    for first, second in pairs:
        one, other = (aggregated(rule, previous, received, **same) for rule in (first, second))
        assert all(torch.equal(value, other[name]) for name, value in one.items()), (first, second)


@pytest.mark.parametrize("rule", RULES)
def test_one_client_gives_its_own_model_unless_a_cosine_shortens_it(rule):
    previous, (one, *_) = federation()
    for name, value in aggregated(rule, previous, [one]).items():
        delta = 1.0
        if rule == "m-dawa":
            delta = cosine(previous, one)
        elif rule in IN_PART and ("running" in name) is (rule == "l-dawa-parameters"):
            delta = 1.0
        elif rule not in SUM_TO_ONE and name != "1.num_batches_tracked":
            delta = cosine(previous, one, [name])
        torch.testing.assert_close(value, delta * one[name], rtol=1e-13, atol=0)


# ---------------------------------------------------------------- in practice


@pytest.mark.parametrize("rule", ["fedavg", "m-dawa", "l-dawa"])
def test_the_previous_model_may_be_overwritten(rule):
    previous, received = federation()
    r = a_round(previous, received)
    combine(weights(rule, r), r, r.previous)
    expected = aggregated(rule, previous, received)
    assert all(torch.equal(value, expected[name]) for name, value in r.previous.state_dict(0).items())
    for client, state in enumerate(received):
        assert all(torch.equal(value, state[name]) for name, value in r.received.state_dict(client).items())


def test_skipped_layers_stay_as_they_are():
    previous, received = federation()
    r = a_round(previous, received)
    skipped = torch.tensor([name.startswith(("0.", "1.num")) for name in r.layers.names])
    combine(weights("fedavg", r), r, r.previous, skipped)
    averaged = aggregated("fedavg", previous, received)
    for name, value in r.previous.state_dict(0).items():
        assert torch.equal(value, (previous if name in ("0.weight", "1.num_batches_tracked") else averaged)[name])


@pytest.mark.parametrize("rule", RULES)
def test_float32_is_float64_up_to_its_rounding(rule):
    problem = federation()
    previous, *received = (
        {name: value.float() for name, value in state.items()} for state in (problem[0], *problem[1])
    )
    exact = aggregated(rule, *problem)
    for name, value in aggregated(rule, previous, received).items():
        torch.testing.assert_close(value.double(), exact[name], rtol=0, atol=1e-5)
    assert weights(rule, a_round(previous, received)).dtype == torch.float64


@pytest.mark.parametrize("moved", [0.1, 0.001])
def test_float32_tells_small_movements_of_large_layers(moved):
    """A million numbers: summed at once in float32, cosines are wrong by 1e-5 and distances are noise."""
    model, random = nn.Linear(1024, 1024, bias=False), generator(0, "large")
    previous, received = ClientMatrix(model, 1), ClientMatrix(model, 3)
    for row in received.blocks["weight"]:
        row += moved * row.std() * torch.randn(row.shape, generator=random)
    r = Round(previous, received, torch.ones(3), torch.ones(3), Layers(previous))
    old, new = previous.blocks["weight"].double().flatten(), received.blocks["weight"].double().flatten(1)
    exact = (new @ old) / (new.norm(dim=1) * old.norm())
    torch.testing.assert_close(r.cosines[:, 0], exact, rtol=0, atol=8e-6)
    torch.testing.assert_close(r.distances[:, 0], (new - old).square().mean(1), rtol=1e-4, atol=0)


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_the_pieces_of_a_sum_do_not_matter(piece, monkeypatch):
    problem = federation()
    whole = a_round(*problem)
    values = [whole.cosines, whole.model_cosines, whole.distances]
    monkeypatch.setattr("fssl_core.federation.aggregation.PIECE", piece)
    pieces = a_round(*problem)
    for value, other in zip(values, [pieces.cosines, pieces.model_cosines, pieces.distances], strict=True):
        torch.testing.assert_close(value, other, rtol=1e-12, atol=1e-14)


def test_a_new_rule_is_a_function_and_a_line(monkeypatch):
    """The client with the lowest loss alone."""
    monkeypatch.setitem(RULES, "best", lambda r: F.one_hot(r.losses.argmin(), r.clients).double()[:, None])
    previous, received = federation()
    new = aggregated("best", previous, received)
    assert all(torch.equal(value, received[0][name]) for name, value in new.items())


def test_what_cannot_be_used_names_itself():
    previous, received = federation()
    with pytest.raises(SettingError, match=r"aggregation='mode' .*fedavg, uniform, .*l-dawa"):
        weights("mode", a_round(previous, received))
    with pytest.raises(SettingError, match=r"layers='block' .*tensor, module"):
        a_round(previous, received, layers="block")
    with pytest.raises(SettingError, match=r"images=\[3\] .*one number for each of 4 clients"):
        a_round(previous, received, images=(1, 2, 3))
    with pytest.raises(SettingError, match=r"losses=\[2\] .*one number for each of 4 clients"):
        a_round(previous, received, losses=(1, 2))


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda r: r.cosines.sum(0), r"of shape \[\d+\]"),  # of layers: each client would count with all of them
        (lambda r: r.cosines.mean(1), r"of shape \[\d+\]"),
        (lambda r: r.cosines.tolist(), "a list"),
        (lambda r: None, "a NoneType"),
    ],
)
def test_a_rule_that_returns_no_table_of_weights_is_named(monkeypatch, returned, got):
    monkeypatch.setitem(RULES, "mine", returned)
    expected = rf"aggregation='mine' .* a tensor \[{CLIENTS} clients, \d+ layers\] or \[{CLIENTS}, 1\], not {got}"
    with pytest.raises(SettingError, match=expected):
        weights("mine", a_round(*federation()))


def test_a_rule_of_yours_whose_weights_are_not_finite_is_named(monkeypatch):
    monkeypatch.setitem(RULES, "mine", lambda r: r.cosines[:, :1] / 0)
    with pytest.raises(SettingError, match=rf"aggregation='mine' .* finite weights, of which {CLIENTS} are nan or inf"):
        weights("mine", a_round(*federation()))


def test_so_is_one_whose_coordinates_are_not(monkeypatch):
    monkeypatch.setitem(COORDINATE_RULES, "mine", lambda values, faulty: values.mean(0) / 0)
    r = a_round(*federation())
    with pytest.raises(SettingError, match=r"aggregation='mine' .* finite numbers, of which some are nan or inf"):
        combine_coordinates("mine", r, r.previous)
