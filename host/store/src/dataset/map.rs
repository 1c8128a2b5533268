//! A column's bytes: in memory, or a file that the operating system shows as memory.
//!
//! A mapped file takes no memory of the process's own: pages come from the page cache when they are read, are shared by all
//! jobs that read them, and can be taken away again. A map of a file that has been deleted goes on showing it.

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
    /// The bytes of a column file.
    pub(super) fn map(file: &File) -> io::Result<ColumnBytes> {
        #[expect(unsafe_code, reason = "the compiler cannot know that nobody changes the file")]
        // SAFETY: nothing of ours writes to a column file or cuts it once its version has its name: a version is only
        // ever deleted, which leaves maps as they are. Files are made with `durable::PRIVATE_FILE_MODE`, so no other
        // user may either. That does not bind another program of the same user: one that cuts a file which is mapped
        // has the process end with SIGBUS when it reads past the new end, and one that writes changes what is trained on.
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
