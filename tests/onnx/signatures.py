"""Prints the operands, results and attributes of the standard operators that the plugin `onnx` has rules for.

usage: signatures.py OPERATOR...

One line for each version of an operator set that changed them, from version 6 on: the operator, the version, how many
operands and results it has at most (`*`: any number), and its attributes with their kinds. The kinds are `i` integer,
`f` float, `s` text, `t` tensor, `g` graph, `p` sparse tensor, `y` type, and capital letters for lists of them; `!` marks
what must be given. The output is plugins/onnx/src/ops/signatures.txt.
"""

import sys

import onnx

OLDEST = 6
KINDS = {
    "INT": "i", "FLOAT": "f", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "p", "TYPE_PROTO": "y",
    "INTS": "I", "FLOATS": "F", "STRINGS": "S", "TENSORS": "T", "GRAPHS": "G",
}


def count(most):
    """A number of operands or results; variadic operators have 2,147,483,647."""
    return "*" if most > 1000 else str(most)


def signature(schema):
    attributes = (
        f"{name}:{KINDS[attribute.type.name]}{'!' if attribute.required else ''}"
        for name, attribute in sorted(schema.attributes.items())
    )
    return " ".join([count(schema.max_input), count(schema.max_output), *attributes])


def main():
    every = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]
    print(f"# onnx {onnx.__version__}, version {onnx.defs.onnx_opset_version()} of the operator set")
    for name in sorted(sys.argv[1:]):
        versions = sorted((s for s in every if s.name == name), key=lambda schema: schema.since_version)
        if not versions:
            sys.exit(f"onnx has no operator {name}")
        old = [schema for schema in versions if schema.since_version <= OLDEST]
        last = None
        for schema in old[-1:] + versions[len(old):]:
            text = signature(schema)
            if text != last:
                print(name, schema.since_version, text)
            last = text


if __name__ == "__main__":
    main()
