"""Cuts a text into windows and writes them as a saggar dataset: dataset.json and a CSV file of bytes.

Usage: python3 windows.py TEXT FOLDER [LENGTH]
"""

import json
import pathlib
import sys

text = pathlib.Path(sys.argv[1]).read_bytes()
folder = pathlib.Path(sys.argv[2])
length = int(sys.argv[3]) if len(sys.argv) > 3 else 65

# Each window begins with the last byte of the one before, so that every byte but the first is predicted once.
starts = range(0, len(text) - length + 1, length - 1)
lines = (",".join(map(str, text[start : start + length])) for start in starts)
folder.mkdir(parents=True, exist_ok=True)
(folder / "text.csv").write_text("\n".join(lines) + "\n")
field = {"name": "text", "columns": [0, length], "dtype": "uint8"}
description = {"format": "csv", "file": "text.csv", "fields": [field], "splits": {"train": 0.9, "validation": 0.1}}
(folder / "dataset.json").write_text(json.dumps(description, indent=2) + "\n")
print(f"{len(starts)} windows of {length} bytes in {folder}")
