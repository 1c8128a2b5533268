//! A small ONNX model for tests that need a file but no Python package: `y = x w`, with `w` in an external file.

/// Encodes a length-delimited field. Source: protobuf's encoding of wire type 2.
fn encode_field(number: u8, value: &[u8]) -> Vec<u8> {
    assert!(value.len() < 128, "one byte of length is enough for these messages");
    [&[number << 3 | 2, value.len() as u8][..], value].concat()
}

fn encode_integer(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// Encodes a port with data type `float32` and this shape.
fn encode_port(name: &str, dims: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| encode_field(1, &encode_integer(1, dim))).collect();
    let tensor = [encode_integer(1, 1), encode_field(2, &dims)].concat();
    [encode_field(1, name.as_bytes()), encode_field(2, &encode_field(1, &tensor))].concat()
}

/// Returns the model of one item of two numbers. `w` is `[2, 2]`, the 16 bytes at `offset` of the file `location`.
pub fn external_model(location: &str, offset: u8) -> Vec<u8> {
    let entry = |key: &str, value: &str| {
        encode_field(13, &[encode_field(1, key.as_bytes()), encode_field(2, value.as_bytes())].concat())
    };
    let (offset, length) = (offset.to_string(), "16");
    let weight = [
        encode_integer(1, 2),
        encode_integer(1, 2),
        encode_integer(2, 1),
        encode_field(8, b"w"),
        entry("location", location),
        entry("offset", &offset),
        entry("length", length),
        encode_integer(14, 1),
    ]
    .concat();
    let node =
        [encode_field(1, b"x"), encode_field(1, b"w"), encode_field(2, b"y"), encode_field(4, b"MatMul")].concat();
    let graph = [
        encode_field(1, &node),
        encode_field(2, b"g"),
        encode_field(5, &weight),
        encode_field(11, &encode_port("x", &[1, 2])),
        encode_field(12, &encode_port("y", &[1, 2])),
    ];
    encode_model(&graph.concat())
}

/// Returns a model of one item whose output `y` is its input `image`, both of this shape.
pub fn identity_model(shape: &[u8]) -> Vec<u8> {
    let node = [encode_field(1, b"image"), encode_field(2, b"y"), encode_field(4, b"Identity")].concat();
    let graph = [
        encode_field(1, &node),
        encode_field(2, b"g"),
        encode_field(11, &encode_port("image", shape)),
        encode_field(12, &encode_port("y", shape)),
    ];
    encode_model(&graph.concat())
}

/// Encodes a model of operator set 20 with this graph of less than 16 KiB.
fn encode_model(graph: &[u8]) -> Vec<u8> {
    // The length has two bytes, also if it is small.
    let length = [graph.len() as u8 | 128, (graph.len() >> 7) as u8];
    let head = [encode_integer(1, 10), encode_field(8, &encode_integer(2, 20)), vec![7 << 3 | 2]].concat();
    [&head[..], &length, graph].concat()
}

/// Returns the elements of `w` after `offset` other bytes: the rows (1, 2) and (3, 4).
pub fn external_weights(offset: usize) -> Vec<u8> {
    let numbers = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    [vec![0; offset], numbers].concat()
}
