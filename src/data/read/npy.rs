//! `.npy` files of a known shape: some rows of an array of bytes, or a vector of whole numbers. Other arrays (of another
//! shape or type, in Fortran order, or cut off) are refused with a message that names the file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use npyz::{DType, Deserialize, NpyFile, NpyHeader, Order, WriteOptions, WriterBuilder};

use crate::base::files::{open_file, write_atomic};
use crate::data::{Files, Inputs};

/// Returns the rows `rows` of the u8 array of `shape` in `path`. The rest of the file is not read.
///
/// # Errors
/// Fails if the file cannot be read, is cut off, or is not a C-ordered u8 array of that shape.
pub fn byte_rows(path: &Path, shape: &[u64], rows: Range<u64>) -> Result<Vec<u8>> {
    let at = path.display();
    let (header, mut file) = open(path, shape)?;
    let kind = kind(&header.dtype());
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
    whole_numbers(header, std::io::BufReader::new(file), &path.display().to_string())
}

/// Returns the whole numbers behind a header, stored in any integer type. `at` names the array in messages.
///
/// # Errors
/// Fails if the elements are no integers, or if they cannot be read.
pub fn whole_numbers(header: NpyHeader, reader: impl Read, at: &str) -> Result<Vec<i64>> {
    let kind = kind(&header.dtype());
    let npy = NpyFile::with_header(header, reader);
    let numbers = match kind.as_str() {
        "u1" => numbers::<u8>(npy),
        "i1" => numbers::<i8>(npy),
        "u2" => numbers::<u16>(npy),
        "i2" => numbers::<i16>(npy),
        "u4" => numbers::<u32>(npy),
        "i4" => numbers::<i32>(npy),
        "u8" => numbers::<u64>(npy),
        "i8" => numbers::<i64>(npy),
        _ => bail!("{at}: elements of type {kind}, but labels are integers: fetch it again"),
    };
    numbers.with_context(|| format!("{at}: cannot read"))
}

fn numbers<T>(npy: NpyFile<impl Read>) -> Result<Vec<i64>>
where
    T: Deserialize + TryInto<i64, Error: std::error::Error + Send + Sync + 'static>,
{
    npy.into_vec::<T>()?.into_iter().map(|value| Ok(value.try_into()?)).collect()
}

/// Opens a file whose array must have `shape`, positioned at the first element.
fn open(path: &Path, shape: &[u64]) -> Result<(NpyHeader, File)> {
    let at = path.display();
    let mut file = open_file(path).with_context(|| format!("{at}: cannot open"))?;
    // The package multiplies the sides of a shape without looking, which panics in a build with checks.
    let header = catch_unwind(AssertUnwindSafe(|| NpyHeader::from_reader(&mut file).ok())).ok().flatten();
    let header = header.with_context(|| format!("{at}: not a .npy file: fetch it again"))?;
    let found = header.shape();
    ensure!(found == shape, "{at}: an array of shape {found:?}, but the shape must be {shape:?}: fetch it again");
    ensure!(header.order() == Order::C, "{at}: in Fortran order; store it with numpy.ascontiguousarray");
    // The shape equals the one that the caller expects, so the product is small; the size of an element may be any number.
    let count = shape.iter().product::<u64>();
    let data = header.dtype().num_bytes().map(|bytes| (bytes as u64).saturating_mul(count));
    let size = file.metadata().with_context(|| format!("{at}: cannot read"))?.len();
    let needed =
        data.map(|data| Ok::<u64, std::io::Error>(data.saturating_add(file.stream_position()?))).transpose()?;
    if let Some(needed) = needed.filter(|&needed| needed != size) {
        bail!("{at}: {size} bytes, but its header needs {needed}: the file is damaged, fetch it again");
    }
    Ok((header, file))
}

/// Returns the type as NumPy writes it, without byte order, such as `u1` or `f8`. For a record, its whole description.
pub fn kind(dtype: &DType) -> String {
    match dtype {
        DType::Plain(plain) => plain.to_string().trim_start_matches(['|', '<', '>', '=']).to_string(),
        other => other.descr(),
    }
}

/// Writes the images of files as bytes `[N, 3, h, w]`, decoded by so many threads.
///
/// # Errors
/// Fails if an image cannot be decoded, or if the file cannot be written.
pub fn write_images(output: &Path, files: &Files, workers: usize) -> Result<()> {
    let indices: Vec<u32> = (0..files.paths.len() as u32).collect();
    let side = [files.decode.height as u64, files.decode.width as u64];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().context("starting threads")?;
    let images = Inputs::Files(files.clone());
    write_atomic(output, |out| {
        let shape = [indices.len() as u64, 3, side[0], side[1]];
        let mut npy = WriteOptions::new().default_dtype().shape(&shape).writer(out).begin_nd()?;
        for some in indices.chunks(256) {
            npy.extend(pool.install(|| images.gather(some))?)?;
        }
        Ok(npy.finish()?)
    })
}

/// Returns the header that `numpy.save` writes before an array: its type with its quotes, such as `'|u1'`, and its shape,
/// such as `(20, 32)`.
pub fn header(descr: &str, shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{text:117}\n").as_bytes()].concat()
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
}
