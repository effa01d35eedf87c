"""A notebook on its own, in a folder without the project, on a Python without the package."""

import subprocess
import sys

import nbformat

from fssl_core import __version__
from tests.notebooks.test_contract import FOLDER, code_cells


def test_the_first_cell_says_in_one_line_what_to_install(tmp_path):
    notebook = nbformat.read(FOLDER / "monacosfl" / "fig3_traffic.ipynb", as_version=4)
    first = code_cells(notebook)[0].source
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", first], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # -S: without site-packages
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"fssl-core {__version__}, which is not installed" in line
    assert "%pip install 'fssl-core[notebooks] @ git+" in line
