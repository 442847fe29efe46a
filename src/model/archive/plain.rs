//! Zip files in the plainest form: no compression, no fields that nothing calls for, one directory.

use std::io::{Result, Write};

use super::directory::{CENTRAL, END, END64, END64_BYTES, LOCAL, LOCATOR, WIDE};

/// A zip file that is written from its first byte to its last. Its bytes depend on nothing but its entries, which are stored as
/// they are.
pub struct Writer<W: Write> {
    target: W,
    /// The number of bytes that entries have taken so far.
    at: u64,
    entries: u64,
    directory: Vec<u8>,
}

/// Returns a number as headers have it whose fields for it have 32 bits.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn is_wide(value: u64) -> bool {
    narrow(value) == u32::MAX
}

/// Returns the extra field of these values; nothing if there are none.
fn wide_field(values: &[u64]) -> Vec<u8> {
    let head = [WIDE, 8 * values.len() as u16].map(u16::to_le_bytes).concat();
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    if values.clone().next().is_none() { Vec::new() } else { head.into_iter().chain(values).collect() }
}

impl<W: Write> Writer<W> {
    pub fn new(target: W) -> Writer<W> {
        Writer { target, at: 0, entries: 0, directory: Vec::new() }
    }

    /// Starts an entry, whose content of `size` bytes the caller writes to what is returned.
    pub fn start(&mut self, name: &str, size: u64, crc: u32) -> Result<&mut W> {
        // Version 4.5 of the format, no flags, stored, on 1 January 1980.
        let shared = [
            [45u16, 0, 0, 0, 33].map(u16::to_le_bytes).concat(),
            [crc, narrow(size), narrow(size)].map(u32::to_le_bytes).concat(),
        ]
        .concat();
        let sizes: &[u64] = if is_wide(size) { &[size, size] } else { &[] };
        let start = is_wide(self.at).then_some(self.at);
        let (local, central) =
            (wide_field(sizes), wide_field(&sizes.iter().copied().chain(start).collect::<Vec<u64>>()));
        let lengths = |extra: &[u8]| [name.len() as u16, extra.len() as u16].map(u16::to_le_bytes).concat();
        let header = [LOCAL, &shared, &lengths(&local), name.as_bytes(), &local].concat();
        let made = 45u16.to_le_bytes();
        let place = narrow(self.at).to_le_bytes();
        let entry = [CENTRAL, &made, &shared, &lengths(&central), &[0; 10], &place, name.as_bytes(), &central].concat();
        self.directory.extend(entry);
        self.target.write_all(&header)?;
        self.at += header.len() as u64 + size;
        self.entries += 1;
        Ok(&mut self.target)
    }

    /// Writes the directory.
    pub fn finish(mut self) -> Result<W> {
        let (start, size, entries) = (self.at, self.directory.len() as u64, self.entries);
        self.target.write_all(&self.directory)?;
        let count = u16::try_from(entries).unwrap_or(u16::MAX);
        if is_wide(start) || is_wide(size) || count == u16::MAX {
            let record = [[45u16; 2].map(u16::to_le_bytes).concat(), vec![0; 8]].concat();
            let values = [entries, entries, size, start].map(u64::to_le_bytes).concat();
            self.target.write_all(&[END64, &(END64_BYTES - 12).to_le_bytes(), &record, &values].concat())?;
            let disks = [0u32, 1].map(u32::to_le_bytes);
            self.target.write_all(&[LOCATOR, &disks[0], &(start + size).to_le_bytes(), &disks[1]].concat())?;
        }
        let counts = [0, 0, count, count].map(u16::to_le_bytes).concat();
        let place = [narrow(size), narrow(start)].map(u32::to_le_bytes).concat();
        self.target.write_all(&[END, &counts, &place, &[0; 2]].concat())?;
        Ok(self.target)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::super::directory::read;
    use super::*;
    use crate::machine::memory_file::MemoryFile;

    #[test]
    fn what_is_written_is_read_also_beyond_32_bits() {
        // The file has holes in place of the contents.
        let (made, mut file) = (MemoryFile::new().unwrap(), None);
        let entries = [("a/version", 2, 7), ("a/data/0", 5 << 30, 8), ("a/data/1", 3, 9)];
        let mut writer = Writer::new(made.file());
        for (name, size, crc) in entries {
            let mut target = *writer.start(name, size, crc).unwrap();
            target.seek(SeekFrom::Current(size as i64)).unwrap();
            file = Some(target);
        }
        writer.finish().unwrap();
        let mut file = file.unwrap().try_clone().unwrap();
        let bytes = file.metadata().unwrap().len();
        let found = read(&mut file, bytes).unwrap().unwrap();
        let found: Vec<_> = found.iter().map(|entry| (entry.name.as_str(), entry.size, entry.crc)).collect();
        assert_eq!(found, entries);
        let mut other = zip::ZipArchive::new(std::fs::File::open(made.path()).unwrap()).unwrap();
        let sizes: Vec<u64> = (0..other.len()).map(|index| other.by_index_raw(index).unwrap().size()).collect();
        assert_eq!(sizes, entries.map(|(_, size, _)| size));
    }
}
