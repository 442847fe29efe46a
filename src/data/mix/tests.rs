use tch::Device;

use super::*;
use crate::schema::Tree;

const SIDE: i64 = 12;

fn read(keys: &str) -> Result<Mixup, String> {
    let sets: Vec<String> = keys.split_whitespace().map(|key| format!("mixup.{key}")).collect();
    let tree = Tree::load(&[], &sets, &[]).map_err(|problems| problems.to_string())?;
    let root = Reader::root(&tree);
    let mixup = root.table_if_given("mixup", Mixup::read);
    root.close(mixup).map(|mixup| mixup.expect("a table")).map_err(|problems| problems.to_string())
}

/// Numbers that are handed out in turn, again from the start when they are used up.
#[derive(Default)]
struct Given {
    uniform: usize,
    beta: usize,
    place: usize,
}

fn next(at: &mut usize, values: &[f64]) -> f64 {
    *at += 1;
    values[(*at - 1) % values.len()]
}

impl Draws for Given {
    fn uniform(&mut self) -> f64 {
        next(&mut self.uniform, &[0.31, 0.87, 0.05, 0.62, 0.44, 0.93, 0.18, 0.71])
    }

    fn beta(&mut self, _: f64) -> f64 {
        next(&mut self.beta, &[0.83, 0.27, 0.55, 0.91, 0.12, 0.68])
    }

    fn below(&mut self, bound: i64) -> i64 {
        (next(&mut self.place, &[0.4, 0.9, 0.15, 0.65, 0.05]) * bound as f64) as i64
    }
}

/// A number of images, `[1, B, 3, S, S]`, as the script makes them.
fn images(count: i64) -> Tensor {
    let places = Tensor::arange(count * 3 * SIDE * SIDE, (Kind::Double, Device::Cpu));
    let images = (places * 37.0).fmod(101.0) / 101.0 - 0.3;
    images.to_kind(Kind::Float).view([1, count, 3, SIDE, SIDE])
}

/// Mixes each image with its partner.
fn apply(images: &Tensor, mixes: &[Mix]) -> Tensor {
    let numbers: Vec<f32> = mixes.iter().flat_map(|mix| mix.numbers()).collect();
    let numbers = Tensor::from_slice(&numbers).view([1, -1, 6]);
    let (own, partners) = (Fields::of(PIXELS, images.shallow_clone()), Fields::of(PIXELS, images.flip([1])));
    Mixed { own, partners, mixes: numbers.narrow(2, 1, 5) }.prepared(Fields::again).only()
}

/// Two sums of the pixels of an image, with weights.
fn sums(image: &Tensor) -> [f64; 2] {
    let places = Tensor::arange(image.numel() as i64, (Kind::Double, Device::Cpu));
    let of =
        |weights: Tensor| (image.to_kind(Kind::Double).flatten(0, -1) * weights).sum(Kind::Double).double_value(&[]);
    [of(places.fmod(7.0) + 1.0), of(places.cos())]
}

