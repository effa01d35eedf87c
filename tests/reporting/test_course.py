"""The course as data: an order, a question for each notebook, and how to begin with each paper."""

from fssl_core.papers.reference import WORKS
from fssl_core.reporting.course import CHAPTERS, COURSE


def test_every_paper_has_a_chapter_and_every_notebook_belongs_to_one():
    assert list(CHAPTERS) == list(WORKS)
    assert {id.partition("/")[0] for id in COURSE} == set(CHAPTERS)
    assert len({chapter.name for chapter in CHAPTERS.values()}) == len(CHAPTERS)


def test_an_essential_path_is_short_and_in_the_order_of_the_course():
    order = list(COURSE)
    for key, chapter in CHAPTERS.items():
        places = [order.index(id) for id in chapter.essential]
        assert places == sorted(set(places))
        assert 2 <= len(places) <= 4
        assert all(id.startswith(f"{key}/") for id in chapter.essential)
        assert chapter.needs.endswith(".")
        assert chapter.idea.endswith(".")
