//! The segments of a JPEG.

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
