//! The orientation that the EXIF or the XMP of a file states, as Pillow's `Image.getexif` finds it; and the parts of which files
//! consist, where they are read without a decoder: the segments of a JPEG, the numbers of the first directory of a TIFF, which EXIF is,
//! too, and the length of a WebP.

use std::io::{Cursor, Read};

use anyhow::{Result, ensure};
use flate2::read::ZlibDecoder;
use image::metadata::Orientation;
use image::{ImageDecoder, ImageFormat, ImageReader};

/// The tag of EXIF and TIFF.
const ORIENTATION: u16 = 0x112;

/// The start of a segment of a JPEG that holds XMP.
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// The start of EXIF in a JPEG, which some programs write in other files, too.
const EXIF: &[u8] = b"Exif\0\0";

/// The names of the texts of a PNG that hold XMP, and EXIF as ImageMagick writes it.
const XMP_TEXT: &[u8] = b"XML:com.adobe.xmp";
const EXIF_TEXT: &[u8] = b"Raw profile type exif";

/// The largest text of a PNG, in bytes, that is unpacked.
const LARGEST_TEXT: u64 = 1 << 20;

/// Returns the orientation that a file with these bytes, or the first of them, states. An unreadable one counts as none.
pub fn of(bytes: &[u8]) -> Orientation {
    let stated = match image::guess_format(bytes) {
        _ if is_jpeg(bytes) => of_jpeg(bytes),
        Ok(ImageFormat::Png) => of_png(bytes),
        _ => of_decoder(bytes).ok().flatten(),
    };
    stated.unwrap_or(Orientation::NoTransforms)
}

fn of_decoder(bytes: &[u8]) -> Result<Option<Orientation>> {
    let mut decoder = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?.into_decoder()?;
    let [exif, xmp] = [decoder.exif_metadata(), decoder.xmp_metadata()].map(|found| found.ok().flatten());
    // That of a TIFF is an entry of its own.
    let own = decoder.orientation().ok().filter(|own| *own != Orientation::NoTransforms);
    Ok(exif.and_then(|exif| of_exif(&exif)).or(own).or_else(|| of_xmp(&xmp?)))
}

fn of_jpeg(bytes: &[u8]) -> Option<Orientation> {
    let of = |start: &'static [u8]| {
        let segments = segments(bytes).filter(|segment| segment.marker == 0xe1);
        segments.filter_map(move |segment| segment.content.strip_prefix(start))
    };
    // Long EXIF goes on in further segments.
    let exif: Vec<u8> = of(EXIF).flatten().copied().collect();
    of_exif(&exif).or_else(|| of_xmp(of(XMP).last()?))
}

/// Returns the orientation that the chunks of a PNG state, which may stand behind its pixels.
fn of_png(bytes: &[u8]) -> Option<Orientation> {
    let (mut exif, mut profile, mut xmp) = (None, None, None);
    for (kind, content) in chunks(bytes) {
        match (kind, text(kind, content)) {
            (b"eXIf", _) => exif = Some(content.to_vec()),
            (_, Some((EXIF_TEXT, text))) => profile = profile_of(&text),
            (_, Some((XMP_TEXT, text))) => xmp = Some(text),
            _ => {}
        }
    }
    exif.or(profile).and_then(|exif| of_exif(&exif)).or_else(|| of_xmp(&xmp?))
}

/// Returns the kind and the content of each chunk of a PNG.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut at = 8;
    std::iter::from_fn(move || {
        let (length, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        // The length, the kind and the checksum have four bytes each.
        at += 12 + length;
        Some((kind, rest.get(..length)?))
    })
}

/// Returns the name and the unpacked text of a chunk that holds a text.
fn text<'a>(kind: &[u8; 4], content: &'a [u8]) -> Option<(&'a [u8], Vec<u8>)> {
    let (name, rest) = cut(content)?;
    let (is_packed, text) = match kind {
        b"tEXt" => (false, rest),
        b"zTXt" => (true, rest.get(1..)?),
        // The method, then the language and the name in it.
        b"iTXt" => (*rest.first()? != 0, cut(cut(rest.get(2..)?)?.1)?.1),
        _ => return None,
    };
    let mut unpacked = text.to_vec();
    if is_packed {
        unpacked.clear();
        ZlibDecoder::new(text).take(LARGEST_TEXT).read_to_end(&mut unpacked).ok()?;
    }
    Some((name, unpacked))
}

/// Splits bytes at the first zero.
fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Returns the bytes of a profile, whose hexadecimal digits begin in the fourth line.
fn profile_of(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').skip(3);
    let digits: Vec<u8> = lines.flatten().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(pair).collect()
}

/// Returns the orientation that EXIF states; that of an impossible number is none to be turned by.
fn of_exif(exif: &[u8]) -> Option<Orientation> {
    let without = |exif| <[u8]>::strip_prefix(exif, EXIF).unwrap_or(exif);
    let number = first_value(without(without(exif)), ORIENTATION)?;
    let known = u8::try_from(number).ok().and_then(Orientation::from_exif);
    Some(known.unwrap_or(Orientation::NoTransforms))
}

/// Returns the first orientation that XMP states, as an attribute (`="6"`) or as an element (`>6`).
fn of_xmp(xmp: &[u8]) -> Option<Orientation> {
    let digit = |at: usize| {
        let rest = xmp[at..].strip_prefix(b"tiff:Orientation")?;
        let digit = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| digit - b'0')
    };
    (0..xmp.len()).find_map(digit).and_then(Orientation::from_exif)
}

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

/// Checks the length that a WebP states, as Pillow's decoder does; another one would make up the pixels that are missing.
///
/// # Errors
/// Fails if the length is beyond the bytes of the file, or if a part of the file ends beyond the length.
pub fn check_length_of_webp(bytes: &[u8]) -> Result<()> {
    let long = |at: u64| {
        let four = bytes.get(at as usize..).and_then(|rest| rest.first_chunk());
        four.map_or(0, |four| u64::from(u32::from_le_bytes(*four)))
    };
    // Each length counts what follows it.
    let end = 8 + long(4);
    ensure!(bytes.len() as u64 >= end, "the WebP is cut off: it is shorter than it says");
    ensure!(end >= 20, "the WebP is damaged: it has parts behind the length that it says");
    let mut at = 12;
    while at + 8 <= end {
        // Parts begin at even places.
        at += 8 + long(at + 4).next_multiple_of(2);
        ensure!(at <= end, "the WebP is damaged: it has parts behind the length that it says");
    }
    Ok(())
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
