"""The parameters of a notebook: read, checked, compared with what it was stored with."""

import json

import pytest

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.parameters import (
    as_annotated,
    changed_parameters,
    checked_value,
    declared_parameters,
    given_beside_overrides,
    read_value,
    stored_with,
    take_parameters,
)

CELL = """profile: str = "smoke"  # how large
seeds: list = []  # one run each
rate: float = 0.1
epochs: int = 3
plot: bool = True
overrides: dict = {}"""
DEFAULTS = {"profile": "smoke", "seeds": [], "rate": 0.1, "epochs": 3, "plot": True, "overrides": {}}


def namespace_of(*cells: str) -> dict:
    """The globals of a notebook after these cells."""
    namespace = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, namespace)
    return namespace


def test_a_cell_is_read_without_being_run():
    assert declared_parameters(CELL + "\nprint(1 / 0)") == DEFAULTS
    with pytest.raises(ValueError, match="malformed"):
        declared_parameters("seeds: list = list(range(3))")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 0.001),
        ("-.5E-2", -0.005),
        ("word", "word"),
        ("true", True),
        ("[0, 1]", [0, 1]),
        ("{epochs: 3}", {"epochs": 3}),
        ("{'epochs': 3}", {"epochs": 3}),
        ("1-2", "1-2"),
        ("null", None),
        ("0", 0),
        ("-7", -7),
        ("1.", 1.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("010", "010"),  # 8 in YAML 1.1, and the next three 90, 16 and 1000
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("1:30.5", "1:30.5"),
    ],
)
def test_values_are_read_as_they_are_written_on_a_command_line(text, value):
    read = read_value(text)
    assert (read, type(read)) == (value, type(value))


def test_text_that_is_no_value():
    with pytest.raises(ValueError, match="'\\[0' is no value in YAML"):
        read_value("[0")


@pytest.mark.parametrize("text", [3000 * "[", '"\\ud800"', "2020-01-01", "!!timestamp x", "[&a 1, *a]", "{a: 1, a: 2}"])
def test_what_no_setting_can_be_is_no_value_and_told_in_a_line(text):
    with pytest.raises(ValueError, match="is no value in YAML") as raised:
        read_value(text)
    assert len(str(raised.value)) < 2000


