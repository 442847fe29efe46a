//! `.npy` files of a known shape: some rows of an array of bytes, or a vector of whole numbers. Other arrays (of another
//! shape or type, in Fortran order, or cut off) are refused with a message that names the file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::base::files::{open_file, write_atomic};
use crate::data::{Files, Inputs};

/// The first bytes of a file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// The largest header, in bytes, that is read. NumPy itself refuses more than 10,000 of a file that is not trusted.
const LARGEST_HEADER: u32 = 1 << 16;

/// The description of an array before its elements: their type and their number.
/// Source: numpy.lib.format, versions 1.0 to 3.0.
pub struct Header {
    /// The type as NumPy writes it, without byte order, such as `u1` or `f8`. For a record, its whole description.
    pub kind: String,
    /// The bytes of an element; `None` for a record and where they vary.
    pub element: Option<u64>,
    pub shape: Vec<u64>,
    pub is_fortran: bool,
    /// The bytes of the header itself.
    pub length: u64,
    is_big_endian: bool,
}

impl Header {
    /// Reads the header at the start of a file; `None` if there is none.
    pub fn read(reader: &mut impl Read) -> Option<Header> {
        let mut start = [0; 8];
        reader.read_exact(&mut start).ok()?;
        let [major, _] = *start.strip_prefix(MAGIC)? else { return None };
        let mut size = [0; 4];
        let sized = if major == 1 { 2 } else { 4 };
        reader.read_exact(&mut size[..sized]).ok()?;
        let size = Some(u32::from_le_bytes(size)).filter(|&size| (1..=3).contains(&major) && size <= LARGEST_HEADER)?;
        let mut text = vec![0; size as usize];
        reader.read_exact(&mut text).ok()?;
        let length = (start.len() + sized + text.len()) as u64;
        Header::parse(std::str::from_utf8(&text).ok()?, length)
    }

    /// Reads a Python dictionary such as `{'descr': '<i8', 'fortran_order': False, 'shape': (20,), }`.
    fn parse(text: &str, length: u64) -> Option<Header> {
        let entries = parts(text.trim().strip_prefix('{')?.strip_suffix('}')?);
        let entries = entries.into_iter().map(|entry| {
            let (key, value) = entry.split_once(':')?;
            Some((unquoted(key.trim())?, value.trim()))
        });
        let entries: HashMap<&str, &str> = entries.collect::<Option<_>>()?;
        let descr = *entries.get("descr")?;
        let kind = unquoted(descr).map_or(descr, |plain| plain.trim_start_matches(['|', '<', '>', '=']));
        let sides = entries.get("shape")?.strip_prefix('(')?.strip_suffix(')')?;
        // Python 2 wrote `20L`.
        let shape = parts(sides).into_iter().map(|side| side.trim_end_matches('L').parse::<u64>().ok());
        let is_fortran = match *entries.get("fortran_order")? {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        Some(Header {
            kind: kind.to_string(),
            element: bytes_of(kind),
            shape: shape.collect::<Option<_>>()?,
            is_fortran,
            length,
            is_big_endian: unquoted(descr).is_some_and(|plain| plain.starts_with('>')),
        })
    }

    /// Returns the bytes of header and elements together; `None` if those of an element are not known, or if they are too many.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(self.element?, |all, side| all.checked_mul(*side))?;
        elements.checked_add(self.length)
    }
}

/// Returns the bytes of an element of a type without byte order, such as 8 for `f8`. Text has four for each character.
fn bytes_of(kind: &str) -> Option<u64> {
    let (letter, rest) = kind.split_at_checked(1)?;
    let count: u64 = rest.split('[').next()?.parse().ok()?;
    match letter {
        "U" => count.checked_mul(4),
        "O" => None,
        _ => Some(count),
    }
}

