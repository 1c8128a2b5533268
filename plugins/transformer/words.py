"""Sentence pairs as a saggar dataset, and sentences as numbers and back.

  python3 words.py dataset FOLDER SOURCE TARGET [--length 32] [--words 8000]   makes dataset.json, pairs.csv, words.txt
  python3 words.py encode FOLDER "A dog runs ."                                prints numbers for `saggar predict`
  python3 words.py decode FOLDER 5 17 4 0 0                                    prints words

SOURCE and TARGET have a sentence a line, packed (.gz) or not. Words are split at spaces and around punctuation.
"""

import argparse
import collections
import gzip
import json
import pathlib
import re

SPECIAL = ["<padding>", "<begin>", "<end>", "<unknown>"]


def split(sentence):
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def lines(path):
    raw = pathlib.Path(path).read_bytes()
    text = gzip.decompress(raw) if path.endswith(".gz") else raw
    return [split(line) for line in text.decode().splitlines()]


def numbers(words, table, length, begin):
    inside = [table.get(word, 3) for word in words][: length - 1 - begin]
    sentence = [1] * begin + inside + [2]
    return sentence + [0] * (length - len(sentence))


def dataset(folder, source, target, length, count):
    pairs = list(zip(lines(source), lines(target), strict=True))
    seen = collections.Counter(word for pair in pairs for sentence in pair for word in sentence)
    words = SPECIAL + [word for word, _ in seen.most_common(count - len(SPECIAL))]
    table = {word: number for number, word in enumerate(words)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    with open(folder / "pairs.csv", "w") as csv:
        for before, after in pairs:
            row = numbers(before, table, length, 0) + numbers(after, table, length, 1)
            csv.write(",".join(map(str, row)) + "\n")
    fields = [
        {"name": "source", "columns": [0, length], "dtype": "int32"},
        {"name": "target", "columns": [length, 2 * length], "dtype": "int32", "classes": words},
    ]
    splits = {"train": 0.95, "validation": 0.05}
    description = {"format": "csv", "file": "pairs.csv", "fields": fields, "splits": splits}
    (folder / "dataset.json").write_text(json.dumps(description) + "\n")
    print(f"{len(pairs)} pairs of {length} places, {len(words)} words, in {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["dataset", "encode", "decode"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--words", type=int, default=8000)
    given = parser.parse_args()
    if given.what == "dataset":
        dataset(given.folder, *given.rest, given.length, given.words)
        return
    words = (given.folder / "words.txt").read_text().splitlines()
    if given.what == "encode":
        table = {word: number for number, word in enumerate(words)}
        print(json.dumps({"source": numbers(split(" ".join(given.rest)), table, given.length, 0)}))
    else:
        print(" ".join(words[int(number)] for number in given.rest if int(number) > 2))


if __name__ == "__main__":
    main()
