//! Reader of FlatBuffers, limited to the needs of Arrow's metadata.
//!
//! Every offset is checked before it is followed. Offsets to tables, vectors and texts are unsigned and above zero, so
//! they only lead forwards and cannot form a circle. Two offsets can lead to one table, so callers limit how many they
//! follow. Nothing is allocated. Source: FlatBuffers, `docs/source/internals.md`.

use super::super::table::ColumnResult;

/// A table: fields by their number, each of which can be absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatTable<'a> {
    bytes: &'a [u8],
    /// The offset of the table.
    at: usize,
    /// The fields' offsets in the table, two bytes each.
    slots: &'a [u8],
    /// Bytes of the table.
    size: usize,
}

impl<'a> FlatTable<'a> {
    /// Returns the table that these bytes begin with the offset of.
    pub(super) fn root(bytes: &'a [u8]) -> ColumnResult<FlatTable<'a>> {
        FlatTable::read(bytes, read_u32(bytes, 0)? as usize)
    }

    fn read(bytes: &'a [u8], at: usize) -> ColumnResult<FlatTable<'a>> {
        let back = read_u32(bytes, at)? as i32;
        let slots_at = usize::try_from(at as i64 - i64::from(back)).map_err(|_| error_at(at, "a table's fields"))?;
        let slots_bytes = usize::from(read_u16(bytes, slots_at)?);
        let size = usize::from(read_u16(bytes, slots_at.saturating_add(2))?);
        let slots = slots_at.checked_add(slots_bytes).and_then(|end| bytes.get(slots_at + 4..end));
        let slots = slots.ok_or_else(|| error_at(slots_at, "a table's fields"))?;
        match at.checked_add(size) {
            Some(end) if end <= bytes.len() => Ok(FlatTable { bytes, at, slots, size }),
            Some(_) | None => Err(error_at(at, "a table")),
        }
    }

    /// Returns the offset of a field of `width` bytes, or `None` if the table does not have it.
    fn slot(&self, field: usize, width: usize) -> ColumnResult<Option<usize>> {
        let Some(slot) = self.slots.get(2 * field..2 * field + 2) else { return Ok(None) };
        let offset = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
        match offset {
            0 => Ok(None),
            offset if offset + width <= self.size => Ok(Some(self.at + offset)),
            offset => Err(error_at(self.at + offset, "a field")),
        }
    }

    fn scalar<const N: usize>(&self, field: usize) -> ColumnResult<Option<[u8; N]>> {
        Ok(self.slot(field, N)?.and_then(|at| self.bytes.get(at..)?.first_chunk().copied()))
    }

    /// Returns a field of one byte.
    pub(super) fn u8(&self, field: usize, default: u8) -> ColumnResult<u8> {
        Ok(self.scalar(field)?.map_or(default, u8::from_le_bytes))
    }

    /// Returns a truth value, which is false if it is absent.
    pub(super) fn bool(&self, field: usize) -> ColumnResult<bool> {
        Ok(self.u8(field, 0)? != 0)
    }

    /// Returns a field of two bytes.
    pub(super) fn i16(&self, field: usize, default: i16) -> ColumnResult<i16> {
        Ok(self.scalar(field)?.map_or(default, i16::from_le_bytes))
    }

    /// Returns a field of four bytes.
    pub(super) fn i32(&self, field: usize, default: i32) -> ColumnResult<i32> {
        Ok(self.scalar(field)?.map_or(default, i32::from_le_bytes))
    }

    /// Returns a field of eight bytes.
    pub(super) fn i64(&self, field: usize, default: i64) -> ColumnResult<i64> {
        Ok(self.scalar(field)?.map_or(default, i64::from_le_bytes))
    }

    /// Returns a number of eight bytes that counts something; it is 0 if it is absent.
    pub(super) fn count(&self, field: usize) -> ColumnResult<u64> {
        u64::try_from(self.i64(field, 0)?).map_err(|_| error_at(self.at, "a count below zero"))
    }

    /// Returns the table of a field.
    pub(super) fn table(&self, field: usize) -> ColumnResult<Option<FlatTable<'a>>> {
        let Some(at) = self.slot(field, 4)? else { return Ok(None) };
        FlatTable::read(self.bytes, follow(self.bytes, at)?).map(Some)
    }

    /// Returns the text of a field.
    pub(super) fn text(&self, field: usize) -> ColumnResult<Option<&'a str>> {
        let Some(vector) = self.vector(field, 1)? else { return Ok(None) };
        let bytes = &self.bytes[vector.at..vector.at + vector.count];
        std::str::from_utf8(bytes).map(Some).map_err(|_| error_at(vector.at, "a text that is not valid UTF-8"))
    }

    /// Returns the vector of a field, whose elements have `width` bytes. Without the field, it is empty.
    pub(super) fn elements(&self, field: usize, width: usize) -> ColumnResult<FlatVector<'a>> {
        Ok(self.vector(field, width)?.unwrap_or(FlatVector { bytes: self.bytes, at: self.at, count: 0, width }))
    }

    fn vector(&self, field: usize, width: usize) -> ColumnResult<Option<FlatVector<'a>>> {
        let Some(at) = self.slot(field, 4)? else { return Ok(None) };
        let at = follow(self.bytes, at)?;
        let count = read_u32(self.bytes, at)? as usize;
        let at = at + 4;
        let end = count.checked_mul(width).and_then(|bytes| bytes.checked_add(at));
        if end.is_none_or(|end| end > self.bytes.len()) {
            return Err(error_at(at, &format!("{count} elements")));
        }
        Ok(Some(FlatVector { bytes: self.bytes, at, count, width }))
    }
}

/// A vector of elements of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatVector<'a> {
    bytes: &'a [u8],
    at: usize,
    count: usize,
    width: usize,
}

impl<'a> FlatVector<'a> {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the bytes of an element.
    pub(super) fn element(&self, index: usize) -> Option<&'a [u8]> {
        let at = self.at + index * self.width;
        (index < self.count).then(|| &self.bytes[at..at + self.width])
    }

    /// Returns the little-endian number of eight bytes at `offset` in an element.
    pub(super) fn i64_at(&self, index: usize, offset: usize) -> Option<i64> {
        self.element(index)?.get(offset..)?.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
    }

    /// Returns an element that is an offset of a table.
    pub(super) fn table(&self, index: usize) -> ColumnResult<FlatTable<'a>> {
        FlatTable::read(self.bytes, follow(self.bytes, self.at + index * self.width)?)
    }
}

/// Returns the offset that the offset at `at` leads to.
fn follow(bytes: &[u8], at: usize) -> ColumnResult<usize> {
    let offset = read_u32(bytes, at)? as usize;
    match at.checked_add(offset) {
        Some(target) if offset > 0 && target < bytes.len() => Ok(target),
        Some(_) | None => Err(error_at(at, "an offset")),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> ColumnResult<u32> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk());
    chunk.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| error_at(at, "a number"))
}

fn read_u16(bytes: &[u8], at: usize) -> ColumnResult<u16> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk());
    chunk.map(|bytes| u16::from_le_bytes(*bytes)).ok_or_else(|| error_at(at, "a number"))
}

fn error_at(at: usize, what: &str) -> String {
    format!("its metadata: {what} at byte {at} that it cannot contain; is the file damaged?")
}
