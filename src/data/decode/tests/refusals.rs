//! Files that are damaged, too large, of another size, or no images.

use super::*;

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
fn damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(saved(folder.path(), "a.jpg", picture())).unwrap();
    assert!(stored().file(&folder.path().join("a.jpg")).is_ok());
    let png = std::fs::read(saved(folder.path(), "a.png", picture())).unwrap();
    let webp = std::fs::read("tests/fixtures/images/lossy.webp").unwrap();
    for (name, bytes) in [
        ("cut.jpg", &whole[..whole.len() - 40]),
        ("head.jpg", &whole[..30]),
        ("cut.png", &png[..png.len() / 2]),
        ("cut.webp", &webp[..webp.len() - 1]),
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
fn what_is_wrong_with_an_image_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut png = std::fs::read(saved(folder.path(), "a.png", picture())).unwrap();
    let checksum = png.len() - 13;
    png[checksum] ^= 1;
    let error = format!("{:#}", rgb_of(&png, Path::new("a.png"), false).unwrap_err());
    assert_eq!(error.matches("CRC error").count(), 1, "{error}");
}

#[test]
fn images_of_another_size_are_refused_without_resizing() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), "a.png", picture());
    let error = format!("{:#}", square(Resize::None).file(&path).unwrap_err());
    assert!(error.contains("20 x 12 pixels, but the first image of the set has 8 x 8"), "{error}");
    assert_eq!(Decode::new(Resize::None, false, &REQUEST, &path).unwrap(), stored());
}

/// Returns a GIF of one frame, 4 pixels wide.
fn gif(height: u8) -> Vec<u8> {
    let size = [4, 0, height, 0];
    let header = [b"GIF89a", &size[..], &[0x80, 0, 0, 0, 0, 0, 255, 255, 255], b",\0\0\0\0", &size, &[0]].concat();
    [header, vec![2, 2, 0x44, 0x01, 0, b';']].concat()
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
        let sized = Decode::new(Resize::None, false, &REQUEST, &path);
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