type Golden = (&'static str, [f64; 4], [[f64; 2]; 4]);

const PLAIN: [[f64; 2]; 4] = [
    [335.5752482067328, -0.023739344182132027],
    [332.1198026225902, -1.7719883378424375],
    [334.66435714578256, 2.252050013290995],
    [336.20891135791317, -2.786424447331452],
];

const CUT: [[f64; 2]; 4] = [
    [332.8524760126602, -1.169280514846394],
    [329.545545267174, -2.224571531103976],
    [337.23861450119875, 2.7046332065525354],
    [338.93168355198577, -1.640883276667191],
];

// scripts/make_mixup_goldens.py, timm 1.0.31
const GOLDENS: [Golden; 9] = [
    (
        "alpha=0.8",
        [0.83; 4],
        [
            [335.6829657033086, -0.49339612450980624],
            [332.5523716248572, -1.087901254651765],
            [334.2317786049098, 1.5679629360822536],
            [336.10118313506246, -2.31676729335027],
        ],
    ),
    ("alpha=0 cutmix_alpha=1", [8.0 / 9.0; 4], CUT),
    ("alpha=0.8 cutmix_alpha=1 switch_prob=0.9", [8.0 / 9.0; 4], CUT),
    ("alpha=0.8 prob=0.2", [1.0; 4], PLAIN),
    (
        "alpha=0 cutmix_minmax=[0.2,0.8]",
        [7.0 / 9.0; 4],
        [
            [333.67425781534985, -0.9211907878978423],
            [341.48613904742524, -0.8668971009679771],
            [325.29802072094753, 1.3469587764165358],
            [338.1099017492961, -1.8889730036157424],
        ],
    ),
    (
        "alpha=0.8 cutmix_alpha=1 mode='pair' switch_prob=0.5 prob=0.9",
        [8.0 / 9.0, 0.91, 0.91, 8.0 / 9.0],
        [CUT[0], [332.3488209899515, -1.4098251438544924], [334.4353606412187, 1.8898868401677273], CUT[3]],
    ),
    (
        "alpha=0.8 cutmix_alpha=1 mode='elem' switch_prob=0.6 prob=0.6",
        [8.0 / 9.0, 1.0, 13.0 / 18.0, 1.0],
        [CUT[0], PLAIN[1], [321.10000120615587, 2.329095487260287], PLAIN[3]],
    ),
    (
        "alpha=0 cutmix_minmax=[0.3,0.9] mode='elem'",
        [0.6875, 0.8958333134651184, 0.8541666865348816, 29.0 / 36.0],
        [
            [337.7435641377233, -0.9348544703409085],
            [342.7138619089965, -1.1308410390986459],
            [336.7930696599651, 2.0808114705501337],
            [343.723763454007, -2.4050731775457237],
        ],
    ),
    (
        "alpha=0 cutmix_alpha=1 mode='elem'",
        [8.0 / 9.0, 0.5833333134651184, 7.0 / 9.0, 0.9375],
        [
            CUT[0],
            [332.1792082802858, -1.1809058707166835],
            [329.58514962904155, 0.9691131136503122],
            [334.1198025243357, -2.175141882841549],
        ],
    ),
];

#[test]
fn images_are_mixed_as_by_timm() {
    for (keys, shares, expected) in GOLDENS {
        let mixes = read(keys).unwrap().drawn(&mut Given::default(), 4, SIDE);
        let mixed = apply(&images(4), &mixes);
        for (i, (mix, share)) in mixes.iter().zip(shares).enumerate() {
            assert!((mix.share - share).abs() < 1e-7, "{keys}: {} {share}", mix.share);
            for (found, expected) in sums(&mixed.get(0).get(i as i64)).into_iter().zip(expected[i]) {
                assert!((found - expected).abs() < 2e-5, "{keys}, image {i}: {found} {expected}");
            }
        }
    }
}

#[test]
fn a_mix_of_nothing_changes_no_bit_and_odd_batches_keep_their_middle() {
    let mixup = read("alpha=0.4 cutmix_alpha=1 mode='pair'").unwrap();
    let mixes = mixup.mixes(1, [0, 3, 2], (5, SIDE));
    assert_eq!((mixes[2], mixes[0], mixes[1]), (Mix::NONE, mixes[4], mixes[3]));
    assert_eq!(apply(&images(5), &mixes).get(0).get(2), images(5).get(0).get(2));
    assert_eq!(apply(&images(3), &[Mix::NONE; 3]), images(3));
    // In half precision images keep their type.
    assert_eq!(apply(&images(3).to_kind(Kind::BFloat16), &mixes[..3]).kind(), Kind::BFloat16);
}

#[test]
fn mixes_depend_on_seed_epoch_step_and_particle_alone() {
    let mixup = read("alpha=0.4 cutmix_alpha=1 mode='elem'").unwrap();
    let of = |seed, at| mixup.mixes(seed, at, (6, SIDE));
    assert_eq!(of(1, [0, 0, 0]), of(1, [0, 0, 0]));
    for (seed, at) in [(2, [0, 0, 0]), (1, [1, 0, 0]), (1, [0, 1, 0]), (1, [0, 0, 1])] {
        assert_ne!(of(seed, at), of(1, [0, 0, 0]));
    }
    // Half of 4000 mixes are cuts, and one in four of those of a batch with prob = 0.75 is none.
    let cuts = |mixes: &[Mix]| mixes.iter().filter(|mix| mix.bounds != [0; 4]).count();
    let many = mixup.mixes(1, [0, 0, 0], (4000, 224));
    assert!((1850..2150).contains(&cuts(&many)), "{}", cuts(&many));
    let mean = many.iter().map(|mix| mix.share).sum::<f64>() / 4000.0;
    assert!((0.5..0.62).contains(&mean), "boxes are cut off at the border: {mean}");
    let some = read("prob=0.75").unwrap();
    let plain = (0..1000).filter(|step| some.mixes(1, [0, *step, 0], (2, 8))[0] == Mix::NONE).count();
    assert!((180..320).contains(&plain), "{plain}");
}

#[test]
fn mistakes_are_named() {
    for (keys, expected) in [
        ("alpha=0", "nothing would be mixed"),
        ("prob=0", "nothing would be mixed"),
        ("cutmix_alpha=1 cutmix_minmax=[0.2,0.8]", "beside cutmix_minmax"),
        ("cutmix_minmax=[0.8,0.2]", "the smaller one first"),
        ("cutmix_minmax=[0.2]", "two numbers"),
        ("switch_prob=0.3", "unless both"),
        ("prob=1.5", "prob"),
        ("mode='half'", "mode"),
        ("beta=1", "beta"),
    ] {
        let error = read(keys).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
}
