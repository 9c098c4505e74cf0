"""Passages of whole readings in Qdrant, a vector database: their vectors, texts and places, found by a question.

pip install -e ".[demo,qdrant]"
python examples/passages_in_qdrant.py

Here the database is in this process and in memory; QdrantClient(path="folder") keeps it in a folder, and
QdrantClient(url="http://localhost:6333") is a server. Nothing else changes.
"""

from qdrant_client import QdrantClient
from qdrant_client.models import Distance, FieldCondition, Filter, MatchValue, PointStruct, VectorParams

import longform

TEXTS = {
    "council.txt": "The council spoke of roads and of schools. " * 60 + "The old mill is sold to the museum. ",
    "river.txt": "The river is cold in winter. " * 60 + "The bridge over the river is closed until May. ",
}

encoder = longform.Encoder.from_pretrained("minilm-16k")
database = QdrantClient(":memory:")
database.create_collection("passages", VectorParams(size=encoder.features, distance=Distance.COSINE))

points = []
for (name, text), (vectors, spans) in zip(
    TEXTS.items(), encoder.encode_chunks(list(TEXTS.values()), chunk_tokens=64, boundaries="sentences"), strict=True
):
    for vector, (start, end) in zip(vectors, spans.tolist(), strict=True):
        about = {"document": name, "start": start, "end": end, "text": text[start:end]}
        points.append(PointStruct(id=len(points), vector=vector.tolist(), payload=about))
database.upsert("passages", points)


def ask(question: str, only: Filter | None = None) -> None:
    """Print the passage that is nearest to a question, among those of a filter."""
    vector = encoder.encode_query([question])[0].tolist()
    (best,) = database.query_points("passages", vector, query_filter=only, limit=1).points
    print(f"{best.payload['document']}, {best.payload['start']}: ...{best.payload['text'][-47:]}")


ask("What happens to the mill?")
ask("When does the bridge open again?")
ask("What is closed?", Filter(must=[FieldCondition(key="document", match=MatchValue(value="council.txt"))]))
