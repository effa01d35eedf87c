"""Functions and classes of a user's own that settings name or consist of, such as an aggregation rule or an objective.

Settings hold names and values alone. So that a changed rule is not taken for the one that a stored run was computed
with, the run keeps a digest of its code beside the settings: of its text, and of what it uses of its own module, values
among them. What it imports from elsewhere, and the values of other objects, are not in it. An engine or an evaluation
of one's own has a ``version`` instead, and so may have a class of settings within those of the kit.
"""

import ast
import dis
import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from textwrap import dedent
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from fssl_core.data.augment import AUGMENTATIONS, OF_THE_KIT, second_view
from fssl_core.federation.aggregation import COORDINATE_RULES, ROBUST_RULES, RULES
from fssl_core.federation.faults import FAULTS
from fssl_core.models import ARCHITECTURES
from fssl_core.settings import Settings, is_own

REGISTRIES = {
    "architecture": [ARCHITECTURES],
    "aggregation": [RULES, ROBUST_RULES, COORDINATE_RULES],
    "fault": [FAULTS],
}
# By these a function fills a list, dict or set. What it finds there, such as a log of its own, is then no input.
FILLS = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "clear"}
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def digests(settings: Settings) -> dict[str, str]:
    """By name what settings, and settings within them, name of a user's own; 16 hex digits of its code.

    Where several have one name, the digits of each.
    """
    parts = [*with_nested(settings)]
    pairs = [pair for part in parts for pair in registered_here(part)]
    kinds = {type(nested) for part in parts if not is_own(type(part)) for nested in part.nested}
    pairs += [(kind.__name__, kind) for kind in kinds if is_own(kind) and "version" not in vars(kind)]
    codes: dict[str, set[str]] = {}  # by name, which a rule and a fault may share
    for name, own in pairs:
        code = hashlib.sha256("\n".join(_texts(own, set())).encode()).hexdigest()[:16]
        codes.setdefault(name, set()).add(code)
    return {name: "+".join(sorted(codes[name])) for name in sorted(codes)}


