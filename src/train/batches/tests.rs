use tch::{Device, Kind};

use super::*;
use crate::data::batches::SampleSet;
use crate::data::fields::PIXELS;
use crate::data::order::Holdout;
use crate::experiment::Experiment;
use crate::schema::Tree;

const PARTICLES: usize = 3;
const SIDE: i64 = 6;

fn experiment(keys: &str) -> Experiment {
    let text = format!(
        "name = \"mixed\"\nseed = 3\n[checkpoint]\npath = \"{}/assets/vit-digits.pt\"\nnormalize = \"clip\"\n[head.checkpoint]\n[data.digits]\n\
         [subspace.low-rank]\nrank = 2\n[method.ensemble]\nparticles = {PARTICLES}\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\n{keys}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    Experiment::read(&Tree::parse("mixed.toml", &text).unwrap()).map_err(|problems| problems.to_string()).unwrap()
}

fn material() -> Material {
    let bytes = (Tensor::arange(23 * 3 * SIDE * SIDE, (Kind::Int64, Device::Cpu)) * 41).remainder(251);
    let pixels = Fields::of(PIXELS, bytes.to_kind(Kind::Uint8).view([23, 3, SIDE, SIDE]));
    let train = SampleSet::resident(&pixels, (0..23).map(|i| i * 7 % 10).collect(), Device::Cpu);
    Material::of(train, Holdout { train: (1..23).collect(), validation: Vec::new() }, String::new())
}

/// The mixed images `[p, b, 3, S, S]` and the labels `[p, b, 3]` of each batch of a process.
fn served(spec: &TrainSpec, material: &Material, share: &Shard) -> Vec<[Tensor; 2]> {
    let batches = Batches { spec, seed: 3, material, share, side: SIDE, prefix: None };
    let all = batches.left_in_epoch(&Progress::new(PARTICLES as i64, 0, Device::Cpu));
    let one = |batch: Result<TrainBatch>| {
        let TrainBatch { input, labels, .. } = batch.unwrap();
        let Input::Mixed(mixed) = input else { panic!("images are mixed") };
        let float = |stored: &Fields| stored.map(|bytes| bytes.to_kind(Kind::Float));
        [mixed.prepared(float).only(), labels]
    };
    all.map(one).collect()
}

/// What several processes mix is what one process mixes, however the batch is cut, for own and for shared orders of the images.
#[test]
fn processes_mix_what_one_mixes() {
    let material = material();
    for keys in ["", "accumulate = 2", "batches = \"shared\""] {
        let keys = format!("batch_size = 8\n{keys}\n[train.mixup]\nalpha = 0.8\ncutmix_alpha = 1.0\nmode = \"elem\"");
        let experiment = experiment(&keys);
        let spec = &experiment.training.as_ref().unwrap().train;
        let whole = served(spec, &material, &Shard::whole(PARTICLES));
        assert_eq!((whole.len(), whole[2][0].size()[1]), (3, 6), "the last batch is smaller");
        let plain = |batch: &[Tensor; 2]| batch[1].select(2, 2).eq(1.0).all().int64_value(&[]) == 1;
        assert!(!whole.iter().any(plain), "images are mixed");
        let orders = whole[0][0].size()[0];
        if orders > 1 {
            assert_ne!(
                whole[0][1].get(0).select(1, 2),
                whole[0][1].get(1).select(1, 2),
                "each order has its own mixes"
            );
        }
        for processes in [2, 5, 40] {
            for rank in 0..processes {
                let share = Shard::new(PARTICLES, rank, processes);
                for (found, all) in served(spec, &material, &share).iter().zip(&whole) {
                    let size = all[0].size()[1] as usize;
                    let own: Vec<i64> =
                        Passes::of(spec).samples(&share, size).into_iter().flatten().map(|i| i as i64).collect();
                    for (found, all) in found.iter().zip(all) {
                        let rows = if orders == 1 { 0..1 } else { share.rows.clone() };
                        let expected = all.narrow(0, rows.start as i64, rows.len() as i64);
                        assert_eq!(
                            *found,
                            expected.index_select(1, &Tensor::from_slice(&own)),
                            "{keys}, {rank} of {processes}"
                        );
                    }
                }
            }
        }
    }
}

/// The rows of each run stand in its place, those that share a batch once for each particle; a batch of all rows stays shared.
#[test]
fn batches_of_several_runs_stand_one_after_the_other() {
    let batch = |first: i64, orders: i64| {
        let labels = Tensor::arange(2 * orders, (Kind::Int64, Device::Cpu)).view([orders, 2]) + first;
        let pixels = Fields::of(PIXELS, labels.unsqueeze(2) * 10);
        let scale = Tensor::arange(orders, (Kind::Float, Device::Cpu)) + first as f64;
        TrainBatch { input: Input::Stored(pixels), labels, scale: Some(scale), size: 2 }
    };
    let (shared, other, own) = (batch(0, 1), batch(50, 1), batch(100, 2));
    let numbers = |labels: &Tensor| Vec::<i64>::try_from(labels.reshape([-1])).unwrap();
    let check = |all: &[&TrainBatch], expected: &[i64], scales: &[f32]| {
        let TrainBatch { input: Input::Stored(pixels), labels, scale, size } = TrainBatch::joined(all, 2) else {
            panic!("stored samples stay stored")
        };
        assert_eq!((numbers(&labels), size), (expected.to_vec(), 2));
        assert_eq!(numbers(pixels.first()), expected.iter().map(|label| label * 10).collect::<Vec<_>>());
        assert_eq!(Vec::<f32>::try_from(scale.unwrap()).unwrap(), scales);
    };
    check(&[&shared, &shared], &[0, 1], &[0.0]);
    check(&[&shared, &other], &[0, 1, 0, 1, 50, 51, 50, 51], &[0.0, 0.0, 50.0, 50.0]);
    check(
        &[&own, &shared, &own],
        &[100, 101, 102, 103, 0, 1, 0, 1, 100, 101, 102, 103],
        &[100.0, 101.0, 0.0, 0.0, 100.0, 101.0],
    );
}

/// An image that balanced batches draw again in an epoch is seen in another random view.
#[test]
fn an_image_that_is_drawn_again_has_another_view() {
    let (material, experiment) = (material(), experiment("batch_size = 8\nsampling = \"balanced\""));
    let (spec, share) = (&experiment.training.as_ref().unwrap().train, Shard::whole(PARTICLES));
    let batches = Batches { spec, seed: 3, material: &material, share: &share, side: SIDE, prefix: None };
    let views = |steps| {
        let of = |Planned { indices, draws, .. }: Planned| {
            let size = indices.len();
            let seen = indices.into_iter().zip(draws).enumerate();
            seen.map(|(position, (image, draw))| (position * PARTICLES / size, image, draw)).collect::<Vec<_>>()
        };
        batches.plan(1, steps).into_iter().flat_map(of).collect::<Vec<_>>()
    };
    let all = views(0..3);
    assert!(all.iter().filter(|(_, _, draw)| *draw > 0).count() > 5, "few images come twice: {all:?}");
    assert!(all.iter().enumerate().all(|(place, view)| !all[..place].contains(view)), "one view comes twice: {all:?}");
    // Where an epoch goes on in the middle, its views are the same.
    let [first, rest] = [views(0..1), views(1..3)];
    assert_eq!([first, rest].concat(), all);
}
