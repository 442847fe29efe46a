//! Zip files that two readers read in two ways, written byte by byte. In each, some reader finds the files of `hidden` and
//! another one those of `shown`.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

/// The files of an archive: names and contents.
pub type Files = Vec<(String, Vec<u8>)>;

/// An entry: its name in the directory and in front of its data, its content and its extra field.
#[derive(Clone)]
struct Entry {
    name: String,
    local: String,
    content: Vec<u8>,
    extra: Vec<u8>,
}

impl Entry {
    fn of((name, content): &(String, Vec<u8>)) -> Entry {
        Entry { name: name.clone(), local: name.clone(), content: content.clone(), extra: Vec::new() }
    }

    fn sums(&self) -> Vec<u8> {
        let size = self.content.len() as u32;
        let head = [20u16, 0, 0, 0, 33].map(u16::to_le_bytes).concat();
        [head, [crc32fast::hash(&self.content), size, size].map(u32::to_le_bytes).concat()].concat()
    }

    fn written(&self) -> Vec<u8> {
        let lengths = [self.local.len() as u16, self.extra.len() as u16].map(u16::to_le_bytes).concat();
        [b"PK\x03\x04", &self.sums()[..], &lengths, self.local.as_bytes(), &self.extra, &self.content].concat()
    }

    /// The entry in a directory, with `behind` as its comment.
    fn listed(&self, place: usize, behind: &[u8]) -> Vec<u8> {
        let lengths = [self.name.len(), self.extra.len(), behind.len()].map(|length| (length as u16).to_le_bytes());
        let place = (place as u32).to_le_bytes();
        let head = [b"PK\x01\x02", &20u16.to_le_bytes()[..], &self.sums(), &lengths.concat(), &[0; 8], &place].concat();
        [&head, self.name.as_bytes(), &self.extra, behind].concat()
    }
}

/// Appends entries to a file, and returns their directory, whose last entry has `behind` as its comment.
fn append(file: &mut Vec<u8>, entries: &[Entry], behind: &[u8]) -> Vec<u8> {
    let mut directory = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let behind = if index + 1 == entries.len() { behind } else { &[] };
        directory.extend(entry.listed(file.len(), behind));
        file.extend(entry.written());
    }
    directory
}

/// The end record of a directory.
fn end(count: usize, size: usize, start: usize) -> Vec<u8> {
    let counts = [0, 0, count as u16, count as u16].map(u16::to_le_bytes).concat();
    [b"PK\x05\x06", &counts[..], &(size as u32).to_le_bytes(), &(start as u32).to_le_bytes(), &[0; 2]].concat()
}

/// The end record for large files and its locator.
fn wide_end(count: usize, size: usize, start: usize, at: usize) -> [Vec<u8>; 2] {
    let head = [&44u64.to_le_bytes()[..], &[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let values = [count, count, size, start].map(|value| (value as u64).to_le_bytes()).concat();
    let locator = [b"PK\x06\x07", &[0; 4][..], &(at as u64).to_le_bytes(), &1u32.to_le_bytes()].concat();
    [[b"PK\x06\x06", &head[..], &values].concat(), locator]
}

fn plain(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let directory = append(&mut file, entries, &[]);
    let last = end(entries.len(), directory.len(), file.len());
    [file, directory, last].concat()
}

/// Two directories: one named by the end record, the other by a locator of large files.
fn two_directories(first: &[Entry], second: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let directory = append(&mut file, first, &[]);
    let (start, at) = (file.len(), file.len() + directory.len());
    let [record, locator] = wide_end(first.len(), directory.len(), start, at);
    file.extend([directory, record].concat());
    let other = append(&mut file, second, &locator);
    let last = end(second.len(), other.len(), file.len());
    [file, other, last].concat()
}

/// One zip file behind another, with or without places that count from the first byte.
fn joined(first: &[Entry], second: &[Entry], counts_on: bool) -> Vec<u8> {
    let mut file = plain(first);
    if !counts_on {
        return [file, plain(second)].concat();
    }
    let directory = append(&mut file, second, &[]);
    let last = end(second.len(), directory.len(), file.len());
    [file, directory, last].concat()
}

/// Returns a name in other letters: capitals here and there.
fn respelt(name: &str, random: &mut ChaCha12Rng) -> String {
    let flip = |sign: char| if random.random_range(0..3) == 0 { sign.to_ascii_uppercase() } else { sign };
    name.chars().map(flip).collect()
}

/// A field that gives an entry another name (Info-ZIP's Unicode path).
fn path_field(name: &str, instead: &str) -> Vec<u8> {
    let content = [&[1u8][..], &crc32fast::hash(name.as_bytes()).to_le_bytes(), instead.as_bytes()].concat();
    [&0x7075u16.to_le_bytes()[..], &(content.len() as u16).to_le_bytes(), &content].concat()
}

/// A zip file in which `hidden` stands in one of many ways.
pub fn in_two_ways(shown: &Files, hidden: &Files, random: &mut ChaCha12Rng) -> Vec<u8> {
    let [shown, hidden] = [shown, hidden].map(|files| files.iter().map(Entry::of).collect::<Vec<_>>());
    let is_code = |entry: &&Entry| entry.name.contains("/code/");
    let (others, code): (Vec<&Entry>, Vec<&Entry>) = hidden.iter().partition(|entry| !is_code(entry));
    let mut all: Vec<Entry> = others.into_iter().cloned().collect();
    let decoy = shown.iter().filter(is_code).cloned();
    match random.random_range(0..9) {
        0 => return two_directories(&hidden, &shown),
        1 => return two_directories(&shown, &hidden),
        2 => return joined(&shown, &hidden, random.random()),
        3 => return joined(&hidden, &shown, random.random()),
        way => {
            for mut entry in code.into_iter().cloned() {
                match way {
                    4 => (entry.name, entry.local) = (respelt(&entry.name, random), entry.name),
                    5 => {
                        entry.name = respelt(&entry.name, random);
                        entry.local = entry.name.clone();
                    }
                    6 => {
                        let name = "a/extra/notes".to_string();
                        (entry.extra, entry.name) = (path_field(&name, &entry.name), name);
                        entry.local = entry.name.clone();
                    }
                    7 => entry.extra = path_field(&entry.name, "a/extra/notes"),
                    _ => {}
                }
                all.push(entry);
            }
            if way == 8 || random.random() {
                all.extend(decoy);
            }
        }
    }
    // The order of equal names decides in some readers.
    if random.random() {
        all.reverse();
    }
    plain(&all)
}
