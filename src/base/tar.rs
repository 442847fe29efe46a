//! Tar archives, read from the front: the names, kinds, sizes and places of their members, and their content. Names may be those
//! of the original format, of ustar, of GNU or of pax.

use std::fs::File;
use std::io::{self, BufReader, Read, Take};

use anyhow::{Context, Error, Result, ensure};

const BLOCK: u64 = 512;

/// The most bytes that a name or a table of pax may have.
const LONGEST: u64 = 1 << 20;

/// The kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    /// A link, a device or a pipe.
    Other,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub kind: Kind,
    pub size: u64,
    /// The place of the content in the archive.
    pub at: u64,
}

/// A reader that can leave bytes out.
pub trait Source: Read {
    /// Leaves bytes out. Where they are not there, the next reading fails.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    fn pass(&mut self, bytes: u64) -> io::Result<()>
    where
        Self: Sized,
    {
        io::copy(&mut self.by_ref().take(bytes), &mut io::sink()).map(drop)
    }
}

impl Source for BufReader<File> {
    fn pass(&mut self, bytes: u64) -> io::Result<()> {
        self.seek_relative(bytes as i64)
    }
}

impl Source for &[u8] {}

impl<R: Read> Source for flate2::read::MultiGzDecoder<R> {}

/// An archive that is being read.
pub struct Tar<S> {
    source: S,
    at: u64,
    /// The place of the next header.
    next: u64,
}

impl<S: Source> Tar<S> {
    pub fn new(source: S) -> Tar<S> {
        Tar { source, at: 0, next: 0 }
    }

    /// Returns the next member; `None` at the end of the archive.
    ///
    /// # Errors
    /// Fails if the archive is damaged, or ends before its end.
    pub fn member(&mut self) -> Result<Option<Member>> {
        let (mut name, mut size) = (None, None);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let given = number(&header[124..136]).context("the tar archive is damaged: a member has no size")?;
            match header[156] {
                b'L' => {
                    let text = utf8(self.bytes(given)?)?;
                    name = Some(text.trim_end_matches('\0').to_string());
                }
                b'x' => {
                    let table = self.bytes(given)?;
                    name = pax(&table, "path")?.map(|path| utf8(path.to_vec())).transpose()?.or(name);
                    let stated =
                        pax(&table, "size")?.map(|size| std::str::from_utf8(size)?.parse::<u64>().map_err(Error::new));
                    size = stated.transpose().context("the tar archive is damaged: a member has no size")?.or(size);
                }
                // What pax says of all members, and long targets of links, change nothing here.
                b'g' | b'K' => self.leave(given)?,
                kind => {
                    let (name, size) = (name.unwrap_or_else(|| name_of(&header)), size.unwrap_or(given));
                    let kind = match kind {
                        b'0' | 0 | b'7' if name.ends_with('/') => Kind::Folder,
                        b'0' | 0 | b'7' => Kind::File,
                        b'5' => Kind::Folder,
                        _ => Kind::Other,
                    };
                    self.leave(size)?;
                    return Ok(Some(Member { name, kind, size, at: self.at }));
                }
            }
        }
    }

    /// Returns the content of the member that was returned last. The caller reads all of it or nothing.
    pub fn content(&mut self, member: &Member) -> Take<&mut S> {
        self.at = member.at + member.size;
        self.source.by_ref().take(member.size)
    }

    /// Returns the next header; `None` at the end, which is a block of zeros.
    fn header(&mut self) -> Result<Option<[u8; BLOCK as usize]>> {
        self.source.pass(self.next - self.at)?;
        let mut header = [0; BLOCK as usize];
        self.source.read_exact(&mut header).map_err(cut_off)?;
        (self.at, self.next) = (self.next + BLOCK, self.next + BLOCK);
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |(at, byte): (usize, &u8)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte });
        let found: u64 = header.iter().enumerate().map(sum).sum();
        let is_tar = number(&header[148..156]) == Some(found);
        ensure!(
            is_tar,
            "it is no tar archive, or is damaged: the header at byte {} has another checksum",
            self.at - BLOCK
        );
        Ok(Some(header))
    }

    /// Sets the place of the next header behind a content of some bytes.
    fn leave(&mut self, bytes: u64) -> Result<()> {
        let blocks = bytes.div_ceil(BLOCK).checked_mul(BLOCK).and_then(|whole| self.at.checked_add(whole));
        let next = blocks.filter(|next| *next <= i64::MAX as u64);
        self.next = next.with_context(|| format!("the tar archive is damaged: a member has {bytes} bytes"))?;
        Ok(())
    }

    /// Returns a content that is a name or a table.
    fn bytes(&mut self, bytes: u64) -> Result<Vec<u8>> {
        ensure!(bytes <= LONGEST, "the tar archive is damaged: a name has {bytes} bytes");
        self.leave(bytes)?;
        let mut content = vec![0; bytes as usize];
        self.source.read_exact(&mut content).map_err(cut_off)?;
        self.at += bytes;
        Ok(content)
    }
}

fn utf8(name: Vec<u8>) -> Result<String> {
    String::from_utf8(name).ok().context("the tar archive has a name that is no UTF-8")
}

/// Says of a reading that failed that the archive is cut off, where it is.
pub fn cut_off(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow::anyhow!("the tar archive is cut off: it has no end"),
        _ => error.into(),
    }
}

