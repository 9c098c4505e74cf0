"""Where this repository keeps its benchmark records; their format is ``longform.runs.records``.

One record is one JSON line in ``benchmarks/records/<name>.jsonl``. The files are appended to and never edited.
"""

from pathlib import Path

from longform.runs.records import Record, append_record, append_records, read_records

__all__ = ["RECORDS", "ROOT", "Record", "append_record", "append_records", "read_records"]

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
