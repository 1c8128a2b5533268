"""ONNX Runtime with a network: `onnxruntime_peer.py MODEL.onnx START RESULT THREADS`.

It reads its inputs from START and writes its output to RESULT.
"""

import sys

import protocol

import numpy
import onnxruntime

import tensors


def main(model, start, result, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given, binding, kept = tensors.load(start), session.io_binding(), []
    for port in session.get_inputs():
        # Bind inputs and outputs once, so that a run copies and allocates nothing.
        kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(given[port.name]))
        binding.bind_ortvalue_input(port.name, kept[-1])
    for port in session.get_outputs():
        kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(port.shape, "float32")))
        binding.bind_ortvalue_output(port.name, kept[-1])
    run = session._sess.run_with_iobinding
    step = lambda: run(binding._iobinding, None)
    step()
    tensors.save(result, {"result": kept[-1].numpy()})
    protocol.serve(step, version=onnxruntime.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
