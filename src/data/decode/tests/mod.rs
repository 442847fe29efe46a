mod photos;
mod refusals;
mod sizes;

use std::io::Read;
use std::path::PathBuf;

use image::{DynamicImage, ImageBuffer, LumaA, Rgba};

use super::*;
use crate::data::testing::{REQUEST, squares};

fn rgb(path: &Path, turns: bool) -> Result<RgbImage> {
    rgb_of(&read_file(path).with_context(|| format!("{}: cannot read", path.display()))?, path, turns)
}

const W: u32 = 20;
const H: u32 = 12;

/// Returns `a = numpy.stack([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7], -1) % 256`.
fn picture() -> RgbImage {
    RgbImage::from_fn(W, H, |x, y| image::Rgb([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7].map(|v| (v % 256) as u8)))
}

fn saved(folder: &Path, name: &str, image: impl Into<DynamicImage>) -> PathBuf {
    let path = folder.join(name);
    image.into().save(&path).unwrap();
    path
}

fn square(resize: Resize) -> Decode {
    squares(resize, 8)
}

fn stored() -> Decode {
    Decode { height: H as usize, ..squares(Resize::None, W as usize) }
}

/// The files of scripts/make_image_fixtures.py with its printed values: the CRC-32 of Pillow's pixels, and one pixel.
const FIXTURES: [(&str, u32, [u8; 3]); 14] = [
    ("bilevel.png", 2076003080, [0, 0, 0]),
    ("chroma_420.jpg", 3070697811, [175, 83, 88]),
    ("chroma_444.jpg", 2916773911, [188, 86, 108]),
    ("cmyk.jpg", 792145940, [166, 154, 29]),
    ("deep_gray.png", 2993788797, [255, 255, 255]),
    ("deep_gray.tif", 2993788797, [255, 255, 255]),
    ("exif_turned.jpg", 3070697811, [175, 83, 88]),
    ("gray.jpg", 4200373047, [111, 111, 111]),
    ("lossless.webp", 1639423085, [181, 89, 84]),
    ("lzw.tif", 1639423085, [181, 89, 84]),
    ("palette.gif", 1526131397, [180, 78, 118]),
    ("palette.png", 1526131397, [180, 78, 118]),
    ("plain.bmp", 1639423085, [181, 89, 84]),
    ("progressive.jpg", 3070697811, [175, 83, 88]),
];

fn fixture(name: &str) -> RgbImage {
    rgb(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images").join(name), false).unwrap()
}

#[test]
fn pixels_are_pillows() {
    for (name, checksum, pixel) in FIXTURES {
        let found = fixture(name);
        assert_eq!(found.get_pixel(4, 3).0, pixel, "{name}");
        assert_eq!(crc32fast::hash(found.as_raw()), checksum, "{name}");
    }
}

#[test]
fn pixels_are_nearly_pillows_where_decoders_round_otherwise() {
    // as above: cmyk.tif, lossy.webp
    for (name, pixel, most) in [("cmyk.tif", [167, 158, 32], 1), ("lossy.webp", [180, 87, 82], 3)] {
        let found = fixture(name).get_pixel(4, 3).0;
        assert!(found.iter().zip(pixel).all(|(a, b)| a.abs_diff(b) <= most), "{name}: {found:?}");
    }
}

#[test]
fn the_content_tells_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let png = saved(folder.path(), "a.png", picture());
    std::fs::copy(&png, folder.path().join("a.jpg")).unwrap();
    assert_eq!(rgb(&folder.path().join("a.jpg"), false).unwrap(), picture());
}

/// Returns a PNG of one row of gray pixels of 16 bits with further chunks before and behind the pixels.
fn gray_png(grays: &[u16], before: &[(&[u8; 4], &[u8])], behind: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let chunk = |(kind, content): (&[u8; 4], &[u8])| {
        let inside = [&kind[..], content].concat();
        [&(content.len() as u32).to_be_bytes()[..], &inside, &crc32fast::hash(&inside).to_be_bytes()].concat()
    };
    let header = [&(grays.len() as u32).to_be_bytes()[..], &1u32.to_be_bytes(), &[16, 0, 0, 0, 0]].concat();
    let row: Vec<u8> = std::iter::once(0).chain(grays.iter().flat_map(|gray| gray.to_be_bytes())).collect();
    let mut packed = Vec::new();
    flate2::read::ZlibEncoder::new(&row[..], flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    let all = [&[(b"IHDR", &header[..])], before, &[(b"IDAT", &packed[..])], behind, &[(b"IEND", &[][..])]].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), all.into_iter().flat_map(chunk).collect()].concat()
}

/// The grays of `Image.open(file).convert("RGB")`, Pillow 13.0.0.
#[test]
fn grays_of_16_bits_are_clipped_whether_or_not_one_is_transparent() {
    let grays = [0, 7, 255, 256, 257, 40_000];
    for before in [&[][..], &[(b"tRNS", &[1, 1][..])]] {
        let found = rgb_of(&gray_png(&grays, before, &[]), Path::new("a.png"), false).unwrap();
        assert_eq!(found.pixels().map(|pixel| pixel.0).collect::<Vec<_>>(), [0, 7, 255, 255, 255, 255].map(|v| [v; 3]));
    }
}

/// The colours of `Image.open(file).convert("RGB")`, Pillow 13.0.0, which rounds those of a PPM and cuts those of a PNG.
#[test]
fn colours_of_16_bits_of_a_ppm_are_rounded() {
    let ppm = [&b"P6 1 1 65535\n"[..], &[0, 200, 0x10, 0xff, 0xff, 0x7f]].concat();
    assert_eq!(rgb_of(&ppm, Path::new("a.ppm"), false).unwrap().get_pixel(0, 0).0, [1, 17, 255]);
}

