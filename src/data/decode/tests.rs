use std::path::PathBuf;

use image::{ImageBuffer, Luma, LumaA, Rgba};

use super::*;

const W: u32 = 20;
const H: u32 = 12;

/// `a = numpy.stack([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7], -1) % 256`
fn picture() -> RgbImage {
    RgbImage::from_fn(W, H, |x, y| image::Rgb([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7].map(|v| (v % 256) as u8)))
}

fn saved(folder: &Path, name: &str, image: impl Into<DynamicImage>) -> PathBuf {
    let path = folder.join(name);
    image.into().save(&path).unwrap();
    path
}

fn square(resize: Resize) -> Decode {
    Decode { resize, height: 8, width: 8 }
}

fn stored() -> Decode {
    Decode { resize: Resize::None, height: H as usize, width: W as usize }
}

/// Asserts equality up to what rounding to bytes between the two passes makes of other fixed-point weights.
fn assert_close(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    let apart: Vec<u8> = found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).collect();
    let mean = apart.iter().map(|&d| f64::from(d)).sum::<f64>() / apart.len() as f64;
    assert!(mean < 0.5 && apart.iter().all(|&d| d <= 2), "{apart:?}");
}

#[test]
fn resizing_is_pillows() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    // numpy.array(Image.fromarray(a).resize((13, 8), Image.BICUBIC))[:, 2:10, 0]
    let red = [
        [127, 195, 126, 29, 99, 156, 214, 45],
        [143, 213, 148, 44, 115, 172, 222, 58],
        [162, 214, 112, 66, 132, 200, 111, 37],
        [181, 207, 27, 91, 148, 220, 124, 50],
        [200, 166, 47, 107, 167, 213, 97, 72],
        [224, 69, 57, 123, 188, 190, 24, 97],
        [199, 65, 78, 141, 205, 148, 48, 113],
        [135, 26, 100, 157, 219, 47, 65, 129],
    ];
    let found = square(Resize::ShorterSideCrop).file(&path).unwrap();
    assert_close(&found[..64], red.as_flattened());
    // numpy.array(Image.fromarray(a).resize((8, 8), Image.BICUBIC))[:3, :, 2]
    let blue =
        [[2, 6, 12, 17, 22, 28, 34, 42], [10, 38, 68, 100, 138, 152, 181, 154], [18, 73, 133, 192, 171, 94, 128, 144]];
    let found = square(Resize::Stretch).file(&path).unwrap();
    assert_close(&found[128..152], blue.as_flattened());
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
    let deep: ImageBuffer<Luma<u16>, Vec<u16>> = ImageBuffer::from_pixel(W, H, Luma([0x1234]));
    let clear: ImageBuffer<Rgba<u8>, Vec<u8>> = ImageBuffer::from_pixel(W, H, Rgba([10, 20, 30, 0]));
    let clear_deep: ImageBuffer<Rgba<u16>, Vec<u16>> = ImageBuffer::from_pixel(W, H, Rgba([0x10ff, 0x2000, 0x3001, 0]));
    let gray: ImageBuffer<LumaA<u8>, Vec<u8>> = ImageBuffer::from_pixel(W, H, LumaA([77, 3]));
    let cases = [
        (saved(folder.path(), "deep.png", deep), [0x12, 0x12, 0x12]),
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

#[test]
fn damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(saved(folder.path(), "a.jpg", picture())).unwrap();
    assert!(stored().file(&folder.path().join("a.jpg")).is_ok());
    let png = std::fs::read(saved(folder.path(), "a.png", picture())).unwrap();
    for (name, bytes) in [
        ("cut.jpg", &whole[..whole.len() - 40]),
        ("head.jpg", &whole[..30]),
        ("cut.png", &png[..png.len() / 2]),
        ("text.jpg", b"not an image"),
        ("empty.jpg", b""),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = stored().file(&path).unwrap_err();
        assert!(format!("{error:#}").contains(name), "{error:#}");
    }
}

#[test]
fn images_of_another_size_are_refused_without_resizing() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    let error = format!("{:#}", square(Resize::None).file(&path).unwrap_err());
    assert!(error.contains("20 x 12 pixels, but the first image of the set has 8 x 8"), "{error}");
    assert_eq!(Decode::new(Resize::None, 8, &path).unwrap(), stored());
}

#[test]
fn halves_are_centred_as_in_python() {
    // [round(spare / 2) for spare in (0, 1, 3, 4, 5)]
    assert_eq!([0, 1, 3, 4, 5].map(centred), [0, 0, 2, 2, 2]);
}
