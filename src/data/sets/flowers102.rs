//! Oxford Flowers-102 (Nilsback and Zisserman 2008): images `jpg/image_00001.jpg`, …, labels 1 to 102 in
//! `imagelabels.mat`, and the three splits in `setid.mat`. See <https://www.robots.ox.ac.uk/~vgg/data/flowers/102/>.

use anyhow::{Context, Result, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::read::cifar;
use crate::data::read::class_folders::read_classes;
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::mat::{self, Array};
use crate::data::read::tables::Numbers;
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "flowers102",
    about: "Oxford Flowers-102: 102 classes of photographs, official train, val and test",
    fetch: "102flowers.tgz (unpacked), imagelabels.mat and setid.mat from \
            https://www.robots.ox.ac.uk/~vgg/data/flowers/102/: ROOT/jpg/image_00001.jpg, …, ROOT/imagelabels.mat, \
            ROOT/setid.mat",
    marks: &["flowers-102", "imagelabels.mat"],
    originals: Originals::Files {
        files: &[
            Original::new(
                "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/102flowers.tgz",
                344_862_509,
                "2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246",
            ),
            Original::new(
                "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/imagelabels.mat",
                502,
                "4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d",
            ),
            Original::new(
                "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/setid.mat",
                14_989,
                "46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd",
            ),
        ],
        terms: "no licence is stated; its authors ask to cite Nilsback and Zisserman 2008",
    },
    hub: Some(Hub {
        repository: "dpdl-benchmark/oxford_flowers102",
        config: "default",
        splits: &[(SplitName::Val, "validation")],
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(Flowers102::read(reader)),
    sample: Some(|reader| Box::new(Flowers102::read(reader))),
};

/// The folder that some archives have, and the files with the labels and the splits.
const FOLDER: &str = "flowers-102";
const LABELS: &str = "imagelabels.mat";
const SPLITS: &str = "setid.mat";

settings! {
    struct Flowers102 {
        root: DataRoot, because "the folder that holds jpg, imagelabels.mat and setid.mat";
        classes: Vec<String>, by |reader| read_classes(reader).unwrap_or_else(|| CLASSES.map(str::to_string).to_vec());
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    } then check
}

impl Flowers102 {
    fn check(&self, reader: &Reader) {
        if self.classes.len() != CLASSES.len() {
            reader.problem("classes", "must be 102 names");
        }
    }
}

impl Dataset for Flowers102 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.classes.clone())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(SplitName::ALL.to_vec())
    }

    fn published(&self) -> Published {
        Published::new(102, &[(SplitName::Train, 1_020), (SplitName::Val, 1_020), (SplitName::Test, 6_149)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        // The names of some classes are written in other ways there; their order is that of the published numbers.
        if let Some(listing) = ENTRY.hub()?.listing(&self.root, split, Numbers::Ordered(&self.classes))? {
            return self.files.load(listing, split, request);
        }
        let folder = cifar::folder(&self.root, FOLDER);
        let numbers = |file: &str, name: &str| -> Result<Vec<u32>> {
            let path = folder.join(file);
            let variables = mat::read(&path)?;
            let found = mat::variable(&variables, name, &path)?.whole();
            found.with_context(|| format!("{}: {name}", path.display()))
        };
        let published = numbers(LABELS, "labels")?;
        let variable = variable(split);
        let mut listing = Listing::default();
        for image in numbers(SPLITS, variable)? {
            let label = (image as usize).checked_sub(1).and_then(|at| published.get(at));
            let label = label.with_context(|| {
                let file = folder.join(SPLITS);
                format!(
                    "{}: {variable} names image {image}, but imagelabels.mat has {}",
                    file.display(),
                    published.len()
                )
            })?;
            ensure!(
                (1..=CLASSES.len()).contains(&(*label as usize)),
                "{}: image {image} has label {label}, but labels are 1 to 102",
                folder.join(LABELS).display()
            );
            listing.paths.push(folder.join(jpg(image as usize)));
            listing.labels.push(label - 1);
        }
        self.files.load(listing, split, request)
    }
}

/// Returns the file of an image, counted from 1.
fn jpg(image: usize) -> String {
    format!("jpg/image_{image:05}.jpg")
}

/// Returns the name of the list of a split's images.
fn variable(split: SplitName) -> &'static str {
    match split {
        SplitName::Train => "trnid",
        SplitName::Val => "valid",
        SplitName::Test => "tstid",
    }
}

