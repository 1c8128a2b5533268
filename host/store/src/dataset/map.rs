//! A column's bytes: in memory, or a memory-mapped file.
//!
//! A mapped file takes no private memory. Its pages come from the page cache when they are read, are shared by all jobs
//! that read them, and can be evicted. A map of a deleted file remains valid.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The bytes of a column.
#[derive(Debug)]
pub(super) enum ColumnBytes {
    Owned(Vec<u8>),
    Mapped(Mmap),
}

impl ColumnBytes {
    /// Maps a column file.
    pub(super) fn map(file: &File) -> io::Result<ColumnBytes> {
        #[expect(unsafe_code, reason = "the compiler cannot know that nobody changes the file")]
        // SAFETY: this program never writes to or truncates a column file once its version has its name: a version is
        // only deleted, which leaves maps intact. Files are created with `durable::PRIVATE_FILE_MODE`, so other users
        // cannot change them. This does not bind another program of the same user: if it truncates a mapped file, this
        // process gets SIGBUS when it reads past the new end, and if it writes, the training data changes.
        let map = unsafe { Mmap::map(file) }?;
        Ok(ColumnBytes::Mapped(map))
    }
}

impl Deref for ColumnBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ColumnBytes::Owned(bytes) => bytes,
            ColumnBytes::Mapped(map) => map,
        }
    }
}
