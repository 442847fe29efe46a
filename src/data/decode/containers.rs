//! The parts of which files consist, where they are read without a decoder: the segments of a JPEG, and the numbers of the first directory of
//! a TIFF, which EXIF is, too; and the length of a WebP.

/// The tag of the meaning of further channels, and its value for an alpha by which the colours are multiplied.
const EXTRA_SAMPLES: u16 = 338;
const ASSOCIATED: u32 = 1;

/// Returns whether a file with these bytes is a JPEG.
pub fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8])
}

/// A segment before the pixels of the first scan, or its start where the file ends within it.
pub struct Segment<'a> {
    pub marker: u8,
    pub content: &'a [u8],
    /// The content and all that follows.
    rest: &'a [u8],
}

/// Returns the segments before the pixels of the first scan. A thumbnail inside a segment has its own markers, which are not returned.
pub fn segments(bytes: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    let mut at = 2;
    std::iter::from_fn(move || {
        while bytes.get(at..at + 2)? == [0xff, 0xff] {
            at += 1;
        }
        let [0xff, marker, high, low] = *bytes.get(at..at + 4)? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let rest = bytes.get(at + 4..)?;
        at += 2 + length;
        // The length counts its own two bytes.
        Some(Segment { marker, content: &rest[..length.saturating_sub(2).min(rest.len())], rest })
    })
}

/// Returns whether the end marker follows the first scan. For a file that is cut off, a decoder would fill the missing
/// pixels with gray.
pub fn has_end(bytes: &[u8]) -> bool {
    let scan = segments(bytes).find(|segment| segment.marker == 0xda);
    scan.is_some_and(|scan| scan.rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]))
}

/// Returns whether a WebP is longer than its bytes. Its last pixels would be decoded from what is left; Pillow's decoder refuses it.
pub fn is_cut_off(bytes: &[u8]) -> bool {
    // The length counts what follows it.
    let length = bytes.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four));
    (bytes.len() as u64) < 8 + u64::from(length)
}

/// Returns whether the colours of the first image of a TIFF with these bytes are multiplied by its alpha. Pillow divides them by it.
pub fn is_premultiplied(bytes: &[u8]) -> bool {
    first_value(bytes, EXTRA_SAMPLES) == Some(ASSOCIATED)
}

/// Returns the first whole number of a tag of the first directory; `None` if there is none in the entry itself.
pub fn first_value(bytes: &[u8], tag: u16) -> Option<u32> {
    let is_big = match *bytes.first_chunk::<4>()? {
        [b'I', b'I', 42, 0] => false,
        [b'M', b'M', 0, 42] => true,
        _ => return None,
    };
    let short = |at: usize| {
        let pair = *bytes.get(at..)?.first_chunk::<2>()?;
        Some(if is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })
    };
    let long = |at: usize| {
        let four = *bytes.get(at..)?.first_chunk::<4>()?;
        Some(if is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    };
    let start = long(4)? as usize;
    // An entry has 12 bytes: tag, type, count and, from the eighth byte on, the values if they fit.
    let entry =
        (0..usize::from(short(start)?)).map(|number| start + 2 + 12 * number).find(|at| short(*at) == Some(tag))?;
    match (short(entry + 2)?, long(entry + 4)?) {
        // Whole numbers of 16 bits without and with a sign, of which two fit, and of 32 bits.
        (3 | 8, 1..=2) => short(entry + 8).map(u32::from),
        (4, 1) => long(entry + 8),
        _ => None,
    }
}
