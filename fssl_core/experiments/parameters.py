"""The parameters of a notebook: which it declares, what they were given, and whether that can be used.

A notebook declares its parameters in one cell, ``name: type = literal  # help`` a line. The names and defaults that
it was stored with stand in its metadata as well, because JupyterLab saves a changed cell without being asked. They
tell a changed run from the one that a record was made by.
"""

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import yaml

from fssl_core.errors import FsslError, SettingError
from fssl_core.notices import printable
from fssl_core.settings import did_you_mean

_EXAMPLES = {str: "word", list: [0, 1], dict: {"learning_rate": 0.01}}  # where the default is an empty one


class _Yaml(yaml.SafeLoader):
    """YAML 1.2's numbers: in PyYAML's 1.1, ``1e-3`` is a word, ``010`` is 8 and ``1:30`` is 90. And no aliases."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):  # of aliases of aliases a line makes as many values as it likes
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if len(names) > len({*map(str, names)}):
            raise yaml.YAMLError("a name twice")
        return super().construct_mapping(node, deep)


_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0|[1-9]\d*)$",
    "tag:yaml.org,2002:float": r"[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.(inf|Inf|INF))$|\.(nan|NaN)$",
}
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag not in _NUMBERS]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _form in _NUMBERS.items():
    _Yaml.add_implicit_resolver(_tag, re.compile(_form), list("-+.0123456789"))


def read_value(text: str) -> Any:
    """A value as written on a command line: ``3``, ``1e-3``, ``word``, ``true``, ``[0, 1]``, ``{epochs: 3}``.

    Raises:
        ValueError: the text is none.
    """
    try:
        value = yaml.load(text, Loader=_Yaml)
        json.dumps(value, ensure_ascii=False).encode()  # no bytes, no dates, no half characters, no number without end
    except (yaml.YAMLError, RecursionError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{printable(text)!r} is no value in YAML, such as 3, word, [0, 1] or {{epochs: 3}}"
        ) from error
    return value


def declared_parameters(source: str) -> dict[str, Any]:
    """Names and defaults that a parameters cell declares.

    Raises:
        SyntaxError: the cell is not Python.
        ValueError: a default is no literal.
    """
    lines = [line for line in ast.parse(source).body if isinstance(line, ast.AnnAssign | ast.Assign) and line.value]
    return {name: ast.literal_eval(line.value) for line in lines for name in _targets(line)}


def as_annotated(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Values whose floats came back as floats: JupyterLab saves the 100.0 of a notebook's metadata as 100."""
    try:
        lines = [line for line in ast.parse(source).body if isinstance(line, ast.AnnAssign)]
    except SyntaxError:  # whoever executes the cell is told
        return dict(values)
    floats = {name for line in lines if ast.unparse(line.annotation) == "float" for name in _targets(line)}
    return {name: float(value) if name in floats and type(value) is int else value for name, value in values.items()}


