from fssl_core import notices


def test_each_message_is_printed_once_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr(notices, "_seen", set())
    for message in ("first", "second", "first"):
        notices.notice(message)
    captured = capsys.readouterr()
    assert captured.err == "fssl: first\nfssl: second\n"
    assert captured.out == ""
