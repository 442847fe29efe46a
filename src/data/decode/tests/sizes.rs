//! Images that are resized and cropped, beside Pillow, torchvision and transformers.

use super::*;

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

#[test]
fn long_images_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let long = RgbImage::from_fn(30_000, 3, |x, _| image::Rgb([(x / 120) as u8; 3]));
    let path = saved(folder.path(), "long.png", long);
    let found = square(Resize::ShorterSideCrop).file(&path).unwrap();
    assert!(found.iter().all(|&value| (124..=125).contains(&value)), "{found:?}");
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
