"""What JupyterLab does when it saves a notebook. Imports nothing heavy: the server loads it when it starts."""

from typing import Any

METADATA = {  # of every stored notebook, whatever kernel it was opened with
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def keep_metadata(model: dict[str, Any], **_: Any) -> None:
    """Jupyter's hook before a file is saved: a notebook of the project keeps the metadata that it is stored with.

    JupyterLab writes the name and version of the kernel into a notebook that is only opened, and saves it by itself:
    the clone would then differ from what was committed although nobody has changed anything.
    """
    if model["type"] == "notebook" and "fssl" in model["content"]["metadata"]:
        model["content"]["metadata"] = {**METADATA, "fssl": model["content"]["metadata"]["fssl"]}
