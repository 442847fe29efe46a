//! The formats that bella reads, each with files that are fine and with what reads them.

use std::path::{Path, PathBuf};

use bella::base::tensor_file::State;
use bella::data::check::{Decoding, Extent, Scope, check};
use bella::data::read::{mat, npy};
use bella::data::{Centre, Interpolation, Request};
use bella::experiment::{DataSpec, Experiment, load_config};
use bella::model::Loaded;
use bella::model::archive::Archive;
use bella::posterior::Stored;
use bella::predictions::Predictions;
use bella::report::{Sources, tables};
use bella::results::store;
use bella::run::{Record, RunFolder};
use bella::schema::Tree;
use tch::Device;

use crate::common::{Place, fixture, repository, tiny};
use crate::languages;
use crate::reference::{SCENARIOS, files, finished};

/// A format.
pub struct Target {
    pub name: &'static str,
    /// The files that are damaged, one at a time.
    pub files: Vec<PathBuf>,
    pub damage: Damage,
    /// Reads everything that the damaged file belongs to, and returns the errors.
    pub open: Box<Open>,
}

/// The damages that a format gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Bytes,
    /// Mostly those of one entry of a zip file.
    Entries,
    /// The file is hidden in a container that can be read in two ways, which may be damaged besides.
    Hidden,
}

/// Reads what a file belongs to.
type Open = dyn Fn(&Path) -> Result<(), String>;

/// Writes files by a function that places them in a folder.
type Make<'a> = dyn Fn(&dyn Fn(&str) -> String) -> Vec<PathBuf> + 'a;

/// All formats, in folders of `place`.
pub fn all(place: &Place) -> Vec<Target> {
    let mut all = data_sets(place);
    all.extend(arrays(place));
    all.extend(models(place));
    all.extend(texts(place));
    all.extend(own_files(place));
    all.extend(languages::all(place));
    all
}

pub fn target(name: &'static str, files: Vec<PathBuf>, open: impl Fn(&Path) -> Result<(), String> + 'static) -> Target {
    Target { name, files, damage: Damage::Bytes, open: Box::new(open) }
}

pub fn copied(place: &Place, from: &Path, to: &str) -> PathBuf {
    place.write(to, &std::fs::read(from).unwrap())
}

pub fn gray(place: &Place, name: &str, value: u8) -> PathBuf {
    let path = place.write(name, &[]);
    let format = if name.ends_with(".png") { image::ImageFormat::Png } else { image::ImageFormat::Bmp };
    image::RgbImage::from_pixel(4, 4, image::Rgb([value; 3])).save_with_format(&path, format).unwrap();
    path
}

/// A set of `[data.<key>]` in the folder `key`, with what is below it written by `make`, which returns the files to
/// damage.
pub fn set(place: &Place, key: &'static str, extra: &str, make: &Make) -> Target {
    let files = make(&|file| format!("{key}/{file}"));
    let text = format!("[data.{key}]\nroot = {:?}\n{extra}\n", place.path(key));
    target(key, files, move |_| checked(&text))
}

