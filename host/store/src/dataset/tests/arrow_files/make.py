"""Writes the Arrow and Parquet files of this folder, which the tests of datasets read.

    pip install pyarrow==26.0.1 pandas && python make.py

The files are kept, so that the tests need no Python. A new version of pyarrow may write other bytes with the same content.
"""

import datetime
import decimal
import json
import os
import struct
import zlib

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def write_file(name, batches, **options):
    with ipc.new_file(name, batches[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_stream(name, batches, **options):
    with ipc.new_stream(name, batches[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def png(width, height, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(pixels[y * width : (y + 1) * width]) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Every type that is read, in two record batches.
def types(rows):
    day = datetime.date(1970, 1, 1)
    second = datetime.timedelta(seconds=1)
    return pa.record_batch(
        {
            "bool": pa.array([r % 3 == 0 for r in rows]),
            "i8": pa.array([-r for r in rows], pa.int8()),
            "u8": pa.array([250 + r for r in rows], pa.uint8()),
            "i16": pa.array([-300 * r for r in rows], pa.int16()),
            "u16": pa.array([65535 - r for r in rows], pa.uint16()),
            "i32": pa.array([-70000 * r for r in rows], pa.int32()),
            "u32": pa.array([2**32 - 1 - r for r in rows], pa.uint32()),
            "i64": pa.array([-(2**40) * r for r in rows], pa.int64()),
            "u64": pa.array([2**64 - 1 - r for r in rows], pa.uint64()),
            "f16": pa.array([r / 2 for r in rows], pa.float16()),
            "f32": pa.array([r / 4 for r in rows], pa.float32()),
            "f64": pa.array([r / 10 for r in rows], pa.float64()),
            "date32": pa.array([day + r * datetime.timedelta(days=1) for r in rows], pa.date32()),
            "date64": pa.array([86_400_000 * r for r in rows], pa.int64()).cast(pa.date64()),
            "time32": pa.array([r for r in rows], pa.int32()).cast(pa.time32("ms")),
            "time64": pa.array([r for r in rows], pa.int64()).cast(pa.time64("ns")),
            "timestamp": pa.array([1_700_000_000 + r for r in rows], pa.int64()).cast(pa.timestamp("s", "UTC")),
            "duration": pa.array([r * second for r in rows], pa.duration("us")),
            "text": pa.array(["é" * r for r in rows], pa.string()),
            "large_text": pa.array([str(r) for r in rows], pa.large_string()),
            "view": pa.array([("long text number " if r % 2 else "") + str(r) for r in rows], pa.string_view()),
            "fixed": pa.array([bytes([r, r + 1, r + 2]) for r in rows], pa.binary(3)),
            "list": pa.array([[r, r + 0.5] for r in rows], pa.list_(pa.float32())),
            "large_list": pa.array([[r, -r, 2] for r in rows], pa.large_list(pa.int16())),
            "fixed_list": pa.array([[r, 7] for r in rows], pa.list_(pa.uint8(), 2)),
            "bool_list": pa.array([[r % 2 == 0, True, False] for r in rows], pa.list_(pa.bool_())),
            "class": pa.DictionaryArray.from_arrays(pa.array([r % 2 for r in rows], pa.int8()), ["no", "yes"]),
        }
    )


batches = [types(range(3)), types(range(3, 5))]
write_file("types.arrow", batches)
write_stream("types_stream.arrow", batches)
write_file("types_v4.arrow", batches, metadata_version=ipc.MetadataVersion.V4, use_legacy_format=True)

# What pandas writes by default, which is compressed by LZ4, and the same compressed otherwise.
count = 3000
frame = pd.DataFrame(
    {
        "number": [r % 7 / 8 if r % 5 else None for r in range(count)],
        "whole": [r % 11 for r in range(count)],
        "text": [["one", "two", "three"][r % 3] for r in range(count)],
        "kind": pd.Categorical([["cat", "dog", None][r % 3] for r in range(count)], categories=["dog", "cat", "owl"]),
    }
)
frame.to_feather("pandas.feather")
frame.to_feather("pandas_zstd.feather", compression="zstd", chunksize=700)
frame.head(20).to_feather("pandas_plain.feather", compression="uncompressed")

# Small compressed files, every byte of which the tests change.
small = pa.record_batch({"x": pa.array([r // 90 for r in range(300)], pa.int32()), "t": ["word"] * 300})
write_file("lz4.arrow", [small], compression="lz4")
write_stream("zstd_stream.arrow", [small], compression="zstd")

# Equal content as Feather and as Parquet.
lists = pa.array([[r % 5 / 4, r % 3] for r in range(200)], pa.list_(pa.float32()))
table = pa.table(
    {
        "b": pa.array([r * r for r in range(200)], pa.int64()),
        "a": lists,
        "c": pa.array(["text %d" % (r % 12) for r in range(200)]),
        "d": pa.array([r % 4 == 0 for r in range(200)]),
        "e": pa.array([r / 3 for r in range(200)], pa.float64()),
    }
)
pyarrow.feather.write_feather(table, "same.feather", chunksize=64)
pq.write_table(table, "same.parquet", row_group_size=90)

# Slices that begin within bytes, and lists that begin within their values.
whole = pa.record_batch(
    {
        "bit": pa.array([r % 3 == 1 for r in range(40)]),
        "some": pa.array([None if r % 4 == 2 else r for r in range(40)], pa.int32()),
        "list": pa.array([[r, r + 1] for r in range(40)], pa.list_(pa.int32())),
        "fixed_list": pa.array([[r % 2 == 0, True] for r in range(40)], pa.list_(pa.bool_(), 2)),
        "text": pa.array(["t%d" % r for r in range(40)]),
    }
)
write_file("slices.arrow", [whole.slice(3, 10), whole.slice(29, 7)])

# Dictionaries that grow, and one that is replaced.
def classes(dictionary, indices):
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary))
    return pa.record_batch({"kind": array})


grown = [classes(["a", "b"], [0, 1, None]), classes(["a", "b", "c"], [2, 0]), classes(["a", "b", "c", "d"], [3])]
write_file("grown.arrow", grown, emit_dictionary_deltas=True)
write_stream("grown_stream.arrow", grown, emit_dictionary_deltas=True)
write_stream("replaced_stream.arrow", [grown[0], classes(["c", "b"], [0, 1])])

# Images as the library `datasets` of Hugging Face stores them.
features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
schema = pa.schema({"image": image, "label": pa.int64()}, {"huggingface": json.dumps({"info": {"features": features}})})
pictures = [{"bytes": png(2, 1, [2 * r + 1, 2 * r + 2]), "path": "%d.png" % r} for r in range(3)]
write_stream("images.arrow", [pa.record_batch([pa.array(pictures, image), pa.array([1, 0, 1])], schema)])

# Nulls of every kind of column.
write_file(
    "nulls.arrow",
    [
        pa.record_batch(
            {
                "x": pa.array([1.0, None, 3.0, None, 8.0], pa.float64()),
                "n": pa.array([1, 2, None, 4, 6], pa.int32()),
                "text": pa.array(["a", "b", "c", "d", None]),
                "view": pa.array(["a", None, "a text longer than a view", "d", "e"], pa.string_view()),
            }
        )
    ],
)

# Types that are not read, between columns that are.
union = pa.array([1, 2], pa.int32())
kinds = pa.array([0, 0], pa.int8())
write_file(
    "others.arrow",
    [
        pa.record_batch(
            {
                "first": pa.array([1, 2], pa.int32()),
                "decimal": pa.array([decimal.Decimal("1.5")] * 2, pa.decimal128(5, 2)),
                "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
                "sparse": pa.UnionArray.from_sparse(kinds, [union]),
                "dense": pa.UnionArray.from_dense(kinds, pa.array([0, 1], pa.int32()), [union]),
                "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([7], pa.int32())),
                "nested": pa.array([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int32()))),
                "struct": pa.array([{"a": 1, "b": "x"}] * 2),
                "null": pa.nulls(2),
                "bytes": pa.array([b"a", b"b"], pa.binary()),
                "words": pa.array([["a"], ["b"]], pa.list_(pa.string())),
                "list_view": pa.array([[1], [2]], pa.list_view(pa.int32())),
                "bytes_view": pa.array([b"a", b"longer than twelve bytes"], pa.binary_view()),
                "interval": pa.array([pa.MonthDayNano([1, 2, 3])] * 2),
                "numbers": pa.array([5, 6]).dictionary_encode(),
                "last": pa.array([0.5, 1.5], pa.float32()),
            }
        )
    ],
)

pyarrow.feather.write_feather(table.select(["b"]).slice(0, 5), "version1.feather", version=1)
