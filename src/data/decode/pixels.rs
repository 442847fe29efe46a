//! Decodes the bytes of an image file to the same RGB as Pillow's `Image.open(file).convert("RGB")`: alpha is dropped,
//! palettes are looked up, CMYK is converted through black, 16-bit gray is clipped, and ICC profiles are ignored. Where it
//! is asked for, images are then turned by the orientation that EXIF or XMP states, as Pillow's `ImageOps.exif_transpose` does; TIFF files
//! are always turned, since Pillow turns them when it opens them. JPEG files are decoded by a port of libjpeg-turbo, Pillow's decoder, and
//! give exactly the same bytes. The pixels around the first frame of a GIF that is smaller than its screen have the transparent colour of
//! the palette, or else the first one. Other values of 16 bits than those of a PPM are cut to 8 bits.

use std::io::Cursor;
use std::sync::Once;

use anyhow::{Context, Result, anyhow, bail, ensure};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage};
use libjpeg_turbo_rs::{DecodeWarning, Decoder, PixelFormat};

use super::orientation::{self, check_length_of_webp, has_end, is_jpeg, is_premultiplied};
use super::pnm::Largest;

/// The largest number of pixels of an image: twice Pillow's `MAX_IMAGE_PIXELS`, above which Pillow fails too, or 0.5 GB
/// as RGB.
const MAX_PIXELS: u64 = 178_956_970;

/// The number of bytes that a decoder may allocate: [`MAX_PIXELS`] as 16-bit RGBA.
const MAX_BYTES: u64 = 8 * MAX_PIXELS;

/// Decodes a file whose format is recognised by its content, and turns the image by its orientation if `turns` says so.
///
/// # Errors
/// Fails if the file is empty, damaged or cut off, has an unknown format, has more than [`MAX_PIXELS`] pixels, or has
/// floating-point pixels.
pub fn decode(bytes: &[u8], turns: bool) -> Result<RgbImage> {
    ensure!(!bytes.is_empty(), "the file is empty (0 bytes)");
    let format = image::guess_format(bytes).ok();
    if format == Some(ImageFormat::WebP) {
        check_length_of_webp(bytes)?;
    }
    let (width, height, pixels) = match Largest::of(bytes) {
        Some(largest) => anymap(bytes, &largest)?,
        None if is_jpeg(bytes) => jpeg(bytes)?,
        None => other(bytes, format)?,
    };
    // A decoder may return fewer pixels than the header states.
    check_size(width.into(), height.into())?;
    let mut image = RgbImage::from_raw(width, height, pixels).context("fewer pixels than its size needs")?;
    if format == Some(ImageFormat::Gif) {
        paint_around(bytes, &mut image);
    }
    let is_turned = turns || format == Some(ImageFormat::Tiff);
    let orientation = if is_turned { orientation::of(bytes) } else { Orientation::NoTransforms };
    if orientation == Orientation::NoTransforms {
        return Ok(image);
    }
    let mut turned = DynamicImage::ImageRgb8(image);
    turned.apply_orientation(orientation);
    Ok(turned.into_rgb8())
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
    ensure!(has_end(bytes), "the JPEG is cut off: it has no end marker");
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

/// Returns the memory that a decoder may take.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    limits
}

/// Returns the image as it is stored.
fn stored(bytes: &[u8]) -> Result<DynamicImage> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    reader.limits(limits());
    let decoder = reader.into_decoder().map_err(told)?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    DynamicImage::from_decoder(decoder).map_err(told)
}

/// Decodes a PGM or PPM.
fn anymap(bytes: &[u8], largest: &Largest) -> Result<Pixels> {
    let samples = stored(&largest.unscaled(bytes))?;
    if let DynamicImage::ImageLuma16(_) = samples {
        warn_of_clipping();
    }
    let pixels = largest.rgb(&samples)?.context("it has other samples than its kind of file")?;
    Ok((samples.width(), samples.height(), pixels))
}