def registered_here(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Values of settings under which a program has put something of its own into a registry; and what that is."""
    for setting, registries in REGISTRIES.items():
        name = getattr(settings, setting, None)
        for own in (registry[name] for registry in registries if name in registry):
            if is_own(own):
                yield name, own
    augmentation = getattr(settings, "augmentation", None)
    for preset in dict.fromkeys((augmentation, second_view(augmentation))):
        if preset in AUGMENTATIONS and AUGMENTATIONS[preset] != OF_THE_KIT.get(preset):
            yield preset, AUGMENTATIONS[preset]


def with_nested(settings: Settings) -> Iterator[Settings]:
    """Settings, and all settings within them."""
    yield settings
    for nested in settings.nested:
        yield from with_nested(nested)


def _texts(own: Any, seen: set[int]) -> Iterator[str]:
    """The code of a function, a class, a partial or a bound method, and of what it uses of its own module."""
    if isinstance(own, functools.partial):
        yield from _values({"args": own.args} | own.keywords, own.func.__module__, seen)
        own = own.func
    own = inspect.unwrap(own, stop=_is_written_here)
    if isinstance(own, MethodType):
        yield from _texts(own.__self__, seen)
        own = own.__func__
    if not isinstance(own, FunctionType | type):
        if id(own) in seen:
            return
        seen.add(id(own))
        values = {name: value for name, value in getattr(own, "__dict__", {}).items() if not _is_cached(own, name)}
        yield from _values(values, type(own).__module__, seen)
        own = type(own)
    if id(own) in seen:
        return
    seen.add(id(own))
    yield _text(own)
    if isinstance(own, type):
        constants = {name: value for name, value in vars(own).items() if _is_plain(value) and not name.startswith("__")}
        yield from _values(constants, own.__module__, seen)
    for function in _functions(own):
        inside = inspect.getclosurevars(function)
        codes = [*_codes(function.__code__)]
        names = {name for code in codes for name in code.co_names} - {name for code in codes for name in _filled(code)}
        outside = {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}
        defaults = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
        yield from _values(dict(inside.nonlocals) | outside | defaults | vars(function), own.__module__, seen)
    for base in getattr(own, "__bases__", ()):
        yield from _values({"base": base}, own.__module__, seen)


def _is_cached(own: Any, name: str) -> bool:
    """Whether an attribute is there only once somebody has asked for it, and follows from the others."""
    return isinstance(inspect.getattr_static(type(own), name, None), functools.cached_property)


def _values(named: dict[str, Any], module: str, seen: set[int]) -> Iterator[str]:
    """Constants and collections of them, arrays, and functions and classes of this module."""
    for name, value in named.items():
        if _is_plain(value):
            yield f"{name}={value!r}"
        elif isinstance(value, Tensor | np.ndarray | np.generic):
            array = np.ascontiguousarray(value.detach().cpu().float() if isinstance(value, Tensor) else value)
            yield f"{name}={value.dtype} {[*value.shape]} {hashlib.sha256(array.tobytes()).hexdigest()}"
        elif isinstance(value, Mapping | SimpleNamespace | list | tuple | set | frozenset) and id(value) not in seen:
            seen.add(id(value))
            value = vars(value) if isinstance(value, SimpleNamespace) else value
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            if isinstance(value, set | frozenset):
                pairs = ((repr(one), one) for one in sorted(value, key=repr))
            yield from _values({f"{name}[{key!r}]": one for key, one in pairs}, module, seen)
        elif isinstance(value, functools.partial) or getattr(value, "__module__", None) == module:
            yield from _texts(value, seen)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _functions(own: Any) -> list[FunctionType]:
    """Itself, or the methods of a class."""
    if isinstance(own, FunctionType):
        return [own]
    members = [
        getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        for name, member in vars(own).items()
        if name != "__repr__"  # which a dataclass wraps, and which decides no result
    ]
    return [
        member
        for member in members
        if isinstance(member, FunctionType)
        and member.__module__ == own.__module__
        and member.__code__.co_filename != "<string>"  # what a dataclass writes is in its fields
    ]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Of a function, and of those that are written inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _codes_of_file(text: str) -> frozenset[CodeType]:
    try:
        return frozenset(_codes(compile(text, "", "exec", dont_inherit=True)))
    except SyntaxError:
        return frozenset()


def _is_written_here(function: Any) -> bool:
    """Whether its module is that of its code, and not by ``functools.wraps`` that of a function inside it."""
    return getattr(function, "__globals__", {}).get("__name__") == function.__module__


def _filled(code: CodeType) -> Iterator[str]:
    """Names of its module on which a function calls a method that fills: ``LOG.append(...)``."""
    for loaded, then in pairwise(dis.get_instructions(code)):
        if loaded.opname == "LOAD_GLOBAL" and then.argval in FILLS:
            yield loaded.argval


def _text(own: Any) -> str:
    """As it is written, without comments and layout.

    Its compiled form, where nobody wrote it into a file or a cell, or the file was edited since it was loaded.
    """
    if own.__name__ == "<lambda>":  # what is found of its text may end in the middle
        return _compiled(own)
    written = getattr(own, "__code__", own)  # of a decorated function its own text, not that of what it wraps
    try:
        text, file = dedent(inspect.getsource(written)), "".join(inspect.findsource(written)[0])
    except (OSError, TypeError):
        return _compiled(own)
    if not all(function.__code__ in _codes_of_file(file) for function in _functions(own) if _is_written_here(function)):
        return _compiled(own)
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:  # what dedent cannot move: a comment or a string that begins further left
        return text


def _compiled(own: Any) -> str:
    """What the interpreter has of a function, or of the methods of a class."""
    written = [own.__qualname__]
    for function in _functions(own):
        for code in _codes(function.__code__):
            written += [code.co_code.hex(), code.co_names, [*filter(_is_plain, code.co_consts)]]
            written += [sorted(map(repr, one)) for one in code.co_consts if isinstance(one, frozenset)]
    return repr(written)
