"""The Strategy: the engine's choice of clients, its table of weights, its record of a round.

A client that has not answered within the timeout, or whose process or SuperNode is gone, is dropped for good with a
line on stderr; steps and averages go on with the others. What a client itself reports (a loss that is not finite, say)
ends the run, as it does in one process.
"""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fssl_core.errors import FsslError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.notices import notice
from fssl_core.training.averaging import AveragingTrainer

RAISED = (1, 2)  # Flower's codes of an app that cannot be loaded, and of one that raised an error


class AveragingStrategy(Strategy):
    """The server's part of federated averaging, whatever the rule of aggregation.

    Args:
        trainer: has the global model, and afterwards the metrics and tables of the run.
        nodes: by client, its Flower node: see :func:`fssl_core.flower.server.admit`.

    Attributes:
        lost: by client, the round in which it was lost.
    """

    def __init__(self, trainer: AveragingTrainer, nodes: dict[int, int]) -> None:
        self.trainer = trainer
        self.nodes = dict(nodes)
        self.lost: dict[int, int] = {}
        self._asked: list[int] = []  # clients of this round, in the order in which they were drawn

    def summary(self) -> None:
        """One line before the first round."""
        s = self.trainer.settings
        notice(f"{s.method} with {s.objective.name}: {s.rounds} rounds, {s.sampled} of {s.clients} clients in each")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model to the clients that the engine draws; where all of these are lost, to all that are left."""
        trainer = self.trainer
        drawn = trainer.settings.taking_part(trainer.finished).tolist()
        self._asked = [client for client in drawn if client in self.nodes] or sorted(self.nodes)
        for client in self._asked:
            for block in trainer.downloads(client):
                trainer.ledger.send(block, "parameters", "down", torch.tensor([client]))
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        return [Message(content, self.nodes[client], MessageType.TRAIN) for client in self._asked]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """The new global model, and the engine's figures of the round with the kNN accuracy.

        Raises:
            FsslError: a client failed, or none is left.
        """
        trainer, answers = self.trainer, self._answers(server_round, replies)
        trainer.trained = ClientMatrix(trainer.global_model(), len(answers))
        for place, (client, content) in enumerate(answers.items()):
            trainer.trained.row_module(place).load_state_dict(content["arrays"].to_torch_state_dict())
            row = dict(content["metrics"])
            trainer.images[client] = row.pop("images")
            trainer.rows.append(row)
            for block in trainer.uploads(client):
                trainer.ledger.send(block, "parameters", "up", torch.tensor([client]))
        trainer.close_round(torch.tensor(list(answers)))
        return ArrayRecord(trainer.shared.state_dict(0)), MetricRecord(trainer.metrics[-1])

    def _answers(self, server_round: int, replies: Iterable[Message]) -> dict[int, RecordDict]:
        """By client, in the order in which they were asked, what those sent who are not lost."""
        clients = {node: client for client, node in self.nodes.items()}
        arrived: dict[int, RecordDict] = {}
        for reply in replies:
            client = clients.get(reply.metadata.src_node_id)
            if not reply.has_error():
                arrived[client] = reply.content
            elif reply.error.code in RAISED:
                raise FsslError(f"Client {client} failed in round {server_round}: {reply.error.reason}")
        for client in self._asked:
            if client not in arrived:
                self.lost[client] = server_round
                del self.nodes[client]
                notice(f"client {client} is lost in round {server_round}: it is gone, or did not answer in time.")
        if not arrived:
            raise FsslError(f"No client answered in round {server_round}; the training cannot go on.")
        return {client: arrived[client] for client in self._asked if client in arrived}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked: the server has evaluated."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Nothing to do."""
