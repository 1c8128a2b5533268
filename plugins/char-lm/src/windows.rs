//! The data step: cuts a text into windows.

use saggar_plugin::{Column, DataType, Dataset, Error, Result, descriptor};

/// If the dataset has no held-out part, one window in this many is held out: the last ones, which are then not trained
/// on.
const HELD_OUT_INTERVAL: usize = 10;

/// Cuts the lines of the field `text` into windows of `context` bytes and the byte after them. Each byte except the
/// first is a prediction target in exactly one window. A remainder at the end is dropped.
///
/// # Errors
/// Returns `Parameter` if `context` is 0; `NoSuch` if the field `text` is missing; `Shape` if the field is not a text;
/// `NoItems` if the text is shorter than a window; `Host` if the host refuses a call.
pub(crate) fn cut_windows(data: &Dataset, context: u32) -> Result<Dataset> {
    if context == 0 {
        let (name, expected) = ("context".to_owned(), "at least 1".to_owned());
        return Err(Error::Parameter { name, expected, given: "0".to_owned() });
    }
    let splits = data.splits();
    let named = |names: &[&'static str]| names.iter().copied().find(|name| splits.iter().any(|split| split == name));
    let text = |split| Ok::<_, Error>(join_lines(&data.texts("text", split)?));
    let mut training = windows(&text(named(&["train"]))?, context as usize);
    let held_out = match named(&["train"]).and(named(&["validation", "val", "test"])) {
        Some(split) => windows(&text(Some(split))?, context as usize),
        None => training.split_off(training.len() - training.len() / HELD_OUT_INTERVAL),
    };
    if training.is_empty() {
        return Err(Error::NoItems);
    }
    let parts = [("train".to_owned(), training.len() as u64), ("validation".to_owned(), held_out.len() as u64)];
    let data = [training, held_out].concat().concat();
    let item = descriptor(DataType::Uint8, [context + 1]);
    Dataset::from_columns(vec![Column { name: "text".to_owned(), item, data }], &parts)
}

fn join_lines(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| line.bytes().chain([b'\n'])).collect()
}

fn windows(text: &[u8], context: usize) -> Vec<Vec<u8>> {
    let starts = (0..text.len()).step_by(context);
    starts.map_while(|start| text.get(start..=start + context)).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_except_the_first_is_predicted_once() {
        assert_eq!(windows(b"abcdefg", 3), [b"abcd", b"defg"]);
        assert_eq!(windows(b"abcdef", 3), [b"abcd"]);
        assert!(windows(b"abc", 3).is_empty());
        assert_eq!(join_lines(&["To be,".to_owned(), String::new(), "or".to_owned()]), b"To be,\n\nor\n");
    }
}
