//! Checks that any bytes are refused as a bundle, or give a version that is stored and exported with the same bytes.

use std::io::Read;

use bytes::Bytes;
use saggar_store::ModelRegistry;
use saggar_store::models::bundle::ModelBundle;

/// Reads a bundle. One that is accepted is published and exported again.
///
/// # Panics
/// If the export differs, or a published version is damaged.
pub(crate) fn check(file: &[u8]) {
    let Ok(bundle) = ModelBundle::read(&Bytes::copy_from_slice(file)) else { return };
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let models = ModelRegistry::new(directory.path());
    let published = models.publish_bundle(&bundle.model, &bundle).expect("a verified bundle is published");
    let files = saggar_store::models::verify(&published.dir).expect("it is intact");
    let mut exported = Vec::new();
    let mut stream = files.to_bundle(&bundle.model).expect("its files are open");
    stream.read_to_end(&mut exported).expect("its files are read");
    assert_eq!(exported, file);
}
