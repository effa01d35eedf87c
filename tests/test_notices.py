import sys
from types import SimpleNamespace

import pytest

from fssl_core import notices


def test_each_message_is_printed_once_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr(notices, "_seen", set())
    for message in ("first", "second", "first"):
        notices.notice(message)
    captured = capsys.readouterr()
    assert captured.err == "fssl: first\nfssl: second\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    "ipython",
    [
        None,  # not installed
        SimpleNamespace(get_ipython=lambda: None),  # imported by something else
        SimpleNamespace(get_ipython=lambda: SimpleNamespace()),  # IPython in a terminal
    ],
)
def test_what_is_no_kernel(monkeypatch, ipython):
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert not notices.in_kernel()


def test_a_kernel(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert notices.in_kernel()


def test_what_others_said_is_one_short_line():
    assert notices.printable("two\n  lines\tand \x1b[2J") == "two lines and \N{REPLACEMENT CHARACTER}[2J"
    assert notices.printable(ValueError("x" * 10**6)) == "x" * notices.LONGEST + " ..."
