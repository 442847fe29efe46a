//! The samples of a data set whose files its user makes (lists, lines of JSON, tables, archives, folders of classes), as a hash by which
//! a later change of these files is noticed.

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::dataset::Dataset;
use super::request::Request;
use super::split::SplitName;
use crate::base::hash::hex;
use crate::machine::cores;

/// Returns the SHA-256 hash of the names of the classes and of the samples of `splits`: their labels with the texts, or with the names
/// and sizes of the files. No image is opened, so that another image of the same name and size is not noticed.
///
/// # Errors
/// Fails if the set cannot be read, or lacks one of the splits.
pub fn contents(dataset: &dyn Dataset, splits: &[SplitName]) -> Result<String> {
    let listing = Request::listing(cores(), &|_, _| ());
    let mut hash = Sha256::new();
    for class in dataset.classes()? {
        hash.update((class.len() as u64).to_le_bytes());
        hash.update(class);
    }
    for name in splits {
        hash.update(dataset.load(*name, &listing)?.fingerprint());
    }
    Ok(hex(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::DATASETS;
    use crate::data::testing::{put, set, write};

    fn of(key: &str, root: &Path) -> String {
        let entry = DATASETS.iter().find(|entry| entry.key == key).unwrap();
        contents(&*set(entry, root, ""), &[SplitName::Train]).unwrap()
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

    #[test]
    fn a_new_file_of_a_folder_matters() {
        let root = tempfile::tempdir().unwrap();
        ["train/a/0.bmp", "train/b/1.bmp", "test/a/2.bmp"].iter().for_each(|file| put(root.path(), file, 1));
        let before = of("image-folder", root.path());
        put(root.path(), "train/b/3.bmp", 1);
        assert_ne!(before, of("image-folder", root.path()));
    }
}
