"""The routes that OpenAI's own client talks to, by that client, give what ``Encoder.encode`` gives."""

import asyncio
import base64
from typing import Any

import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

from longform.inference.encoders import Encoder
from longform.serving.engine import Engine

from .conftest import running

TEXTS = ["the near text", "x", "good bad long short, " * 4, "a b c d e f g h i j k l m n", "far " * 100]


@pytest.fixture(scope="module")
def encoder(engine: Engine) -> Encoder:
    return engine.encoder()


@pytest.fixture(scope="module")
def ours(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(api_key="none", base_url="http://testserver/v1", http_client=client, max_retries=0)


def vectors(found: Any) -> np.ndarray:
    return np.array([each.embedding for each in found.data])


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_vectors_are_those_of_encode(ours: openai.OpenAI, encoder: Encoder, encoding: str | None) -> None:
    chosen = {} if encoding is None else {"encoding_format": encoding}
    found = ours.embeddings.create(input=TEXTS, model="tiny", **chosen)  # ty: ignore[invalid-argument-type]
    if encoding == "base64":
        decoded = [np.frombuffer(base64.b64decode(each.embedding), "<f4") for each in found.data]
        near(np.stack(decoded), encoder.encode(TEXTS))
    else:
        near(vectors(found), encoder.encode(TEXTS))
    tokens = sum(min(64, len(encoder.tokenizer(text)["input_ids"])) for text in TEXTS)
    assert (found.usage.prompt_tokens, found.usage.total_tokens, found.model) == (tokens, tokens, "tiny")
    assert [each.index for each in found.data] == list(range(len(TEXTS)))


def test_one_text_token_ids_and_dimensions(ours: openai.OpenAI, encoder: Encoder) -> None:
    near(vectors(ours.embeddings.create(input="the near text", model="tiny")), encoder.encode(["the near text"]))
    plain = [encoder.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in TEXTS]
    near(vectors(ours.embeddings.create(input=plain, model="tiny")), encoder.encode(TEXTS))
    near(vectors(ours.embeddings.create(input=plain[0], model="tiny")), encoder.encode(TEXTS[:1]))
    whole = encoder.tokenizer(TEXTS[0])["input_ids"]
    near(vectors(ours.embeddings.create(input=whole, model="tiny")), encoder.encode(TEXTS[:1]))
    short = vectors(ours.embeddings.create(input=TEXTS, model="tiny", dimensions=5, user="somebody"))
    near(short, encoder.encode(TEXTS, truncate_dim=5, normalise=True))
    near(np.linalg.norm(short, axis=1), 1.0)


def test_the_asynchronous_client_many_at_once(engine: Engine, encoder: Encoder) -> None:
    async def ask() -> list[Any]:
        async with running(engine) as (http, _):
            theirs = openai.AsyncOpenAI(api_key="none", base_url="http://testserver/v1", http_client=http)
            asked = (theirs.embeddings.create(input=TEXTS[number % 5], model="tiny") for number in range(40))
            return await asyncio.gather(*asked)

    expected = encoder.encode(TEXTS)
    for number, each in enumerate(asyncio.run(ask())):
        near(vectors(each)[0], expected[number % 5])


def test_models(ours: openai.OpenAI) -> None:
    assert [model.id for model in ours.models.list()] == ["tiny"]


def test_refusals_are_read_by_the_client(ours: openai.OpenAI) -> None:
    for given, words in [("", "at least 1 character"), ([], "at least 1 item"), (["x", ""], "at least 1 character")]:
        with pytest.raises(openai.BadRequestError, match=words) as refused:
            ours.embeddings.create(input=given, model="tiny")
        assert refused.value.code == "empty_input"
    with pytest.raises(openai.BadRequestError, match="dimensions: a vector has 24"):
        ours.embeddings.create(input="x", model="tiny", dimensions=25)
    with pytest.raises(openai.BadRequestError, match="100000 is no token of tiny"):
        ours.embeddings.create(input=[100000], model="tiny")