/// Reads all splits of a set, with every image.
fn checked(config: &str) -> Result<(), String> {
    let tree = Tree::parse("torture.toml", config).map_err(|problems| problems.to_string())?;
    let spec = DataSpec::alone(tree).map_err(|problems| problems.to_string())?;
    let scope = Scope { split: None, decoding: Decoding::All, extent: Extent::Part };
    let request = Request {
        image_size: 8,
        interpolation: Interpolation::Bicubic,
        crop_pct: 1.0,
        centre: Centre::Even,
        cache: None,
        memory_bytes: 0,
        keeps_corrupt: false,
        workers: 1,
        progress: &|_, _| (),
    };
    let faults = check(&*spec.dataset, &scope, &request).faults;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn data_sets(place: &Place) -> Vec<Target> {
    let data = |name: &str| fixture("data").join(name);
    let cifar = |first: u8| -> Vec<u8> {
        (0..3u8).flat_map(|i| std::iter::once(i).chain(std::iter::repeat_n(first + i, 3072))).collect()
    };
    vec![
        set(place, "list", "", &|at| {
            let images = files(&fixture("images"));
            let names: Vec<String> =
                images.iter().map(|path| path.file_name().unwrap().to_str().unwrap().into()).collect();
            images.iter().zip(&names).for_each(|(path, name)| drop(copied(place, path, &at(&format!("img/{name}")))));
            let rows: String = names.iter().enumerate().map(|(i, name)| format!("img/{name},{},a\n", i % 3)).collect();
            vec![place.write(&at("list.csv"), format!("path,label,group\n{rows}").as_bytes())]
        }),
        images(place),
        set(place, "webdataset", "train = \"a.tar\"\ntest = \"b{0..1}.tar\"\nlabel = \"json\"", &|at| {
            let tar = |name: &str, to: &str| copied(place, &data("webdataset/shards").join(name), &at(to));
            let classes = place.write(&at("classnames.txt"), b"cat\ndog\ntench, Tinca tinca\n");
            let [a, b, c] =
                [("train-000000.tar", "a.tar"), ("train-000000.tar", "b0.tar"), ("train-000001.tar", "b1.tar")]
                    .map(|(name, to)| tar(name, to));
            vec![a, b, c, classes]
        }),
        set(place, "parquet", "image = \"image\"\ngroup = \"group\"\ntest = \"snappy\"\nval = \"zstd\"", &|at| {
            let forms = [("gzip-dictionary", "train"), ("snappy-plain", "snappy"), ("zstd-dictionary", "zstd")];
            let table = |form: &str| data("parquet/forms").join(form).join("train.parquet");
            forms.map(|(form, to)| copied(place, &table(form), &at(&format!("{to}.parquet")))).into()
        }),
        set(place, "camelyon17", "", &|at| {
            let mut table = ",patient,node,x_coord,y_coord,tumor,slide,center,split\n".to_string();
            for (i, (center, split)) in [(0, 0), (3, 0), (4, 1), (1, 0), (2, 1)].iter().enumerate() {
                table += &format!("{i},004,4,{i},7,{},{i},{center},{split}\n", i % 2);
                let stem = "patient_004_node_4";
                gray(place, &at(&format!("camelyon17_v1.0/patches/{stem}/patch_{stem}_x_{i}_y_7.png")), i as u8);
            }
            vec![place.write(&at("camelyon17_v1.0/metadata.csv"), table.as_bytes())]
        }),
        set(place, "vtab", "task = \"kitti\"", &|at| {
            (0..4).for_each(|i| drop(gray(place, &at(&format!("kitti/images/{i}.png")), i)));
            let lists = ["train800val200.txt", "train800.txt", "val200.txt", "test.txt"];
            let list = |name: &&str| {
                place.write(&at(&format!("kitti/{name}")), b"images/0.png 3\nimages/1.png 0\nimages/3.png 2\n")
            };
            lists.iter().map(list).collect()
        }),
        set(place, "domainnet", "train = \"real\"\ntest = [\"sketch\"]", &|at| {
            ["real/zebra/b.png", "real/carrier/a.png", "sketch/zebra/e.png"].iter().enumerate().for_each(
                |(i, file)| {
                    gray(place, &at(file), i as u8);
                },
            );
            let list = |(name, text): (&str, &str)| place.write(&at(name), text.as_bytes());
            let real = "real/carrier/a.png 0\nreal/zebra/b.png 1\n";
            [("real_train.txt", real), ("real_test.txt", real), ("sketch_test.txt", "sketch/zebra/e.png 1\n")]
                .map(list)
                .into()
        }),
        set(place, "cifar100", "", &|at| {
            ["train", "test"]
                .map(|name| copied(place, &data("cifar100_train.pkl"), &at(&format!("cifar-100-python/{name}"))))
                .into()
        }),
        set(place, "cifar10", "batches = [1]", &|at| {
            vec![
                place.write(&at("cifar-10-batches-bin/data_batch_1.bin"), &cifar(10)),
                place.write(&at("cifar-10-batches-bin/test_batch.bin"), &cifar(20)),
                place.write(&at("cifar-10-batches-bin/batches.meta.txt"), b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"),
            ]
        }),
        set(place, "medmnist", "task = \"pathmnist\"", &|at| {
            vec![copied(place, &data("medmnist/pathmnist.npz"), &at("pathmnist.npz"))]
        }),
        set(place, "iwildcam", "", &|at| {
            let at = |file: &str| at(&format!("iwildcam_v2.0/{file}"));
            let mut table = "split,filename,y,location_remapped\n".to_string();
            for (i, part) in ["train", "val", "test"].iter().enumerate() {
                gray(place, &at(&format!("train/{i}.png")), i as u8);
                table += &format!("{part},{i}.png,{i},{i}\n");
            }
            vec![place.write(&at("metadata.csv"), table.as_bytes())]
        }),
        set(place, "svhn", "", &|at| {
            ["train_32x32.mat", "test_32x32.mat"].map(|name| copied(place, &data("svhn.mat"), &at(name))).into()
        }),
        set(place, "flowers102", "", &|at| {
            (1..=6).for_each(|i| drop(gray(place, &at(&format!("jpg/image_{i:05}.jpg")), i)));
            ["imagelabels.mat", "setid.mat"].map(|name| copied(place, &data(name), &at(name))).into()
        }),
        set(place, "imagenet", "ground_truth = \"truth.txt\"\nwords = \"names.txt\"", &|at| {
            let mut truth = String::new();
            for (i, wnid) in ["n01440764", "n02100735", "n02119789"].iter().enumerate() {
                gray(place, &at(&format!("train/{wnid}/{wnid}_1.JPEG")), i as u8);
                let image = format!("ILSVRC2012_val_{:08}.JPEG", i + 1);
                gray(place, &at(&format!("val/{image}")), i as u8);
                truth += &format!("{image} {wnid}\n");
            }
            vec![
                place.write(&at("truth.txt"), truth.as_bytes()),
                place.write(&at("names.txt"), b"n01440764 tench, Tinca tinca\nn02100735 setter\nn02119789 kit fox\n"),
            ]
        }),
        set(place, "tiny-imagenet", "", &|at| {
            let at = |file: &str| at(&format!("tiny-imagenet-200/{file}"));
            for (i, file) in
                ["train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG", "val/images/v.JPEG"].iter().enumerate()
            {
                gray(place, &at(file), i as u8);
            }
            vec![
                place.write(&at("val/val_annotations.txt"), b"v.JPEG\tn02\t0\t32\t44\t62\n"),
                place.write(&at("wnids.txt"), b"n02\nn01\n"),
                place.write(&at("words.txt"), b"n01\tgoldfish\nn02\ttailed frog\n"),
            ]
        }),
        set(place, "stl10", "", &|at| {
            let pixels: Vec<u8> = (0..2 * 27_648u32).map(|i| (i * 7 % 251) as u8).collect();
            let labels = |name: &str| place.write(&at(name), &[1, 3]);
            let all = [place.write(&at("train_X.bin"), &pixels), labels("train_y.bin"), labels("test_y.bin")];
            place.write(&at("test_X.bin"), &pixels);
            all.into()
        }),
    ]
}

/// One image of each format, in a set of its own.
fn images(place: &Place) -> Target {
    let originals = files(&fixture("images"));
    let copy = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        copied(place, path, &format!("images/{}/{name}", name.replace('.', "-")))
    };
    let paths: Vec<PathBuf> = originals.iter().map(copy).collect();
    for path in &paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        std::fs::write(path.with_file_name("list.csv"), format!("path,label\n{name},0\n")).unwrap();
    }
    target("images", paths, |path| checked(&format!("[data.list]\nroot = {:?}\n", path.parent().unwrap())))
}