/// The first pixels of `Image.open(file).convert("RGB")`, Pillow 13.0.0.
#[test]
fn values_below_any_largest_value_are_those_of_pillow() {
    let read = |bytes: &[u8]| rgb_of(bytes, Path::new("a.pnm"), false).map(|image| image.get_pixel(0, 0).0);
    let wide = |values: &[u16]| values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>();
    for (header, samples, pixel) in [
        ("P6 1 1 100\n", vec![10, 30, 70], [26, 76, 178]),
        ("P6 1 1 254\n", vec![127, 1, 254], [128, 1, 255]),
        ("P6 1 1 7\n", vec![1, 3, 9], [36, 109, 255]),
        ("P6 1 1 1023\n", wide(&[100, 513, 1022]), [25, 128, 255]),
        ("P6 1 1 300\n", wide(&[5, 150, 299]), [4, 128, 254]),
        ("P6 1 1 65534\n", wide(&[32767, 129, 65535]), [128, 1, 255]),
        ("P5 1 1 1000\n", wide(&[3]), [197; 3]),
        ("P5 1 1 1000\n", wide(&[900]), [255; 3]),
        ("P5 1 1 15\n", vec![7], [119; 3]),
        ("P3\n# c 9\n1 1 # x\n100\n10 30 70\n", vec![], [26, 76, 178]),
        ("P2 1 1 1023\n3\n", vec![], [192; 3]),
        ("P2 2 1 4\n1 3\n", vec![], [64; 3]),
    ] {
        assert_eq!(read(&[header.as_bytes(), &samples].concat()).unwrap(), pixel, "{header}");
    }
    let error = format!("{:#}", read(b"P3 1 1 100\n10 101 3\n").unwrap_err());
    assert!(error.contains("a.pnm") && error.contains("101 is above the largest one"), "{error}");
}

/// Pillow refuses each of these files, and reads one with bytes behind its end.
#[test]
fn a_webp_has_the_length_that_it_states() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(saved(folder.path(), "a.webp", picture())).unwrap();
    let length = u32::from_le_bytes(*whole[4..].first_chunk().unwrap());
    let stating = |length: u32| [&whole[..4], &length.to_le_bytes(), &whole[8..]].concat();
    let read = |bytes: &[u8]| rgb_of(bytes, Path::new("a.webp"), false);
    for shorter in [length - 1, length - 2, length - 20, 4, 0] {
        let error = format!("{:#}", read(&stating(shorter)).unwrap_err());
        assert!(error.contains("a.webp") && error.contains("behind the length that it says"), "{error}");
    }
    assert!(format!("{:#}", read(&stating(length + 2)).unwrap_err()).contains("cut off"));
    assert_eq!(read(&[&whole[..], &[0; 9]].concat()).unwrap(), read(&whole).unwrap());
}

#[test]
fn channels_become_planes() {
    let folder = tempfile::tempdir().unwrap();
    let found = stored().file(&saved(folder.path(), "a.png", picture())).unwrap();
    let (plane, at) = ((W * H) as usize, (3 * W + 5) as usize);
    let expected = picture().get_pixel(5, 3).0;
    assert_eq!([found[at], found[plane + at], found[2 * plane + at]], expected);
}

#[test]
fn other_pixel_types_become_rgb() {
    let folder = tempfile::tempdir().unwrap();
    let clear: ImageBuffer<Rgba<u8>, Vec<u8>> = ImageBuffer::from_pixel(W, H, Rgba([10, 20, 30, 0]));
    let clear_deep: ImageBuffer<Rgba<u16>, Vec<u16>> = ImageBuffer::from_pixel(W, H, Rgba([0x10ff, 0x2000, 0x3001, 0]));
    let gray: ImageBuffer<LumaA<u8>, Vec<u8>> = ImageBuffer::from_pixel(W, H, LumaA([77, 3]));
    let cases = [
        (saved(folder.path(), "clear.png", clear), [10, 20, 30]),
        (saved(folder.path(), "clear_deep.png", clear_deep), [0x10, 0x20, 0x30]),
        (saved(folder.path(), "gray.png", gray), [77, 77, 77]),
    ];
    for (path, expected) in cases {
        let found = stored().file(&path).unwrap();
        let plane = (W * H) as usize;
        assert_eq!([found[0], found[plane], found[3 * plane - 1]], expected, "{}", path.display());
    }
}

/// The frame has two pixels, of the colours 1 and 0, in the middle of a screen of 4 by 3. The red of each row is that of
/// `numpy.array(Image.open(file).convert("RGB"))[..., 0]`, Pillow 13.0.0.
#[test]
fn what_lies_around_a_frame_has_pillows_colour() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gif");
    for (control, around) in [(&b""[..], 10), (b"!\xf9\x04\x01\0\0\x01\0", 200), (b"!\xf9\x04\0\0\0\x01\0", 10)] {
        let screen = [&b"GIF89a\x04\0\x03\0\x80\0\0"[..], &[10, 20, 30, 200, 210, 220]].concat();
        let frame = b",\x01\0\x01\0\x02\0\x01\0\0\x02\x02\x0c\x0a\0;";
        std::fs::write(&path, [&screen, control, &b"!\xfe\x02hi\0"[..], frame].concat()).unwrap();
        let found: Vec<u8> = rgb(&path, false).unwrap().pixels().map(|pixel| pixel.0[0]).collect();
        let row = [around; 4];
        assert_eq!(found, [row, [around, 200, 10, around], row].concat(), "{control:?}");
    }
}
