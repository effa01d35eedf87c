import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from fssl_core.costs.layerwise import GB, cost_curves
from fssl_core.costs.parts import build_model, vit
from fssl_core.figures.client_costs import resources_by_stage, traffic_by_direction
from fssl_core.figures.diagrams import FROZEN, changes_by_stage
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import diamonds, drawn

WORDS = {"subtitle": "profile smoke", "title": "resources"}


def curves():
    """Four blocks, eight rounds of three local epochs; memory is the stage in GB."""
    table = cost_curves(build_model(vit(depth=4), "MoCoV3"), rounds=8)
    return table.assign(memory_bytes=table["stage"] * GB)


def test_stages_are_steps_over_local_epochs_and_rounds():
    table = curves()
    memory, computation, traffic = drawn(resources_by_stage(table, **WORDS)).axes
    assert [axes.get_xlim() for axes in (memory, computation, traffic)] == [(0, 24), (0, 24), (0, 8)]
    progressive, layerwise = (
        next(steps for steps in axes.patches if to_hex(steps.get_edgecolor()) == METHOD_COLOURS[method])
        for axes, method in ((traffic, "Prog-FedSSL"), (memory, "LW-FedSSL"))
    )
    expected = table[table["method"] == "Prog-FedSSL"]["round_bytes"] / 2**20
    np.testing.assert_allclose(progressive.get_data().values, expected)
    values, edges, _ = layerwise.get_data()
    assert dict(zip(edges, values, strict=False))[6] == 2  # stage 2 starts with round 3


def test_a_printed_peak_stands_where_the_method_needs_most():
    peaks = {"FedMoCoV3": 9 * GB, "LW-FedSSL": 3 * GB}
    axes = drawn(resources_by_stage(curves(), printed_peaks=peaks, **WORDS)).axes[0]
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in diamonds] == [(12, 9), (21, 3)]


def test_download_and_upload_add_up_in_a_bar_with_the_share_of_the_first():
    rows = pd.DataFrame(
        [("whole", 4 * GB, 4 * GB, 8 * GB), ("part", 1 * GB, 2 * GB, np.nan)],
        columns=["name", "down_bytes", "up_bytes", "printed_bytes"],
    )
    (axes,) = drawn(traffic_by_direction(rows, **WORDS)).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 4), (0, 1), (4, 4), (1, 2)]
    assert [text.get_text() for text in axes.texts] == ["8.00 GB, 1.00×", "3.00 GB, 0.38×"]
    assert diamonds(axes) == {(8, 0)}


def test_frozen_units_are_told_from_absent_ones():
    rows = [("FedSSL", 1, 1, 0.01), ("FedSSL", 1, 2, 0.02)]
    rows += [("LW-FedSSL", 1, 1, 0.01), ("LW-FedSSL", 2, 1, 0.0), ("LW-FedSSL", 2, 2, 0.1)]
    changes = pd.DataFrame(rows, columns=["method", "stage", "unit", "largest_change"], dtype=object)
    changes = changes.astype({"stage": float, "unit": float, "largest_change": float})  # as read with other rows
    full, layerwise = drawn(changes_by_stage(changes, **WORDS)).axes
    assert [text.get_text() for text in full.texts] == ["no other stage"]
    first, second = ([to_hex(face) for face in stage] for stage in layerwise.images[0].get_array().tolist())
    trained, absent = METHOD_COLOURS["LW-FedSSL"], "#ffffff"
    assert (first, second) == ([trained, absent], [FROZEN, trained])
    assert [to_hex(face) for face in full.images[0].get_array()[1]] == [absent, absent]
    assert layerwise.get_ylim() == (1.5, -0.5)  # training runs downwards