fn other(bytes: &[u8], format: Option<ImageFormat>) -> Result<Pixels> {
    let image = stored(bytes)?;
    let (width, height) = (image.width(), image.height());
    let high = |value: &u16| (value >> 8) as u8;
    let spread = |gray: Vec<u8>| gray.into_iter().flat_map(|value| [value; 3]).collect();
    let clipped = |value: &u16| (*value).min(255) as u8;
    // A transparent gray (`tRNS`) of a PNG makes pixels with alpha of gray ones, which Pillow clips all the same.
    let is_gray = format == Some(ImageFormat::Png) && bytes.get(25) == Some(&0);
    let is_premultiplied = format == Some(ImageFormat::Tiff) && is_premultiplied(bytes);
    let pixels = match image {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageRgba8(image) if is_premultiplied => {
            image.as_raw().chunks_exact(4).flat_map(divided).collect()
        }
        DynamicImage::ImageLuma8(image) => spread(image.into_raw()),
        DynamicImage::ImageLuma16(image) => {
            warn_of_clipping();
            spread(image.as_raw().iter().map(clipped).collect())
        }
        DynamicImage::ImageLumaA16(image) if is_gray => {
            warn_of_clipping();
            spread(image.as_raw().iter().step_by(2).map(clipped).collect())
        }
        DynamicImage::ImageLumaA16(image) => spread(image.as_raw().iter().step_by(2).map(high).collect()),
        DynamicImage::ImageRgb16(image) => image.as_raw().iter().map(high).collect(),
        DynamicImage::ImageRgba16(image) => {
            let bytes: Vec<u8> = image.as_raw().iter().map(high).collect();
            let color = |p: &[u8]| if is_premultiplied { divided(p) } else { [p[0], p[1], p[2]] };
            bytes.chunks_exact(4).flat_map(color).collect()
        }
        DynamicImage::ImageRgb32F(_) | DynamicImage::ImageRgba32F(_) => {
            bail!("floating-point pixels have no agreed range; store the image with 8 or 16 bits")
        }
        image => image.into_rgb8().into_raw(),
    };
    Ok((width, height, pixels))
}

/// Says of a form that the decoder does not know what to do about it.
fn told(error: ImageError) -> anyhow::Error {
    let is_unknown = matches!(error, ImageError::Unsupported(_));
    // Its text has that of its sources.
    let error = anyhow!("{error}");
    if is_unknown { error.context("bella does not decode this form of image: save it as PNG or JPEG") } else { error }
}

/// Returns the colour of a pixel whose colours are multiplied by its alpha, rounded like Pillow.
fn divided(pixel: &[u8]) -> [u8; 3] {
    let alpha = u32::from(pixel[3]);
    [0, 1, 2]
        .map(|channel| (u32::from(pixel[channel]) * 255).checked_div(alpha).map_or(0, |value| value.min(255) as u8))
}

fn warn_of_clipping() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!("16-bit gray images: values above 255 become white, as in Pillow's convert(\"RGB\")");
    });
}

/// The first frame on its screen.
struct Frame {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    around: Rgb<u8>,
}

/// Paints the pixels around the first frame of the GIF with these bytes.
fn paint_around(bytes: &[u8], image: &mut RgbImage) {
    let Some(Frame { left, top, width, height, around }) = first_frame(bytes) else { return };
    if (left, top, width, height) == (0, 0, image.width(), image.height()) {
        return;
    }
    let is_inside = |x: u32, y: u32| (left..left + width).contains(&x) && (top..top + height).contains(&y);
    image.enumerate_pixels_mut().filter(|(x, y, _)| !is_inside(*x, *y)).for_each(|(_, _, pixel)| *pixel = around);
}

/// Returns the first frame, behind the extensions before it; `None` if the file ends before.
fn first_frame(bytes: &[u8]) -> Option<Frame> {
    let palette = |flags: u8, at: usize| {
        let size = if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
        bytes.get(at..at + size)
    };
    let shared = palette(*bytes.get(10)?, 13)?;
    let (mut at, mut transparent) = (13 + shared.len(), 0);
    while *bytes.get(at)? == 0x21 {
        // The graphic control of the frame.
        if let [0xf9, 4, flags, _, _, color] = *bytes.get(at + 1..at + 7)? {
            transparent = if flags & 1 == 1 { color } else { 0 };
        }
        at += 2;
        while *bytes.get(at)? > 0 {
            at += 1 + usize::from(bytes[at]);
        }
        at += 1;
    }
    let descriptor = bytes.get(at..at + 10).filter(|descriptor| descriptor[0] == 0x2c)?;
    let [left, top, width, height] =
        [1, 3, 5, 7].map(|place| u32::from(u16::from_le_bytes([descriptor[place], descriptor[place + 1]])));
    let own = palette(descriptor[9], at + 10)?;
    let colors = if own.is_empty() { shared } else { own };
    let around = colors
        .chunks_exact(3)
        .nth(transparent.into())
        .map_or(Rgb([transparent; 3]), |color| Rgb([color[0], color[1], color[2]]));
    Some(Frame { left, top, width, height, around })
}