def test_names_of_settings_are_words():
    with pytest.raises(SettingError, match="overrides="):
        checked_value("overrides", {1: 2}, {}, "monacosfl/fig6")


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("seeds", "[0, 1]", [0, 1]),  # as papermill passes a list on
        ("seeds", (0, 1), [0, 1]),
        ("overrides", '{"epochs": 3}', {"epochs": 3}),
        ("overrides", "{'plot': True}", {"plot": True}),
        ("epochs", "5", 5),
        ("rate", "1e-3", 0.001),
        ("rate", 1, 1),
        ("plot", "false", False),
        ("profile", "3", "3"),  # text stays text where text is wanted
    ],
)
def test_literals_of_the_right_type_are_taken(name, value, taken):
    found = checked_value(name, value, DEFAULTS[name], "paper/fig1")
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("seeds", 5, "a value of type list for paper/fig1, such as [5]"),
        ("seeds", "0, 1", "list"),
        ("seeds", "[0, 1", "list"),
        ("seeds", {0, 1}, "list"),
        ("seeds", None, "list"),
        ("overrides", ["epochs", 3], "a value of type dict for paper/fig1, such as {'learning_rate': 0.01}"),
        ("overrides", "epochs=3", "dict"),
        ("epochs", "three", "a value of type int for paper/fig1, such as 3"),
        ("epochs", 1.5, "int"),
        ("epochs", True, "int"),
        ("epochs", [3], "int"),
        ("rate", "fast", "float"),
        ("rate", False, "float"),
        ("plot", 1, "bool"),
        ("plot", "yes please", "bool"),
        ("profile", 3, "a value of type str for paper/fig1, such as 'smoke'"),
        ("profile", ["laptop"], "str"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name_value_and_example(name, value, expected):
    with pytest.raises(SettingError) as caught:
        checked_value(name, value, DEFAULTS[name], "paper/fig1")
    assert str(caught.value).startswith(f"{name}={value!r} cannot be used: expected ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_floats_that_an_editor_saved_as_whole_numbers_are_floats():
    """JupyterLab writes the metadata with JavaScript, which knows no 100.0."""
    cell = "rate: float = 100.0  # of all\nmany: int = 3\nprofile: str = 'smoke'"
    saved = json.loads(json.dumps(declared_parameters(cell)).replace("100.0", "100"))
    assert type(saved["rate"]) is int
    restored = as_annotated(saved, cell)
    assert take_parameters("paper/fig1", namespace_of(cell), restored)["rate"] == 100.0
    assert (type(restored["rate"]), type(restored["many"])) == (float, int)
    assert as_annotated(saved, "rate: float = ") == saved


@pytest.mark.parametrize("setting", ["seed", "clients"])
def test_a_setting_that_has_a_parameter_of_its_own_is_no_override(setting):
    """One value would stand under the names of several: three seeds of one run."""
    cell = f"profile: str = 'smoke'\nseeds: list = []\nclients: list = []\noverrides: dict = {{{setting!r}: 3}}"
    with pytest.raises(SettingError, match=rf"overrides\['{setting}'\]=3 cannot be used: expected (seeds|clients), a"):
        take_parameters("paper/fig1", namespace_of(cell))


def test_a_setting_that_the_code_gives_beside_the_overrides_is_none():
    code = [
        "%matplotlib inline",
        "settings(profile, method=name, **overrides)",
        "settings(profile, cut_layer=1, **(problem | {'partition': partition, 'epochs': 3} | overrides | values))",
        "settings(profile, seed=0, **problem)",
        "{'width': width} | overrides",
    ]
    given = given_beside_overrides(code)
    assert given == {"method", "cut_layer", "partition"}
    cell = "profile: str = 'smoke'\noverrides: dict = {}\nother: dict = {'method': 1}"
    assert take_parameters("paper/fig1", namespace_of(cell), None, given)["other"] == {"method": 1}
    refused = r"overrides\['method'\]='LW' cannot be used: expected another setting: paper/fig1 has values of its own"
    with pytest.raises(SettingError, match=refused):
        take_parameters("paper/fig1", namespace_of(cell.replace("{}", "{'method': 'LW'}")), None, given)


def test_all_parameters_of_a_running_notebook_are_taken():
    namespace = namespace_of(CELL, "# Parameters\nseeds = '[4]'\nprofile = \"laptop\"\n", "x = 1")
    assert take_parameters("paper/fig1", namespace, DEFAULTS) == {**DEFAULTS, "profile": "laptop", "seeds": [4]}
    assert namespace["seeds"] == [4]


@pytest.mark.parametrize(
    ("cells", "defaults"),
    [
        ((CELL, "# Parameters\nsedes = [4]\n"), DEFAULTS),  # papermill injects it without a word
        ((CELL, "# Parameters\nsedes = [4]\n"), None),
        ((f"{CELL}\nsedes: list = [4]",), DEFAULTS),
        ((f"{CELL}\nsedes = [4]",), DEFAULTS),
    ],
)
def test_a_misspelt_name_is_refused(cells, defaults):
    with pytest.raises(SettingError, match=r"sedes=\[4\] .* profile, seeds, .*\(did you mean seeds\?\)"):
        take_parameters("paper/fig1", namespace_of(*cells), defaults)


def test_what_a_reader_writes_elsewhere_is_the_readers_own():
    namespace = namespace_of("mine: int = 3", CELL, "other: list = [1]\nthird = 4")
    assert take_parameters("paper/fig1", namespace, DEFAULTS) == DEFAULTS
    again = namespace_of(CELL, "# Parameters\nsedes = 1\n", CELL)  # mended, and the cell run again
    assert take_parameters("paper/fig1", again, DEFAULTS) == DEFAULTS


@pytest.mark.parametrize("slip", ["sedes: list = [4]", "sedes = [4]"])
def test_a_cell_without_annotations_is_one_of_parameters(slip):
    cell = f"profile = 'smoke'\nseeds = []\nrate = 0.1\nepochs = 3\nplot = True\noverrides = {{}}\n{slip}"
    with pytest.raises(SettingError, match=r"sedes=\[4\] .*\(did you mean seeds\?\)"):
        take_parameters("paper/fig1", namespace_of(CELL, cell), DEFAULTS)
    mended = namespace_of(f"{CELL}\n{slip}", cell.replace(slip, ""))
    assert take_parameters("paper/fig1", mended, DEFAULTS) == DEFAULTS


def test_without_its_parameters_cell_a_notebook_asks_for_it():
    with pytest.raises(FsslError, match=r"The parameter profile of paper/fig1 has no value\. Run the parameters cell"):
        take_parameters("paper/fig1", {"In": ["import torch"]}, DEFAULTS)


def test_a_parameter_that_was_deleted_is_asked_for():
    namespace = namespace_of(CELL.replace("epochs: int = 3\n", ""))
    with pytest.raises(FsslError, match=r"The parameter epochs of paper/fig1 has no value. Write epochs = 3 and"):
        take_parameters("paper/fig1", namespace, DEFAULTS)


def test_changed_parameters_name_what_was_changed():
    assert changed_parameters(DEFAULTS, DEFAULTS) == {}
    values = {**DEFAULTS, "profile": "gpu", "seeds": [1], "overrides": {"width": 4, "epochs": 1}, "rate": 0.1}
    assert changed_parameters(values, DEFAULTS) == {"seeds": [1], "width": 4, "epochs": 1}


def test_a_notebook_is_told_from_the_one_that_was_stored():
    def cells(parameters=CELL, code="run(seeds)", text="words"):
        tagged = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": parameters}
        return [
            {"cell_type": "markdown", "metadata": {}, "source": text},
            tagged,
            {"cell_type": "code", "metadata": {}, "source": code},
        ]

    stored = stored_with(cells())
    assert stored["parameters"] == DEFAULTS
    assert stored_with(cells(text="other words")) == stored
    assert stored_with(cells(parameters=CELL.replace("one run each", "seeds"))) == stored
    edited = stored_with(cells(parameters=CELL.replace("0.1", "0.2")))
    assert (edited["parameters"]["rate"], edited["code"]) == (0.2, stored["code"])
    assert stored_with(cells(code="run([0])"))["code"] != stored["code"]
