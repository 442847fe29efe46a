//! The bytes of an image file as RGB, as Pillow's `Image.open(file).convert("RGB")` has it: alpha dropped, palettes looked
//! up, CMYK through black, 16-bit gray clipped, EXIF orientation not applied. JPEG goes through a port of libjpeg-turbo,
//! Pillow's decoder, and gives its very bytes.

use std::io::Cursor;
use std::sync::Once;

use anyhow::{Context, Result, bail, ensure};
use image::{DynamicImage, ImageDecoder, ImageReader, Limits, RgbImage};
use libjpeg_turbo_rs::{DecodeWarning, Decoder, PixelFormat};

/// Larger images are refused, as Pillow refuses them (twice its `MAX_IMAGE_PIXELS`): 0.5 GB as RGB.
const MAX_PIXELS: u64 = 178_956_970;

/// What a decoder may allocate: 16-bit RGBA of [`MAX_PIXELS`].
const MAX_BYTES: u64 = 8 * MAX_PIXELS;

/// Decodes a file of any known format, told by its content.
///
/// # Errors
/// An empty, damaged or cut-off file, an unknown format, more than [`MAX_PIXELS`], floating-point pixels.
pub fn decode(bytes: &[u8]) -> Result<RgbImage> {
    ensure!(!bytes.is_empty(), "the file is empty (0 bytes)");
    let (width, height, pixels) = if bytes.starts_with(&[0xff, 0xd8]) { jpeg(bytes)? } else { other(bytes)? };
    // What a decoder gives may be smaller than what the header says.
    check_size(width.into(), height.into())?;
    RgbImage::from_raw(width, height, pixels).context("fewer pixels than its size needs")
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
    // lenient: libjpeg passes over stray bytes between markers; damage to the pixels is refused below
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

/// Inverted ink, as Adobe's applications store it and Pillow takes every CMYK JPEG, to light, rounded as Pillow does.
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

fn other(bytes: &[u8]) -> Result<Pixels> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    reader.limits(limits);
    let decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
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
    Ok((width, height, pixels))
}

fn warn_of_clipping() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!("16-bit gray images: values above 255 become white, as in Pillow's convert(\"RGB\")");
    });
}

/// The segments before the first scan: marker and content. A thumbnail inside one has markers of its own, which do not
/// count.
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

/// Whether the end marker follows the first scan. A decoder fills what is missing of a cut-off file with gray.
fn jpeg_has_end(bytes: &[u8]) -> bool {
    let scan = segments(bytes).find(|(marker, _)| *marker == 0xda);
    scan.is_some_and(|(_, rest)| rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]))
}
