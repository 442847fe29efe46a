//! The two layouts that CIFAR-10 and CIFAR-100 share. The binary version has records of label bytes and 3072
//! pixel bytes `[3, 32, 32]`. The Python version is a pickled dictionary of `data` `[N, 3072]` and a list of labels,
//! which is read without executing anything. See <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::files::put;
use crate::base::pickle::{self, Id, Pickle, Value};
use crate::data::small::planar;
use crate::data::subset::{Subset, kept};
use crate::data::{Inputs, Packed, Split, SplitName};

const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

/// The functions and classes in pickles of NumPy arrays, as written by Python 2 and 3 with NumPy 1 and 2.
const ARRAYS: [&str; 5] = [
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
];

/// The place of an image's label in a file.
pub struct Layout {
    /// The number of bytes before the pixels of a record.
    pub label_bytes: usize,
    /// The index of the label among these bytes.
    pub label_at: usize,
    /// The key of the list of labels in a pickled dictionary.
    pub label_key: &'static str,
    /// The number of classes; labels are below it.
    pub classes: usize,
}

/// Returns the folder with the files: `root/folder`, or `root` itself if that does not exist.
pub fn folder(root: &Path, folder: &str) -> PathBuf {
    let inside = root.join(folder);
    if inside.is_dir() { inside } else { root.to_path_buf() }
}

/// Returns the file `stem` of the binary version, or that of the Python version if only that exists. It may be in the
/// folder of its version or in `root` itself.
pub fn file(root: &Path, [binary, python]: [&str; 2], stem: &str) -> PathBuf {
    let with_extension = format!("{stem}.bin");
    let first = folder(root, binary).join(&with_extension);
    let others = [root.join(&with_extension), root.join(python).join(stem), root.join(stem)];
    if first.is_file() { first } else { others.into_iter().find(|file| file.is_file()).unwrap_or(first) }
}

/// Reads `files` one after the other, then selects the subset.
///
/// # Errors
/// Fails if a file is missing, is empty, does not have a whole number of records, or is not such a pickle, or if a
/// label is out of range.
pub fn load(name: &str, files: &[PathBuf], layout: &Layout, split: SplitName, subset: Option<Subset>) -> Result<Split> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for file in files {
        if file.extension().is_some_and(|extension| extension == "bin") {
            read(file, layout, &mut pixels, &mut labels)?;
        } else {
            read_pickle(file, layout, &mut pixels, &mut labels)?;
        }
    }
    let images = Inputs::Packed(Packed { pixels, height: SIDE, width: SIDE });
    let all = Split::new(format!("{name}/{split}"), images, labels);
    kept(all, subset, split).with_context(|| format!("data.{name}"))
}

fn read(file: &Path, layout: &Layout, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    let at = file.display();
    let bytes = crate::base::files::read_file(file).with_context(|| {
        format!("{at}: cannot read; name the folder of the binary or Python version as the root of the set")
    })?;
    let record = layout.label_bytes + PIXELS;
    let size = bytes.len();
    ensure!(
        size > 0 && size.is_multiple_of(record),
        "{at}: {size} bytes are no whole number of records of {record} bytes; fetch the binary version again"
    );
    pixels.reserve(size / record * PIXELS);
    for (i, record) in bytes.chunks_exact(record).enumerate() {
        let (head, image) = record.split_at(layout.label_bytes);
        let label = head[layout.label_at];
        if usize::from(label) >= layout.classes {
            bail!("{at}: record {i} has label {label}, but there are {} classes; the file is damaged", layout.classes);
        }
        labels.push(u32::from(label));
        pixels.extend_from_slice(image);
    }
    Ok(())
}

