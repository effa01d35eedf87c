"""The book of ``make site``, as a reader without a network sees it: opened from a folder in headless Chromium."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("furo", "myst_nb", "playwright", "sphinx")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ASSET = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//")
IN_STYLE = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(?:https?:)?//")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install -e '.[test]'"),
    # Sphinx's own parts warn of their future
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"),
]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A book of every page but with two notebooks in full and the API of one package; its links are all there."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        import build
    finally:
        sys.path.pop(0)
    folder = tmp_path_factory.mktemp("book")
    build.write_source(folder / "source", ["index", "explore", "monacosfl/fig6", "ldawa/table1"], "fssl_core.claims")
    assert build.build(folder / "source", folder / "site", jobs=1) == 0
    return folder / "site"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    page = browser.new_page()
    page.complaints = []
    page.on("console", lambda message: message.type == "error" and page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("requestfailed", lambda request: page.complaints.append(f"failed: {request.url}"))
    page.on("request", lambda request: request.url.startswith("http") and page.complaints.append(request.url))
    yield page
    page.close()
    assert page.complaints == []


def test_nothing_is_loaded_from_elsewhere(site):
    pages, styles = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 100
    assert styles
    for path in pages:
        assert not ASSET.search(path.read_text(encoding="utf-8")), path.name
    for path in styles:
        assert not IN_STYLE.search(path.read_text(encoding="utf-8")), path.name


def test_what_a_notebook_shows_first_is_its_record_and_outputs_of_smoke_are_folded(site):
    text = (site / "notebooks" / "monacosfl" / "fig6_accuracy_by_cut.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img[^>]*src="([^"]+)"', text[text.index("<h1>") :])
    assert pictures[0].endswith("fig6.workstation.png")
    result = text[text.index('id="result"') : text.index('id="beside-the-paper"')]
    for picture in re.findall(r"<details.*?</details>|<img[^>]*>", result, re.DOTALL):
        assert "smoke" in picture or "fig6.workstation" in picture or "fig6.laptop" in picture
    assert text.count("Above: the notebook’s own output") == 3  # partition, result, identifiability
    assert "On the record at" in text


@needs_chromium
def test_every_page_opens_without_an_error_and_every_link_leads_somewhere(site, page):
    broken = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri(), wait_until="load")
        assert page.title(), path
        links = page.eval_on_selector_all("a[href]", "links => links.map(link => [link.protocol, link.pathname])")
        places = {name for protocol, name in links if protocol == "file:"}
        broken += [f"{path.name}: {name}" for name in places if not Path(name.replace("%20", " ")).is_file()]
    assert broken == []


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(site, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    notebooks = ("notebooks/monacosfl/fig6_accuracy_by_cut", "notebooks/explore")
    for name in ("index", "gallery", "claims", "api/fssl_core.claims.rules", *notebooks):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.goto((site / "claims.html").as_uri())
    table = page.locator(".claims .table-wrapper")
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")


@needs_chromium
def test_search_finds_a_method(site, page):
    page.goto((site / "search.html").as_uri() + "?q=L-DAWA")
    page.locator("#search-results a", has_text="weighting whole models or layers").first.wait_for()


@needs_chromium
def test_filters_of_the_gallery_leave_what_was_asked_for_and_can_be_linked_to(site, page):
    page.goto((site / "gallery.html").as_uri())
    shown = ".gallery .item:not([hidden])"
    everything = page.locator(shown).count()
    page.select_option("select[name=paper]", "L-DAWA")
    page.select_option("select[name=verdict]", "contradicted")
    some = page.locator(shown).count()
    assert 0 < some < everything
    assert set(page.locator(f"{shown} .paper").all_text_contents()) == {"L-DAWA"}
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.locator(shown).count() == some
    page.fill("input[name=search]", "no such words anywhere")
    assert page.locator(shown).count() == 0


@needs_chromium
def test_claims_are_searched_filtered_and_sorted(site, page):
    page.goto((site / "claims.html").as_uri())
    rows = page.locator(".claims tbody tr")
    assert rows.count() == page.locator(".claims tbody tr:not([hidden])").count() > 100
    ours = page.locator(".claims th button", has_text="ours")
    for column in (ours, page.locator(".claims th button", has_text="notebook")):
        place = column.evaluate("button => button.closest('th').cellIndex")
        cells = page.locator(f".claims tbody td:nth-child({place + 1})")
        column.click()
        ascending = cells.all_text_contents()
        column.click()
        descending = cells.all_text_contents()
        assert ascending[0] != descending[0]
        assert sorted(ascending) == sorted(descending)
        assert ascending[0] == descending[-1]
    assert ascending.index("fig9") < ascending.index("fig10")  # by number, not by letter
    page.select_option("select[name=evidence]", "exact")
    page.fill("input[name=search]", "traffic")
    shown = page.locator(".claims tbody tr:not([hidden])")
    assert 0 < shown.count() < rows.count()
    assert all("exact" in text and "traffic" in text.lower() for text in shown.all_text_contents())
