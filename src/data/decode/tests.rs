mod photos;

use std::io::Read;
use std::path::PathBuf;

use image::{DynamicImage, ImageBuffer, LumaA, Rgba};

use super::*;

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
    Decode {
        resize,
        interpolation: Interpolation::Bicubic,
        height: 8,
        width: 8,
        shorter_side: 8,
        centre: Centre::Even,
        turns: false,
    }
}

fn stored() -> Decode {
    let (height, width) = (H as usize, W as usize);
    Decode {
        resize: Resize::None,
        interpolation: Interpolation::Bicubic,
        height,
        width,
        shorter_side: width,
        centre: Centre::Even,
        turns: false,
    }
}

/// Asserts equality up to one step of 255, because the fixed-point weights have another precision.
fn assert_close(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    let apart: Vec<u8> = found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).collect();
    let mean = apart.iter().map(|&d| f64::from(d)).sum::<f64>() / apart.len() as f64;
    assert!(mean < 0.1 && apart.iter().all(|&d| d <= 1), "{apart:?}");
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

/// Where the height loses more than twice the pixels that the width loses, Pillow 13 begins with columns. Between the passes values are
/// clipped, so that with rows first these would be up to 9 apart.
#[test]
fn high_images_are_resized_along_columns_first() {
    let folder = tempfile::tempdir().unwrap();
    let sharp =
        RgbImage::from_fn(H, W, |x, y| image::Rgb(picture().get_pixel(y, x).0.map(|v| if v > 127 { 255 } else { 0 })));
    let path = saved(folder.path(), "a.png", sharp);
    // b = (a.transpose(1, 0, 2) > 127).astype("uint8") * 255
    // numpy.array(Image.fromarray(b).resize((8, 8), Image.BICUBIC))[:4, :, 0], Pillow 13.0.0
    let red = [
        [0, 0, 0, 39, 61, 66, 167, 178],
        [102, 173, 209, 241, 251, 240, 216, 157],
        [212, 211, 172, 94, 63, 9, 10, 0],
        [0, 10, 9, 63, 94, 172, 211, 212],
    ];
    assert_close(&square(Resize::Stretch).file(&path).unwrap()[..32], red.as_flattened());
}

/// LLaVA's evaluation pads an image to a square before it is resized.
#[test]
fn padding_is_llavas() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    // p = Image.new("RGB", (20, 20), (122, 116, 104)); p.paste(Image.fromarray(a), (0, 4))
    // numpy.array(p.resize((8, 8), Image.BICUBIC))[:4, :, 0]
    let red = [
        [126, 122, 120, 125, 120, 121, 125, 120],
        [86, 123, 137, 92, 134, 129, 98, 137],
        [44, 143, 180, 61, 170, 130, 79, 182],
        [77, 176, 131, 87, 194, 80, 113, 201],
    ];
    assert_close(&square(Resize::Pad).file(&path).unwrap()[..32], red.as_flattened());
    // The same of the transposed image, pasted at (4, 0), [:2, :, 1]
    let turned = RgbImage::from_fn(H, W, |x, y| *picture().get_pixel(y, x));
    let path = saved(folder.path(), "b.png", turned);
    let green = [[121, 72, 4, 17, 24, 29, 85, 120], [119, 91, 55, 71, 79, 86, 107, 117]];
    assert_close(&square(Resize::Pad).file(&path).unwrap()[64..80], green.as_flattened());
}

