"""``/metrics`` counts what was done."""

import re

from starlette.testclient import TestClient

from longform.serving.engine import Engine


def values(client: TestClient) -> dict[str, float]:
    text = client.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(longform_\S+) (\S+)$", text, re.MULTILINE)}


def test_requests_tokens_batches_seconds_and_memory(client: TestClient, engine: Engine) -> None:
    before = values(client)
    client.post("/embed", json={"inputs": ["near far", "x " * 100]})
    client.post("/embed", json={"inputs": []})
    client.get("/what/ever")
    client.get("/what/else")
    after = values(client)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more('longform_requests_total{route="/embed",status="200"}') == 1
    assert more('longform_requests_total{route="/embed",status="400"}') == 1
    assert more('longform_requests_total{route="other",status="404"}') == 2
    assert more("longform_tokens_total") == 4 + 64
    assert more("longform_truncated_tokens_total") == 102 - 64
    assert more("longform_batch_texts_sum") == 2
    assert more('longform_seconds_count{phase="wait"}') == 2
    for phase in ("tokenize", "model", "request"):
        assert more(f'longform_seconds_count{{phase="{phase}"}}') >= 1
    weights = sum(tensor.nbytes for tensor in engine.runner.model.parameters())
    assert after["longform_model_bytes"] >= weights
    assert (after["longform_waiting_texts"], after["longform_waiting_tokens"], after["longform_ready"]) == (0, 0, 1)
    assert after["longform_requests_running"] == 1  # this one
