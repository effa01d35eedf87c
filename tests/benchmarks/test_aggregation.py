"""Aggregation on the server: `pytest -m benchmark -s tests/benchmarks/test_aggregation.py`, about half a minute.

CPU time on one thread, in turn, medians. L-DAWA's own problem (Table 1): a ResNet-18 with SimCLR's head, 10 clients,
float32, here noise. "receive" is what a server does: it copies the state of every client into its row and applies the
rule. The rule alone reads all models once for FedAvg (the sum), three times for L-DAWA and M-DAWA (products, norms, the
sum): bound by memory, it cannot be as fast. "written first" is FedAvg as a sum of scaled states, dict by dict, which
is what L-DAWA is held against: the paper, too, has 1.31 times such a FedAvg.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from fssl_core.federation.aggregation import Layers, Round, combine, weights
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone
from fssl_core.objectives import SimCLR
from fssl_core.random import generator
from tests.benchmarks.timing import milliseconds

pytestmark = pytest.mark.benchmark

CLIENTS = 10
L_DAWA_BAR = 1.5  # times FedAvg as written first
M_DAWA_BAR = 1.2  # times L-DAWA


class Server:
    """A global model and what ten clients have sent."""

    def __init__(self) -> None:
        backbone = build_backbone(
            "resnet18", width=64, norm="batch", image_size=32, generator=generator(0, "initialise")
        )
        model = SimCLR().build_model(backbone, generator(0, "heads"))
        self.previous, self.into = ClientMatrix(model, 1), ClientMatrix(model, 1)
        self.received = ClientMatrix(model, CLIENTS)
        self.layers = Layers(self.previous)
        self.states = []
        for client in range(CLIENTS):
            noise = generator(0, "noise", client)
            state = {
                name: 0.01 * torch.randn(value.shape, generator=noise) for name, value in model.state_dict().items()
            }
            self.states.append({name: value + state[name] for name, value in model.state_dict().items()})
        self.images = torch.arange(1, CLIENTS + 1)
        self.receive()

    def receive(self) -> None:
        for client, state in enumerate(self.states):
            for name, block in self.received.blocks.items():
                block[client].copy_(state[name])

    def aggregate(self, rule: str) -> None:
        this = Round(self.previous, self.received, self.images, torch.zeros(CLIENTS), self.layers)
        combine(weights(rule, this), this, self.into)

    def receive_and_aggregate(self, rule: str) -> None:
        self.receive()
        self.aggregate(rule)

    def written_first(self) -> dict[str, Tensor]:
        shares = (self.images / self.images.sum()).tolist()
        return {
            name: sum(share * state[name] for share, state in zip(shares, self.states, strict=True))
            for name in self.states[0]
        }


def test_aggregation_with_divergences_costs_little_more_than_fedavg():
    server, rules = Server(), ("fedavg", "l-dawa", "m-dawa")
    calls = [partial(work, rule) for work in (server.aggregate, server.receive_and_aggregate) for rule in rules]
    *times, first = milliseconds(*calls, server.written_first, warm_up=2, repeats=7)
    table = {"rule alone": times[:3], "receive": times[3:]}
    print("\n           | " + "  ".join(f"{rule:>9}" for rule in rules) + " ms | l-dawa / fedavg | m-dawa / l-dawa")
    for name, (fedavg, l_dawa, m_dawa) in table.items():
        numbers = "  ".join(f"{value:9.0f}" for value in (fedavg, l_dawa, m_dawa))
        print(f"{name:10} | {numbers}    |            {l_dawa / fedavg:.2f} |            {m_dawa / l_dawa:.2f}")
    print(f"bars       | {'':34} |            {L_DAWA_BAR:.2f} |            {M_DAWA_BAR:.2f}")
    print(f"written first: fedavg {first:.0f} ms; l-dawa alone takes {times[1] / first:.2f} of that")
    server.aggregate("fedavg")
    for name, value in server.written_first().items():
        torch.testing.assert_close(server.into.blocks[name][0], value, rtol=1e-4, atol=1e-5)
    assert times[1] <= L_DAWA_BAR * first
    assert all(m_dawa <= M_DAWA_BAR * l_dawa for _, l_dawa, m_dawa in table.values())
    assert times[0] < first
