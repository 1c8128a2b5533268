//! Thrift's compact protocol, as far as Parquet's footers and page headers need it.
//!
//! Strict, since a reader of Parquet that believes what stands there can be made to reserve memory without end or to
//! recurse until the stack is full: fields come in order, a field has the type that it must have, lists are not longer
//! than the bytes that are left, and nesting is bounded. Source: Apache Thrift, `thrift-compact-protocol.md`.

/// Why bytes are no message.
pub(super) type Result<T> = std::result::Result<T, String>;

/// Structures and lists within each other that are skipped; Parquet's own are five deep.
const DEPTH_MAX: u32 = 16;

/// What a field is, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    True,
    False,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List,
    Struct,
}

impl Wire {
    fn of(code: u8) -> Result<Wire> {
        Ok(match code {
            1 => Wire::True,
            2 => Wire::False,
            3 => Wire::Byte,
            4 => Wire::I16,
            5 => Wire::I32,
            6 => Wire::I64,
            7 => Wire::Double,
            8 => Wire::Binary,
            9 => Wire::List,
            12 => Wire::Struct,
            code => return Err(format!("a value of Thrift's type {code}, which Parquet does not use")),
        })
    }
}

/// A field of a structure, whose value is to be read or skipped next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its number.
    pub(super) id: i16,
    wire: Wire,
}

/// A message that is read from its begin.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Reads a structure: `read` is given each field and reads its value, or answers false to have it skipped.
    pub(super) fn structure(&mut self, mut read: impl FnMut(&mut Self, Field) -> Result<bool>) -> Result<()> {
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            if !read(self, field)? {
                self.skip(field.wire, 0)?;
            }
        }
        Ok(())
    }

    /// The next field's header; none at the end of the structure.
    fn field(&mut self, last: i16) -> Result<Option<Field>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).map_err(|_| self.wrong("a field's number is too large"))?,
            delta => last.checked_add(i16::from(delta)).ok_or_else(|| self.wrong("a field's number is too large"))?,
        };
        if id <= last {
            return Err(self.wrong("fields are out of order"));
        }
        Ok(Some(Field { id, wire: Wire::of(head & 15)? }))
    }

    pub(super) fn bool(&self, field: Field) -> Result<bool> {
        match field.wire {
            Wire::True => Ok(true),
            Wire::False => Ok(false),
            _ => Err(self.unexpected(field)),
        }
    }

    pub(super) fn i8(&mut self, field: Field) -> Result<i8> {
        self.expect(field, Wire::Byte)?;
        Ok(self.byte()? as i8)
    }

    pub(super) fn i32(&mut self, field: Field) -> Result<i32> {
        self.expect(field, Wire::I32)?;
        i32::try_from(self.zigzag()?).map_err(|_| self.wrong("a number has more than 32 bits"))
    }

    pub(super) fn i64(&mut self, field: Field) -> Result<i64> {
        self.expect(field, Wire::I64)?;
        self.zigzag()
    }

    /// A number that counts something.
    pub(super) fn count(&mut self, field: Field) -> Result<u64> {
        let number = match field.wire {
            Wire::I32 => i64::from(self.i32(field)?),
            _ => self.i64(field)?,
        };
        u64::try_from(number).map_err(|_| self.wrong("a count is negative"))
    }

    pub(super) fn text(&mut self, field: Field) -> Result<&'a str> {
        self.expect(field, Wire::Binary)?;
        let bytes = self.binary()?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("a name is no UTF-8"))
    }

    /// Reads a structure within this one.
    pub(super) fn inner(&mut self, field: Field, read: impl FnMut(&mut Self, Field) -> Result<bool>) -> Result<()> {
        self.expect(field, Wire::Struct)?;
        self.structure(read)
    }

    /// Reads a list of structures, each with `read`.
    pub(super) fn structures<T>(
        &mut self,
        field: Field,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(field, Wire::List)?;
        let (wire, length) = self.list()?;
        if length > 0 && wire != Wire::Struct {
            return Err(self.wrong("a list does not hold structures"));
        }
        // Grows with what is there, not with what the list claims.
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn skip(&mut self, wire: Wire, depth: u32) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("structures lie too deep in each other"));
        }
        match wire {
            Wire::True | Wire::False => {}
            Wire::Byte => self.take(1).map(drop)?,
            Wire::I16 | Wire::I32 | Wire::I64 => self.zigzag().map(drop)?,
            Wire::Double => self.take(8).map(drop)?,
            Wire::Binary => self.binary().map(drop)?,
            Wire::List => {
                let (wire, length) = self.list()?;
                for _ in 0..length {
                    match wire {
                        // In a list each has a byte, as a field it is in the header.
                        Wire::True | Wire::False => self.take(1).map(drop)?,
                        wire => self.skip(wire, depth + 1)?,
                    }
                }
            }
            Wire::Struct => {
                let mut last = 0;
                while let Some(field) = self.field(last)? {
                    last = field.id;
                    self.skip(field.wire, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Type and number of the elements of a list.
    fn list(&mut self) -> Result<(Wire, usize)> {
        let head = self.byte()?;
        // Some writers give an empty list no type.
        if head == 0 {
            return Ok((Wire::Byte, 0));
        }
        let length = match head >> 4 {
            15 => self.varint()?,
            length => u64::from(length),
        };
        let left = self.bytes.len() - self.at;
        // Every element has a byte at least.
        match usize::try_from(length).ok().filter(|length| *length <= left) {
            Some(length) => Ok((Wire::of(head & 15)?, length)),
            None => Err(self.wrong(&format!("a list would have {length} elements in {left} bytes"))),
        }
    }

    fn binary(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn zigzag(&mut self) -> Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number has more than 64 bits"))
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.wrong("it ends early"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn expect(&self, field: Field, wire: Wire) -> Result<()> {
        if field.wire == wire { Ok(()) } else { Err(self.unexpected(field)) }
    }

    fn unexpected(&self, field: Field) -> String {
        self.wrong(&format!("field {} has another type than it should", field.id))
    }

    fn wrong(&self, reason: &str) -> String {
        format!("{reason} (byte {} of it)", self.at)
    }
}
