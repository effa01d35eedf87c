"""What runs a notebook asks for, found without computing any of them, and without data.

A notebook is the experiment: its cells make the settings and give them to ``run_all``. Here only those statements of a
notebook are executed that its calls of :data:`ENTRIES` need, and inside :func:`collecting` these take down
what they are asked for in place of computing it. Data sets are outlines (:mod:`fssl_core.data.outlines`).

``run_all`` gives rows with the settings alone. A statement that needs more fails, which is no harm unless settings of
later runs depend on it: such calls are counted as unknown. What chooses settings by results can find the stored ones
itself, and, where :func:`estimating`, make any choice that costs the same.
"""

import ast
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fssl_core.data.outlines import outlines_only
from fssl_core.errors import FsslError
from fssl_core.experiments.schedule import one_line
from fssl_core.settings import Settings

ENTRIES = ("run", "run_all", "run_beside_untrained")  # of fssl_core.experiments: what computes runs
_collected: list[Settings] | None = None
_estimating = False


@dataclass(frozen=True)
class Asked:
    """What a notebook asks for.

    Args:
        settings: of its runs, in order, equal ones once; without those that they build on.
        unknown: a line for each statement whose runs depend on results, or on what cannot be known.
    """

    settings: tuple[Settings, ...]
    unknown: tuple[str, ...]


def with_needed(settings: Iterable[Settings]) -> dict[str, Settings]:
    """By key, runs and all that they build on, each once and after what it needs."""
    settings_by_key: dict[str, Settings] = {}

    def add(one: Settings) -> None:
        if one.key not in settings_by_key:
            for needed in one.needs:
                add(needed)
            settings_by_key[one.key] = one

    for one in settings:
        add(one)
    return settings_by_key


@contextmanager
def collecting(*, estimate: bool = False) -> Iterator[list[Settings]]:
    """Inside the block, what ``run`` and ``run_all`` are asked for goes into this list, and nothing is computed.

    Args:
        estimate: see :func:`estimating`.
    """
    global _collected, _estimating
    before = _collected, _estimating
    _collected, _estimating = [], estimate
    try:
        with outlines_only():
            yield _collected
    finally:
        _collected, _estimating = before


def estimating() -> bool:
    """Whether costs are all that is asked, so that settings may stand in for those that results will choose."""
    return _estimating


def collected(settings: Sequence[Settings]) -> bool:
    """Take down what an entry is asked for; False outside :func:`collecting`, where it has to be computed."""
    if _collected is None:
        return False
    _collected.extend(settings)
    return True


def asked_by(cells: list[str], parameters: Mapping[str, Any], *, estimate: bool = False) -> Asked:
    """What a notebook's code asks for.

    Args:
        cells: the sources of its code cells, that of its parameters first.
        parameters: to set in place of the defaults.
        estimate: see :func:`estimating`.

    Raises:
        SyntaxError: a cell is no Python.
        FsslError: of the parameters or settings, such as a profile that there is not.
    """
    parameters_cell, *others = cells
    injected = "# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in parameters.items())
    namespace: dict[str, Any] = {"__name__": "__main__", "In": [parameters_cell, injected]}
    exec(parameters_cell, namespace)
    namespace |= parameters  # not by their text: that of .inf is no Python
    statements = [statement for source in others for statement in ast.parse(source).body]
    unknown = []
    with collecting(estimate=estimate) as collected:
        for statement in _needed(statements):
            before = with_needed(collected)
            try:
                _execute(statement, namespace)
            except Exception as error:
                if isinstance(error, FsslError) and not collected:
                    raise  # before any run: of the settings themselves
                if not _asked_all_the_same(statement, namespace) or (
                    isinstance(statement, ast.For) and with_needed(collected).keys() - before.keys()
                ):
                    line = ast.unparse(statement).partition("\n")[0]
                    # With the notebook's own parameters it is for want of results; with others it may be for these.
                    if parameters.keys() - {"profile"}:
                        line += f" ({one_line(error)})"
                    unknown.append(line)
    return Asked(tuple({settings.key: settings for settings in collected}.values()), tuple(unknown))


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), "notebook", "exec"), namespace)


def _asked_all_the_same(statement: ast.stmt, namespace: dict[str, Any]) -> bool:
    """Whether the calls in a statement that failed can be made one by one; of a loop those of its first turn."""
    for call in _entries(statement):
        try:
            _execute(ast.copy_location(ast.Expr(call), statement), namespace)
        except Exception:
            return False
    return True


def _needed(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that ask for runs, and those whose names or objects they need, in order."""
    functions = {statement.name: _read(statement) for statement in statements if isinstance(statement, ast.FunctionDef)}
    needed: set[str] = set()
    chosen = []
    for statement in reversed(statements):
        bound = _bound(statement)
        if _entries(statement) or (bound | _touched(statement)) & needed or _calls_globals(statement):
            chosen.append(statement)
            if isinstance(statement, ast.Assign | ast.FunctionDef | ast.ImportFrom):  # others may leave what was there
                needed -= bound
            needed |= _read(statement)
            while more := set().union(*(functions[name] for name in needed & functions.keys())) - needed:
                needed |= more  # a function sees names that are defined after it
    return chosen[::-1]


def _entries(statement: ast.stmt) -> list[ast.Call]:
    """The calls of ``run`` and ``run_all`` that are written in a statement; none in a definition."""
    if isinstance(statement, ast.FunctionDef):
        return []
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ENTRIES]


def _bound(statement: ast.stmt) -> set[str]:
    """The notebook's names that a statement gives a value; not those inside functions and comprehensions."""
    symbols = _scope(statement).get_symbols()
    bound = {name.get_name() for name in symbols if name.is_assigned() or name.is_imported()}
    return bound - _of_comprehensions(statement)


def _read(statement: ast.stmt) -> set[str]:
    """The notebook's names that a statement reads, those of loops over them aside."""
    names, scopes = set(), [_scope(statement)]
    loop_names = {name for loop in ast.walk(statement) if isinstance(loop, ast.For) for name in _targets(loop.target)}
    while scopes:
        scope = scopes.pop()
        inside = scope.get_type() != "module"
        names |= {
            name.get_name() for name in scope.get_symbols() if name.is_referenced() and (name.is_global() or not inside)
        }
        scopes += scope.get_children()
    return names - loop_names - _of_comprehensions(statement)


def _of_comprehensions(statement: ast.stmt) -> set[str]:
    """Names that nothing but comprehensions gives a value: from Python 3.12 on `symtable` has them outside as well."""
    nodes = [*ast.walk(statement)]
    targets = [name for one in nodes if isinstance(one, ast.comprehension) for name in ast.walk(one.target)]
    stored = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    outside = {
        one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one not in targets
    }
    return stored - outside


def _scope(statement: ast.stmt) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(statement), "notebook", "exec")


def _targets(node: ast.expr) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _touched(statement: ast.stmt) -> set[str]:
    """Names whose objects a statement may change: by an assignment to a part of them, or a method of theirs."""
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= _base(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names |= _base(node.value.func) if isinstance(node.value.func, ast.Attribute) else set()
    return names


def _base(node: ast.expr) -> set[str]:
    """The name that ``name.attribute[0].method`` begins with."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _calls_globals(statement: ast.stmt) -> bool:
    """Whether it may put names into the notebook."""
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "globals" for called in calls)
