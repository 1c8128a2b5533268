//! Import of CSV files whose meaning is inferred: header lines, class names, files without a description.

use super::*;

fn ingest_files(files: &[(&str, &[u8])]) -> (TempDir, ColumnarDataset) {
    let source = folder_with_files(files);
    let (directory, datasets) = datasets();
    let data = datasets.open(&datasets.ingest("d", source.path(), 0).unwrap()).unwrap();
    (directory, data)
}

fn fields(data: &ColumnarDataset) -> Vec<String> {
    let field = |field: &DatasetField| format!("{} {} [{}]", field.name, field.item, field.classes.join(" "));
    data.fields().iter().map(field).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_csv_file_without_description_gives_features_and_a_label() {
    let wine = "alcohol,ash,class\n14.2,2.4,1\n13.1,2.1,3\n12.0,2,2\n";
    let (_directory, data) = ingest_files(&[("wine.csv", wine.as_bytes())]);
    assert_eq!(fields(&data), ["x float32[2] []", "label uint8[] [1 2 3]"]);
    assert_eq!(data.read("x", &[0, 2]).unwrap(), floats(&[14.2, 2.4, 12.0, 2.0]));
    assert_eq!(data.read("label", &[0, 1, 2]).unwrap(), [0, 2, 1]);
    // Integer classes have no names; without a header, the last column is the label.
    let (_directory, data) = ingest_files(&[("a.csv", b"1,2,0\n3,4,1\n")]);
    assert_eq!(fields(&data), ["x float32[2] []", "label uint8[] []"]);
    assert_eq!(data.read("x", &[0]).unwrap(), floats(&[1.0, 2.0]));
    // A column named `label` is the label even if it is the first.
    let (_directory, data) = ingest_files(&[("m.csv", b"label,p0,p1\n7,0,255\n0,9,8\n")]);
    assert_eq!(fields(&data), ["x float32[2] []", "label uint8[] [0 7]"]);
    assert_eq!(data.read("label", &[0, 1]).unwrap(), [1, 0]);
    let iris = b"sepal,petal,species\n5.1,1.4,setosa\n7,4.7,versicolor\n5,1,setosa\n";
    let (_directory, data) = ingest_files(&[("iris.csv", iris)]);
    assert_eq!(fields(&data), ["x float32[2] []", "label uint8[] [setosa versicolor]"]);
    assert_eq!(data.read("label", &[0, 1, 2]).unwrap(), [0, 1, 0]);
    let packed = gz(iris);
    assert_eq!(fields(&ingest_files(&[("iris.csv.gz", &packed)]).1).len(), 2);
}

#[test]
fn fractional_labels_become_a_regression_target() {
    let (_directory, data) = ingest_files(&[("houses.csv", b"rooms,price\n3,1.5\n4,2\n")]);
    assert_eq!(fields(&data), ["x float32[1] []", "target float32[] []"]);
    assert_eq!(data.read("target", &[0, 1]).unwrap(), floats(&[1.5, 2.0]));
    let many: String = (0..300).map(|n| format!("{n},{}\n", n * 1000)).collect();
    assert_eq!(fields(&ingest_files(&[("a.csv", many.as_bytes())]).1)[1], "target float32[] []");
}

#[test]
fn a_csv_header_is_distinguished_from_values() {
    let json = r#"{"format":"csv","file":"x.csv","fields":[{"name":"x","columns":[0,2],"dtype":"float32"}]}"#;
    let count = |lines: &str, json: &str| {
        let (_directory, data) = ingest_files(&[("dataset.json", json.as_bytes()), ("x.csv", lines.as_bytes())]);
        data.items(None).unwrap().end
    };
    assert_eq!(count("alcohol,ash\n1,2\n3,4\n", json), 2);
    assert_eq!(count("1,2\n3,4\n", json), 2);
    // Labels only: the first line is not a class, and the second one is.
    let json = r#"{"format":"csv","file":"x.csv","fields":[
        {"name":"y","columns":[0,1],"dtype":"uint8","classes":["no","yes"]}]}"#;
    assert_eq!(count("answer\nyes\nno\n", json), 2);
    assert_eq!(count("yes\nno\nno\n", json), 3);
    let said =
        r#"{"format":"csv","file":"x.csv","header":false,"fields":[{"name":"x","columns":[0,1],"dtype":"uint8"}]}"#;
    check(
        &[("dataset.json", said.as_bytes()), ("x.csv", b"ash\n1\n")],
        expect!["x.csv:1:1: `ash` is not a number of type uint8 (field x)"],
    );
}

