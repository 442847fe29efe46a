//! Photos with an orientation.

use super::*;

/// Returns a file of EXIF data with an orientation alone.
fn exif(orientation: u8) -> Vec<u8> {
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
    [&b"II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat()
}

/// Programs write the number with other types, twice, or in two segments; an impossible one is none, whatever XMP says. The sizes are
/// those of PIL.ImageOps.exif_transpose, Pillow 13.0.0.
#[test]
fn orientations_are_read_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let jpeg = std::fs::read(saved(folder.path(), "a.jpg", RgbImage::new(32, 16))).unwrap();
    let with = |kind: u8, count: u8, number: u8| {
        let mut exif = exif(number);
        (exif[12], exif[14]) = (kind, count);
        [&b"Exif\0\0"[..], &exif].concat()
    };
    let xmp = b"http://ns.adobe.com/xap/1.0/\0<a tiff:Orientation=\"6\"/>".to_vec();
    let halves = |exif: &[u8]| vec![exif[..20].to_vec(), [&b"Exif\0\0"[..], &exif[20..]].concat()];
    let prefixed = |exif: &[u8]| vec![[&b"Exif\0\0"[..], exif].concat()];
    for (segments, is_tall) in [
        (vec![with(3, 1, 6)], true),
        (vec![with(3, 2, 6)], true),
        (vec![with(4, 1, 6)], true),
        (vec![with(8, 1, 6)], true),
        (vec![with(7, 1, 6)], false),
        (vec![with(3, 0, 6)], false),
        (vec![with(3, 1, 9)], false),
        (vec![with(3, 1, 0), xmp.clone()], false),
        (vec![b"http://ns.adobe.com/xap/1.0/\0<a/>".to_vec(), xmp], true),
        (halves(&with(3, 1, 6)), true),
        (prefixed(&with(3, 1, 6)), true),
    ] {
        let segment =
            |content: &Vec<u8>| [&[0xff, 0xe1][..], &(content.len() as u16 + 2).to_be_bytes(), content].concat();
        let bytes = [&jpeg[..2], &segments.iter().flat_map(segment).collect::<Vec<_>>(), &jpeg[2..]].concat();
        let found = rgb_of(&bytes, Path::new("a.jpg"), true).unwrap();
        assert_eq!(found.width() == 16, is_tall, "{segments:?}");
    }
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
            let sized = Decode::new(Resize::None, true, &REQUEST, &path).unwrap();
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

/// An orientation of a PNG may stand behind its pixels, as exiftool writes it, in a text, as ImageMagick does, or begin like that of a JPEG.
/// Each turns the image in Pillow 13.0.0.
#[test]
fn orientations_of_a_png_count_wherever_they_stand() {
    let plain = exif(6);
    let digits: String = plain.iter().map(|byte| format!("{byte:02x}")).collect();
    let profile = [b"Raw profile type exif\0", format!("\nexif\n{:8}\n{digits}\n", plain.len()).as_bytes()].concat();
    let packed = |content: &[u8]| {
        let mut bytes = Vec::new();
        flate2::read::ZlibEncoder::new(content, flate2::Compression::fast()).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let name = profile.iter().position(|byte| *byte == 0).unwrap() + 1;
    let packed_profile = [&profile[..name], &[0], &packed(&profile[name..])].concat();
    let xmp = b"<rdf:Description tiff:Orientation=\"6\"/>";
    let xmp_text = [b"XML:com.adobe.xmp\0\0\0\0\0", &xmp[..]].concat();
    let packed_xmp = [b"XML:com.adobe.xmp\0\x01\0\0\0", &packed(xmp)[..]].concat();
    let prefixed = [b"Exif\0\0", &plain[..]].concat();
    for (kind, content) in [
        (b"eXIf", &plain),
        (b"eXIf", &prefixed),
        (b"tEXt", &profile),
        (b"zTXt", &packed_profile),
        (b"iTXt", &xmp_text),
        (b"iTXt", &packed_xmp),
    ] {
        let chunk = [(kind, &content[..])];
        for bytes in [gray_png(&[1, 2], &chunk, &[]), gray_png(&[1, 2], &[], &chunk)] {
            let size = |turns| rgb_of(&bytes, Path::new("a.png"), turns).unwrap().dimensions();
            assert_eq!((size(false), size(true)), ((2, 1), (1, 2)), "{}", String::from_utf8_lossy(content));
        }
    }
    // Neither a text of another name, nor a chunk that is cut off or says nothing of an orientation, turns anything.
    for (kind, content) in [
        (b"tEXt", &b"Comment\0tiff:Orientation=\"6\""[..]),
        (b"eXIf", b"II*\0"),
        (b"zTXt", b"Raw profile type exif\0\0x"),
    ] {
        let bytes = gray_png(&[1, 2], &[(kind, content)], &[]);
        assert_eq!(rgb_of(&bytes, Path::new("a.png"), true).unwrap().dimensions(), (2, 1));
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
            let sized = Decode::new(Resize::None, turns, &REQUEST, &path).unwrap();
            assert_eq!((sized.width, sized.height), (size.0 as usize, size.1 as usize));
        }
    }
}

/// The colours of `Image.open(file).convert("RGB")`, Pillow 13.0.0, which divides colours by an alpha that they are multiplied by.
#[test]
fn colours_that_are_multiplied_by_their_alpha_are_divided_by_it() {
    const PIXELS: [[u8; 4]; 3] = [[100, 50, 200, 128], [10, 20, 30, 0], [9, 8, 7, 255]];
    for (extra, colors) in [(1, [[199, 99, 255], [0; 3], [9, 8, 7]]), (2, [[100, 50, 200], [10, 20, 30], [9, 8, 7]])] {
        // Tag, type, count and value or place: size, bits (8 each, behind the directory), compression, RGB, strip, channels, rows, bytes, alpha.
        let entries: [(u16, u16, u32, u32); 10] = [
            (256, 3, 1, 3),
            (257, 3, 1, 1),
            (258, 3, 4, 134),
            (259, 3, 1, 1),
            (262, 3, 1, 2),
            (273, 4, 1, 142),
            (277, 3, 1, 4),
            (278, 3, 1, 1),
            (279, 4, 1, 12),
            (338, 3, 1, extra),
        ];
        let entry = |(tag, kind, count, value): (u16, u16, u32, u32)| {
            [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &value.to_le_bytes()].concat()
        };
        let directory: Vec<u8> = entries.into_iter().flat_map(entry).collect();
        let bytes =
            [&b"II*\0\x08\0\0\0\x0a\0"[..], &directory, &[0; 4], &[8, 0].repeat(4), PIXELS.as_flattened()].concat();
        let found = rgb_of(&bytes, Path::new("a.tif"), false).unwrap();
        assert_eq!(found.pixels().map(|pixel| pixel.0).collect::<Vec<_>>(), colors);
    }
}
