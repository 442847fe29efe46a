// The files were written with NumPy and SciPy 1.17:
//   import numpy as np, scipy.io as io
//   io.savemat("kinds.mat", {"whole": np.array([[1, 2, 3], [4, 5, 300]], "int16"), "real": np.array([0.5, -2.0]),
//              "text": "café", "complex": np.array([1j]), "cell": np.array([1, "a"], object)})
//   synsets = np.zeros((4, 1), [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)])
//   for i, row in enumerate([(1., "n02119789", "kit fox"), (2., "n02100735", "English setter"),
//                            (3., "n01440764", "tench"), (1001., "n00004475", "organism")]):
//       synsets[i, 0] = row
//   io.savemat("meta.mat", {"synsets": synsets}, do_compression=True)
use super::*;
use crate::data::testing::fixture;

#[test]
fn kinds_of_variables() {
    let all = read(&fixture("kinds.mat")).unwrap();
    // Values are stored column by column.
    assert_eq!(all["whole"], Value::Numbers(vec![2, 3], vec![1.0, 4.0, 2.0, 5.0, 3.0, 300.0]));
    assert_eq!(all["whole"].whole().unwrap(), [1, 4, 2, 5, 3, 300]);
    assert_eq!(all["real"], Value::Numbers(vec![1, 2], vec![0.5, -2.0]));
    assert!(all["real"].whole().unwrap_err().to_string().contains("0.5 is no whole number"));
    assert_eq!(all["text"], Value::Text("café".into()));
    assert_eq!((&all["complex"], &all["cell"]), (&Value::Other, &Value::Other));
    let text = variable(&all, "labels", Path::new("kinds.mat")).unwrap_err().to_string();
    assert_eq!(text, "kinds.mat: no variable `labels`, only cell, complex, real, text, whole: fetch it again");
}

#[test]
fn structs_in_a_compressed_file() {
    let all = read(&fixture("meta.mat")).unwrap();
    let Value::Structs(synsets) = &all["synsets"] else { panic!("{all:?}") };
    assert_eq!(synsets.len(), 4);
    assert_eq!(synsets[3]["ILSVRC2012_ID"].whole().unwrap(), [1001]);
    assert_eq!(
        (&synsets[1]["WNID"], &synsets[1]["words"]),
        (&Value::Text("n02100735".into()), &Value::Text("English setter".into()))
    );
}

#[test]
fn a_compressed_variable_that_fills_the_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.mat");
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 17 << 20];
    let tag = [MATRIX.to_le_bytes(), (zeros.len() as u32).to_le_bytes()].concat();
    std::io::Write::write_all(&mut packer, &[tag, zeros].concat()).unwrap();
    let packed = packer.finish().unwrap();
    let size = packed.len();
    write(&file, &[]).unwrap();
    let header = std::fs::read(&file).unwrap();
    let tag = [COMPRESSED.to_le_bytes(), (size as u32).to_le_bytes()].concat();
    std::fs::write(&file, [header, tag, packed].concat()).unwrap();
    let error = format!("{:#}", read(&file).unwrap_err());
    let rule =
        format!("a compressed variable of {size} bytes becomes more than 16777216, which no images or labels do");
    assert!(error.contains(&rule), "{error}");
}

#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.mat");
    let error = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        read(&file).map_or_else(|error| format!("{error:#}"), |all| format!("{} variables", all.len()))
    };
    for name in ["kinds.mat", "meta.mat", "imagelabels.mat"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let count = read(&fixture(name)).unwrap().len();
        for length in 0..whole.len() {
            let text = error(&whole[..length]);
            let fewer = text.strip_suffix(" variables").is_some_and(|found| found.parse::<usize>().unwrap() < count);
            // A file that ends between two variables is valid; a missing variable is then reported by name.
            assert!(text.starts_with(&file.display().to_string()) || fewer, "{name} cut to {length}: {text}");
        }
        for at in 128..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            error(&bytes); // The bytes may be read as something else, but must not panic.
        }
    }
    assert!(error(&[b"MATLAB 7.3 MAT-file".as_slice(), &[0; 200]].concat()).contains("it is of version 7.3"));
    assert!(error(&[7; 300]).contains("its header is not that of version 5"));
}
