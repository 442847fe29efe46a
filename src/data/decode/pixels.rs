//! Decodes the bytes of an image file to the same RGB as Pillow's `Image.open(file).convert("RGB")`: alpha is dropped,
//! palettes are looked up, CMYK is converted through black, 16-bit gray is clipped, and ICC profiles are ignored. Where it
//! is asked for, images are then turned by the orientation that EXIF or XMP states, as Pillow's `ImageOps.exif_transpose` does; TIFF files
//! are always turned, since Pillow turns them when it opens them. JPEG files are decoded by a port of libjpeg-turbo, Pillow's decoder, and
//! give exactly the same bytes.

use std::io::Cursor;
use std::sync::Once;

use anyhow::{Context, Result, bail, ensure};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};
use libjpeg_turbo_rs::{DecodeWarning, Decoder, PixelFormat};

use super::gif::paint_around;

/// The largest number of pixels of an image: twice Pillow's `MAX_IMAGE_PIXELS`, above which Pillow fails too, or 0.5 GB
/// as RGB.
const MAX_PIXELS: u64 = 178_956_970;

/// The number of bytes that a decoder may allocate: [`MAX_PIXELS`] as 16-bit RGBA.
const MAX_BYTES: u64 = 8 * MAX_PIXELS;

/// The start of a segment of a JPEG that holds XMP.
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// Decodes a file whose format is recognised by its content, and turns the image by its orientation if `turns` says so.
///
/// # Errors
/// Fails if the file is empty, damaged or cut off, has an unknown format, has more than [`MAX_PIXELS`] pixels, or has
/// floating-point pixels.
pub fn decode(bytes: &[u8], turns: bool) -> Result<RgbImage> {
    ensure!(!bytes.is_empty(), "the file is empty (0 bytes)");
    let ((width, height, pixels), orientation) = match bytes.starts_with(&[0xff, 0xd8]) {
        true => (jpeg(bytes)?, orientation_of_jpeg(bytes)),
        false => other(bytes)?,
    };
    // A decoder may return fewer pixels than the header states.
    check_size(width.into(), height.into())?;
    let mut image = RgbImage::from_raw(width, height, pixels).context("fewer pixels than its size needs")?;
    let format = image::guess_format(bytes).ok();
    if format == Some(ImageFormat::Gif) {
        paint_around(bytes, &mut image);
    }
    let is_turned = turns || format == Some(ImageFormat::Tiff);
    if !is_turned || orientation == Orientation::NoTransforms {
        return Ok(image);
    }
    let mut turned = DynamicImage::ImageRgb8(image);
    turned.apply_orientation(orientation);
    Ok(turned.into_rgb8())
}

/// Returns whether an image whose file starts with `bytes` is stored in another orientation than it is to be seen in.
pub fn is_turned(bytes: &[u8]) -> bool {
    let orientation = match bytes.starts_with(&[0xff, 0xd8]) {
        true => orientation_of_jpeg(bytes),
        false => orientation_of_other(bytes).unwrap_or(Orientation::NoTransforms),
    };
    orientation != Orientation::NoTransforms
}

fn orientation_of_other(bytes: &[u8]) -> Result<Orientation> {
    Ok(orientation_of_decoder(&mut ImageReader::new(Cursor::new(bytes)).with_guessed_format()?.into_decoder()?))
}

fn orientation_of_decoder(decoder: &mut impl ImageDecoder) -> Orientation {
    let [exif, xmp] = [decoder.exif_metadata(), decoder.xmp_metadata()].map(|found| found.ok().flatten());
    // That of a TIFF is an entry of its own.
    let own = decoder.orientation().ok().filter(|own| *own != Orientation::NoTransforms);
    let stated = exif.and_then(|exif| Orientation::from_exif_chunk(&exif)).or(own);
    stated.or_else(|| of_xmp(&xmp?)).unwrap_or(Orientation::NoTransforms)
}