#[test]
fn class_names_are_read_as_class_indices() {
    let field = |classes: &str| {
        format!(
            r#"{{"format":"csv","file":"x.csv","fields":[{{"name":"y","columns":[0,1],"dtype":"uint8","classes":{classes}}}]}}"#
        )
    };
    let read = |classes: &str, lines: &str, items: &[u64]| {
        let json = field(classes);
        let (_directory, data) = ingest_files(&[("dataset.json", json.as_bytes()), ("x.csv", lines.as_bytes())]);
        data.read("y", items).unwrap().to_vec()
    };
    assert_eq!(read(r#"["no","yes"]"#, "yes\nno\n1\n", &[0, 1, 2]), [1, 0, 1]);
    assert_eq!(read(r#"["1","2","3"]"#, "1\n3\n2\n", &[0, 1, 2]), [0, 2, 1]);
    check_csv(
        r#"{"name":"y","columns":[0,1],"dtype":"uint8","classes":["no","yes"]}"#,
        b"no\nmaybe\n",
        expect!["x.csv:2:1: `maybe` is not a class: no, yes, or its number from 0 to 1 (field y)"],
    );
}

#[test]
fn an_ambiguous_csv_file_is_refused_with_a_suggested_description() {
    let refused = |files: &[(&str, &[u8])]| {
        let source = folder_with_files(files);
        let (_directory, datasets) = datasets();
        let error = datasets.ingest("d", source.path(), 0).unwrap_err().to_string();
        let (reason, example) =
            error.split_once("; a file dataset.json beside it says what it means, for example: ").unwrap();
        let read: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!((&read["format"], read["fields"].as_array().unwrap().len()), (&"csv".into(), 2), "{example}");
        reason.to_owned()
    };
    let check = |lines: &[u8], says: &str| assert_eq!(refused(&[("a.csv", lines)]), says);
    let texts: String = (0..1001).map(|n| format!("{n},t{n}\n")).collect();
    check(format!("a,label\n{texts}").as_bytes(), "a.csv: column 2 has more than 1000 different texts");
    check(b"1\n2\n", "a.csv: it has one column, and a dataset has features and a label");
    check(b"1,2\n", "a.csv: one line does not show which column is the label");
    let two = [("a.csv", &b"1,2\n"[..]), ("b.csv", &b"1,2\n"[..])];
    assert_eq!(refused(&two), "a.csv: 2 CSV files are there (a.csv, b.csv), and one is a dataset");
}

#[test]
fn unsupported_image_formats_are_named_in_the_error() {
    let source = folder_with_files(&[]);
    std::fs::create_dir(source.path().join("cat")).unwrap();
    std::fs::write(source.path().join("cat/1.GIF"), "x").unwrap();
    let (_directory, datasets) = datasets();
    let error = datasets.ingest("d", source.path(), 0).unwrap_err().to_string();
    assert!(error.contains("folders of PNG, JPEG and WebP images named as their classes"), "{error}");
    assert!(error.ends_with("; .gif pictures are not read: make PNG, JPEG or WebP files of them"), "{error}");
}

#[test]
fn unsupported_tables_are_named_in_the_error() {
    let source = folder_with_files(&[("d.xlsx", b"PK")]);
    let error = datasets().1.ingest("d", source.path(), 0).unwrap_err().to_string();
    let hint = "; .xlsx files are not read: write Parquet, for example with pandas: frame.to_parquet(\"data.parquet\")";
    assert!(error.ends_with(hint), "{error}");
}
