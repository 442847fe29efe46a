//! SVHN (Netzer et al. 2011), format 2: 32x32 house numbers in `train_32x32.mat` and `test_32x32.mat`. `X` has the
//! shape `[32, 32, 3, N]`, and `y` holds labels from 1 to 10, where 10 stands for the digit 0. See
//! <http://ufldl.stanford.edu/housenumbers/>.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::data::read::mat::{self, Array, Value, row_major};
use crate::data::read::tables::{Numbers, PackedSplit};
use crate::data::small::{Sizes, SmallSet, planar};
use crate::data::subset::kept;
use crate::data::{Dataset, Entry, Hub, Inputs, Packed, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "svhn",
    about: "SVHN, cropped digits: 10 classes, 32x32, official train and test",
    fetch: "train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers/: ROOT/train_32x32.mat, …",
    marks: &["train_32x32.mat"],
    originals: Originals::Files {
        files: &[
            Original::new(
                "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
                182_040_794,
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            Original::new(
                "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                64_275_384,
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ],
        terms: "for non-commercial use only; its authors ask to cite Netzer et al. 2011",
    },
    hub: Some(Hub {
        repository: "ufldl-stanford/svhn",
        config: "cropped_digits",
        splits: &[],
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(Svhn::read(reader)),
    sample: Some(|reader| Box::new(Svhn::read(reader))),
};

const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

settings! {
    struct Svhn {
        root: DataRoot, because "the folder that holds train_32x32.mat and test_32x32.mat";
        subset: Option<Subset>, by Subset::read;
    }
}

impl Dataset for Svhn {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok((0..10).map(|digit| digit.to_string()).collect())
    }

    fn published(&self) -> Published {
        Published::new(10, &[(SplitName::Train, 73_257), (SplitName::Test, 26_032)])
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        if split == SplitName::Val {
            bail!("svhn has no split `val`; set data.svhn.validation, say to 0.2");
        }
        let (classes, root, subset) = (self.classes()?, &*self.root, self.subset);
        let asked = PackedSplit { key: ENTRY.key, root, split, subset, classes: Numbers::Named(&classes), side: SIDE };
        if let Some(split) = ENTRY.hub()?.packed(asked, request)? {
            return Ok(split);
        }
        let file = self.file(split);
        let labels = labels(&file)?;
        let images = Inputs::Packed(Packed { pixels: labels.1, height: SIDE, width: SIDE });
        let all = Split::new(format!("svhn/{split}"), images, labels.0);
        kept(all, self.subset, split).context("data.svhn")
    }
}

impl Svhn {
    fn file(&self, split: SplitName) -> PathBuf {
        self.root.join(format!("{split}_32x32.mat"))
    }
}

/// Returns the labels `[N]` and the pixels `[N, 3, 32, 32]`.
fn labels(file: &Path) -> Result<(Vec<u32>, Vec<u8>)> {
    let at = file.display();
    let variables = mat::read(file)?;
    let published = mat::variable(&variables, "y", file)?.whole().with_context(|| format!("{at}: y"))?;
    let Value::Bytes(shape, stored) = mat::variable(&variables, "X", file)? else {
        bail!("{at}: X is no array of bytes: fetch it again");
    };
    let count = published.len();
    // MATLAB drops a last dimension of size 1.
    let wanted = [SIDE, SIDE, 3, count];
    let fits = *shape == wanted || (count == 1 && *shape == wanted[..3]);
    ensure!(fits && count > 0, "{at}: X has the shape {shape:?}, but {count} labels need {wanted:?}: fetch it again");
    let digit = |(i, &label): (usize, &u32)| {
        ensure!((1..=10).contains(&label), "{at}: image {i} has label {label}, but labels are 1 to 10: fetch it again");
        Ok(label % 10)
    };
    let digits = published.iter().enumerate().map(digit).collect::<Result<_>>()?;
    let pixels = stored.chunks_exact(PIXELS / 3).flat_map(|channel| row_major(channel, SIDE)).collect();
    Ok((digits, pixels))
}

impl SmallSet for Svhn {
    fn side(&self) -> u32 {
        SIDE as u32
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        for split in [SplitName::Train, SplitName::Test] {
            let count = sizes.of(split);
            // An array of no images has no shape that MATLAB would write.
            if count == 0 {
                continue;
            }
            // Rows and columns of made-up pictures may change places.
            let pixels: Vec<u8> = (0..count).flat_map(|i| planar(i, SIDE)).collect();
            let labels: Vec<u8> =
                (0..count).map(|i| if sizes.label(i) == 0 { 10 } else { sizes.label(i) as u8 }).collect();
            let images = Array::Bytes("X", vec![SIDE, SIDE, 3, count], &pixels);
            mat::write(&self.file(split), &[images, Array::Bytes("y", vec![count, 1], &labels)])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    // svhn.mat was written with NumPy and SciPy 1.17:
    //   r, c, k, n = np.indices((32, 32, 3, 2))
    //   x = (r * 7 + c * 3 + k * 11 + n * 50) % 256
    //   io.savemat("svhn.mat", {"X": x.astype("uint8"), "y": np.array([[10], [3]], "uint8")}, do_compression=True)
    use super::*;
    use crate::data::testing::{error, fixture, load, set};

    #[test]
    fn images_are_turned_row_major_and_ten_is_the_digit_0() {
        let root = tempfile::tempdir().unwrap();
        std::fs::copy(fixture("svhn.mat"), root.path().join("test_32x32.mat")).unwrap();
        let set = set(&ENTRY, root.path(), "");
        let split = load(&*set, SplitName::Test).unwrap();
        assert_eq!((&split.labels[..], split.inputs.size()), (&[0, 3][..], (32, 32)));
        let pixels = split.inputs.gather(&[0, 1]).unwrap();
        for (image, channel, row, column) in [(0, 0, 0, 0), (0, 2, 31, 5), (1, 1, 9, 30), (1, 0, 0, 1)] {
            let expected = (row * 7 + column * 3 + channel * 11 + image * 50) % 256;
            assert_eq!(usize::from(pixels[image * PIXELS + channel * 1024 + row * 32 + column]), expected);
        }
        assert!(error(&*set, SplitName::Train).contains("train_32x32.mat: cannot read"));
        assert!(error(&*set, SplitName::Val).contains("no split `val`"));
    }

    #[test]
    fn files_of_other_sets_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::copy(fixture("imagelabels.mat"), root.path().join("train_32x32.mat")).unwrap();
        let text = error(&*set(&ENTRY, root.path(), ""), SplitName::Train);
        assert!(text.contains("train_32x32.mat: no variable `y`, only labels"), "{text}");
    }
}
