//! CIFAR-100-C: the CIFAR-100 test images with fine labels under 19 corruptions at five severities. The checksums are
//! those of Zenodo record 3555552.

use crate::data::Entry;
use crate::data::read::cifar_c::{self, Published};
use crate::data::sets::cifar100;
use crate::hub::originals::{Original, Originals};

pub static ENTRY: Entry = Entry {
    key: "cifar100-c",
    about: "CIFAR-100-C, the published .npy files: 19 corruptions of the CIFAR-100 test images at 5 severities",
    fetch: "CIFAR-100-C.tar from https://zenodo.org/records/3555552, unpacked: ROOT/gaussian_noise.npy, …, ROOT/labels.npy",
    marks: &[],
    originals: Originals::Files {
        files: &[Original::new(
            "https://zenodo.org/record/3555552/files/CIFAR-100-C.tar",
            2_918_473_216,
            "30ee6543a1bfd049fa33834b7c1ada301e7064b7fbe8fc38340eb8b62ced4b33",
        )],
        terms: "Creative Commons Attribution 4.0 (Zenodo record 3555552)",
    },
    hub: None,
    read: |reader| Box::new(cifar_c::read(&PUBLISHED, reader)),
    sample: Some(|reader| Box::new(cifar_c::read(&PUBLISHED, reader))),
};

pub static PUBLISHED: Published = Published {
    key: "cifar100-c",
    folder: "CIFAR-100-C",
    clean: "cifar100",
    classes: &cifar100::FINE,
    sums: &[
        ("brightness", "f22d7195aecd6abb541e27fca230c171"),
        ("contrast", "322bb385f1d05154ee197ca16535f71e"),
        ("defocus_blur", "d923e3d9c585a27f0956e2f2ad832564"),
        ("elastic_transform", "a0792bd6581f6810878be71acedfc65a"),
        ("fog", "4efc7ebd5e82b028bdbe13048e3ea564"),
        ("frost", "3a39c6823bdfaa0bf8b12fe7004b8117"),
        ("gaussian_blur", "5204ba0d557839772ef5a4196a052c3e"),
        ("gaussian_noise", "ecc4d366eac432bdf25c024086f5e97d"),
        ("glass_blur", "0bf384f38e5ccbf8dd479d9059b913e1"),
        ("impulse_noise", "3b3c210ddfa0b5cb918ff4537a429fef"),
        ("jpeg_compression", "c851b7f1324e1d2ffddeb76920576d11"),
        ("labels", "bb4026e9ce52996b95f439544568cdb2"),
        ("motion_blur", "732a7e2e54152ff97c742d4c388c5516"),
        ("pixelate", "96c00c60f144539e14cffb02ddbd0640"),
        ("saturate", "c0697e9fdd646916a61e9c312c77bf6b"),
        ("shot_noise", "b0a1fa6e1e465a747c1b204b1914048a"),
        ("snow", "0237be164583af146b7b144e73b43465"),
        ("spatter", "12ccf41d62564d36e1f6a6ada5022728"),
        ("speckle_noise", "e3f215b1a0f9fd9fd6f0d1cf94a7ce99"),
        ("zoom_blur", "0204613400c034a81c4830d5df81cb82"),
    ],
};
