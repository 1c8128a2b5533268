//! Import of CSV files whose columns are inferred: texts as classes, the target, missing values, hostile files.

use super::*;

/// Imports a CSV file with these keys of a description, and returns the version and its data.
fn ingest_table(keys: &str, lines: &[u8]) -> (DatasetInfo, ColumnarDataset) {
    let json = format!(r#"{{"format":"csv","file":"x.csv"{keys}}}"#);
    let source = folder_with_files(&[("dataset.json", json.as_bytes()), ("x.csv", lines)]);
    let (_directory, datasets) = datasets();
    let info = datasets.ingest("d", source.path(), 0).unwrap();
    let data = datasets.open(&info).unwrap();
    (info, data)
}

fn refuse_table(keys: &str, lines: &[u8], expected: Expect) {
    let json = format!(r#"{{"format":"csv","file":"x.csv"{keys}}}"#);
    check(&[("dataset.json", json.as_bytes()), ("x.csv", lines)], expected);
}

fn fields(info: &DatasetInfo) -> Vec<String> {
    let field = |field: &DatasetField| format!("{} {} [{}]", field.name, field.item, field.classes.join(" "));
    info.fields.iter().map(field).collect()
}

fn floats(data: &ColumnarDataset, field: &str) -> Vec<f32> {
    let column = data.column(field).unwrap();
    column.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

const PEOPLE: &[u8] = b"id,name,age,city,income,marital status\n\
    1,Ann Alder,31,Rome,10.5,single\n2,Ben Birch,40,Oslo,12,married\n3,Cid Cedar,25,Rome,9,single\n\
    4,Dee Doug,50,Oslo,20.25,married\n";

#[test]
fn text_columns_become_classes_and_the_target_is_chosen_by_name() {
    let (info, data) = ingest_table(r#","target":"income","ignore":["id","name"]"#, PEOPLE);
    assert_eq!(
        fields(&info),
        [
            "x float32[1] []",
            "city uint8[] [Oslo Rome]",
            "marital_status uint8[] [married single]",
            "target float32[] []"
        ]
    );
    assert_eq!(floats(&data, "x"), [31.0, 40.0, 25.0, 50.0]);
    assert_eq!(floats(&data, "target"), [10.5, 12.0, 9.0, 20.25]);
    assert_eq!(data.column("city").unwrap(), [1, 0, 1, 0]);
    assert_eq!(info.notes, ["field x has the columns `age`", "field target is the column `income`"]);
    let (info, _) = ingest_table(r#","target":"city","ignore":["name"]"#, PEOPLE);
    assert_eq!(fields(&info)[0], "x float32[3] []");
    assert_eq!(fields(&info)[2], "label uint8[] [Oslo Rome]");
    refuse_table(
        r#","target":"town""#,
        PEOPLE,
        expect![
            "x.csv: column town: no column has this name; the columns are id, name, age, city, income, marital status"
        ],
    );
    refuse_table(
        r#","target":"a""#,
        b"a,a\n1,2\n",
        expect!["x.csv: column a: the columns 1, 2 all have this name; rename them in the first line"],
    );
    refuse_table(
        r#","target":"age","ignore":["age"]"#,
        PEOPLE,
        expect!["dataset.json: column `age` is the target, and `ignore` names it"],
    );
    refuse_table(
        r#","target":"y","fields":[{"name":"x","columns":[0,1],"dtype":"float32"}]"#,
        b"1\n",
        expect!["dataset.json: `target` and `fields` exclude each other; `fields` lists every column that is read"],
    );
}

#[test]
fn unusable_columns_are_left_out_with_a_note() {
    let rows: String = (0..60).map(|n| format!("{n},Person {n},{},,{}\n", n * 2, n % 2)).collect();
    let (info, _) = ingest_table("", format!(",name,size,empty,class\n{rows}").as_bytes());
    assert_eq!(fields(&info), ["x float32[1] []", "label uint8[] []"]);
    assert_eq!(
        info.notes,
        [
            "column 1 is left out: it has no name and numbers the rows",
            "column `empty` is left out: it has no values",
            "field x has the columns `size`",
            "column `name` is left out: 60 different values in 60 rows are too many for classes, such as `Person 0` \
             in line 2",
            "field label is the column `class`",
        ]
    );
    // One wrong cell does not turn a column of numbers into one that is left out.
    let rows: String =
        (0..60).map(|n| format!("{},{}\n", if n == 7 { "1O".to_owned() } else { n.to_string() }, n % 2)).collect();
    refuse_table(
        "",
        format!("size,class\n{rows}").as_bytes(),
        expect![
            "x.csv:9:1: `1O` is not a number, as 59 values of column `size` are; correct it, or leave the column out with `--ignore`"
        ],
    );
    refuse_table(
        r#","target":"b","ignore":["a"]"#,
        b"a,b\n1,2\n",
        expect![[
            r#"x.csv: no column is left as an input; a file dataset.json beside it says what it means, for example: {"format":"csv","file":"x.csv","header":true,"fields":[{"name":"x","columns":[0,1],"dtype":"float32"},{"name":"label","columns":[1,2],"dtype":"uint8","classes":["first","second"]}],"splits":{"train":0.8,"test":0.2}}"#
        ]],
    );
}

/// Rows 3 and 5 lack a number, row 4 a class, and row 6 the target.
const GAPS: &[u8] = b"size,kind,price\n1,a,1.5\n,a,2.5\n3,?,3.5\nNA,b,4.5\n5,a,\n8,b,5.5\n";

#[test]
fn missing_values_are_refused_dropped_or_filled() {
    refuse_table(
        "",
        GAPS,
        expect![
            "x.csv:3:1: column `size` has no value; push with `--missing drop` to leave such rows out, or with `--missing mean` to use the column's mean"
        ],
    );
    let (info, data) = ingest_table(r#","missing":"drop""#, GAPS);
    assert_eq!((info.items, floats(&data, "x")), (2, vec![1.0, 8.0]));
    assert_eq!(info.notes[2], "4 of 6 rows were dropped: values are missing (first in line 3)");
    let (info, data) = ingest_table(r#","missing":"mean""#, GAPS);
    assert_eq!((info.items, floats(&data, "x")), (5, vec![1.0, 4.0, 3.0, 4.0, 8.0]));
    assert_eq!(data.column("kind").unwrap(), [0, 0, 0, 1, 1]);
    assert_eq!(
        info.notes[2..],
        [
            "1 of 6 rows were dropped: values are missing (first in line 6)",
            "column `size`: 2 missing values became their mean 4 (first in line 3)",
            "column `kind`: 1 missing values became `a`, the most frequent class (first in line 4)",
        ]
    );
    refuse_table(
        r#","missing":"zero""#,
        GAPS,
        expect!["dataset.json: unknown variant `zero`, expected one of `refuse`, `drop`, `mean`"],
    );
    refuse_table(
        r#","missing":"drop""#,
        b"a,b\n1,\n,1.5\n",
        expect!["x.csv: no items: 2 of 2 rows were dropped: values are missing (first in line 2)"],
    );
}

#[test]
fn a_mean_does_not_count_rows_that_are_held_out() {
    let keys = r#","missing":"mean","splits":{"train":0.5,"test":0.5}"#;
    let (info, data) = ingest_table(keys, b"size,price\n1,1.5\n100,2.5\n3,3.5\n,4.5\n");
    assert_eq!(info.splits[1].items, 2..4);
    assert_eq!(floats(&data, "x"), [1.0, 3.0, 100.0, 2.0], "the mean of the rows of train, 1 and 3");
}

#[test]
fn described_fields_name_their_columns() {
    let keys = r#","missing":"drop","fields":[{"name":"x","columns":["income","age"],"dtype":"float32"},
        {"name":"label","columns":["city"],"dtype":"uint8","classes":["Rome","Oslo"]}]"#;
    let (info, data) = ingest_table(keys, PEOPLE);
    assert_eq!(fields(&info), ["x float32[2] []", "label uint8[] [Rome Oslo]"]);
    assert_eq!(floats(&data, "x")[..4], [10.5, 31.0, 12.0, 40.0]);
    let field = |columns: &str| format!(r#","fields":[{{"name":"x","columns":{columns},"dtype":"float32"}}]"#);
    refuse_table(
        &field(r#"["wage"]"#),
        PEOPLE,
        expect![
            "x.csv: column wage: no column has this name; the columns are id, name, age, city, income, marital status"
        ],
    );
    refuse_table(
        &field("[]"),
        PEOPLE,
        expect![
            "dataset.json: field x: its 0 columns are empty or reversed; expected [first, last + 1], or the names of columns"
        ],
    );
    refuse_table(
        &field(r#""age""#),
        PEOPLE,
        expect!["dataset.json: expected `columns` as [first, last + 1] in numbers, or as a list of names"],
    );
    refuse_table(
        &field("[0, 1000000000000]"),
        PEOPLE,
        expect!["dataset.json: field x: a tensor has at most 2147483647 elements, and [1000000000000] has more"],
    );
    let headless = format!(r#","header":false{}"#, field(r#"["age"]"#));
    refuse_table(
        &headless,
        PEOPLE,
        expect![
            "dataset.json: fields name their columns, and `header` is false; number the columns: [first, last + 1]"
        ],
    );
}

#[test]
fn separators_are_detected_or_described() {
    for delimiter in [";", "\t", "|"] {
        let lines = "alcohol,ash,class\n14.2,2.4,1\n13.1,2.1,3\n".replace(',', delimiter);
        let (info, _) = ingest_table("", lines.as_bytes());
        assert_eq!(fields(&info), ["x float32[2] []", "label uint8[] [1 3]"]);
    }
    let (info, _) = ingest_table(r#","delimiter":":""#, b"a:label\n1:0\n2:1\n");
    assert_eq!(fields(&info), ["x float32[1] []", "label uint8[] []"]);
    let wrong = expect![[r#"dataset.json: delimiter '"' must be one ASCII character, such as `;`"#]];
    refuse_table(r#","delimiter":"\"""#, b"a\n", wrong);
}

#[test]
fn other_encodings_are_named_with_the_command_that_converts_them() {
    // A mark at the beginning of UTF-8 is skipped.
    let (info, _) = ingest_table(r#","target":"label""#, b"\xef\xbb\xbflabel,size\n1,2\n0,3\n");
    assert_eq!(fields(&info), ["x float32[1] []", "label uint8[] []"]);
    let wide: Vec<u8> = "\u{feff}a,label\n1,0\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    refuse_table(
        "",
        &wide,
        expect![
            "x.csv:1:1: the text is UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8 x.csv > x-utf8.csv"
        ],
    );
    refuse_table(
        "",
        &wide[2..],
        expect![
            "x.csv:1:1: a zero byte, as in UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8 x.csv > x-utf8.csv"
        ],
    );
    let latin = expect![
        "x.csv:3:1: byte 0xe9 is not UTF-8; if the text is Latin-1 (Windows), convert it: iconv -f LATIN1 -t UTF-8 x.csv > x-utf8.csv"
    ];
    refuse_table("", b"city,label\nOslo,1\nOrl\xe9ans,0\n", latin);
    let header = expect![
        "x.csv:1:2: byte 0xe9 is not UTF-8; if the text is Latin-1 (Windows), convert it: iconv -f LATIN1 -t UTF-8 x.csv > x-utf8.csv"
    ];
    refuse_table("", b"a,caf\xe9\n1,0\n", header);
}

#[test]
fn ragged_rows_and_infinite_numbers_are_refused_with_their_position() {
    refuse_table(
        "",
        b"a,b,label\n1,2,0\n1,2\n",
        expect![
            "x.csv:3: 2 columns, expected 3; every line has as many as the first, and a cell that contains the separator must be in double quotes"
        ],
    );
    let keys = r#","fields":[{"name":"x","columns":["a"],"dtype":"float32"}]"#;
    refuse_table(keys, b"a,label\n1e39,0\n", expect!["x.csv:2:1: `1e39` is not a number of type float32 (field x)"]);
}

#[test]
fn many_columns_are_one_field_of_numbers_or_a_field_each() {
    let line = |cell: &dyn Fn(usize) -> String| (0..10_000).map(cell).collect::<Vec<_>>().join(",");
    let numbers = [line(&|n| format!("c{n}")), line(&|n| n.to_string()), line(&|n| (n + 1).to_string())].join("\n");
    let (info, data) = ingest_table("", numbers.as_bytes());
    assert_eq!(fields(&info), ["x float32[9999] []", "label uint8[] [9999 10000]"]);
    assert_eq!(floats(&data, "x")[9_998], 9_998.0);
    assert!(info.notes[0].ends_with("`c19` and 9979 more"), "{:?}", info.notes);
    let line = |cell: &dyn Fn(usize) -> String| (0..200).map(cell).collect::<Vec<_>>().join(",");
    let texts = [line(&|n| format!("c{n}")), line(&|n| format!("t{n}")), line(&|n| format!("u{n}"))].join("\n");
    let (info, _) = ingest_table(r#","header":true"#, texts.as_bytes());
    assert_eq!((info.fields.len(), info.fields[0].name.as_str()), (200, "c0"));
    let wide = vec!["1"; 70_000].join(",");
    refuse_table("", format!("{wide}\n{wide}\n").as_bytes(), expect!["x.csv: more than 65536 columns"]);
}

#[test]
fn columns_with_colliding_names_get_different_fields() {
    let (info, _) = ingest_table(r#","target":"t""#, "x,a b,a_b,\u{e9},,t\nu,v,w,q,r,1\nu,v,w,q,r,0\n".as_bytes());
    let names: Vec<&str> = info.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["x_1", "a_b", "a_b_3", "column_4", "column_5", "label"]);
}
