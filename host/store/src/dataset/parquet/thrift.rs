//! Parser for Thrift's compact protocol, limited to the needs of Parquet's footers and page headers.
//!
//! It is strict, because a parser that trusts its input can be made to allocate memory without limit or to overflow the
//! stack by recursion: fields must be in order, a field must have the expected type, lists cannot be longer than the
//! remaining bytes, and nesting is limited. Source: Apache Thrift, `thrift-compact-protocol.md`.

/// The result of parsing; the error is the reason, as text.
pub(super) type ThriftResult<T> = std::result::Result<T, String>;

/// Maximum nesting of skipped structures and lists; Parquet's own are five deep.
const DEPTH_MAX: u32 = 16;

/// The type in a field's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompactType {
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

impl CompactType {
    fn from_code(code: u8) -> ThriftResult<CompactType> {
        Ok(match code {
            1 => CompactType::True,
            2 => CompactType::False,
            3 => CompactType::Byte,
            4 => CompactType::I16,
            5 => CompactType::I32,
            6 => CompactType::I64,
            7 => CompactType::Double,
            8 => CompactType::Binary,
            9 => CompactType::List,
            12 => CompactType::Struct,
            code => return Err(format!("a value of Thrift's type {code}, which Parquet does not use")),
        })
    }
}

/// A field of a structure, whose value must be read or skipped next.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThriftField {
    /// Its number.
    pub(super) id: i16,
    wire: CompactType,
}

/// A parser of a message.
#[derive(Debug)]
pub(super) struct CompactReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> CompactReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> CompactReader<'a> {
        CompactReader { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Reads a structure: `read` is called with each field and reads its value, or returns `false` to skip it.
    pub(super) fn read_struct(
        &mut self,
        mut read: impl FnMut(&mut Self, ThriftField) -> ThriftResult<bool>,
    ) -> ThriftResult<()> {
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            if !read(self, field)? {
                self.skip(field.wire, 0)?;
            }
        }
        Ok(())
    }

    /// Returns the next field's header, or `None` at the end of the structure.
    fn field(&mut self, last: i16) -> ThriftResult<Option<ThriftField>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).map_err(|_| self.error_here("a field's number is too large"))?,
            delta => {
                last.checked_add(i16::from(delta)).ok_or_else(|| self.error_here("a field's number is too large"))?
            }
        };
        if id <= last {
            return Err(self.error_here("fields are out of order"));
        }
        Ok(Some(ThriftField { id, wire: CompactType::from_code(head & 15)? }))
    }

    pub(super) fn bool(&self, field: ThriftField) -> ThriftResult<bool> {
        match field.wire {
            CompactType::True => Ok(true),
            CompactType::False => Ok(false),
            _ => Err(self.unexpected(field)),
        }
    }

    pub(super) fn i8(&mut self, field: ThriftField) -> ThriftResult<i8> {
        self.expect_type(field, CompactType::Byte)?;
        Ok(self.byte()? as i8)
    }

    pub(super) fn i32(&mut self, field: ThriftField) -> ThriftResult<i32> {
        self.expect_type(field, CompactType::I32)?;
        i32::try_from(self.zigzag()?).map_err(|_| self.error_here("a number has more than 32 bits"))
    }

    pub(super) fn i64(&mut self, field: ThriftField) -> ThriftResult<i64> {
        self.expect_type(field, CompactType::I64)?;
        self.zigzag()
    }

    /// Returns a non-negative number.
    pub(super) fn count(&mut self, field: ThriftField) -> ThriftResult<u64> {
        let number = match field.wire {
            CompactType::I32 => i64::from(self.i32(field)?),
            _ => self.i64(field)?,
        };
        u64::try_from(number).map_err(|_| self.error_here("a count is negative"))
    }

    pub(super) fn text(&mut self, field: ThriftField) -> ThriftResult<&'a str> {
        self.expect_type(field, CompactType::Binary)?;
        let bytes = self.binary()?;
        std::str::from_utf8(bytes).map_err(|_| self.error_here("a name is not valid UTF-8"))
    }

    /// Reads a nested structure.
    pub(super) fn read_nested_struct(
        &mut self,
        field: ThriftField,
        read: impl FnMut(&mut Self, ThriftField) -> ThriftResult<bool>,
    ) -> ThriftResult<()> {
        self.expect_type(field, CompactType::Struct)?;
        self.read_struct(read)
    }

    /// Reads a list of structures, each with `read`.
    pub(super) fn read_struct_list<T>(
        &mut self,
        field: ThriftField,
        mut read: impl FnMut(&mut Self) -> ThriftResult<T>,
    ) -> ThriftResult<Vec<T>> {
        self.expect_type(field, CompactType::List)?;
        let (wire, length) = self.list()?;
        if length > 0 && wire != CompactType::Struct {
            return Err(self.error_here("a list does not hold structures"));
        }
        // Grows with the data that exists, not with the stated length.
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn skip(&mut self, wire: CompactType, depth: u32) -> ThriftResult<()> {
        if depth > DEPTH_MAX {
            return Err(self.error_here("structures lie too deep in each other"));
        }
        match wire {
            CompactType::True | CompactType::False => {}
            CompactType::Byte => self.take_bytes(1).map(drop)?,
            CompactType::I16 | CompactType::I32 | CompactType::I64 => self.zigzag().map(drop)?,
            CompactType::Double => self.take_bytes(8).map(drop)?,
            CompactType::Binary => self.binary().map(drop)?,
            CompactType::List => {
                let (wire, length) = self.list()?;
                for _ in 0..length {
                    match wire {
                        // A boolean takes a byte in a list, but is part of the header in a field.
                        CompactType::True | CompactType::False => self.take_bytes(1).map(drop)?,
                        wire => self.skip(wire, depth + 1)?,
                    }
                }
            }
            CompactType::Struct => {
                let mut last = 0;
                while let Some(field) = self.field(last)? {
                    last = field.id;
                    self.skip(field.wire, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the type and number of the elements of a list.
    fn list(&mut self) -> ThriftResult<(CompactType, usize)> {
        let head = self.byte()?;
        // Some writers give an empty list no type.
        if head == 0 {
            return Ok((CompactType::Byte, 0));
        }
        let length = match head >> 4 {
            15 => self.varint()?,
            length => u64::from(length),
        };
        let left = self.bytes.len() - self.at;
        // Every element takes at least one byte.
        match usize::try_from(length).ok().filter(|length| *length <= left) {
            Some(length) => Ok((CompactType::from_code(head & 15)?, length)),
            None => Err(self.error_here(&format!("a list would have {length} elements in {left} bytes"))),
        }
    }

    fn binary(&mut self) -> ThriftResult<&'a [u8]> {
        let length = self.varint()?;
        self.take_bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn zigzag(&mut self) -> ThriftResult<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn varint(&mut self) -> ThriftResult<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.error_here("a number has more than 64 bits"))
    }

    fn byte(&mut self) -> ThriftResult<u8> {
        Ok(self.take_bytes(1)?[0])
    }

    fn take_bytes(&mut self, length: usize) -> ThriftResult<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.error_here("it ends early"))?;
        let bytes_read = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes_read)
    }

    fn expect_type(&self, field: ThriftField, wire: CompactType) -> ThriftResult<()> {
        if field.wire == wire { Ok(()) } else { Err(self.unexpected(field)) }
    }

    fn unexpected(&self, field: ThriftField) -> String {
        self.error_here(&format!("field {} has another type than it should", field.id))
    }

    fn error_here(&self, reason: &str) -> String {
        format!("{reason} (byte {} of it)", self.at)
    }
}
