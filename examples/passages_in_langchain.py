"""Passages of whole readings in LangChain: as a retriever over ``longform.Index``, and in a vector store of its own.

pip install -e ".[demo]" langchain-core
python examples/passages_in_langchain.py
"""

import tempfile
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

import longform

TEXTS = {
    "council.txt": "The council spoke of roads and of schools. " * 60 + "The old mill is sold to the museum. ",
    "river.txt": "The river is cold in winter. " * 60 + "The bridge over the river is closed until May. ",
}


class FolderRetriever(BaseRetriever):
    """LangChain's retriever over an index: vectors of passages and BM25, fused."""

    index: Any
    k: int = 3

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [
            Document(hit.passage, metadata={"source": hit.document, "place": hit.place})
            for hit in self.index.search(query, self.k)
        ]


class PassageVectors(Embeddings):
    """Questions by the encoder; passages come with vectors, pooled from the reading of their whole document."""

    def __init__(self, encoder: longform.Encoder, vectors: dict[str, list[float]]) -> None:
        self.encoder, self.vectors = encoder, vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.encoder.encode_query([text])[0].tolist()


encoder = longform.Encoder.from_pretrained("minilm-16k")
with tempfile.TemporaryDirectory() as folder:
    for name, text in TEXTS.items():
        Path(folder, name).write_text(text)
    retriever = FolderRetriever(index=longform.Index(Path(folder, ".longform"), encoder).add(folder))
    best = retriever.invoke("What happens to the mill?")[0]
    print("retriever:", best.metadata["source"], "..." + best.page_content[-36:])

passages, vectors = [], {}
for (name, text), (found, spans) in zip(
    TEXTS.items(), encoder.encode_chunks(list(TEXTS.values()), chunk_tokens=64, boundaries="sentences"), strict=True
):
    for vector, (start, end) in zip(found, spans, strict=True):
        passages.append(Document(text[start:end], metadata={"source": name}))
        vectors[text[start:end]] = vector.tolist()
store = InMemoryVectorStore(PassageVectors(encoder, vectors))
store.add_documents(passages)
best = store.similarity_search("When does the bridge open again?", k=1)[0]
print("vector store:", best.metadata["source"], "..." + best.page_content[-47:])
