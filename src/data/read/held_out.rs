//! A test split drawn from class folders that have none: a share of each class, chosen by the names of the files.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::image_files::Listing;

/// Returns the positions of the test images and of all others, ascending. Of each class the share nearest to `share` is
/// drawn, but at least one image, and one is left.
///
/// The draw depends on the seed and on the path of each file below `root`, with the folder of its class. So it is the same
/// on every machine and in any order of files, and a file that is added changes the place of few others.
pub fn draw(listing: &Listing, root: &Path, share: f64, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let classes = listing.labels.iter().copied().max().map_or(0, |last| last + 1);
    let mut is_test = vec![false; listing.paths.len()];
    for class in 0..classes {
        let mut own: Vec<usize> = (0..is_test.len()).filter(|at| listing.labels[*at] == class).collect();
        own.sort_by_cached_key(|at| key(&listing.paths[*at], root, seed));
        let wanted = (share * own.len() as f64).round() as usize;
        let count = wanted.max(1).min(own.len().saturating_sub(1));
        own[..count].iter().for_each(|at| is_test[*at] = true);
    }
    (0..is_test.len() as u32).partition(|at| is_test[*at as usize])
}

/// Returns the SHA-256 of the seed and of the parts of a file's path below `root`.
fn key(path: &Path, root: &Path, seed: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in path.strip_prefix(root).unwrap_or(path) {
        hash.update([0]);
        hash.update(part.as_encoded_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(root: &str, counts: &[usize]) -> Listing {
        let files = counts.iter().enumerate().flat_map(|(class, count)| (0..*count).map(move |file| (class, file)));
        let (paths, labels) =
            files.map(|(class, file)| (format!("{root}/c{class}/{file}.png").into(), class as u32)).unzip();
        Listing { paths, labels, groups: None, members: None }
    }

    #[test]
    fn every_class_gives_its_share() {
        let files = listing("a", &[10, 3, 2, 1]);
        let (test, train) = draw(&files, Path::new("a"), 0.2, 0);
        let count = |of: &[u32], class: u32| of.iter().filter(|at| files.labels[**at as usize] == class).count();
        assert_eq!([0, 1, 2, 3].map(|class| count(&test, class)), [2, 1, 1, 0], "a single image stays in training");
        assert_eq!([0, 1, 2, 3].map(|class| count(&train, class)), [8, 2, 1, 1]);
    }

    /// ```python
    /// import hashlib
    /// key = lambda f: hashlib.sha256((7).to_bytes(8, "little") + b"\0c0\0" + f"{f}.png".encode()).digest()
    /// print(sorted(sorted(range(10), key=key)[:3]))
    /// ```
    #[test]
    fn the_draw_is_that_of_the_formula_whatever_the_root() {
        let drawn = |root: &str| draw(&listing(root, &[10]), Path::new(root), 0.3, 7).0;
        assert_eq!(drawn("a"), [3, 5, 6]);
        assert_eq!(drawn("/somewhere/else"), drawn("a"));
    }
}