/// Reads a file of the Python version.
fn read_pickle(file: &Path, layout: &Layout, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<()> {
    let at = file.display();
    let bytes = crate::base::files::read_file(file).with_context(|| format!("{at}: cannot read"))?;
    let again = "fetch the Python version again";
    let batch = pickle::read(&bytes, &|name| ARRAYS.contains(&name));
    let batch = batch.with_context(|| format!("{at}: not a readable pickle; {again}"))?;
    let entry = |key: &str| batch.entry(batch.root(), key).with_context(|| format!("{at}: {again}"));
    let Value::List(found) = batch.value(entry(layout.label_key)?) else {
        bail!("{at}: `{}` is no list", layout.label_key)
    };
    for (i, label) in found.iter().enumerate() {
        let label = batch.integer(*label).and_then(|label| u32::try_from(label).ok());
        let label = label.filter(|&label| (label as usize) < layout.classes);
        let classes = layout.classes;
        labels.push(label.with_context(|| format!("{at}: image {i} has no label from 0 to {}", classes - 1))?);
    }
    let stored = array_bytes(&batch, entry("data")?)
        .with_context(|| format!("{at}: `data` is no array of bytes [N, {PIXELS}]"))?;
    let (size, needed) = (stored.len(), found.len() * PIXELS);
    ensure!(size == needed && size > 0, "{at}: `data` has {size} bytes, but its {} labels need {needed}", found.len());
    pixels.extend_from_slice(stored);
    Ok(())
}

/// Returns the bytes of a NumPy array of two dimensions, taken from its pickled state (version, shape, type, Fortran order, bytes).
fn array_bytes<'a>(batch: &'a Pickle, array: Id) -> Option<&'a [u8]> {
    let Value::Call { state: Some(state), .. } = batch.value(array) else { return None };
    let [_, shape, _, order, bytes] = batch.parts(*state)? else { return None };
    // Images [N, 32, 32, 3] would have as many bytes.
    let is_flat = batch.parts(*shape)?.len() == 2;
    match (batch.value(*order), batch.value(*bytes)) {
        (Value::Bool(false), Value::Bytes(bytes)) if is_flat => Some(bytes),
        _ => None,
    }
}

/// Returns the lines of `file` if it exists, otherwise the `published` names.
///
/// # Errors
/// Fails if the file has another number of names.
pub fn class_names(file: &Path, published: &[&str]) -> Result<Vec<String>> {
    if !file.exists() {
        return Ok(published.iter().map(|name| name.to_string()).collect());
    }
    let text = crate::base::files::read_text(file).with_context(|| format!("{}: cannot read", file.display()))?;
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let (found, wanted) = (names.len(), published.len());
    ensure!(found == wanted, "{}: {found} class names, expected {wanted}; correct or remove the file", file.display());
    Ok(names)
}

/// Writes a file of the binary version: of each image the bytes of its labels and its pixels `[3, 32, 32]`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(file: &Path, images: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
    put(file, images.flat_map(|(labels, pixels)| [labels, pixels].concat()).collect::<Vec<u8>>())
}

/// Writes made-up images, whose numbers `labels` turns into the bytes of their labels.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_made_up(file: &Path, images: Range<usize>, labels: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    write(file, images.map(|i| (labels(i), planar(i, SIDE))))
}

#[cfg(test)]
mod tests {
    //! Tests of the Python version. The binary version is tested with each set.

    use std::path::Path;

    use crate::data::sets::{cifar10, cifar100};
    use crate::data::testing::{error, fixture, load, set};
    use crate::data::{Dataset, SplitName};

    /// Returns two images as Python 2 pickled them for the published archive. Python 3's
    /// `pickle.loads(bytes, encoding="bytes")` reads them as
    /// `{b"labels": [6, 9], b"data": [[0, 1, 2, …], [100, 101, 102, …]] (2, 3072), …}`.
    fn python2() -> Vec<u8> {
        let pixels: Vec<u8> = (0..2).flat_map(|k| (0..3072).map(move |i| ((i + 100 * k) % 256) as u8)).collect();
        [
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(K\x06K\x09e".as_slice(),
        b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\x09U\x01b\x87q\x0aRq\x0b",
        b"(K\x01K\x02M\x00\x0c\x86q\x0ccnumpy\ndtype\nq\x0dU\x02u1K\x00K\x01\x87q\x0eRq\x0f",
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T",
        &(pixels.len() as u32).to_le_bytes(),
        &pixels,
        b"tbU\x09filenamesq\x10]q\x11(U\x05a.pngU\x05b.pngeu.",
    ]
    .concat()
    }

    fn cifar10(root: &Path, bytes: &[u8]) -> Box<dyn Dataset> {
        let folder = root.join("cifar-10-batches-py");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("data_batch_1"), bytes).unwrap();
        set(&cifar10::ENTRY, root, "batches = [1]")
    }

