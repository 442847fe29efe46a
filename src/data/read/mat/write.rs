//! Writes arrays of bytes and of 16-bit numbers, uncompressed.

use std::path::Path;

use anyhow::Result;

use super::{HEADER, MATRIX, UINT8, UINT16};
use crate::data::small::put;

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
