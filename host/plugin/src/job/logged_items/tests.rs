use saggar_tensor::Shape;

use super::*;

fn message<T: std::fmt::Debug>(result: Result<T, HostError>) -> String {
    match result.unwrap_err() {
        HostError::Answer(error) => format!("{}: {}", error.place.unwrap_or_default(), error.message),
        other => panic!("{other:?}"),
    }
}

fn axes_of(dtype: DType, shape: &[usize], layout: ImageLayout) -> Result<ImageAxes, HostError> {
    image_axes("x", &Descriptor::new(dtype, Shape::new(shape.to_vec()).unwrap()), layout)
}

#[test]
fn images_of_both_layouts_have_the_same_pixels() {
    // A red pixel above a green one.
    let (hwc, chw) = ([255, 0, 0, 0, 255, 0], [255, 0, 0, 255, 0, 0]);
    let axes = axes_of(DType::U8, &[2, 1, 3], ImageLayout::Hwc).unwrap();
    assert_eq!(convert_image("x", axes, DType::U8, &hwc).unwrap().pixels, hwc);
    let axes = axes_of(DType::U8, &[3, 2, 1], ImageLayout::Chw).unwrap();
    assert_eq!((axes.height, axes.width, axes.channels), (2, 1, 3));
    assert_eq!(convert_image("x", axes, DType::U8, &chw).unwrap().pixels, hwc);
    let floats: Vec<u8> =
        [0.0, 0.5, 1.0, -7.0, f32::INFINITY, 0.998].iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
    let axes = axes_of(DType::F32, &[2, 3, 1], ImageLayout::Hwc).unwrap();
    assert_eq!(convert_image("x", axes, DType::F32, &floats).unwrap().pixels, [0, 128, 255, 0, 255, 254]);
}

#[test]
fn tensors_that_are_not_images_are_refused() {
    let refused = |dtype, shape: &[usize], layout| message(axes_of(dtype, shape, layout));
    assert_eq!(
        refused(DType::F32, &[3, 8, 8], ImageLayout::Hwc),
        "x: float32[3, 8, 8] is not an image: expected uint8 or float32 [height, width, channels] with 1 or 3 channels; \
         the layout `chw` has the other order, and a batch must be sliced into its images"
    );
    for (dtype, shape, layout) in [
        (DType::U8, &[8, 8][..], ImageLayout::Hwc),
        (DType::U8, &[1, 8, 8, 3], ImageLayout::Hwc),
        (DType::U8, &[8, 8, 2], ImageLayout::Hwc),
        (DType::U8, &[0, 8, 3], ImageLayout::Hwc),
        (DType::I32, &[8, 8, 1], ImageLayout::Hwc),
        (DType::F16, &[1, 8, 8], ImageLayout::Chw),
    ] {
        assert!(refused(dtype, shape, layout).contains("is not an image"), "{shape:?}");
    }
    let huge = refused(DType::F32, &[40_000, 40_000, 1], ImageLayout::Hwc);
    assert!(huge.contains("too large to be logged: it has at most 8388608 elements"), "{huge}");
    let nan: Vec<u8> = [0.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
    let axes = axes_of(DType::F32, &[1, 2, 1], ImageLayout::Hwc).unwrap();
    let nan = message(convert_image("x", axes, DType::F32, &nan));
    assert_eq!(nan, "x: element 1 of the image is NaN: the elements of a float32 image are from 0 to 1");
}

#[test]
fn names_cannot_leave_the_folder_of_the_job() {
    for name in ["validation/wrong", "a.b", "x-1_y"] {
        assert_eq!(image_key(1, name.to_owned()).unwrap().name, name);
    }
    for name in
        ["", "/a", "a/", "../a", "a/../b", "a//b", ".hidden", "a b", "a+b", "ä", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)]
    {
        assert!(message(image_key(1, name.to_owned())).contains("the name of a logged image"), "{name}");
    }
}

fn column(name: &str, values: ColumnValues) -> TableColumn {
    TableColumn { name: name.to_owned(), values }
}

fn table(columns: Vec<TableColumn>) -> Result<(LoggedKey, LoggedItem), HostError> {
    check_table(1, "t".to_owned(), columns)
}

#[test]
fn tables_have_typed_columns_of_one_length() {
    let numbers = |count: usize| ColumnValues::Numbers(vec![0.5; count]);
    let (key, item) = table(vec![
        column("loss", ColumnValues::Numbers(vec![f64::NAN, 0.5])),
        column("class", ColumnValues::Texts(vec!["a".to_owned(), "ä\"".to_owned()])),
    ])
    .unwrap();
    assert_eq!((key.to_string().as_str(), item.kind()), ("1/table/t", LoggedKind::Table));
    let LoggedItem::Table(stored) = item else { unreachable!() };
    assert_eq!(stored.columns[0].values, StoredValues::Number(vec![None, Some(0.5)]));
    assert_eq!(
        message(table(vec![column("a", numbers(3)), column("b", ColumnValues::Booleans(vec![true]))])),
        "t: the columns of a table have one value for each row: `a` has 3 and `b` has 1"
    );
    assert!(message(table(Vec::new())).contains("1 to 64 columns, not 0"));
    assert!(
        message(table(vec![column("a", numbers(1)), column("a", numbers(1))]))
            .contains("`a` is empty, too long or there twice")
    );
    assert!(message(table(vec![column("", numbers(1))])).contains("different names"));
    assert!(message(table(vec![column("a", numbers(10_001))])).contains("at most 10000 rows, not 10001"));
    let text = ColumnValues::Texts(vec!["x".repeat(LOGGED_ITEM_BYTES_MAX)]);
    assert!(message(table(vec![column("a", text)])).contains("bytes as JSON"));
    // A table without rows is one.
    table(vec![column("a", ColumnValues::Integers(Vec::new()))]).unwrap();
}

#[test]
fn histograms_have_finite_rising_edges_and_at_least_one_bin() {
    let histogram =
        |edges: &[f64], counts: &[u64]| check_histogram(7, "h/x".to_owned(), edges.to_vec(), counts.to_vec());
    let (key, _) = histogram(&[-1.0, 0.0, 2.5], &[0, u64::MAX]).unwrap();
    assert_eq!(key.to_string(), "7/histogram/h/x");
    assert_eq!(message(histogram(&[0.0], &[])), "h/x: a histogram has 1 to 512 bins, not 0");
    assert_eq!(
        message(histogram(&[0.0, 1.0], &[1, 2])),
        "h/x: a histogram has one more edge than it has counts: 2 counts need 3 edges, not 2"
    );
    assert_eq!(message(histogram(&[0.0, f64::NAN], &[1])), "h/x: the edges of a histogram are finite, and one is NaN");
    assert_eq!(message(histogram(&[0.0, 0.0], &[1])), "h/x: the edges of a histogram rise, and 0 is followed by 0");
    let many: Vec<f64> = (0..=513).map(f64::from).collect();
    assert!(message(histogram(&many, &[1; 513])).contains("1 to 512 bins, not 513"));
}
