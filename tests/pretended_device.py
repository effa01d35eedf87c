"""A GPU that is not there: tensors stay on the CPU, and what a GPU would refuse is refused.

Inside :class:`PretendedDevice` a tensor that is asked for on :attr:`PretendedDevice.device` is computed on the CPU and
marked. It says that it is on that device, what is made of it is marked as well, and errors are those of a real one:

- an operation on tensors of both places, unless the one on the CPU is a single number, or copies, or is an index,
- a random generator of the CPU for numbers on the device,
- ``numpy()``, and whatever makes an array, of a tensor on the device.

Marks are kept by storage, so a view has that of its base. Speed, memory and rounding are those of the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

aten = torch.ops.aten
COPIES = {aten.copy_.default, aten._foreach_copy_.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
SAME_PLACE = {aten.cat.default, aten.stack.default}  # a single number must be on the device, too
TO_NUMPY = {Tensor.numpy, Tensor.__array__}
PLACE = Tensor.device.__get__  # made anew at every look, so compared by ==
IS_CUDA = Tensor.is_cuda.__get__


class PretendedDevice:
    """A context in which there is a device; see the module.

    Attributes:
        device: its name, that of the first CUDA device.
    """

    device = torch.device("cuda", 0)

    # By number of the storage, for all contexts, because data sets are kept between them. The reference keeps the
    # number from being given to another storage.
    _marked: ClassVar[dict[int, StorageWeakRef]] = {}

    def __init__(self) -> None:
        self.called_there = False  # whether PyTorch is computing a function of tensors there
        self._modes = _Functions(self), _Operations(self)

    def __enter__(self) -> "PretendedDevice":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)

    def holds(self, value: Any) -> bool:
        """Whether a value is a tensor on the device."""
        return isinstance(value, Tensor) and value.untyped_storage()._cdata in self._marked

    def mark(self, value: Tensor, here: bool = True) -> None:
        """Say where a tensor is."""
        reference = StorageWeakRef(value.untyped_storage())
        if here:
            self._marked[reference.cdata] = reference
        else:
            self._marked.pop(reference.cdata, None)

    def named(self, value: Any) -> bool:
        """Whether a value names the device."""
        return isinstance(value, torch.device | str) and str(value).startswith(self.device.type)


def _tensors(*values: Any) -> Iterator[Tensor]:
    """Those in nested lists, tuples and dicts; as ``tree_leaves``, which would take most of the time, finds them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(*value)
        elif isinstance(value, dict):
            yield from _tensors(*value.values())


class _Operations(TorchDispatchMode):
    """What PyTorch computes in the end, those of a backward pass included: marks go from inputs to outputs."""

    def __init__(self, place: PretendedDevice) -> None:
        super().__init__()
        self.place = place

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        checked = [args[0], *args[2:]] if func in INDEXED else args
        here = [value for value in _tensors(checked, kwargs) if self.place.holds(value)]
        there = [value for value in _tensors(checked, kwargs) if not self.place.holds(value)]
        if func in INDEXED and not self.place.holds(args[0]):  # a GPU takes an index from the CPU, a CPU none from it
            here += [value for value in _tensors(args[1]) if self.place.holds(value)]
        if func not in SAME_PLACE:
            there = [value for value in there if value.dim()]
        if here and there and func not in COPIES:
            shapes = [tuple(value.shape) for value in there]
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} has some of {shapes} on cpu")
        result = func(*args, **kwargs)
        made_inside = (
            self.place.called_there and next(_tensors(args, kwargs), None) is None
        )  # as one_hot makes its zeros
        if made_inside or (here and func not in COPIES):
            for value in _tensors(result):
                self.place.mark(value)
        return result


class _Functions(TorchFunctionMode):
    """What the code calls: names of the device are taken out, and its results marked."""

    def __init__(self, place: PretendedDevice) -> None:
        super().__init__()
        self.place = place

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        place, kwargs = self.place, dict(kwargs or {})
        if func == PLACE:
            return place.device if place.holds(args[0]) else func(*args)
        if func == IS_CUDA:
            return place.holds(args[0])
        if func in TO_NUMPY and place.holds(args[0]):
            raise TypeError(f"can't convert {place.device} device type tensor to numpy. Use Tensor.cpu() first.")
        if func is Tensor.cpu:
            return self._moved(args[0], False, args[0].to())
        if func is Tensor.cuda:
            return self._moved(args[0], True, args[0].to())
        if func is Tensor.to:
            return self._to(args, kwargs)
        if func is Tensor.backward and any(
            place.holds(value) != place.holds(args[0]) for value in _tensors(args, kwargs)
        ):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but a gradient is elsewhere than its tensor"
            )
        asked = place.named(kwargs.get("device"))
        generator = kwargs.get("generator")
        if generator is not None and (asked or any(map(place.holds, _tensors(args, kwargs)))):
            raise RuntimeError(f"Expected a '{place.device.type}' device type for generator but found 'cpu'")
        if asked:
            kwargs["device"] = torch.device("cpu")
        if func in INDEXING and place.holds(args[0]):  # which of its kernels PyTorch takes depends on the index
            args = (args[0], tree_map(self._there, args[1]), *args[2:])
        before, place.called_there = place.called_there, any(map(place.holds, _tensors(args, kwargs)))
        try:
            result = func(*args, **kwargs)
        finally:
            place.called_there = before
        for value in _tensors(result) if asked or (func is Tensor.new_tensor and place.holds(args[0])) else ():
            place.mark(value)
        return result

    def _there(self, value: Any) -> Any:
        return self._moved(value, True, value) if isinstance(value, Tensor) else value

    def _to(self, args: tuple, kwargs: dict) -> Tensor:
        """``tensor.to`` of a device, a dtype, both, or another tensor."""
        tensor, *rest = args
        target = None
        for value in (*rest, kwargs.get("device"), kwargs.get("other")):
            if isinstance(value, Tensor):
                target = self.place.holds(value)
            elif isinstance(value, torch.device | str):
                target = self.place.named(value)
        plain = [torch.device("cpu") if self.place.named(value) else value for value in rest]
        if self.place.named(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        if rest and isinstance(rest[0], Tensor):  # its place is looked at here, its dtype by PyTorch
            plain[0] = rest[0].dtype
        result = tensor.to(*plain, **kwargs)
        return result if target is None else self._moved(tensor, target, result)

    def _moved(self, before: Tensor, target: bool, after: Tensor) -> Tensor:
        if self.place.holds(before) == target:
            return after
        if after.untyped_storage()._cdata == before.untyped_storage()._cdata:
            after = after.clone()
        self.place.mark(after, target)
        return after
