//! The directory of a zip file, which is not trusted. Only files that all readers of zip files read alike are accepted: one
//! directory at the end, entries one behind the other from the first byte on, and local headers that say what the
//! directory says.
//!
//! Layout: APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3 and 4.5.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail, ensure};

pub const LOCAL: &[u8] = b"PK\x03\x04";
pub const CENTRAL: &[u8] = b"PK\x01\x02";
pub const END: &[u8] = b"PK\x05\x06";
pub const END64: &[u8] = b"PK\x06\x06";
pub const LOCATOR: &[u8] = b"PK\x06\x07";
const DESCRIPTOR: &[u8] = b"PK\x07\x08";

/// The numbers of bytes of the records with these marks, without names and fields behind them.
const END_BYTES: u64 = 22;
pub const END64_BYTES: u64 = 56;
const LOCATOR_BYTES: u64 = 20;
const CENTRAL_BYTES: usize = 46;
const LOCAL_BYTES: usize = 30;

/// The largest directory; that of a network with 10,000 parameters has one hundredth of it.
const MAX_DIRECTORY: u64 = 64 << 20;

/// The flags that an entry may have: two of the compression, the sizes behind the data, and names in UTF-8.
const FLAGS: u16 = 0b1000_0000_1110;
const SIZES_BEHIND: u16 = 0b1000;

/// The extra field with sizes of more than 32 bits.
pub const WIDE: u16 = 0x0001;

/// The extra fields that only move the data to a multiple of 64 bytes: PyTorch's, and that of the zip crate, as archives have
/// it that bella wrote.
const PADDING: [u16; 2] = [u16::from_le_bytes(*b"FB"), 0xa11e];

/// An entry of the zip file.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub deflated: bool,
    pub crc: u32,
    /// The number of bytes in the file.
    pub packed: u64,
    /// The number of bytes of the content.
    pub size: u64,
    /// The place of the first byte of the data in the file.
    pub data: u64,
}

/// The place of the directory.
struct Place {
    entries: u64,
    start: u64,
    bytes: u64,
}

/// An entry as the directory and, later, its local header describe it.
struct Found {
    entry: Entry,
    flags: u16,
    header: u64,
}

/// Returns the entries of a file of `bytes` bytes, in the order of the directory; `None` if it is no zip file, or a truncated
/// one.
///
/// # Errors
/// Fails if two readers could find different entries in it, or if an entry is encrypted or compressed in another way than
/// by "deflate".
pub fn read(file: &mut File, bytes: u64) -> Result<Option<Vec<Entry>>> {
    let Some(place) = place(file, bytes)? else { return Ok(None) };
    let directory = at(file, place.start, place.bytes)?;
    let (mut rest, mut found) = (&directory[..], Vec::new());
    for _ in 0..place.entries {
        found.push(central(&mut rest)?);
    }
    ensure!(rest.is_empty(), "its directory has more entries than it counts");
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|index| found[*index].header);
    let ends: Vec<u64> = order.iter().skip(1).map(|index| found[*index].header).chain([place.start]).collect();
    let first = order.first().map_or(place.start, |index| found[*index].header);
    ensure!(first == 0, "something stands before its first entry");
    for (index, end) in order.into_iter().zip(ends) {
        let name = found[index].entry.name.clone();
        settle(file, &mut found[index], end).with_context(|| format!("its entry {name}"))?;
    }
    let mut seen = BTreeSet::new();
    for Found { entry, .. } in &found {
        // libtorch ignores case when it looks up names.
        ensure!(seen.insert(entry.name.to_lowercase()), "two entries are named {}: it is not loaded", entry.name);
    }
    Ok(Some(found.into_iter().map(|found| found.entry).collect()))
}

/// Returns `bytes` bytes from a place on.
fn at(file: &mut File, start: u64, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut found = vec![0; bytes as usize];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut found)?;
    Ok(found)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Finds the directory by the records at the end, which must agree.