impl SmallSet for Flowers102 {
    fn side(&self) -> u32 {
        560
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        let (mut labels, mut splits) = (Vec::new(), Vec::new());
        for split in SplitName::ALL {
            let (first, count) = (labels.len() + 1, sizes.of(split));
            splits.push((first..first + count).map(|image| image as u16).collect::<Vec<u16>>());
            labels.extend((0..count).map(|i| sizes.label(i) as u8 + 1));
        }
        for i in 0..labels.len() {
            put(&self.root.join(jpg(i + 1)), pictures.file(i)?)?;
        }
        mat::write(&self.root.join(LABELS), &[Array::Bytes("labels", vec![1, labels.len()], &labels)])?;
        let list = |(split, images)| Array::Words(variable(split), vec![1, <[u16]>::len(images)], images);
        let lists: Vec<Array> = SplitName::ALL.into_iter().zip(splits.iter().map(Vec::as_slice)).map(list).collect();
        mat::write(&self.root.join(SPLITS), &lists)
    }
}

/// The class names from the set's web page, in the order of the labels.
#[rustfmt::skip]
const CLASSES: [&str; 102] = [
    "pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea", "english marigold", "tiger lily",
    "moon orchid", "bird of paradise", "monkshood", "globe thistle", "snapdragon", "colt's foot", "king protea",
    "spear thistle", "yellow iris", "globe-flower", "purple coneflower", "peruvian lily", "balloon flower",
    "giant white arum lily", "fire lily", "pincushion flower", "fritillary", "red ginger", "grape hyacinth",
    "corn poppy", "prince of wales feathers", "stemless gentian", "artichoke", "sweet william", "carnation",
    "garden phlox", "love in the mist", "mexican aster", "alpine sea holly", "ruby-lipped cattleya", "cape flower",
    "great masterwort", "siam tulip", "lenten rose", "barbeton daisy", "daffodil", "sword lily", "poinsettia",
    "bolero deep blue", "wallflower", "marigold", "buttercup", "oxeye daisy", "common dandelion", "petunia",
    "wild pansy", "primula", "sunflower", "pelargonium", "bishop of llandaff", "gaura", "geranium", "orange dahlia",
    "pink-yellow dahlia", "cautleya spicata", "japanese anemone", "black-eyed susan", "silverbush",
    "californian poppy", "osteospermum", "spring crocus", "bearded iris", "windflower", "tree poppy", "gazania",
    "azalea", "water lily", "rose", "thorn apple", "morning glory", "passion flower", "lotus", "toad lily",
    "anthurium", "frangipani", "clematis", "hibiscus", "columbine", "desert-rose", "tree mallow", "magnolia",
    "cyclamen", "watercress", "canna lily", "hippeastrum", "bee balm", "ball moss", "foxglove", "bougainvillea",
    "camellia", "mallow", "mexican petunia", "bromelia", "blanket flower", "trumpet creeper", "blackberry lily",
];

#[cfg(test)]
mod tests {
    // The files were written with NumPy and SciPy 1.17:
    //   io.savemat("imagelabels.mat", {"labels": np.array([[102, 1, 1, 7, 7, 2]], "uint8")})
    //   io.savemat("setid.mat", {"trnid": np.array([[4, 1]], "uint16"), "valid": np.array([[2]], "uint16"),
    //                            "tstid": np.array([[3, 5, 6]], "uint16")}, do_compression=True)
    use super::*;
    use crate::data::testing::{error, fixture, grays, load, put, set};

    fn flowers() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        (1..=6).for_each(|i| put(root.path(), &format!("jpg/image_{i:05}.jpg"), i));
        for file in ["imagelabels.mat", "setid.mat"] {
            std::fs::copy(fixture(file), root.path().join(file)).unwrap();
        }
        root
    }

    #[test]
    fn the_three_splits() {
        let root = flowers();
        let set = set(&ENTRY, root.path(), "");
        let of = |split| load(&*set, split).map(|split| (grays(&split), split.labels)).unwrap();
        assert_eq!(of(SplitName::Train), (vec![4, 1], vec![6, 101]));
        assert_eq!(of(SplitName::Val), (vec![2], vec![0]));
        assert_eq!(of(SplitName::Test), (vec![3, 5, 6], vec![0, 6, 1]));
        let classes = set.classes().unwrap();
        assert_eq!((classes[0].as_str(), classes[101].as_str()), ("pink primrose", "blackberry lily"));
        assert_eq!(classes[5], "tiger lily");
        assert!(classes.iter().all(|name| name.split_whitespace().collect::<Vec<_>>().join(" ") == *name));
    }

    #[test]
    fn missing_files_are_named() {
        let root = flowers();
        let set = set(&ENTRY, root.path(), "");
        std::fs::remove_file(root.path().join("jpg/image_00005.jpg")).unwrap();
        assert!(error(&*set, SplitName::Test).contains("image_00005.jpg"));
        std::fs::copy(fixture("meta.mat"), root.path().join("setid.mat")).unwrap();
        assert!(error(&*set, SplitName::Test).contains("setid.mat: no variable `tstid`, only synsets"));
        std::fs::remove_file(root.path().join("imagelabels.mat")).unwrap();
        assert!(error(&*set, SplitName::Test).contains("imagelabels.mat: cannot read"));
    }
}
