"""What an index holds, for tests that compare one with another."""

from longform import Index
from longform_text.search import store
from longform_text.search.ranking import Searched


def rows(index: Index) -> list[tuple[str, str, int, str]]:
    """What is searched, in order; and a check that words and vectors are those of the passages."""
    query = "SELECT file, name, start, text FROM passages JOIN documents ON documents.id = document"
    with store.reading(index.folder) as database:
        ids = [id for (id,) in database.execute("SELECT id FROM passages ORDER BY id")]
        assert Searched.of(database).passages.tolist() == ids
        for table, indexed in store.INDEXED.items():
            for row, above, text in database.execute(indexed.format("whole")).fetchall():
                words = " ".join(f'"{word}"' for word in {*f"{above} {text}".split()})
                match = f"SELECT count(*) FROM {table} WHERE rowid = ? AND {table} MATCH ?"
                assert database.execute(match, (row, words)).fetchone() == (1,)
        return sorted(database.execute(query).fetchall())