/// Returns the orientation that the segments of a JPEG state. An unreadable one counts as none, as in Pillow.
fn orientation_of_jpeg(bytes: &[u8]) -> Orientation {
    let of = |start: &[u8]| {
        let mut segments = segments(bytes).filter(|(marker, _)| *marker == 0xe1);
        segments.find_map(|(_, content)| content.strip_prefix(start))
    };
    let exif = of(b"Exif\0\0").and_then(Orientation::from_exif_chunk);
    exif.or_else(|| of_xmp(of(XMP)?)).unwrap_or(Orientation::NoTransforms)
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

/// Width, height and interleaved RGB.
type Pixels = (u32, u32, Vec<u8>);

fn check_size(width: u64, height: u64) -> Result<()> {
    ensure!(width > 0 && height > 0, "{width} x {height} pixels: the image is empty");
    ensure!(
        width * height <= MAX_PIXELS,
        "{width} x {height} pixels are more than the {MAX_PIXELS} that are decoded: scale the image down"
    );
    Ok(())
}

fn jpeg(bytes: &[u8]) -> Result<Pixels> {
    ensure!(jpeg_has_end(bytes), "the JPEG is cut off: it has no end marker");
    let info = libjpeg_turbo_rs::probe(bytes)?;
    check_size(info.width as u64, info.height as u64)?;
    let mut decoder = Decoder::new(bytes)?;
    // Like libjpeg, the decoder skips stray bytes between markers. Damaged pixels are reported below.
    decoder.set_lenient(true);
    let four = info.components == 4;
    decoder.set_output_format(if four { PixelFormat::Cmyk } else { PixelFormat::Rgb });
    let image = decoder.decode_image()?;
    let harmless = |warning: &DecodeWarning| matches!(warning, DecodeWarning::ExtraneousData { .. });
    if let Some(warning) = image.warnings.iter().find(|warning| !harmless(warning)) {
        bail!("the JPEG is damaged: {warning}");
    }
    let pixels = if four { cmyk_to_rgb(&image.data) } else { image.data };
    Ok((image.width as u32, image.height as u32, pixels))
}

/// Converts CMYK to RGB, rounded like Pillow. The ink is inverted, as Adobe's applications store it and Pillow reads
/// every CMYK JPEG.
fn cmyk_to_rgb(cmyk: &[u8]) -> Vec<u8> {
    let ink = |value: u8| u32::from(255 - value);
    let times = |a: u32, b: u32| {
        let product = a * b + 128;
        ((product >> 8) + product) >> 8
    };
    let pixel = |p: &[u8]| {
        let light = 255 - ink(p[3]);
        [0, 1, 2].map(|channel| light.saturating_sub(times(ink(p[channel]), light)) as u8)
    };
    cmyk.chunks_exact(4).flat_map(pixel).collect()
}

fn other(bytes: &[u8]) -> Result<(Pixels, Orientation)> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    let orientation = orientation_of_decoder(&mut decoder);
    check_size(width.into(), height.into())?;
    let high = |value: &u16| (value >> 8) as u8;
    let spread = |gray: Vec<u8>| gray.into_iter().flat_map(|value| [value; 3]).collect();
    let pixels = match DynamicImage::from_decoder(decoder)? {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageLuma8(image) => spread(image.into_raw()),
        DynamicImage::ImageLuma16(image) => {
            warn_of_clipping();
            spread(image.as_raw().iter().map(|&value| value.min(255) as u8).collect())
        }
        DynamicImage::ImageLumaA16(image) => spread(image.as_raw().iter().step_by(2).map(high).collect()),
        DynamicImage::ImageRgb16(image) => image.as_raw().iter().map(high).collect(),
        DynamicImage::ImageRgba16(image) => {
            image.as_raw().chunks_exact(4).flat_map(|p| [0, 1, 2].map(|c| high(&p[c]))).collect()
        }
        DynamicImage::ImageRgb32F(_) | DynamicImage::ImageRgba32F(_) => {
            bail!("floating-point pixels have no agreed range; store the image with 8 or 16 bits")
        }
        image => image.into_rgb8().into_raw(),
    };
    Ok(((width, height, pixels), orientation))
}

fn warn_of_clipping() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!("16-bit gray images: values above 255 become white, as in Pillow's convert(\"RGB\")");
    });
}

/// Returns the marker and the content of each segment before the first scan. A thumbnail inside a segment has its own
/// markers, which are not returned.
fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = 2;
    std::iter::from_fn(move || {
        while bytes.get(at..at + 2)? == [0xff, 0xff] {
            at += 1;
        }
        let [0xff, marker, high, low] = *bytes.get(at..at + 4)? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let content = bytes.get(at + 4..)?;
        at += 2 + length;
        Some((marker, content))
    })
}

/// Returns whether the end marker follows the first scan. For a file that is cut off, a decoder would fill the missing
/// pixels with gray.
fn jpeg_has_end(bytes: &[u8]) -> bool {
    let scan = segments(bytes).find(|(marker, _)| *marker == 0xda);
    scan.is_some_and(|(_, rest)| rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]))
}
