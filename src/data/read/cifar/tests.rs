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