/// Returns the text of a Python string without its quotes.
fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Returns what the commas separate that are in no brackets and in no quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (vec![], 0);
    let (mut depth, mut open) = (0_i32, None);
    for (at, letter) in text.char_indices() {
        match (open, letter) {
            (Some(quote), _) if quote == letter => open = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => open = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the rows `rows` of the u8 array of `shape` in `path`. The rest of the file is not read.
///
/// # Errors
/// Fails if the file cannot be read, is cut off, or is not a C-ordered u8 array of that shape.
pub fn byte_rows(path: &Path, shape: &[u64], rows: Range<u64>) -> Result<Vec<u8>> {
    let at = path.display();
    let (header, mut file) = open(path, shape)?;
    let kind = header.kind;
    ensure!(kind == "u1", "{at}: elements of type {kind}, but images are bytes (u1, NumPy's uint8): fetch it again");
    let row: u64 = shape[1..].iter().product();
    let mut bytes = vec![0; usize::try_from((rows.end - rows.start) * row)?];
    file.seek(SeekFrom::Current(i64::try_from(rows.start * row)?))
        .and_then(|_| file.read_exact(&mut bytes))
        .with_context(|| format!("{at}: cannot read"))?;
    Ok(bytes)
}

/// Returns the `count` whole numbers in `path`, stored in any integer type.
///
/// # Errors
/// Fails if the file cannot be read, is cut off, or is not a vector of that many integers.
pub fn integers(path: &Path, count: u64) -> Result<Vec<i64>> {
    let (header, file) = open(path, &[count])?;
    whole_numbers(&header, file, &path.display().to_string())
}

/// Returns the whole numbers behind a header, stored in any integer type. `at` names the array in messages.
///
/// # Errors
/// Fails if the elements are no integers, if they cannot be read, or if one exceeds an i64.
pub fn whole_numbers(header: &Header, reader: impl Read, at: &str) -> Result<Vec<i64>> {
    let kind = header.kind.as_str();
    let is_integer = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"].contains(&kind);
    ensure!(is_integer, "{at}: elements of type {kind}, but labels are integers: fetch it again");
    let size = header.element.unwrap_or(1) as usize;
    let count = header.shape.iter().product::<u64>();
    let mut bytes = vec![];
    let read = reader.take(count * size as u64).read_to_end(&mut bytes);
    let read = read.with_context(|| format!("{at}: cannot read"))?;
    ensure!(read as u64 == count * size as u64, "{at}: cannot read: it ends before its last element");
    bytes
        .chunks_exact(size)
        .map(|element| whole_number(element, header))
        .collect::<Option<_>>()
        .with_context(|| format!("{at}: cannot read: a label exceeds {}", i64::MAX))
}

/// Returns the number that the bytes of an element stand for, unless it exceeds an i64.
fn whole_number(element: &[u8], header: &Header) -> Option<i64> {
    let mut little = element.to_vec();
    if header.is_big_endian {
        little.reverse();
    }
    let is_negative = header.kind.starts_with('i') && little.last().is_some_and(|&last| last > i8::MAX as u8);
    let mut whole = [if is_negative { u8::MAX } else { 0 }; 8];
    whole[..little.len()].copy_from_slice(&little);
    let number = i64::from_le_bytes(whole);
    (is_negative || number >= 0).then_some(number)
}

/// Opens a file whose array must have `shape`, positioned at the first element.
fn open(path: &Path, shape: &[u64]) -> Result<(Header, File)> {
    let at = path.display();
    let mut file = open_file(path).with_context(|| format!("{at}: cannot open"))?;
    let header = Header::read(&mut file).with_context(|| format!("{at}: not a .npy file: fetch it again"))?;
    let found = header.shape.as_slice();
    ensure!(found == shape, "{at}: an array of shape {found:?}, but the shape must be {shape:?}: fetch it again");
    ensure!(!header.is_fortran, "{at}: in Fortran order; store it with numpy.ascontiguousarray");
    let size = file.metadata().with_context(|| format!("{at}: cannot read"))?.len();
    let needed = header.element.map(|_| header.bytes());
    if let Some(needed) = needed.filter(|&needed| needed != Some(size)) {
        let needed = needed.map_or("more than there can be".to_string(), |needed| needed.to_string());
        bail!("{at}: {size} bytes, but its header needs {needed}: the file is damaged, fetch it again");
    }
    Ok((header, file))
}

/// Writes the images of files as bytes `[N, 3, h, w]`, decoded by so many threads.
///
/// # Errors
/// Fails if an image cannot be decoded, or if the file cannot be written.
pub fn write_images(output: &Path, files: &Files, workers: usize) -> Result<()> {
    let indices: Vec<u32> = (0..files.paths.len() as u32).collect();
    let (height, width) = (files.decode.height, files.decode.width);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().context("starting threads")?;
    let images = Inputs::Files(files.clone());
    write_atomic(output, |out| {
        out.write_all(&header("'|u1'", &format!("({}, 3, {height}, {width})", indices.len())))?;
        for some in indices.chunks(256) {
            out.write_all(&pool.install(|| images.gather(some))?)?;
        }
        Ok(())
    })
}

/// Returns the header that `numpy.save` writes before an array: its type with its quotes, such as `'|u1'`, and its shape,
/// such as `(20, 32)`.
pub fn header(descr: &str, shape: &str) -> Vec<u8> {
    header_in(descr, "False", shape)
}

/// Returns the same of an array whose order is Fortran's if `is_fortran` says `True`.
fn header_in(descr: &str, is_fortran: &str, shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': {is_fortran}, 'shape': {shape}, }}");
    [MAGIC, b"\x01\x00\x76\x00", format!("{text:117}\n").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_impossible_size_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for (kind, shape, rule) in [
            ("|V9223372036854775807", "(5, 4)", "the file is damaged, fetch it again"),
            ("|u1", "(4294967296, 4294967296)", "fetch it again"),
        ] {
            std::fs::write(&path, [header(&format!("'{kind}'"), shape), vec![3; 20]].concat()).unwrap();
            let error = format!("{:#}", byte_rows(&path, &[5, 4], 1..4).unwrap_err());
            assert!(error.contains(rule), "{error}");
        }
    }

    fn read(bytes: &[u8]) -> Option<Header> {
        Header::read(&mut &bytes[..])
    }

    /// Headers that `numpy.save` of NumPy 2.4 wrote for `np.array([1, -2], '>i2')`, for `np.zeros((), 'U3')` and for
    /// `np.asfortranarray(np.zeros((2, 3), 'f4'))`.
    #[test]
    fn headers_of_numpy_are_read() {
        let header_of = |descr: &str, order: &str, shape: &str| read(&header_in(descr, order, shape)).unwrap();
        let numbers = header_of("'>i2'", "False", "(2,)");
        assert_eq!((numbers.kind.as_str(), numbers.shape.as_slice(), numbers.bytes()), ("i2", &[2][..], Some(132)));
        assert_eq!(whole_numbers(&numbers, &b"\x00\x01\xff\xfe"[..], "a").unwrap(), [1, -2]);
        let word = header_of("'<U3'", "False", "()");
        assert_eq!((word.shape.len(), word.bytes()), (0, Some(140)));
        assert!(header_of("'<f4'", "True", "(2, 3)").is_fortran);
        let record = header_of("[('a', '<i4'), ('b, c', '|u1', (2,))]", "False", "(2,)");
        assert_eq!((record.kind.as_str(), record.element), ("[('a', '<i4'), ('b, c', '|u1', (2,))]", None));
        assert_eq!(header_of("'|O'", "False", "(2,)").element, None);
        assert_eq!(header_of("'<M8[ns]'", "False", "(2L, 3L)").bytes(), Some(176));
    }

    #[test]
    fn integers_of_every_type_are_read() {
        for (kind, bytes, wanted) in [
            ("|u1", vec![200, 1], Some([200, 1])),
            ("|i1", vec![200, 1], Some([-56, 1])),
            ("<u2", vec![1, 2, 3, 0], Some([513, 3])),
            (">u4", vec![0, 0, 1, 2, 255, 255, 255, 255], Some([258, 4_294_967_295])),
            ("<i8", [[254_u8, 255, 255, 255, 255, 255, 255, 255], [1, 0, 0, 0, 0, 0, 0, 0]].concat(), Some([-2, 1])),
            ("<u8", [[255_u8; 8], [0; 8]].concat(), None),
        ] {
            let found = read(&header(&format!("'{kind}'"), "(2,)")).unwrap();
            assert_eq!(whole_numbers(&found, &bytes[..], "a").ok(), wanted.map(Vec::from), "{kind}");
            assert!(whole_numbers(&found, &bytes[1..], "a").is_err(), "{kind}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let good = header("'|u1'", "(2,)");
        assert!(read(&good).is_some());
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_none(), "{length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes).is_none()
        };
        // the magic, the version, the brace, and a letter of the first key
        assert!(changed(0, 0x92) && changed(6, 4) && changed(10, b'[') && changed(12, b'x'));
        for text in [
            "{}",
            "{'descr': '|u1', 'fortran_order': 0, 'shape': (2,), }",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,), }",
        ] {
            assert!(Header::parse(text, 0).is_none(), "{text}");
        }
        // A second version may have a longer header, but none of gigabytes.
        assert!(read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{").is_none());
    }
}