    #[test]
    fn the_published_pickles() {
        let root = tempfile::tempdir().unwrap();
        let set = cifar10(root.path(), &python2());
        let split = load(&*set, SplitName::Train).unwrap();
        assert_eq!((&split.labels[..], split.inputs.size()), (&[6, 9][..], (32, 32)));
        let pixels = split.inputs.gather(&[1, 0]).unwrap();
        assert_eq!([pixels[0], pixels[200], pixels[3072], pixels[3072 + 300]], [100, 44, 0, 44]);
        assert_eq!(set.classes().unwrap()[6], "frog");
        // The binary version is preferred.
        std::fs::create_dir(root.path().join("cifar-10-batches-bin")).unwrap();
        std::fs::write(root.path().join("cifar-10-batches-bin/data_batch_1.bin"), [3; 3073]).unwrap();
        assert_eq!(load(&*set, SplitName::Train).unwrap().labels, [3]);
    }

    /// cifar100_train.pkl was written with Python 3 and NumPy 2:
    /// `data = np.stack([(np.arange(3072) + 100 * i) % 256 for i in range(2)]).astype("uint8")`
    /// `pickle.dump({"data": data, "fine_labels": [3, 99], "coarse_labels": [1, 19]}, file, protocol=2)`
    #[test]
    fn fine_and_coarse_labels_of_a_pickle_of_python_3() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("cifar-100-python")).unwrap();
        std::fs::copy(fixture("cifar100_train.pkl"), root.path().join("cifar-100-python/train")).unwrap();
        let fine = load(&*set(&cifar100::ENTRY, root.path(), ""), SplitName::Train).unwrap();
        assert_eq!(fine.labels, [3, 99]);
        assert_eq!(fine.inputs.gather(&[1]).unwrap()[..3], [100, 101, 102]);
        let coarse = load(&*set(&cifar100::ENTRY, root.path(), "labels = \"coarse\""), SplitName::Train).unwrap();
        assert_eq!(coarse.labels, [1, 19]);
        let text = error(&*set(&cifar100::ENTRY, root.path(), ""), SplitName::Test);
        assert!(text.contains("test.bin: cannot read"), "{text}");
    }

    #[test]
    fn other_pickles_are_refused_and_executed_never() {
        let root = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8]| error(&*cifar10(root.path(), bytes), SplitName::Train);
        let whole = python2();
        for length in [0, 1, 40, 200, 3000, whole.len() - 1] {
            assert!(refused(&whole[..length]).contains("data_batch_1: not a readable pickle"), "{length}");
        }
        // The bytes that pickle.dumps writes for an object whose __reduce__ calls os.system("touch FILE").
        let touched = root.path().join("touched");
        let call = format!("cos\nsystem\n(S'touch {}'\ntR.", touched.display());
        assert!(refused(call.as_bytes()).contains("data_batch_1: not a readable pickle"));
        assert!(refused(call.as_bytes()).contains("it names `os.system`"));
        assert!(!touched.exists());
        assert!(refused(b"].").contains("no dictionary"));
        assert!(refused(b"}.").contains("no entry `labels`"));
        // Lists nested so deeply that a recursive reader would overflow the stack.
        let nested = [&b"\x80\x02"[..], &b"]".repeat(200_000), &b"a".repeat(199_999), b"."].concat();
        assert!(refused(&nested).contains("data_batch_1: fetch the Python version again: no dictionary"));
        let mut label = whole.clone();
        let at = whole.windows(4).position(|bytes| bytes == b"K\x06K\x09").unwrap();
        label[at + 3] = 10;
        assert!(refused(&label).contains("data_batch_1: image 1 has no label from 0 to 9"));
        label.drain(at + 2..at + 4); // one label less
        assert!(refused(&label).contains("`data` has 6144 bytes, but its 1 labels need 3072"), "{}", refused(&label));
    }
}