/// Returns the number in a field: octal digits, or where it does not fit GNU's binary form.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let digits = field[1..].iter().try_fold(u64::from(field[0] & 0x7f), |sum, byte| {
            sum.checked_mul(256).and_then(|sum| sum.checked_add(u64::from(*byte)))
        });
        return digits;
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn name_of(header: &[u8]) -> String {
    let text = |field: &[u8]| {
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    };
    let (name, prefix) = (text(&header[..100]), text(&header[345..500]));
    match header[257..263] == *b"ustar\0" && !prefix.is_empty() {
        true => format!("{prefix}/{name}"),
        false => name,
    }
}

/// Returns the last value of a key in a table of pax, whose lines are `LENGTH KEY=VALUE`, where the length counts the whole line. Values of keys
/// that are not asked for may be any bytes: so are the extended attributes of files that macOS writes.
///
/// # Errors
/// Fails if the table has another form: a member would get a wrong name or size.
fn pax<'a>(table: &'a [u8], key: &str) -> Result<Option<&'a [u8]>> {
    let (mut rest, mut found) = (table, None);
    while rest.iter().any(|byte| *byte != 0) {
        let (record, after) =
            record_of_pax(rest).context("the tar archive is damaged: a table of pax has lines of another form")?;
        if let Some(value) = record.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
            found = Some(value);
        }
        rest = after;
    }
    Ok(found)
}

/// Returns the first `KEY=VALUE` of a table, and what is behind its line.
fn record_of_pax(table: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = table.iter().position(|byte| *byte == b' ')?;
    let length = std::str::from_utf8(&table[..digits]).ok()?.parse().ok()?;
    let (line, after) = table.split_at_checked(length)?;
    let record = line.get(digits + 1..)?.strip_suffix(b"\n")?;
    record.contains(&b'=').then_some((record, after))
}

/// Returns an archive of files with their content.
pub fn packed<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        archive.extend(header(name, content.len(), b'0'));
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK as usize), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK as usize, 0);
    archive
}

/// Returns a header of the ustar format; names have up to 100 bytes.
pub fn header(name: &str, size: usize, kind: u8) -> Vec<u8> {
    let mut header = vec![0; BLOCK as usize];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[148..156].fill(b' ');
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
        let (mut tar, mut found) = (Tar::new(archive), Vec::new());
        while let Some(member) = tar.member()? {
            let mut content = Vec::new();
            tar.content(&member).read_to_end(&mut content)?;
            found.push((member.name, content));
        }
        Ok(found)
    }

    #[test]
    fn members_come_with_their_content_whether_it_is_read_or_not() {
        let archive = packed([("a.txt", &b"one"[..]), ("b/c.bin", &[7; 513][..]), ("empty", &b""[..])]);
        let found = members(&archive).unwrap();
        assert_eq!(found[0], ("a.txt".to_string(), b"one".to_vec()));
        assert_eq!((found[1].0.as_str(), found[1].1.len(), found[2].1.len()), ("b/c.bin", 513, 0));
        let mut tar = Tar::new(&archive[..]);
        let all: Vec<Member> = std::iter::from_fn(|| tar.member().unwrap()).collect();
        assert_eq!(
            all.iter().map(|member| (member.at, member.size)).collect::<Vec<_>>(),
            [(512, 3), (1536, 513), (3072, 0)]
        );
    }

    /// The table of a file with extended attributes, as bsdtar of macOS and `tar --xattrs` write it: their values are any bytes.
    #[test]
    fn attributes_of_files_need_not_be_text() {
        let table = b"36 SCHILY.xattr.com.apple.x=\x01\x00\xff\n= \xfe\n22 path=another/b.bin\n";
        let mut archive = header("PaxHeader/b.bin", table.len(), b'x');
        archive.extend(table);
        archive.resize(archive.len().next_multiple_of(BLOCK as usize), 0);
        archive.extend(packed([("b.bin", &b"one"[..])]));
        assert_eq!(members(&archive).unwrap(), [("another/b.bin".to_string(), b"one".to_vec())]);
        assert!(pax(b"11 path=\xff\xfe\n", "path").unwrap().is_some_and(|path| utf8(path.to_vec()).is_err()));
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_is_refused() {
        let archive = packed([("a.txt", &b"one"[..]), ("b.txt", &b"two"[..])]);
        let end = archive.len() - 1024;
        for cut in (0..end).step_by(64).chain([end]) {
            let mut tar = Tar::new(&archive[..cut]);
            let error = loop {
                match tar.member() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{cut} bytes are an archive"),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("is cut off"), "{cut}: {error}");
        }
        let mut damaged = archive;
        for (table, is_fine) in [
            ("12 path=a.b\n", true),
            ("12 path=a.b\n11 mtime=1\n\0", true),
            ("0 path=a.bc\n", false),
            ("1 path=a.bc\n", false),
            ("2 path=a.bc\n", false),
            ("99 path=a.b\n", false),
            ("12 path.a.b\n", false),
            ("12 path=a.bx", false),
            ("x", false),
        ] {
            let found = pax(table.as_bytes(), "path");
            assert_eq!(found.is_ok(), is_fine, "{table:?}");
            assert!(found.map_or(true, |path| path == Some(b"a.b")), "{table:?}");
        }
        damaged[3] ^= 1;
        assert!(members(&damaged).unwrap_err().to_string().contains("another checksum"));
        assert!(members(&[b'x'; 1024]).unwrap_err().to_string().contains("no tar archive"));
    }
}
