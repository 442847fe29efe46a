use super::*;

/// Returns the picture `numpy.stack([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7], -1) % 256`.
fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7].map(|value| (value % 256) as u8))
    })
}

/// The number in the list, the sign, the CRC-32 of the result and its pixel in row 5, column 7. They come from:
/// space = torchvision.transforms.RandAugment()._augmentation_space(31, (12, 20)); for each (name, (m, signed)):
/// out = torchvision.transforms.autoaugment._apply_op(picture, name, sign * m[9], InterpolationMode.NEAREST, None)
const OPERATIONS: [(u64, f64, u32, [u8; 3]); 23] = [
    (0, 1.0, 1639423085, [58, 4, 245]),
    (1, 1.0, 4044115681, [58, 4, 245]),
    (2, 1.0, 355984753, [69, 7, 38]),
    (3, 1.0, 1988994608, [240, 140, 175]),
    (4, 1.0, 1575997778, [47, 1, 196]),
    (5, 1.0, 2739777514, [58, 4, 245]),
    (6, 1.0, 1948620329, [73, 5, 255]),
    (7, 1.0, 1787388644, [60, 0, 255]),
    (8, 1.0, 4169439818, [43, 0, 255]),
    (9, 1.0, 2863758580, [58, 0, 255]),
    (10, 1.0, 1855009887, [58, 4, 244]),
    (11, 1.0, 3691571866, [58, 4, 10]),
    (12, 1.0, 1734408209, [58, 4, 247]),
    (13, 1.0, 1639423085, [58, 4, 245]),
    (1, -1.0, 2951633525, [58, 4, 245]),
    (2, -1.0, 926947958, [47, 1, 196]),
    (3, -1.0, 2863842690, [132, 164, 59]),
    (4, -1.0, 383186451, [69, 7, 38]),
    (5, -1.0, 2647692812, [58, 4, 245]),
    (6, -1.0, 896788292, [42, 2, 178]),
    (7, -1.0, 1411030811, [55, 15, 191]),
    (8, -1.0, 653826652, [72, 33, 209]),
    (9, -1.0, 1207523130, [58, 20, 229]),
];

#[test]
fn operations_are_torchvisions() {
    let randaugment = RandAugment { operations: 2, magnitude: 9 };
    for (which, sign, checksum, pixel) in OPERATIONS {
        let operation = randaugment.operation(which, sign, (20, 12));
        let found = operation.apply(picture(20, 12));
        assert_eq!(found.get_pixel(7, 5).0, pixel, "{operation:?}");
        assert_eq!(crc32fast::hash(found.as_raw()), checksum, "{operation:?}");
    }
}

#[test]
fn histograms_are_pillows() {
    let mut dark = picture(40, 24);
    dark.iter_mut().for_each(|value| *value /= 3);
    // zlib.crc32(numpy.asarray(ImageOps.equalize(Image.fromarray(b // 3))).tobytes()), and likewise for autocontrast.
    assert_eq!(crc32fast::hash(Operation::Equalize.apply(dark.clone()).as_raw()), 1797169173);
    assert_eq!(crc32fast::hash(Operation::AutoContrast.apply(dark).as_raw()), 3437139440);
}

#[test]
fn small_and_plain_images_pass_through_every_operation() {
    let randaugment = RandAugment { operations: 1, magnitude: 30 };
    for which in 0..14 {
        for image in [RgbImage::new(1, 1), RgbImage::from_pixel(2, 3, Rgb([7; 3]))] {
            let size = image.dimensions();
            assert_eq!(randaugment.operation(which, 1.0, size).apply(image).dimensions(), size);
        }
    }
}

#[test]
fn magnitudes_are_torchvisions() {
    // {name: m[30] for name, (m, signed) in _augmentation_space(31, (224, 224)).items()}, with translations cut to int.
    let strongest = |which| RandAugment { operations: 1, magnitude: 30 }.operation(which, 1.0, (224, 224));
    assert_eq!(strongest(3), Operation::TranslateX(101.0));
    assert_eq!(strongest(10), Operation::Posterize(4));
    assert_eq!(strongest(11), Operation::Solarize(0.0));
    assert_eq!(strongest(5), Operation::Rotate(30.0));
    assert_eq!(strongest(6), Operation::Brightness(1.9));
}