fn place(file: &mut File, bytes: u64) -> Result<Option<Place>> {
    const OUTSIDE: &str = "something stands before or behind the zip file: export the model with torch.jit.save";
    if bytes < END_BYTES {
        return Ok(None);
    }
    let starts = at(file, 0, 4)? == LOCAL;
    let tail =
        at(file, bytes.saturating_sub(u64::from(u16::MAX) + END_BYTES), bytes.min(u64::from(u16::MAX) + END_BYTES))?;
    let end = &tail[tail.len() - END_BYTES as usize..];
    if !end.starts_with(END) {
        let inside = tail.windows(END.len()).any(|window| window == END);
        ensure!(!starts || !inside, OUTSIDE);
        return Ok(None);
    }
    let counts = [u16_at(end, 8), u16_at(end, 10)].map(u64::from);
    let (size, start) = (u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
    ensure!(starts && u16_at(end, 20) == 0, OUTSIDE);
    ensure!([u16_at(end, 4), u16_at(end, 6)] == [0; 2] && counts[0] == counts[1], "it is one of several disks");
    let plain = Place { entries: counts[0], start, bytes: size };
    let (place, end) = match wide(file, &tail, bytes)? {
        Some(wide) => {
            let same = |plain: u64, wide: u64, most: u64| plain == wide || plain == most && wide > most;
            let agree = same(plain.entries, wide.entries, u64::from(u16::MAX))
                && same(plain.start, wide.start, u64::from(u32::MAX))
                && same(plain.bytes, wide.bytes, u64::from(u32::MAX));
            ensure!(agree, "its two end records name different directories");
            (wide, bytes - END_BYTES - LOCATOR_BYTES - END64_BYTES)
        }
        None => (plain, bytes - END_BYTES),
    };
    let ends = place.start.checked_add(place.bytes);
    ensure!(ends == Some(end), "its directory does not end where its end record begins");
    let fits = place.bytes <= MAX_DIRECTORY && place.entries.saturating_mul(CENTRAL_BYTES as u64) <= place.bytes;
    ensure!(fits, "its directory declares {} entries in {} bytes", place.entries, place.bytes);
    Ok(Some(place))
}

/// Reads the end record for large files, if there is a locator.
fn wide(file: &mut File, tail: &[u8], bytes: u64) -> Result<Option<Place>> {
    let behind = (END_BYTES + LOCATOR_BYTES) as usize;
    let Some(locator) = tail.len().checked_sub(behind).map(|at| &tail[at..]) else { return Ok(None) };
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    let start = u64_at(locator, 8);
    let expected = bytes.checked_sub(END_BYTES + LOCATOR_BYTES + END64_BYTES);
    ensure!(
        Some(start) == expected && u32_at(locator, 4) == 0 && u32_at(locator, 16) <= 1,
        "its zip64 locator names an end record at another place than before it"
    );
    let record = at(file, start, END64_BYTES)?;
    let counts = [u64_at(&record, 24), u64_at(&record, 32)];
    let whole = record.starts_with(END64) && u64_at(&record, 4) == END64_BYTES - 12;
    ensure!(
        whole && [u32_at(&record, 16), u32_at(&record, 20)] == [0; 2] && counts[0] == counts[1],
        "its zip64 end record is damaged"
    );
    Ok(Some(Place { entries: counts[0], bytes: u64_at(&record, 40), start: u64_at(&record, 48) }))
}

/// Reads an entry of the directory.
fn central(rest: &mut &[u8]) -> Result<Found> {
    let header = rest.get(..CENTRAL_BYTES).filter(|header| header.starts_with(CENTRAL));
    let header = header.context("damaged directory")?;
    let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(header, at)));
    let named = rest.get(CENTRAL_BYTES..CENTRAL_BYTES + name + extra).context("damaged directory")?;
    let text = std::str::from_utf8(&named[..name]).context("an entry's name is not UTF-8")?;
    ensure!(!text.chars().any(char::is_control), "the name {text:?} of an entry has control characters");
    let (flags, method) = (u16_at(header, 8), u16_at(header, 10));
    let read = || -> Result<Found> {
        ensure!(flags & 1 == 0, "it is encrypted");
        ensure!(flags & !FLAGS == 0, "it has flags that torch does not write ({flags:#06x})");
        ensure!([0, 8].contains(&method), "it is compressed in a way that torch does not know ({method})");
        ensure!(comment == 0 && u16_at(header, 34) == 0, "it has a comment or lies on another disk");
        let values = [24, 20, 42].map(|at| u64::from(u32_at(header, at)));
        let [size, packed, start] = widened(values, &named[name..])?;
        ensure!(method == 8 || size == packed, "it is stored with two sizes");
        let entry =
            Entry { name: text.into(), deflated: method == 8, crc: u32_at(header, 16), packed, size, data: start };
        Ok(Found { entry, flags, header: start })
    };
    let found = read().with_context(|| format!("its entry {text}"))?;
    *rest = &rest[CENTRAL_BYTES + name + extra..];
    Ok(found)
}