/// With `crop_pct`, the shorter side becomes longer than the crop, also of images that have the crop's size.
#[test]
fn a_share_of_the_resized_image_is_torchvisions() {
    let folder = tempfile::tempdir().unwrap();
    let decode =
        Decode { shorter_side: Resize::ShorterSideCrop.shorter_side(8, 0.8), ..square(Resize::ShorterSideCrop) };
    let path = saved(folder.path(), "a.png", picture());
    // Compose([Resize(10, BICUBIC), CenterCrop(8)])(Image.fromarray(a)), numpy.array(…)[:3, :, 1]
    let green = [
        [135, 222, 139, 135, 214, 144, 134, 184],
        [138, 232, 149, 139, 229, 147, 138, 188],
        [151, 151, 68, 141, 82, 157, 141, 191],
    ];
    assert_close(&decode.file(&path).unwrap()[64..88], green.as_flattened());
    // The same of Image.fromarray(a[:8, :8]).
    let green = [[5, 13, 28, 50, 78, 112, 153, 204], [8, 16, 31, 53, 81, 115, 156, 207]];
    let path = saved(folder.path(), "b.png", image::imageops::crop_imm(&picture(), 0, 0, 8, 8).to_image());
    assert_close(&decode.file(&path).unwrap()[64..80], green.as_flattened());
    // Compose([Resize((10, 10), BICUBIC), CenterCrop(8)])(Image.fromarray(a)), numpy.array(…)[:2, :, 2]
    let blue = [[22, 41, 59, 77, 94, 120, 146, 167], [43, 79, 114, 150, 205, 163, 119, 165]];
    let decode = Decode { resize: Resize::Stretch, ..decode };
    assert_close(&decode.file(&folder.path().join("a.png")).unwrap()[128..144], blue.as_flattened());
    for (size, crop_pct, side) in [(224, 0.875, 256), (224, 0.9, 248), (224, 224.0 / 248.0, 248), (518, 1.0, 518)] {
        assert_eq!(Resize::ShorterSideCrop.shorter_side(size, crop_pct), side);
        assert_eq!(Resize::None.shorter_side(size, crop_pct), size);
    }
}

#[test]
fn bilinear_resizing_is_pillows() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    // numpy.array(Image.fromarray(a).resize((13, 8), Image.BILINEAR))[:2, 2:10, 0]
    let red = [[126, 186, 128, 43, 100, 156, 201, 57], [142, 202, 144, 59, 116, 172, 202, 68]];
    let decode = Decode { interpolation: Interpolation::Bilinear, ..square(Resize::ShorterSideCrop) };
    assert_close(&decode.file(&path).unwrap()[..16], red.as_flattened());
}

#[test]
fn a_window_is_a_part_of_the_whole() {
    let whole = Window { left: 0, top: 0, width: 33, height: 7 };
    let part = Window { left: 5, top: 2, width: 11, height: 4 };
    for filter in [Interpolation::Bicubic, Interpolation::Bilinear] {
        let found = resize(picture(), (33, 7), part, filter).unwrap();
        let expected = resize(picture(), (33, 7), whole, filter).unwrap();
        // the width of the fixed-point weights follows from the largest of those in use
        assert_close(&found, &image::imageops::crop_imm(&expected, 5, 2, 11, 4).to_image());
    }
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

#[test]
fn huge_images_are_refused_before_they_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    // a PNG header of 30,000 x 30,000 pixels without the pixels; a JPEG one likewise
    let size = 30_000u32.to_be_bytes();
    let header = [b"IHDR", &size[..], &size[..], &[8, 2, 0, 0, 0]].concat();
    let checksum = crc32fast::hash(&header).to_be_bytes();
    let end = [&0u32.to_be_bytes()[..], b"IDAT", &crc32fast::hash(b"IDAT").to_be_bytes()].concat();
    let png = [b"\x89PNG\r\n\x1a\n", &13u32.to_be_bytes()[..], &header, &checksum, &end].concat();
    let mut jpeg = Vec::new();
    image::codecs::jpeg::JpegEncoder::new(&mut jpeg).encode_image(&picture()).unwrap();
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[size[2], size[3], size[2], size[3]]);
    for (name, bytes) in [("huge.png", png), ("huge.jpg", jpeg)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", square(Resize::Stretch).file(&path).unwrap_err());
        assert!(error.contains(name) && error.contains("30000 x 30000 pixels are more than"), "{error}");
    }
}

#[test]
fn long_images_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let long = RgbImage::from_fn(30_000, 3, |x, _| image::Rgb([(x / 120) as u8; 3]));
    let path = saved(folder.path(), "long.png", long);
    let found = square(Resize::ShorterSideCrop).file(&path).unwrap();
    assert!(found.iter().all(|&value| (124..=125).contains(&value)), "{found:?}");
}

