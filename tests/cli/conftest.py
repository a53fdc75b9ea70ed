import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)
