//! MATLAB's `.mat` files of version 5 (MAT-File Format, MathWorks), little-endian. [`read`] reads arrays of numbers, texts
//! and structs, compressed or not, and skips other contents of a file; [`write()`] writes arrays of numbers.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::ZlibDecoder;

use crate::base::files::{most_unpacked, put};

/// The variables of a file by name.
pub type Variables = BTreeMap<String, Value>;

/// The value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Numbers stored as bytes, with the shape. The first index moves fastest.
    Bytes(Vec<usize>, Vec<u8>),
    /// Numbers of any other type, with the shape. The first index moves fastest.
    Numbers(Vec<usize>, Vec<f64>),
    /// A text.
    Text(String),
    /// An array of structs, with the fields of each element.
    Structs(Vec<BTreeMap<String, Value>>),
    /// A kind of value that no data set here needs.
    Other,
}

impl Value {
    /// Returns the value as whole numbers, whatever type they are stored in.
    ///
    /// # Errors
    /// Fails if the value is not an array of numbers, or if some are fractions or negative.
    pub fn whole(&self) -> Result<Vec<u32>> {
        match self {
            Value::Bytes(_, bytes) => Ok(bytes.iter().map(|&byte| u32::from(byte)).collect()),
            Value::Numbers(_, numbers) => numbers
                .iter()
                .map(|&number| {
                    let whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
                    ensure!(whole, "{number} is no whole number from 0");
                    Ok(number as u32)
                })
                .collect(),
            _ => bail!("no array of numbers"),
        }
    }
}

/// Reads all variables of `path`.
///
/// # Errors
/// Fails if the file cannot be read, is of another version, or is damaged.
pub fn read(path: &Path) -> Result<Variables> {
    let bytes = crate::base::files::read_file(path)
        .with_context(|| format!("{}: cannot read; `bella data check` says what to fetch", path.display()))?;
    variables(&bytes).with_context(|| format!("{}: not a readable .mat file of version 5", path.display()))
}

/// Returns a variable that `path` must have.
///
/// # Errors
/// Fails if the file has no such variable.
pub fn variable<'a>(variables: &'a Variables, name: &str, path: &Path) -> Result<&'a Value> {
    variables.get(name).with_context(|| {
        let known: Vec<&str> = variables.keys().map(String::as_str).collect();
        format!("{}: no variable `{name}`, only {}: fetch it again", path.display(), known.join(", "))
    })
}

const HEADER: usize = 128;
const UINT8: u32 = 2;
const UINT16: u32 = 4;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// The largest depth of structs nested in structs.
const DEEPEST: usize = 8;

fn variables(bytes: &[u8]) -> Result<Variables> {
    ensure!(bytes.len() > HEADER, "{} bytes are too few: fetch it again", bytes.len());
    ensure!(!bytes.starts_with(b"MATLAB 7.3"), "it is of version 7.3: save it with -v7");
    ensure!(bytes[124..HEADER] == *b"\x00\x01IM", "its header is not that of version 5, little-endian");
    let (mut rest, mut found) = (&bytes[HEADER..], Variables::new());
    while !rest.is_empty() {
        let element = Element::take(&mut rest, Padding::UnlessCompressed)?;
        let matrix = match element.kind {
            COMPRESSED => {
                let inner = unpacked(element.data)?;
                let mut inner = &inner[..];
                let element = Element::take(&mut inner, Padding::UnlessCompressed)?;
                if element.kind != MATRIX {
                    continue;
                }
                matrix(element.data, 0)?
            }
            MATRIX => matrix(element.data, 0)?,
            _ => continue,
        };
        found.insert(matrix.0, matrix.1);
    }
    Ok(found)
}

/// Returns the bytes of a compressed variable.
fn unpacked(packed: &[u8]) -> Result<Vec<u8>> {
    let most = most_unpacked(packed.len() as u64);
    let mut bytes = Vec::new();
    let all = ZlibDecoder::new(packed).take(most + 1).read_to_end(&mut bytes);
    all.context("a compressed variable is damaged")?;
    ensure!(
        bytes.len() as u64 <= most,
        "a compressed variable of {} bytes becomes more than {most}, which no images or labels do: fetch it again, or save it with -v6",
        packed.len()
    );
    Ok(bytes)
}

/// A data element: its type and its data.
struct Element<'a> {
    kind: u32,
    data: &'a [u8],
}

/// The padding that follows the data of an element.
enum Padding {
    /// The data is padded with zeros to a multiple of eight bytes.
    Always,
    UnlessCompressed,
}

