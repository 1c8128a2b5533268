//! URLs of job records.

use super::*;

#[test]
fn urls_select_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    open(format!("sqlite://{}", path.display())).unwrap().submit(&new_job("p"), 1).unwrap();
    assert_eq!(open(&path).unwrap().get("p-1").unwrap().number, 1);
    for (url, scheme) in [("mysql://ci:secret@db/saggar", "mysql"), ("sqlite://relative.db", "sqlite")] {
        let error = open(url).unwrap_err();
        assert!(matches!(&error, RecordError::UnknownEngine { scheme: found } if found == scheme), "{error}");
        let text = error.to_string();
        assert!(text.contains("sqlite:///absolute/path") && !text.contains("secret"), "{text}");
    }
}
