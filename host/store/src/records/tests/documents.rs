//! Documents.

use super::*;

pub(super) fn a_document_is_replaced_only_at_the_expected_revision(records: &dyn JobRecords) {
    assert_eq!(records.document("keys", 0).unwrap(), None);
    assert!(!records.replace_document("keys", 1, "{}").unwrap(), "it does not exist");
    assert!(records.replace_document("keys", 0, "{}").unwrap());
    assert!(!records.replace_document("keys", 0, "other").unwrap(), "it exists");
    let text = "\u{e4} \"' \\ \n\u{1f600}";
    assert!(records.replace_document("keys", 1, text).unwrap());
    assert!(!records.replace_document("keys", 1, "late").unwrap());
    let document = RecordedDocument { revision: 2, text: text.to_owned() };
    assert_eq!(records.document("keys", 0).unwrap(), Some(document));
    assert_eq!(records.document("keys", 1).unwrap().map(|document| document.revision), Some(2));
    assert_eq!(records.document("keys", 2).unwrap(), None, "there is no newer revision");
    assert_eq!(records.document("other", 0).unwrap(), None);
    assert!(records.replace_document("models/a/x", 0, "1").unwrap());
    assert!(records.replace_document("models_b", 0, "1").unwrap());
    let found = records.document_revisions("models/").unwrap();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [("models/a/x".to_owned(), 1)]);
    for (name, text) in [("", "x"), ("a b", "x"), ("keys", "a\0b")] {
        let error = records.replace_document(name, 2, text).unwrap_err();
        assert!(matches!(error, RecordError::Invalid { field: "document", .. }), "{error}");
    }
    // Of servers that replace the same revision, one does.
    let winners = std::thread::scope(|scope| {
        let replace = |at: u32| scope.spawn(move || records.replace_document("keys", 2, &format!("{at}")).unwrap());
        let threads: Vec<_> = (0..8).map(replace).collect();
        threads.into_iter().map(|thread| u32::from(thread.join().unwrap())).sum::<u32>()
    });
    assert_eq!(winners, 1);
    assert_eq!(records.document("keys", 0).unwrap().unwrap().revision, 3);
}