/// Returns size, packed size and offset, those of more than 32 bits from the extra field that then must hold exactly these.
fn widened(mut values: [u64; 3], extra: &[u8]) -> Result<[u64; 3]> {
    let mut wide = fields(extra)?.unwrap_or_default().chunks_exact(8).map(|bytes| u64_at(bytes, 0));
    for value in values.iter_mut().filter(|value| **value == u64::from(u32::MAX)) {
        *value = wide.next().context("its size of 64 bits is missing")?;
    }
    ensure!(wide.all(|more| values.contains(&more)), "its sizes of 64 bits contradict those of 32 bits");
    Ok(values)
}

/// Returns the content of the field with sizes of 64 bits. All other fields but padding are refused.
fn fields(mut extra: &[u8]) -> Result<Option<&[u8]>> {
    let mut found = None;
    while !extra.is_empty() {
        let content = extra.get(..4).map(|head| (u16_at(head, 0), usize::from(u16_at(head, 2))));
        let content = content.and_then(|(id, bytes)| Some((id, extra.get(4..4 + bytes)?)));
        let (id, content) = content.context("its extra fields are damaged")?;
        if id == WIDE {
            ensure!(found.is_none() && content.len() % 8 == 0, "its extra fields are damaged");
            found = Some(content);
        } else if !PADDING.contains(&id) {
            bail!("it has the extra field {id:#06x}, which nothing calls for: save the model anew with torch.jit.save");
        }
        extra = &extra[4 + content.len()..];
    }
    Ok(found)
}

/// Compares an entry with its local header, and finds its data, which end at `end` with their descriptor.
fn settle(file: &mut File, found: &mut Found, end: u64) -> Result<()> {
    const CONTRADICTS: &str = "its local header contradicts the directory";
    let Found { entry, flags, header } = found;
    let room = end.saturating_sub(*header);
    ensure!(room >= LOCAL_BYTES as u64, "it lies over another one");
    let local = at(file, *header, LOCAL_BYTES as u64)?;
    ensure!(local.starts_with(LOCAL), CONTRADICTS);
    let [name, extra] = [26, 28].map(|at| usize::from(u16_at(&local, at)));
    ensure!(room >= (LOCAL_BYTES + name + extra) as u64, "it lies over another one");
    let named = at(file, *header + LOCAL_BYTES as u64, (name + extra) as u64)?;
    let behind = *flags & SIZES_BEHIND != 0;
    let same = |local: u32, central: u64| {
        u64::from(local) == central || behind && local == 0 || local == u32::MAX && central != u64::from(local)
    };
    let wide = fields(&named[name..])?.unwrap_or_default().chunks_exact(8).map(|bytes| u64_at(bytes, 0));
    let known = [entry.size, entry.packed, *header, 0];
    let agrees = &named[..name] == entry.name.as_bytes()
        && u16_at(&local, 6) == *flags
        && u16_at(&local, 8) == if entry.deflated { 8 } else { 0 }
        && (u32_at(&local, 14) == entry.crc || behind && u32_at(&local, 14) == 0)
        && same(u32_at(&local, 18), entry.packed)
        && same(u32_at(&local, 22), entry.size)
        && wide.into_iter().all(|value| known.contains(&value));
    ensure!(agrees, CONTRADICTS);
    entry.data = *header + (LOCAL_BYTES + name + extra) as u64;
    let left = entry.data.checked_add(entry.packed).and_then(|data_end| end.checked_sub(data_end));
    let left = left.context("it lies over another one")?;
    ensure!(left <= 24 && behind == (left > 0), "something stands behind it that is no entry");
    let descriptor = at(file, end - left, left)?;
    ensure!(!behind || describes(&descriptor, entry), "the sizes behind its data contradict the directory");
    Ok(())
}

/// Returns whether a descriptor behind the data says what the directory says, with sizes of 32 or 64 bits.
fn describes(descriptor: &[u8], entry: &Entry) -> bool {
    let rest = match descriptor.len() {
        16 | 24 => descriptor.strip_prefix(DESCRIPTOR),
        _ => Some(descriptor),
    };
    rest.is_some_and(|rest| {
        let crc = rest.len() >= 12 && u32_at(rest, 0) == entry.crc;
        crc && match rest.len() {
            12 => [u32_at(rest, 4), u32_at(rest, 8)].map(u64::from) == [entry.packed, entry.size],
            20 => [u64_at(rest, 4), u64_at(rest, 12)] == [entry.packed, entry.size],
            _ => false,
        }
    })
}