fn arrays(place: &Place) -> Vec<Target> {
    let array = |shape: &str| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
        [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:117}\n").as_bytes(), &[3; 20]].concat()
    };
    let npy = place.write("arrays/a.npy", &array("(20,)"));
    let rows = place.write("arrays/rows.npy", &array("(5, 4)"));
    let mats = ["imagelabels.mat", "kinds.mat", "meta.mat", "setid.mat", "svhn.mat"];
    let mats = mats.map(|name| copied(place, &fixture("data").join(name), &format!("arrays/{name}"))).into();
    let said = |result: anyhow::Result<()>| result.map_err(|error| format!("{error:#}"));
    vec![
        target("npy labels", vec![npy], move |path| said(npy::integers(path, 20).map(drop))),
        target("npy rows", vec![rows], move |path| said(npy::byte_rows(path, &[5, 4], 1..4).map(drop))),
        target("mat", mats, move |path| said(mat::read(path).map(drop))),
    ]
}

fn models(place: &Place) -> Vec<Target> {
    let archives = ["openai_visual.pt", "timm_traced.pt", "timm_scripted.pt", "openai_clip_half.pt", "hostile.pt"];
    let archives = archives.map(|name| copied(place, &fixture(name), &format!("archives/{name}"))).into();
    let folders = ["hf-clip", "hf-vit", "open-clip", "timm-dinov3", "hf-dinov2-registers", "timm-siglip"];
    let mut parts = Vec::new();
    for folder in folders {
        for file in files(&fixture("folders").join(folder)) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if name != "reference.safetensors" {
                parts.push(copied(place, &file, &format!("folders/{folder}/{name}")));
            }
        }
    }
    let archive = Target { damage: Damage::Entries, ..target("TorchScript", archives, loaded) };
    let hidden = vec![copied(place, &fixture("hostile.pt"), "hidden/hostile.pt")];
    let hidden = Target { damage: Damage::Hidden, ..target("containers written in two ways", hidden, harmless) };
    let head = copied(place, &fixture("heads/head_tiny.safetensors"), "heads/head_tiny.safetensors");
    let with_head = |path: &Path| {
        let head = format!("[head.zero-shot]\nweights = {path:?}");
        model(&fixture("openai_visual.pt"), &head)
    };
    vec![
        archive,
        hidden,
        target("network folder", parts, |path| loaded(path.parent().unwrap())),
        target("head", vec![head], with_head),
    ]
}