impl<'a> Element<'a> {
    /// Takes the first element from the front of `rest`.
    fn take(rest: &mut &'a [u8], padding: Padding) -> Result<Element<'a>> {
        let word =
            |at: usize| rest.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let cut_off = "it is cut off: fetch it again";
        let first = word(0).context(cut_off)?;
        // The small format packs the type, the size and up to four bytes of data into eight bytes.
        if first >> 16 != 0 {
            let (kind, size) = (first & 0xffff, (first >> 16) as usize);
            let data = rest.get(4..4 + size).filter(|_| size <= 4).context(cut_off)?;
            *rest = rest.get(8..).unwrap_or_default();
            return Ok(Element { kind, data });
        }
        let size = word(4).context(cut_off)? as usize;
        let data = rest.get(8..8usize.saturating_add(size)).context(cut_off)?;
        let padded = match padding {
            Padding::UnlessCompressed if first == COMPRESSED => size,
            _ => size.next_multiple_of(8),
        };
        *rest = rest.get(8 + padded..).unwrap_or_default();
        Ok(Element { kind: first, data })
    }
}

/// Returns the name and the value of a matrix element. `depth` counts the structs around it.
fn matrix(data: &[u8], depth: usize) -> Result<(String, Value)> {
    ensure!(depth < DEEPEST, "structs lie in structs more than {DEEPEST} deep");
    if data.is_empty() {
        return Ok((String::new(), Value::Other));
    }
    let mut rest = data;
    let mut next = || Element::take(&mut rest, Padding::Always);
    let (flags, dimensions, name) = (next()?, next()?, next()?);
    let flag = |at: usize| flags.data.get(at).copied().context("an array has no flags");
    let (class, complex) = (flag(0)?, flag(1)? & 0x08 != 0);
    let shape: Vec<usize> = numbers(&dimensions)?.into_iter().map(|number| number.max(0.0) as usize).collect();
    let count =
        shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side)).context("an array is too large")?;
    let name = String::from_utf8_lossy(name.data).into_owned();
    let value = match class {
        2 => Value::Structs(structs(rest, count, depth)?),
        4 => Value::Text(text(&next()?)?),
        6..=15 if !complex => array(&next()?, shape, count).with_context(|| format!("variable `{name}`"))?,
        _ => Value::Other,
    };
    Ok((name, value))
}

fn array(element: &Element, shape: Vec<usize>, count: usize) -> Result<Value> {
    let value = match element.kind {
        2 => Value::Bytes(shape, element.data.to_vec()),
        _ => Value::Numbers(shape, numbers(element)?),
    };
    let stored = match &value {
        Value::Bytes(_, bytes) => bytes.len(),
        Value::Numbers(_, numbers) => numbers.len(),
        _ => count,
    };
    ensure!(stored == count, "{stored} numbers, but its shape needs {count}: fetch it again");
    Ok(value)
}

/// Reads `count` structs. The data holds the length of a field name, all names, and then the fields of one element
/// after another.
fn structs(mut rest: &[u8], count: usize, depth: usize) -> Result<Vec<BTreeMap<String, Value>>> {
    let length = numbers(&Element::take(&mut rest, Padding::Always)?)?.first().map_or(0, |&length| length as usize);
    ensure!(length > 0, "a struct has field names of no length");
    let names = Element::take(&mut rest, Padding::Always)?.data;
    let name =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned();
    let names: Vec<String> = names.chunks_exact(length).map(name).collect();
    ensure!(!names.is_empty(), "a struct without fields");
    let mut all = Vec::new();
    for _ in 0..count {
        let mut fields = BTreeMap::new();
        for name in &names {
            let element = Element::take(&mut rest, Padding::Always)?;
            fields.insert(name.clone(), matrix(element.data, depth + 1)?.1);
        }
        all.push(fields);
    }
    Ok(all)
}

fn text(element: &Element) -> Result<String> {
    match element.kind {
        4 | 17 => {
            let units: Vec<u16> =
                element.data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            Ok(String::from_utf16_lossy(&units))
        }
        1 | 2 | 16 => Ok(String::from_utf8_lossy(element.data).into_owned()),
        kind => bail!("characters of type {kind}"),
    }
}

/// Returns the numbers of an element. Every type except 64-bit integers fits f64 exactly.
fn numbers(element: &Element) -> Result<Vec<f64>> {
    let data = element.data;
    macro_rules! of {
        ($number:ty) => {
            data.chunks_exact(size_of::<$number>())
                .map(|bytes| <$number>::from_le_bytes(bytes.try_into().unwrap_or_default()) as f64)
                .collect()
        };
    }
    Ok(match element.kind {
        1 => of!(i8),
        2 => of!(u8),
        3 => of!(i16),
        4 => of!(u16),
        5 => of!(i32),
        6 => of!(u32),
        7 => of!(f32),
        9 => of!(f64),
        12 => of!(i64),
        13 => of!(u64),
        kind => bail!("numbers of type {kind}"),
    })
}

/// Reorders one channel of `side` columns from column by column to row by row.
pub fn row_major(columns: &[u8], side: usize) -> impl Iterator<Item = u8> {
    (0..side).flat_map(move |row| columns.iter().skip(row).step_by(side).copied())
}

const INT8: u32 = 1;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const CLASS_UINT8: u32 = 9;
const CLASS_UINT16: u32 = 11;

/// An array with its name and shape; the first index moves fastest.
pub enum Array<'a> {
    Bytes(&'a str, Vec<usize>, &'a [u8]),
    Words(&'a str, Vec<usize>, &'a [u16]),
}

/// Writes a file with these arrays.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(path: &Path, arrays: &[Array]) -> Result<()> {
    put(path, file(arrays))
}

fn file(arrays: &[Array]) -> Vec<u8> {
    let mut bytes = b"MATLAB 5.0 MAT-file".to_vec();
    bytes.resize(HEADER - 4, b' ');
    bytes.extend(b"\x00\x01IM");
    for array in arrays {
        let (class, name, shape, kind, data) = match array {
            Array::Bytes(name, shape, data) => (CLASS_UINT8, name, shape, UINT8, data.to_vec()),
            Array::Words(name, shape, data) => {
                (CLASS_UINT16, name, shape, UINT16, data.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
        };
        let sides: Vec<u8> = shape.iter().flat_map(|&side| (side as i32).to_le_bytes()).collect();
        let flags = [class.to_le_bytes(), [0; 4]].concat();
        let inner =
            [element(UINT32, &flags), element(INT32, &sides), element(INT8, name.as_bytes()), element(kind, &data)]
                .concat();
        bytes.extend(element(MATRIX, &inner));
    }
    bytes
}

/// Returns a tag with its data, padded to a multiple of eight bytes.
fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[cfg(test)]
mod tests;
