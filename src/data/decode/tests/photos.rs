//! Photos with an orientation.

use super::*;

/// Returns a file of EXIF data with an orientation alone.
fn exif(orientation: u8) -> Vec<u8> {
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
    [&b"II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat()
}

/// Returns the files of a picture whose left quarter is red, its right quarter blue and the rest white and black, as JPEG,
/// PNG and TIFF with an EXIF orientation.
fn photos(folder: &Path, orientation: u8) -> Vec<PathBuf> {
    // The upper left is red, the upper right blue, the lower left white, the lower right black.
    let color = |x: u32, y: u32| match (x < 16, y < 8) {
        (true, true) => [255, 0, 0],
        (false, true) => [0, 0, 255],
        (true, false) => [255; 3],
        (false, false) => [0; 3],
    };
    let photo = RgbImage::from_fn(32, 16, |x, y| image::Rgb(color(x, y)));
    let exif = exif(orientation);
    let jpeg = saved(folder, &format!("{orientation}.jpg"), photo.clone());
    let bytes = std::fs::read(&jpeg).unwrap();
    let length = (8 + exif.len() as u16).to_be_bytes();
    let segment = [&[0xff, 0xe1][..], &length, b"Exif\0\0", &exif].concat();
    std::fs::write(&jpeg, [&bytes[..2], &segment, &bytes[2..]].concat()).unwrap();
    let png = saved(folder, &format!("{orientation}.png"), photo);
    let bytes = std::fs::read(&png).unwrap();
    let chunk = [b"eXIf", &exif[..]].concat();
    let check = crc32fast::hash(&chunk).to_be_bytes();
    let chunk = [&(exif.len() as u32).to_be_bytes()[..], &chunk, &check].concat();
    // The header is the first chunk: 8 bytes of signature, 25 of the header.
    std::fs::write(&png, [&bytes[..33], &chunk, &bytes[33..]].concat()).unwrap();
    vec![jpeg, png]
}

// The corners from the upper left on, row by row, of PIL.ImageOps.exif_transpose of such files, Pillow 13.0.0.
const TURNED: [(u8, &str); 8] =
    [(1, "rbwk"), (2, "brkw"), (3, "kwbr"), (4, "wkrb"), (5, "rwbk"), (6, "wrkb"), (7, "kbwr"), (8, "bkrw")];

#[test]
fn photos_are_turned_as_pillow_turns_them() {
    let folder = tempfile::tempdir().unwrap();
    for (orientation, corners) in TURNED {
        for path in photos(folder.path(), orientation) {
            let is_tall = orientation > 4;
            let turned = rgb(&path, true).unwrap();
            assert_eq!(turned.dimensions(), if is_tall { (16, 32) } else { (32, 16) }, "{}", path.display());
            let (right, bottom) = (turned.width() - 2, turned.height() - 2);
            let name = |(x, y): (u32, u32)| match turned.get_pixel(x, y).0.map(|value| value > 127) {
                [true, false, false] => 'r',
                [false, false, true] => 'b',
                [true, true, true] => 'w',
                _ => 'k',
            };
            let found: String = [(1, 1), (right, 1), (1, bottom), (right, bottom)].map(name).iter().collect();
            assert_eq!(found, corners, "{}", path.display());
            assert_eq!(rgb(&path, false).unwrap().dimensions(), (32, 16), "published images stay as they are stored");
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(is_turned(&bytes), orientation != 1);
            let sized = Decode::new(Resize::None, true, &request(), &path).unwrap();
            assert_eq!((sized.width, sized.height), if is_tall { (16, 32) } else { (32, 16) });
        }
    }
}
