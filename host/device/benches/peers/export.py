"""Writes the initial tensors of all sides of a comparison: `export.py MODEL BATCH FOLDER [onnx]`.

`start.safetensors` contains parameters and inputs. `model.onnx` is the network, and `optimised.onnx` the output of ONNX
Runtime's transformer optimiser for it.
"""

import os
import sys
import warnings

import torch

import models
import tensors

OPSET = 17


def main(name, batch, folder, *onnx):
    model, inputs = models.make(name), models.data(name, int(batch))
    if onnx:
        model = models.folded(model)
    start = models.parameters(model)
    for key, value in inputs.items():
        start[key] = (value.int() if value.dtype == torch.int64 else value).numpy()
    tensors.save(os.path.join(folder, "start.safetensors"), start)
    if onnx:
        inputs.pop("labels", None)
        path = os.path.join(folder, "model.onnx")
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                tuple(inputs.values()),
                path,
                input_names=list(inputs),
                output_names=["result"],
                opset_version=OPSET,
                do_constant_folding=True,
                dynamo=False,
            )
        if name == "bert":
            optimise(path, os.path.join(folder, "optimised.onnx"))


def optimise(path, into):
    from onnxruntime.transformers import optimizer

    optimizer.optimize_model(path, model_type="bert", num_heads=12, hidden_size=768).save_model_to_file(into)


if __name__ == "__main__":
    main(*sys.argv[1:])
