"""Prints the images and histograms of a log directory as JSON, read with TensorBoard's own reader: by run, kind and tag.

Usage: tensorboard_items.py DIRECTORY"""

import json
import sys

from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util

multiplexer = EventMultiplexer(tensor_size_guidance={"tensors": 0})
multiplexer.AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
runs = {}
for run in multiplexer.Runs():
    accumulator = multiplexer.GetAccumulator(run)
    items = {"images": {}, "histograms": {}}
    for tag in accumulator.Tags()["tensors"]:
        kind = accumulator.SummaryMetadata(tag).plugin_data.plugin_name
        if kind == "scalars":
            continue
        values = [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in accumulator.Tensors(tag)]
        if kind == "histograms":
            items[kind][tag] = [{"step": step, "bins": value.tolist()} for step, value in values]
        else:
            items[kind][tag] = [
                {
                    "step": step,
                    "width": value[0].decode(),
                    "height": value[1].decode(),
                    "is_png": value[2][:8] == b"\x89PNG\r\n\x1a\n",
                }
                for step, value in values
            ]
    runs[run] = items
json.dump(runs, sys.stdout)
