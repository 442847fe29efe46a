//! CIFAR-10-C: the CIFAR-10 test images under 19 corruptions at five severities. The checksums are those of Zenodo
//! record 2535967.

use crate::data::Entry;
use crate::data::read::cifar_c::{self, Published};
use crate::data::sets::cifar10;
use crate::hub::originals::{Original, Originals};

pub static ENTRY: Entry = Entry {
    key: "cifar10-c",
    about: "CIFAR-10-C, the published .npy files: 19 corruptions of the CIFAR-10 test images at 5 severities",
    fetch: "CIFAR-10-C.tar from https://zenodo.org/records/2535967, unpacked: ROOT/gaussian_noise.npy, …, ROOT/labels.npy",
    marks: &[],
    originals: Originals::Files {
        files: &[Original::new(
            "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
            2_918_471_680,
            "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
        )],
        terms: "Creative Commons Attribution 4.0 (Zenodo record 2535967)",
    },
    hub: None,
    read: |reader| Box::new(cifar_c::read(&PUBLISHED, reader)),
    sample: Some(|reader| Box::new(cifar_c::read(&PUBLISHED, reader))),
};

pub static PUBLISHED: Published = Published {
    key: "cifar10-c",
    folder: "CIFAR-10-C",
    clean: "cifar10",
    classes: &cifar10::CLASSES,
    sums: &[
        ("brightness", "0a81ef75e0b523c3383219c330a85d48"),
        ("contrast", "3c8262171c51307f916c30a3308235a8"),
        ("defocus_blur", "7d1322666342a0702b1957e92f6254bc"),
        ("elastic_transform", "9421657c6cd452429cf6ce96cc412b5f"),
        ("fog", "7b397314b5670f825465fbcd1f6e9ccd"),
        ("frost", "31f6ab3bce1d9934abfb0cc13656f141"),
        ("gaussian_blur", "c33370155bc9b055fb4a89113d3c559d"),
        ("gaussian_noise", "ecaf8b9a2399ffeda7680934c33405fd"),
        ("glass_blur", "7361fb4019269e02dbf6925f083e8629"),
        ("impulse_noise", "2090e01c83519ec51427e65116af6b1a"),
        ("jpeg_compression", "2b9cc4c864e0193bb64db8d7728f8187"),
        ("labels", "c439b113295ed5254878798ffe28fd54"),
        ("motion_blur", "fffa5f852ff7ad299cfe8a7643f090f4"),
        ("pixelate", "0f14f7e2db14288304e1de10df16832f"),
        ("saturate", "1cfae0964219c5102abbb883e538cc56"),
        ("shot_noise", "3a7239bb118894f013d9bf1984be7f11"),
        ("snow", "bb238de8555123da9c282dea23bd6e55"),
        ("spatter", "8a5a3903a7f8f65b59501a6093b4311e"),
        ("speckle_noise", "ef00b87611792b00df09c0b0237a1e30"),
        ("zoom_blur", "6ea8e63f1c5cdee1517533840641641b"),
    ],
};
