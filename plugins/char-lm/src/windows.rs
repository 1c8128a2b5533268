//! The data step: a text cut into windows.

use saggar_plugin::{Column, DataType, Dataset, Error, Result, descriptor};

/// Where a dataset holds nothing out, one window of so many is held out: the last ones, which the model then has not read.
const HELD_OUT_INTERVAL: usize = 10;

/// Windows of `context` bytes and the byte after them, of the lines of the field `text`. Each byte but the first is the
/// one to be predicted in one window. What is left over at the end is left out.
///
/// # Errors
/// `Parameter` for a context of 0; `NoSuch` without a field `text`; `Shape` if it is none; `NoItems` for a text shorter
/// than a window; `Host`.
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
