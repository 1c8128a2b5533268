"""Prints the scalars of a log directory as JSON, read with TensorBoard's own reader: run, tag, and [step, value, time].

Usage: tensorboard_scalars.py DIRECTORY"""

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
    assert accumulator.SummaryMetadata, run
    tags = {}
    for tag in accumulator.Tags()["tensors"]:
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name != "scalars":
            continue
        tags[tag] = [
            [event.step, float(tensor_util.make_ndarray(event.tensor_proto)), event.wall_time]
            for event in accumulator.Tensors(tag)
        ]
    runs[run] = tags
json.dump(runs, sys.stdout)
