"""Writes plugins/lenet's network as an ONNX file, with the weights of one of its published versions.

usage: lenet_onnx.py VERSION_DIRECTORY OUTPUT.onnx

Input `image` uint8[batch, height, width]; outputs `label` int64[batch], `probability` float32[batch] and `probabilities`
float32[batch, classes]: the names and the layers of plugins/lenet/src/model.rs.
"""

import json
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save
from safetensors.numpy import load_file

OPSET = 18
# Older readers support this version too.
IR = 9


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def model(weights, config):
    height, width, classes = config["height"], config["width"], len(config["classes"])
    assert config.get("colors", 1) == 1, "grey images only"
    initializers = [constant(name, value) for name, value in sorted(weights.items())]
    initializers += [
        constant("white", np.float32(255)),
        constant("two", np.float32(2)),
        constant("one", np.float32(1)),
        constant("planes", np.array([-1, 1, height, width], np.int64)),
        constant("class_axis", np.array([1], np.int64)),
    ]
    nodes = [
        helper.make_node("Cast", ["image"], ["grey"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["grey", "white"], ["light"]),
        helper.make_node("Mul", ["light", "two"], ["doubled"]),
        helper.make_node("Sub", ["doubled", "one"], ["centred"]),
        helper.make_node("Reshape", ["centred", "planes"], ["x0"]),
    ]
    for layer in (1, 2):
        inputs = [f"x{layer - 1}", f"conv{layer}/weight", f"conv{layer}/bias"]
        nodes += [
            helper.make_node("Conv", inputs, [f"c{layer}"], kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
            helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]),
            helper.make_node("MaxPool", [f"r{layer}"], [f"x{layer}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
    nodes += [
        helper.make_node("Flatten", ["x2"], ["features"], axis=1),
        helper.make_node("Gemm", ["features", "fc1/weight", "fc1/bias"], ["h"]),
        helper.make_node("Relu", ["h"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "fc2/weight", "fc2/bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
        helper.make_node("ReduceMax", ["probabilities", "class_axis"], ["probability"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "lenet",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", height, width])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch"]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", classes]),
        ],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def main():
    version, output = Path(sys.argv[1]), sys.argv[2]
    config = json.loads(json.loads((version / "manifest.json").read_text())["config"])
    written = model(load_file(version / "weights.safetensors"), config)
    checker.check_model(written, full_check=True)
    save(written, output)


if __name__ == "__main__":
    main()