/// Loads an archive by libtorch. The code in it would write a file into the current folder.
fn harmless(archive: &Path) -> Result<(), String> {
    let loaded = Archive::open(archive).and_then(|archive| archive.load().map(drop));
    assert!(std::fs::remove_file("hostile-was-here").is_err(), "the code of an archive wrote a file");
    loaded.map_err(|error| format!("{error:#}"))
}

fn loaded(checkpoint: &Path) -> Result<(), String> {
    model(checkpoint, "[head.linear]")
}

/// The experiment of a checkpoint, with more of its table, a head and a data set.
pub fn experiment(checkpoint: &Path, more: &str, head: &str, data: &str) -> Result<Experiment, String> {
    let text = format!("name = \"x\"\nseed = 1\n[checkpoint]\npath = {checkpoint:?}\n{more}\n{head}\n{data}\n");
    let tree = Tree::parse("torture.toml", &text).map_err(|problems| problems.to_string())?;
    Experiment::read(&tree).map_err(|problems| problems.to_string())
}

fn model(checkpoint: &Path, head: &str) -> Result<(), String> {
    let normalize = "normalize = { mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }";
    let experiment = experiment(checkpoint, normalize, head, "[data.digits]")?;
    let classes: Vec<String> = (0..10).map(|class| class.to_string()).collect();
    let loaded = Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, Device::Cpu);
    loaded.map(drop).map_err(|error| format!("{error:#}"))
}

fn texts(place: &Place) -> Vec<Target> {
    let mut configs = vec![place.write("configs/tiny.toml", tiny().as_bytes())];
    for name in ["cifar10", "camelyon17", "domainnet", "imagenet"] {
        configs.push(copied(place, &repository(&format!("configs/{name}.toml")), &format!("configs/{name}.toml")));
    }
    let read = |path: &Path| {
        let tree = load_config(&[path.to_path_buf()], &[]).map_err(|problems| problems.to_string())?;
        Experiment::read(&tree).map(drop).map_err(|problems| problems.to_string())
    };
    let mut tables_of = Vec::new();
    for name in ["clip-mini-flipped.csv", "clip-mini-cifar10-sweeps.csv", "idc-camelyon17.csv"] {
        tables_of.push(copied(place, &repository(&format!("results/measured/{name}")), &format!("csv-{name}/{name}")));
    }
    let reported = |path: &Path| {
        store::read(path).map(drop).map_err(|error| format!("{error:#}"))?;
        let sources = Sources::of_files(&[path.to_path_buf()]).map_err(|error| format!("{error:#}"))?;
        tables::all(&sources).map_err(|error| format!("{error:#}"))?;
        tables::seeds_csv(&sources).map(drop).map_err(|error| format!("{error:#}"))
    };
    vec![target("TOML", configs, read), target("results CSV", tables_of, reported)]
}

/// The files that bella writes, whole and without their hashes, so that damage reaches what lies behind it.
fn own_files(place: &Place) -> Vec<Target> {
    let run = SCENARIOS[0].prepare();
    finished(&SCENARIOS[0].command(&run).output().unwrap(), SCENARIOS[0].name);
    let mut own = Vec::new();
    for file in files(&run.run()) {
        let name = file.strip_prefix(run.run()).unwrap().display().to_string();
        if !["lock", "log.txt"].contains(&name.as_str()) {
            let id = run.run().file_name().unwrap().to_str().unwrap().to_string();
            own.push(copied(place, &file, &format!("run/runs/tiny/{id}/{name}")));
        }
    }
    let bare: Vec<PathBuf> = own.iter().filter(|path| is_tensors(path)).map(|path| without_hash(place, path)).collect();
    let folder = place.path("run");
    let opened = move |path: &Path| {
        let said = |error: anyhow::Error| format!("{error:#}");
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.contains('@') {
            return Predictions::open(path).map(drop).map_err(said);
        }
        if is_tensors(path) {
            State::read(path).map_err(said)?;
            return if name.contains("posterior") { Stored::read(path, Device::Cpu).map(drop) } else { Ok(()) }
                .map_err(said);
        }
        let run = RunFolder::find(&folder, None).map_err(said)?;
        Record::read(&run).map_err(said)?;
        let sources = Sources::open(&folder).map_err(said)?;
        if sources.problems.is_empty() { Ok(()) } else { Err(sources.problems.join("\n")) }
    };
    let opened = std::rc::Rc::new(opened);
    let again = opened.clone();
    vec![target("run", own, move |path| opened(path)), target("run without hashes", bare, move |path| again(path))]
}

fn is_tensors(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors")
}

fn without_hash(place: &Place, path: &Path) -> PathBuf {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let mut metadata = header.metadata().clone().unwrap_or_default();
    // A file that names its run must have a hash.
    metadata.remove("content_hash");
    metadata.remove("run");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let bare = safetensors::serialize(tensors.tensors(), Some(metadata)).unwrap();
    place.write(&format!("bare/{}", path.file_name().unwrap().to_str().unwrap()), &bare)
}