fn request() -> Request<'static> {
    let (interpolation, progress) = (Interpolation::Bicubic, &|_, _| ());
    Request {
        image_size: 8,
        interpolation,
        crop_pct: 1.0,
        centre: Centre::Even,
        cache: None,
        memory_bytes: 0,
        keeps_corrupt: false,
        workers: 1,
        progress,
    }
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
        ("empty.png", b""),
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
    assert_eq!(Decode::new(Resize::None, false, &request(), &path).unwrap(), stored());
}

#[test]
fn halves_are_centred_as_in_python() {
    // [round(spare / 2) for spare in (0, 1, 3, 4, 5)]
    assert_eq!([0, 1, 3, 4, 5].map(|spare| Centre::Even.before(spare)), [0, 0, 2, 2, 2]);
}

/// transformers takes `int(spare / 2.0)` where torchvision rounds: of a picture of 20 by 12 with 9 pixels a side, 3 rows and 11 columns
/// are left over. `CLIPImageProcessorPil(size={"shortest_edge": 12}, crop_size=9, do_rescale=False, do_normalize=False)(a)`,
/// transformers 5.24: `pixel_values[0, 0, 0, :4]`.
#[test]
fn the_centre_is_that_of_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    let corner = |centre: Centre| {
        let (height, width, shorter_side) = (9, 9, 12);
        let decode = Decode { height, width, shorter_side, centre, ..square(Resize::ShorterSideCrop) };
        decode.file(&path).unwrap()[..4].to_vec()
    };
    assert_close(&corner(Centre::Down), &[196, 233, 14, 51]);
    // CenterCrop(9)(Image.fromarray(a)), numpy.array(…)[0, :4, 0]
    assert_close(&corner(Centre::Even), &[244, 25, 62, 99]);
}

/// Returns a GIF of one frame, 4 pixels wide.
fn gif(height: u8) -> Vec<u8> {
    let size = [4, 0, height, 0];
    let header = [b"GIF89a", &size[..], &[0x80, 0, 0, 0, 0, 0, 255, 255, 255], b",\0\0\0\0", &size, &[0]].concat();
    [header, vec![2, 2, 0x44, 0x01, 0, b';']].concat()
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

#[test]
fn an_image_without_pixels_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let jpeg = saved(folder.path(), "a.jpg", picture());
    let mut flat = std::fs::read(&jpeg).unwrap();
    let frame = flat.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    flat[frame + 5..frame + 7].fill(0);
    for (name, bytes) in [("flat.gif", gif(0)), ("flat.jpg", flat)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        for resize in [Resize::ShorterSideCrop, Resize::Stretch] {
            let text = format!("{:#}", square(resize).file(&path).unwrap_err());
            assert!(text.contains(name), "{text}");
        }
        let sized = Decode::new(Resize::None, false, &crate::data::testing::REQUEST, &path);
        assert!(format!("{:#}", sized.unwrap_err()).contains(name));
    }
}

#[test]
fn a_panic_in_a_decoder_is_an_error() {
    let none = std::hint::black_box(0u32);
    let text = contained(|| Ok(8 / none)).unwrap_err().to_string();
    assert!(text.contains("the decoder failed"), "{text}");
}

#[test]
fn flipped_bits_never_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "a.png", "a.bmp", "a.gif", "a.webp", "a.tiff", "a.ppm"] {
        let whole = std::fs::read(saved(folder.path(), name, picture())).unwrap();
        let path = folder.path().join(name);
        for flip in 0..60usize {
            let mut bytes = whole.clone();
            let at = (flip * 7919 + 13) % (8 * bytes.len().min(400));
            bytes[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) = square(Resize::ShorterSideCrop).file(&path) {
                assert!(format!("{error:#}").contains(name), "{error:#}");
            }
        }
    }
}

#[test]
fn pipes_and_devices_are_no_images() {
    let text = format!("{:#}", square(Resize::Stretch).file(Path::new("/dev/zero")).unwrap_err());
    assert!(text.contains("/dev/zero: cannot read") && text.contains("a pipe or a device"), "{text}");
}
