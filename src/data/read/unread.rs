//! Files of images that bella does not decode, which would be missed in a folder without a word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::base::small::counted;

/// The endings of such files, in small letters.
const ENDINGS: [&str; 18] = [
    "arw", "avif", "cr2", "cr3", "dng", "exr", "hdr", "heic", "heif", "ico", "j2k", "jp2", "jxl", "nef", "psd", "raf",
    "svg", "tga",
];

/// Returns what is to be said of those among other files of a folder that are images; `None` if none is.
pub fn images_among(others: &[PathBuf], folder: &Path) -> Option<String> {
    let ending = |path: &PathBuf| path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let found: Vec<String> =
        others.iter().filter_map(ending).filter(|ending| ENDINGS.contains(&ending.as_str())).collect();
    let endings: BTreeSet<String> = found.iter().map(|ending| format!(".{ending}")).collect();
    (!found.is_empty()).then(|| {
        format!(
            "{}: {} in a form that bella does not decode ({}): save what you need as JPEG or PNG",
            folder.display(),
            counted(found.len(), "image is", "images are"),
            endings.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_of_phones_are_named_and_notes_are_not() {
        let of = |names: &[&str]| {
            let others: Vec<PathBuf> = names.iter().map(|name| Path::new("a/cat").join(name)).collect();
            images_among(&others, Path::new("a"))
        };
        assert_eq!(of(&["boxes.txt", "Thumbs.db", "heic"]), None);
        assert_eq!(
            of(&["1.HEIC", "2.heic", "3.avif", "notes.md"]).unwrap(),
            "a: 3 images are in a form that bella does not decode (.avif, .heic): save what you need as JPEG or PNG"
        );
    }
}
