"""What a client process does: join, then answer what the server asks until it says that the run is over."""

from collections.abc import Callable

from torch import Tensor

from fssl_core.data.datasets import Dataset, digest
from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.network.handshake import read_welcome, versions
from fssl_core.network.keys import ClientKeys, check_keys
from fssl_core.network.limits import GIB, MEMORY, load_own, own_settings
from fssl_core.network.messages import Layout, Message, ProtocolError, check_layout, layout
from fssl_core.network.remote_clients import MODELS
from fssl_core.network.sockets import GOODBYE, ConnectionLostError, Link
from fssl_core.notices import printable
from fssl_core.settings import check_range
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_clients import SplitClients


def join_split(
    address: str,
    *,
    client: int | None = None,
    keys: ClientKeys | None = None,
    insecure: bool = False,
    data: str | None = None,
    memory: float = MEMORY,
    wait: float = 60.0,
    timeout: float = 10.0,
    joined: Callable[[int, SplitSettings], None] = lambda client, settings: None,
) -> int:
    """Take part in a federation as one client, until its end.

    The server gets answers to what the protocol knows, and where there is none the word ``refused``: why is said here.

    Args:
        address: of the server, ``tcp://HOST:PORT``.
        client: the number to take; None: that of the key, else the lowest that is free.
        keys: of this client (:func:`fssl_core.network.keys.client_keys`). None: nothing is encrypted, and nobody knows
            who the server is.
        insecure: None are wanted for an address of another machine either.
        data: the data set that this client trains on, whatever the server says; None: an embedded one.
        memory: GiB that the server's settings and messages may take here.
        wait: seconds until the server must have answered.
        timeout: seconds of silence after which the server is lost.
        joined: called with number and settings when the server has let this client in.

    Returns:
        the client's number.

    Raises:
        FsslError: the server cannot be reached, refused this client, stopped, or was lost; its settings take more
            memory than is allowed; or the images are not those that the server has.
    """
    check_keys("ADDRESS", address, keys, insecure)
    check_range("memory", memory, 0.001, 1e6)
    check_range("wait", wait, 0, 1e6)
    check_range("timeout", timeout, 0.1, 3600)
    if keys is not None and client not in (None, keys.client):
        raise SettingError("--client", client, f"{keys.client}, whose key this is")
    wanted = client if keys is None else keys.client
    link = Link(address, timeout, keys, int(memory * GIB))
    goodbye = GOODBYE
    try:
        link.send(Message("hello", {"versions": versions(), "client": wanted}))
        number, settings, expected = read_welcome(link.receive(wait))
        if not 0 <= number < settings.clients or wanted not in (None, number):
            raise ProtocolError(f"The server made this client number {number} of {settings.clients}.")
        settings = own_settings(settings, data)
        joined(number, settings)
        keep_freed_memory()
        member = Member(settings, number, _same_images(settings, expected, memory))
        link.expect_models()
        link.send(Message("ready"))
        with repeatable_kernels():
            _answer_all(member, link)
    except ConnectionLostError:
        goodbye = 0.0
        raise
    except BaseException as error:
        link.send(Message("leaving", {"reason": "interrupted" if isinstance(error, KeyboardInterrupt) else "refused"}))
        raise
    finally:
        link.close(goodbye)
    return number


def _same_images(settings: SplitSettings, expected: str, memory: float) -> Dataset:
    data = load_own(settings, memory, default_device())
    if digest(data) != expected:
        raise DataError(
            f"The training images of {settings.dataset} here ({len(data.train)}) are not those of the server: copy the "
            "server's data folder, or download the set anew on both sides."
        )
    return data


def _answer_all(member: "Member", link: Link) -> None:
    while True:
        message = link.receive()
        match message.kind:
            case "finished":
                return
            case "stopped" | "refused":
                reason = printable(message.fields.get("reason"))
                raise FsslError(f"The server ended the training for this client: {reason}.")
        for answer in member.answer(message):
            link.send(answer)


class Member:
    """One client and what it answers to each request.

    Args:
        settings: of the run, from the server.
        client: its number.
        data: the images of the federation, of which it takes its share.
    """

    def __init__(self, settings: SplitSettings, client: int, data: Dataset) -> None:
        # Who takes part in an epoch is for the server to say, so that it can replace clients that are lost.
        settings = settings.changed(clients_per_epoch=None)
        self.data = data
        self.clients = SplitClients(settings, settings.build_model(data)[0], data, members=[client])
        self._state = layout(self._model("online"))
        self._epoch: int | None = None  # the one that there are images and draws for
        self._gradient: Layout = {}  # what the next gradient has to look like

    def answer(self, message: Message) -> list[Message]:
        """Do what a message asks.

        Returns:
            the messages to send back, in any number.

        Raises:
            ProtocolError: it asks for something that this client does not know or that is not due.
        """
        match message:
            case Message("forward", {"epoch": int(epoch), "step": int(step)}):
                return self._forward(int(epoch), int(step))  # JSON's true is an int, too
            case Message("gradients"):
                self._backward(message)
                return []
            case Message("upload", {"purpose": str(purpose)}) if purpose in MODELS:
                return [Message(purpose, tensors=self._model(MODELS[purpose]))]
            case Message("parameters" | "momentum_parameters"):
                check_layout(message, self._state)
                device = self.data.train.images.device
                state = {name: value.to(device) for name, value in message.tensors.items()}
                self.clients.receive(MODELS[message.kind], state)
                self._gradient = {}  # of activations that the model before has made
                return []
            case Message("measure"):
                both = {
                    f"{model}/{name}": value for model in MODELS.values() for name, value in self._model(model).items()
                }
                return [Message("measurement", tensors=both)]
        raise ProtocolError(f"The server asked for {message.kind[:100]!r}, which this client does not know.")

    def _model(self, name: str) -> dict[str, Tensor]:
        everyone, _ = self.clients.matrices[name]
        return {block: values[0] for block, values in everyone.blocks.items()}

    def _forward(self, epoch: int, step: int) -> list[Message]:
        if self._epoch != epoch:  # [1, steps, batch] and [1, steps, batch, 2, numbers]
            self._epoch, (self._order, self._draws) = epoch, self.clients.start_epoch(epoch)
        if not 0 <= step < self.clients.steps_per_epoch:
            raise ProtocolError(f"The server asked for step {step} of {self.clients.steps_per_epoch}.")
        images = self.data.train.images[self._order[:, step]]  # [1, batch, C, H, W]
        activations, momentum_activations = self.clients.forward(images, self._draws[:, step])
        self._gradient = {} if self.clients.settings.freeze_client else layout({"gradients": activations[0]})
        messages = [Message("activations", tensors={"activations": activations[0]})]
        if momentum_activations is not activations:  # of frozen clients: once is enough
            messages.append(Message("momentum_activations", tensors={"momentum_activations": momentum_activations[0]}))
        return messages

    def _backward(self, message: Message) -> None:
        if not self._gradient:
            raise ProtocolError("The server sent gradients, and this client has no activations that wait for them.")
        check_layout(message, self._gradient)
        self.clients.backward(message.tensors["gradients"][None].to(self.data.train.images.device))
        self._gradient = {}
