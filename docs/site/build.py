"""``make site``: a book of notebooks, records, claims, documentation and API, as a folder of pages.

The tree in ``build/site-source`` mirrors the project, so that links between files hold, with pages made of the records.
Then Sphinx makes ``build/site`` of it, which opens in any browser without a server or a network.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import pages  # noqa: E402
from sphinx.cmd.build import main as sphinx  # noqa: E402

PACKAGE = "fssl_core"


def write_source(folder: Path, ids: Sequence[str] = (), package: str = PACKAGE) -> None:
    """Write what Sphinx reads. Files that stay the same keep their time, so that the next build is short.

    Args:
        folder: of the tree; what does not belong there is deleted.
        ids: the notebooks to have in full, as for ``find_notebooks``; of the others there is the title. None: all.
        package: the API reference is of it and what is in it.

    Raises:
        FsslError: an ID that is not there, or a notebook that cannot be read.
    """
    copied = ["CITATION.cff", "LICENSE", *pages.DOCUMENTS]
    for pattern in ("figures/*", "figures/*/*", "examples/**/*", "docs/site/static/*", "docs/site/conf.py"):
        copied += [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern) if path.is_file()]
    wanted = {name.removeprefix("docs/site/"): (ROOT / name).read_bytes() for name in copied}
    wanted |= {name: text.encode() for name, text in pages.pages(ids, package).items()}
    for name, content in wanted.items():
        target = folder / name
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


def build(source: Path, target: Path, jobs: int = 2) -> int:
    """Make the pages; a warning, such as a link that leads nowhere, is an error. Returns Sphinx's exit status.

    What Sphinx remembers of a build that was interrupted is not what it wrote: all is made again after one.
    """
    cache = target.with_name(f"{target.name}-cache")
    whole = cache / "whole"
    options = ["-W", "--keep-going", "-j", str(jobs), "-d", str(cache), *([] if whole.exists() else ["-E", "-a"])]
    options += [] if sys.stdout.isatty() else ["-q"]  # Sphinx shows how far it is in place
    whole.unlink(missing_ok=True)
    status = sphinx([*options, str(source), str(target)])
    if not status:
        whole.touch()
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ids", nargs="*", help="notebooks to have in full; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    source, target = ROOT / "build" / "site-source", ROOT / "build" / "site"
    write_source(source, arguments.ids)
    print("Making the pages; the first time takes minutes.", file=sys.stderr)
    status = build(source, target, arguments.jobs)
    if not status:
        print(f"Open {(target / 'index.html').relative_to(ROOT)} in a browser.")
    sys.exit(status)
