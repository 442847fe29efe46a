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

/// A photo whose orientation XMP alone states is turned as Pillow 13.0.0 turns it; where EXIF states one, that counts.
#[test]
fn orientations_of_xmp_count_where_exif_has_none() {
    let folder = tempfile::tempdir().unwrap();
    for (xmp, exif, is_tall) in [
        ("<rdf:Description tiff:Orientation=\"6\"/>", None, true),
        ("<tiff:Orientation>8</tiff:Orientation>", None, true),
        ("<rdf:Description tiff:Orientation=\"6\"/>", Some(1), false),
        ("<rdf:Description tiff:Orientation=\"9\"/>", None, false),
        ("<rdf:Description/>", None, false),
    ] {
        let path = saved(folder.path(), "a.jpg", RgbImage::new(32, 16));
        let bytes = std::fs::read(&path).unwrap();
        let segment =
            |content: Vec<u8>| [&[0xff, 0xe1][..], &(content.len() as u16 + 2).to_be_bytes(), &content].concat();
        let exif = exif.map_or(Vec::new(), |exif| segment([&b"Exif\0\0"[..], &self::exif(exif)].concat()));
        let xmp = segment([b"http://ns.adobe.com/xap/1.0/\0", xmp.as_bytes()].concat());
        std::fs::write(&path, [&bytes[..2], &exif, &xmp, &bytes[2..]].concat()).unwrap();
        assert_eq!(rgb(&path, true).unwrap().width() == 16, is_tall);
        assert_eq!(rgb(&path, false).unwrap().width(), 32);
    }
}

/// Returns a gray TIFF of three columns and two rows, without compression, that states an orientation.
fn tiff(orientation: u32) -> Vec<u8> {
    const ENTRIES: [(u16, u16, u32); 9] = [
        (256, 3, 3),
        (257, 3, 2),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 134),
        (277, 3, 1),
        (278, 3, 2),
        (279, 4, 6),
    ];
    let mut entries = ENTRIES.to_vec();
    entries.insert(6, (274, 3, orientation));
    let entry = |(tag, kind, value): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &1u32.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let entries: Vec<u8> = entries.into_iter().flat_map(entry).collect();
    [&b"II*\0\x08\0\0\0\x0a\0"[..], &entries, &[0; 4], &[0, 40, 80, 120, 160, 200]].concat()
}

/// Pillow turns TIFF files when it opens them. The grays are those of `Image.open(file).convert("L")`, Pillow 13.0.0.
#[test]
fn tiff_files_are_turned_whoever_asks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tif");
    for (orientation, size, grays) in [
        (1, (3, 2), [0, 40, 80, 120, 160, 200]),
        (3, (3, 2), [200, 160, 120, 80, 40, 0]),
        (6, (2, 3), [120, 0, 160, 40, 200, 80]),
    ] {
        std::fs::write(&path, tiff(orientation)).unwrap();
        for turns in [false, true] {
            let found = rgb(&path, turns).unwrap();
            assert_eq!(found.dimensions(), size, "{orientation}");
            assert_eq!(found.pixels().map(|pixel| pixel.0[0]).collect::<Vec<u8>>(), grays, "{orientation}");
            let sized = Decode::new(Resize::None, turns, &request(), &path).unwrap();
            assert_eq!((sized.width, sized.height), (size.0 as usize, size.1 as usize));
        }
    }
}
