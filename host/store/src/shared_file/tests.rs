use std::sync::Arc;

use super::*;
use crate::records;

/// Two state directories of servers with the same records.
struct SharedFixture {
    directory: tempfile::TempDir,
    records: Arc<dyn DocumentRecords>,
}

impl SharedFixture {
    fn new() -> SharedFixture {
        let directory = tempfile::tempdir().unwrap();
        let records = records::open(directory.path().join("saggar.db")).unwrap();
        SharedFixture { directory, records }
    }

    fn path(&self, server: &str) -> PathBuf {
        let path = self.directory.path().join(server).join("keys.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn share(&self, server: &str) -> SharedFile {
        SharedFile::new(self.path(server)).share("keys", Arc::clone(&self.records)).unwrap()
    }

    fn text(&self, server: &str) -> Option<String> {
        std::fs::read_to_string(self.path(server)).ok()
    }
}

/// Adds a letter to the content.
fn append(file: &SharedFile, letter: char) -> Result<String, SharedFileError> {
    file.update(|text| {
        let text = format!("{}{letter}", text.unwrap_or_default());
        Ok((text.clone(), text))
    })
}

#[test]
fn a_file_that_is_not_shared_is_changed_alone() {
    let fixture = SharedFixture::new();
    let file = SharedFile::new(fixture.path("a"));
    assert_eq!(file.read_text().unwrap(), None);
    assert_eq!(append(&file, 'x').unwrap(), "x");
    assert_eq!(append(&file, 'y').unwrap(), "xy");
    file.refresh().unwrap();
    assert_eq!(fixture.text("a").unwrap(), "xy");
    assert_eq!(fixture.records.document("keys", 0).unwrap(), None);
}

#[test]
fn servers_have_one_content_in_common() {
    let fixture = SharedFixture::new();
    std::fs::write(fixture.path("a"), "of a ").unwrap();
    std::fs::write(fixture.path("b"), "of b ").unwrap();
    let (a, b) = (fixture.share("a"), fixture.share("b"));
    assert_eq!(fixture.text("b").unwrap(), "of a ", "the first server's content is that of all");
    let aside = fixture.path("b").with_added_extension("before-sharing");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "of b ", "nothing is lost");
    append(&a, '1').unwrap();
    append(&b, '2').unwrap();
    assert_eq!((fixture.text("a").unwrap(), fixture.text("b").unwrap()), ("of a 1".into(), "of a 12".into()));
    a.refresh().unwrap();
    assert_eq!(fixture.text("a").unwrap(), "of a 12");
    // After a restart it is the same file.
    drop(b);
    assert_eq!(append(&fixture.share("b"), '3').unwrap(), "of a 123");
    assert!(!fixture.path("a").with_added_extension("before-sharing").exists());
}

#[test]
fn concurrent_changes_of_several_servers_are_all_applied() {
    let fixture = SharedFixture::new();
    std::thread::scope(|scope| {
        for server in ["a", "b", "c"] {
            let file = fixture.share(server);
            scope.spawn(move || (0..20).for_each(|_| drop(append(&file, server.chars().next().unwrap()).unwrap())));
        }
    });
    let text = fixture.records.document("keys", 0).unwrap().unwrap().text;
    assert_eq!(["a", "b", "c"].map(|server| text.matches(server).count()), [20; 3]);
}

#[test]
fn a_copy_cannot_be_changed_without_the_records_until_it_is_no_copy_any_more() {
    let fixture = SharedFixture::new();
    append(&fixture.share("a"), 'x').unwrap();
    let alone = SharedFile::new(fixture.path("a"));
    let error = append(&alone, 'y').unwrap_err().to_string();
    assert!(error.contains("keys.json is a copy") && error.contains("SAGGAR_DATABASE_URL"), "{error}");
    assert_eq!(fixture.text("a").unwrap(), "x");
    alone.stop_sharing().unwrap();
    alone.stop_sharing().unwrap();
    assert_eq!(append(&alone, 'y').unwrap(), "xy");
}

#[test]
fn a_refused_change_leaves_the_content() {
    let fixture = SharedFixture::new();
    let file = fixture.share("a");
    append(&file, 'x').unwrap();
    let missing = || SharedFileError::Records(RecordError::UnknownEngine { scheme: "no".to_owned() });
    assert!(file.update(|_| Err::<(String, ()), _>(missing())).is_err());
    assert_eq!(fixture.records.document("keys", 0).unwrap().unwrap().text, "x");
}
