"""The speeches that the page offers."""

import pytest
from starlette.testclient import TestClient

from longform.errors import MissingDependencyError
from longform_text.serving import app as page


@pytest.fixture(autouse=True)
def _anew() -> None:
    page.examples.cache_clear()


def test_speeches_are_named_and_given(client: TestClient) -> None:
    names = client.get("/ui/examples").json()
    assert 8 <= len(names) <= page.EXAMPLES
    assert names[0] == "1790-Washington-1"
    assert client.get(f"/ui/examples/{names[0]}").json()["text"].startswith("Fellow-Citizens of the Senate")
    assert client.get("/ui/examples/..%2F..%2Fpyproject.toml").status_code == 404
    assert client.get("/ui/examples/none").json()["error"]["code"] == "not_found"


def test_without_their_package_there_are_none(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingDependencyError("it is not installed")

    monkeypatch.setattr(page, "speeches", missing)
    assert client.get("/ui/examples").json() == []
    page.examples.cache_clear()
