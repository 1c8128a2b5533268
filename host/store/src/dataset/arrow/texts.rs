//! Reads texts and bytes of any length, one at a time: between offsets, or by views.

use super::super::table::{ColumnResult, TableColumn, null_value_error};
use super::batch::{BatchParts, RecordBatch};
use super::buffers::{BitReader, BufferReader, DecodeBudget};
use super::schema::TextLayout;
use super::values::{BatchColumn, OffsetReader};
use crate::limits::{ARROW_VIEWS_BYTES_MAX, IMAGE_BYTES_MAX, TEXT_LINE_BYTES_MAX};

/// Bytes of a view, and those of a text inside it.
const VIEW_BYTES: usize = 16;
const INLINE_BYTES_MAX: usize = 12;

/// The texts of a column in a record batch that are still to be read.
pub(super) struct TextReader<'a> {
    valid: Option<BitReader<'a>>,
    source: TextSource<'a>,
    bits: Vec<u8>,
    text: Vec<u8>,
}

enum TextSource<'a> {
    Offsets(OffsetReader<'a>, BufferReader<'a>),
    /// The views, and the buffers that they refer to.
    Views(BufferReader<'a>, Vec<Vec<u8>>),
}

impl<'a> TextReader<'a> {
    /// Opens the texts of a column of a batch.
    pub(super) fn open(
        batch: &RecordBatch<'a>,
        parts: BatchParts,
        layout: TextLayout,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<TextReader<'a>> {
        let BatchParts { node, buffer, view } = parts;
        let valid = batch.validity(node, buffer, budget)?;
        let source = match layout {
            TextLayout::Offsets(width) => {
                let offsets = OffsetReader::open(batch.buffer(buffer + 1, budget)?, width)?;
                let mut data = batch.buffer(buffer + 2, budget)?;
                data.skip(offsets.last)?;
                TextSource::Offsets(offsets, data)
            }
            TextLayout::Views => {
                let views = batch.buffer(buffer + 1, budget)?;
                TextSource::Views(views, read_view_buffers(batch, buffer + 2, view, budget)?)
            }
        };
        Ok(TextReader { valid, source, bits: Vec::new(), text: Vec::new() })
    }

    /// Returns the next text, or `None` if it is null. `refused` returns the error of one with more than `bytes_max`
    /// bytes.
    pub(super) fn next_text(
        &mut self,
        bytes_max: usize,
        refused: impl FnOnce() -> String,
    ) -> ColumnResult<Option<&[u8]>> {
        let is_null = match &mut self.valid {
            None => false,
            Some(valid) => {
                valid.fill(1, &mut self.bits)?;
                self.bits == [0]
            }
        };
        match &mut self.source {
            TextSource::Offsets(offsets, data) => {
                let length = offsets.next_length()?;
                if is_null {
                    data.skip(length)?;
                    return Ok(None);
                }
                let length = usize::try_from(length).ok().filter(|length| *length <= bytes_max);
                self.text.resize(length.ok_or_else(refused)?, 0);
                data.fill(&mut self.text)?;
                Ok(Some(&self.text))
            }
            TextSource::Views(views, buffers) => {
                let mut view = [0; VIEW_BYTES];
                views.fill(&mut view)?;
                if is_null {
                    return Ok(None);
                }
                self.text.clear();
                let number =
                    |at: usize| view[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
                let length = number(0);
                if length > bytes_max {
                    return Err(refused());
                }
                if length <= INLINE_BYTES_MAX {
                    self.text.extend(&view[4..4 + length]);
                } else {
                    let (buffer, start) = (number(8), number(12));
                    let end = start.checked_add(length).ok_or("a view without an end")?;
                    let text = buffers.get(buffer).and_then(|buffer| buffer.get(start..end));
                    self.text.extend(text.ok_or("a view of what its buffers do not contain; is the file damaged?")?);
                }
                Ok(Some(&self.text))
            }
        }
    }
}

/// Returns the buffers that views refer to, which are in memory together because views can have any order.
fn read_view_buffers(
    batch: &RecordBatch<'_>,
    first: usize,
    view: usize,
    budget: &mut DecodeBudget,
) -> ColumnResult<Vec<Vec<u8>>> {
    let mut buffers = Vec::new();
    let mut sum = 0u64;
    for at in first..first + batch.buffers_of_view(view)? {
        let mut reader = batch.buffer(at, budget)?;
        sum = sum.saturating_add(reader.left());
        if sum > ARROW_VIEWS_BYTES_MAX {
            return Err(format!(
                "string views of more than {ARROW_VIEWS_BYTES_MAX} bytes in one batch; write smaller batches, or plain \
                 strings"
            ));
        }
        let mut bytes = vec![0; reader.left() as usize];
        reader.fill(&mut bytes)?;
        buffers.push(bytes);
    }
    Ok(buffers)
}

impl BatchColumn<'_, '_> {
    /// Appends a text of each row.
    pub(super) fn append_texts(
        &self,
        layout: TextLayout,
        column: &mut TableColumn<'_>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let mut texts = TextReader::open(self.batch, self.parts, layout, budget)?;
        for at in 0..self.batch.rows {
            let row = self.row(at);
            let too_long =
                || format!("row {row}: a text of more than {TEXT_LINE_BYTES_MAX} bytes; break it into several");
            match texts.next_text(TEXT_LINE_BYTES_MAX, too_long)? {
                Some(text) => {
                    column.push_text(text, self.bytes_max).map_err(|reason| format!("row {row}: {reason}"))?
                }
                None => {
                    column.add_null(row, self.earlier)?;
                    column.push_placeholder()?;
                }
            }
        }
        Ok(())
    }

    /// Appends the pixels of the image of each row. `skipped` are the nodes and buffers before the image's bytes.
    pub(super) fn append_images(
        &self,
        layout: TextLayout,
        skipped: (usize, usize),
        column: &mut TableColumn<'_>,
        budget: &mut DecodeBudget,
    ) -> ColumnResult<()> {
        let BatchParts { node, buffer, view } = self.parts;
        let mut valid = self.batch.validity(node, buffer, budget)?;
        // The structure's own node and bitmap come first.
        let parts = BatchParts { node: node + 1 + skipped.0, buffer: buffer + 1 + skipped.1, view };
        let mut images = TextReader::open(self.batch, parts, layout, budget)?;
        let mut bits = Vec::new();
        for at in 0..self.batch.rows {
            let row = self.row(at);
            if let Some(valid) = &mut valid {
                valid.fill(1, &mut bits)?;
            }
            let too_long = || format!("row {row}: an image of more than {IMAGE_BYTES_MAX} bytes");
            match images.next_text(IMAGE_BYTES_MAX, too_long)? {
                Some(image) if bits != [0] => {
                    column.push_image(image, self.bytes_max).map_err(|reason| format!("row {row}: {reason}"))?;
                }
                Some(_) | None => return Err(null_value_error(row)),
            }
        }
        Ok(())
    }
}
