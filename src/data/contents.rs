//! The samples of a data set whose files its user makes (lists, lines of JSON, tables, archives, folders of classes), as a hash by which
//! a later change of these files is noticed.

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::dataset::Dataset;
use super::request::Request;
use super::split::SplitName;
use crate::base::hash::hex;
use crate::machine::cores;

/// Returns the SHA-256 hash of the names of the classes and of the samples of splits, given by [`Split::listing`](super::Split::listing):
/// their labels with the texts, or with the names and sizes of the files, so that another image of the same name and size is not noticed.
pub fn contents<'a>(classes: &[String], listings: impl IntoIterator<Item = &'a String>) -> String {
    let mut hash = Sha256::new();
    for class in classes {
        hash.update((class.len() as u64).to_le_bytes());
        hash.update(class);
    }
    listings.into_iter().for_each(|listing| hash.update(listing));
    hex(hash.finalize())
}

/// Lists the samples of `splits`, of which no image is decoded, and returns the same hash.
///
/// # Errors
/// Fails if the set cannot be read, or lacks one of the splits.
pub fn listed(dataset: &dyn Dataset, splits: &[SplitName]) -> Result<String> {
    let request = Request { keeps_corrupt: true, ..Request::listing(cores(), &|_, _| ()) };
    let listings =
        splits.iter().map(|name| Ok(dataset.load(*name, &request)?.listing())).collect::<Result<Vec<_>>>()?;
    Ok(contents(&dataset.classes()?, &listings))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::data::DATASETS;
    use crate::data::testing::{REQUEST, put, set, write};

    fn of(key: &str, root: &Path) -> String {
        let entry = DATASETS.iter().find(|entry| entry.key == key).unwrap();
        listed(&*set(entry, root, ""), &[SplitName::Train]).unwrap()
    }

    #[test]
    fn labels_classes_and_files_of_a_list_matter_and_test_images_do_not() {
        let root = tempfile::tempdir().unwrap();
        (0..4).for_each(|i| put(root.path(), &format!("{i}.bmp"), i));
        let mut known = Vec::new();
        for rows in ["0.bmp,a,train\n1.bmp,b,train", "0.bmp,b,train\n1.bmp,a,train", "0.bmp,a,train\n1.bmp,c,train"] {
            write(root.path(), "list.csv", &format!("path,label,split\n{rows}\n2.bmp,a,test\n"));
            let before = of("list", root.path());
            write(root.path(), "list.csv", &format!("path,label,split\n{rows}\n3.bmp,a,test\n"));
            assert_eq!(before, of("list", root.path()), "another test image");
            known.push(before);
        }
        write(root.path(), "list.csv", "path,label,split\n0.bmp,a,train\n1.bmp,b,train\n3.bmp,b,train\n");
        known.push(of("list", root.path()));
        let distinct: std::collections::BTreeSet<&String> = known.iter().collect();
        assert_eq!(distinct.len(), 4, "{known:?}");
    }

    /// Training lists its files once: what it decoded into memory, reads when needed, or left out, gives the hash of the listing.
    #[test]
    fn the_way_of_reading_does_not_matter() {
        let root = tempfile::tempdir().unwrap();
        ["train/a/0.bmp", "train/b/1.bmp", "train/b/2.bmp"].iter().for_each(|file| put(root.path(), file, 1));
        write(root.path(), "train/a/3.bmp", "no image");
        let set =
            set(DATASETS.iter().find(|entry| entry.key == "image-folder").unwrap(), root.path(), "skip_corrupt = true");
        let known = listed(&*set, &[SplitName::Train]).unwrap();
        for memory_bytes in [0, 1 << 20] {
            let split = set.load(SplitName::Train, &Request { memory_bytes, ..REQUEST }).unwrap();
            assert_eq!((split.len(), split.corrupt.as_ref().unwrap().count), (3, 1));
            assert_eq!(contents(&set.classes().unwrap(), [&split.listing()]), known);
        }
        let decoded = AtomicUsize::new(0);
        let progress = |_, _| {
            decoded.fetch_add(1, Ordering::Relaxed);
        };
        let split =
            set.load(SplitName::Train, &Request { keeps_corrupt: true, progress: &progress, ..REQUEST }).unwrap();
        assert_eq!((split.len(), decoded.into_inner()), (4, 0), "nothing is decoded to list");
    }

    #[test]
    fn a_new_file_of_a_folder_matters() {
        let root = tempfile::tempdir().unwrap();
        ["train/a/0.bmp", "train/b/1.bmp", "test/a/2.bmp"].iter().for_each(|file| put(root.path(), file, 1));
        let before = of("image-folder", root.path());
        put(root.path(), "train/b/3.bmp", 1);
        assert_ne!(before, of("image-folder", root.path()));
    }
}
