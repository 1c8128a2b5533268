"""Writes the node cases of the installed `onnx` package as folders, in the form in which older packages carried them.

usage: cases.py FOLDER

Each case becomes FOLDER/node/NAME with `model.onnx` and `test_data_set_N/{input,output}_M.pb`. Newer packages hold the
programs that make the cases and not the cases themselves. The numbers come from seeds that the package sets.
"""

import shutil
import sys
import warnings
from pathlib import Path

import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_node_model_tests


def serialize(value, port):
    """The bytes of a tensor, sequence, map or optional value, as the port's type says."""
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    writers = {
        "map_type": numpy_helper.from_dict,
        "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional,
        "tensor_type": numpy_helper.from_array,
    }
    return writers[port.type.WhichOneof("value")](value, port.name).SerializeToString()


def main():
    folder = Path(sys.argv[1])
    node = folder / "node"
    partial = folder / "node.partial"
    shutil.rmtree(partial, ignore_errors=True)
    cases = load_node_model_tests()
    for case in cases:
        path = partial / case.name
        path.mkdir(parents=True)
        (path / "model.onnx").write_bytes(case.model.SerializeToString())
        for at, (inputs, outputs) in enumerate(case.data_sets):
            data = path / f"test_data_set_{at}"
            data.mkdir()
            graph = case.model.graph
            for kind, values, ports in [("input", inputs, graph.input), ("output", outputs, graph.output)]:
                for position, (value, port) in enumerate(zip(values, ports)):
                    (data / f"{kind}_{position}.pb").write_bytes(serialize(value, port))
    partial.rename(node)
    print(f"onnx {onnx.__version__}: {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