def stored_with(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept in a notebook's metadata to tell later changes by: ``parameters``, and a digest of the other code.

    Args:
        cells: of the notebook, as nbformat reads them.

    Raises:
        SyntaxError, ValueError: as :func:`declared_parameters`.
    """
    parameters, code = {}, hashlib.sha256()
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        if "parameters" in cell["metadata"].get("tags", ()):
            parameters = declared_parameters(cell["source"])
        else:
            code.update(cell["source"].encode() + b"\0")
    return {"parameters": parameters, "code": code.hexdigest()[:16]}


def checked_value(name: str, value: Any, default: Any, notebook: str) -> Any:
    """A value for a parameter, of the type that its default has.

    Text that is a literal of that type is taken as one, since papermill passes lists and mappings on as text.

    Raises:
        SettingError: the value is of another type.
    """
    kind, checked = type(default), value
    if isinstance(value, str) and kind is not str:
        try:
            checked = read_value(value)
        except ValueError:
            checked = value
    if kind is list and isinstance(checked, tuple):
        checked = list(checked)
    fits = isinstance(checked, (int, float) if kind is float else kind)
    fits &= not isinstance(checked, dict) or all(isinstance(key, str) for key in checked)
    # A bool is an int to Python, but not to a reader.
    if default is not None and (not fits or (isinstance(checked, bool) and kind is not bool)):
        example = default or _EXAMPLES.get(kind, default)
        if kind is list and isinstance(checked, (int, float, str)):
            example = [checked]
        raise SettingError(name, value, f"a value of type {kind.__name__} for {notebook}, such as {example!r}")
    return checked


def refuse_profile(parameters: Mapping[str, Any]) -> None:
    """Raise :class:`SettingError` where the profile is given as one of the parameters, beside the one that counts."""
    if "profile" in parameters:
        raise SettingError("profile", parameters["profile"], "the option --profile, which names the figures as well")


def refuse_unknown(name: str, value: Any, known: Sequence[str], notebook: str) -> None:
    """Raise :class:`SettingError` for a name that is no parameter of the notebook; the message has those that are."""
    if name not in known:
        raise SettingError(name, value, f"a parameter of {notebook}: {', '.join(known)}{did_you_mean(name, known)}")


def given_beside_overrides(sources: Iterable[str]) -> set[str]:
    """Settings that stand in the calls to which code gives ``**overrides``.

    One that is a keyword there would be given twice, a TypeError to Python. One with a variable for a value, in a
    mapping that ``overrides`` are added to, is swept: it would be one value under the name of several.
    """
    found = set()
    for call in (node for source in sources for node in ast.walk(_parsed(source)) if isinstance(node, ast.Call)):
        unpacked = [word.value for word in call.keywords if not word.arg and "overrides" in ast.unparse(word)]
        if unpacked:
            found |= {word.arg for word in call.keywords if word.arg}
        for mapping in (node for value in unpacked for node in ast.walk(value) if isinstance(node, ast.Dict)):
            pairs = zip(mapping.keys, mapping.values, strict=True)
            found |= {name.value for name, value in pairs if name and not isinstance(value, ast.Constant)}
    return found


def take_parameters(
    notebook: str,
    namespace: MutableMapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    given: Collection[str] = (),
) -> dict[str, Any]:
    """Check all parameters of a running notebook, and put literals given as text into its namespace as values.

    Args:
        notebook: its ID, for messages.
        namespace: ``globals()`` of the notebook.
        defaults: name and default of every parameter; ``None``: as the cell that was executed declares them.
        given: settings that the notebook's code gives by itself.

    Returns:
        every parameter with its value.

    Raises:
        SettingError: a value of the wrong type, a name that the notebook does not have, or a setting that is not free.
        FsslError: a parameter without a value.
    """
    parameters_cell, injected = _executed_cells(namespace.get("In", ()))
    if defaults is None:
        defaults = declared_parameters(parameters_cell)
    for name in [*_assigned(parameters_cell), *_assigned(injected)]:
        refuse_unknown(name, namespace.get(name), list(defaults), notebook)
    values = {}
    for name, default in defaults.items():
        if name not in namespace:
            advice = (
                f"Write {name} = {default!r} and try again." if parameters_cell else "Run the parameters cell first."
            )
            raise FsslError(f"The parameter {name} of {notebook} has no value. {advice}")
        values[name] = namespace[name] = checked_value(name, namespace[name], default, notebook)
    for name, settings in values.items():
        for setting in settings if isinstance(settings, dict) else ():
            if swept := {setting, f"{setting}s"} & values.keys():  # it would be one value under the name of several
                expected = f"{', '.join(swept)}, a parameter of its own, for this setting"
                raise SettingError(f"{name}[{setting!r}]", settings[setting], expected)
            if name == "overrides" and setting in given:
                expected = f"another setting: {notebook} has values of its own for this one, in the cell of its sweep"
                raise SettingError(f"{name}[{setting!r}]", settings[setting], expected)
    return values


def changed_parameters(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not the defaults; of a mapping each entry under its own name, and without the profile."""
    changed: dict[str, Any] = {}
    for name, value in values.items():
        if name == "profile" or value == defaults.get(name):
            continue
        changed |= value if isinstance(value, dict) and not defaults.get(name) else {name: value}
    return changed


def _executed_cells(history: Sequence[str]) -> tuple[str, str]:
    """The parameters cell that IPython executed last, and what papermill injected after it; either may be empty."""
    parameters_cell = injected = ""
    for source in history:
        if source.startswith("# Parameters\n"):  # papermill's mark
            injected = source
        elif "profile" in _assigned(source):  # with an annotation or without
            parameters_cell, injected = source, ""
    return parameters_cell, injected


def _parsed(source: str) -> ast.Module:
    """A cell; an empty one where it is a magic, or the reader's own experiment."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module([], [])


def _assigned(source: str) -> Iterator[str]:
    """Names that a cell assigns at its top level."""
    for line in _parsed(source).body:
        if isinstance(line, ast.AnnAssign | ast.Assign):
            yield from _targets(line)


def _targets(line: ast.AnnAssign | ast.Assign) -> list[str]:
    targets = line.targets if isinstance(line, ast.Assign) else [line.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
